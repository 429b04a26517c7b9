"""An engine without a model: each token is a function of all tokens before it, read back through the block table."""

from typing import Any
from zlib import crc32

from solutions.block_pool import BlockPool
from solutions.block_table import BlockTable, slot_mapping

answer: Any = None  # the module under judgement, which the judge puts here


class TinyEngine:
    """A scheduler, a pool, and a KV memory that holds one token a slot."""

    def __init__(self, num_blocks: int, block_size: int, max_step_tokens: int) -> None:
        self._pool = BlockPool(num_blocks)
        self._block_size = block_size
        self._scheduler = answer.Scheduler(self._pool, max_step_tokens)
        self._memory = [0] * (num_blocks * block_size)

    @property
    def num_free(self) -> int:
        return self._pool.num_free

    def add(self, prompt: list[int], max_new_tokens: int) -> Any:
        """Queue a request and return its sequence."""
        table = BlockTable(self._pool, self._block_size)
        sequence = answer.Sequence(table, prompt, len(prompt), max_new_tokens)
        self._scheduler.add(sequence)
        return sequence

    def step(self) -> list[Any]:
        """Plan a step, compute it, hand each sequence its token, and return the batch."""
        batch = self._scheduler.schedule().batch
        for sequence, num_new, context_len, _ in batch:
            slots = slot_mapping(sequence.table.blocks, self._block_size, context_len, num_new)
            for slot, token in zip(slots, sequence.tokens[context_len - num_new :], strict=False):
                self._memory[slot] = token
        for sequence, _, context_len, samples in batch:
            if samples:
                slots = slot_mapping(sequence.table.blocks, self._block_size, context_len, context_len)
                sequence.take(crc32(bytes(self._memory[slot] for slot in slots)) % 50 or None)
        return list(batch)
