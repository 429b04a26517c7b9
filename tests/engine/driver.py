"""Drives a scheduler without a model: the next token is a function of all tokens before it."""

from __future__ import annotations

import random
import zlib
from typing import Any

from solutions import block_pool, block_table, scheduler

EOS = 0
VOCABULARY = 50


def next_token(tokens: list[int]) -> int:
    """A model: deterministic, and another token for every other history. About one in fifty is EOS."""
    return zlib.crc32(bytes(tokens)) % VOCABULARY


def solo(prompt: list[int], max_new_tokens: int) -> list[int]:
    """What a request generates when it runs alone."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < max_new_tokens and (token := next_token(tokens)) != EOS:
        tokens.append(token)
    return tokens[len(prompt) :]


class Driver:
    """A scheduler, a pool, and a simulated KV memory that holds one token number a slot.

    Each computed token is written to its slot, and before a sequence samples its whole context is read back through its
    table: a wrong slot, a lost block or a missing copy shows as a wrong token.
    """

    def __init__(self, num_blocks: int, block_size: int = 4, module: Any = scheduler, **options: Any) -> None:
        self.module = module
        self.pool = block_pool.BlockPool(num_blocks)
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.scheduler = module.Scheduler(self.pool, **options)
        self.memory: dict[int, int] = {}
        self.sequences: list[Any] = []

    def add(self, prompt: list[int], max_new_tokens: int) -> Any:
        table = block_table.BlockTable(self.pool, self.block_size)
        sequence = self.module.Sequence(table, list(prompt), len(prompt), max_new_tokens)
        self.scheduler.add(sequence)
        self.sequences.append(sequence)
        return sequence

    def abort(self, sequence: Any) -> None:
        sequence.ended = True
        self.scheduler.free_finished()

    def step(self) -> Any:
        """Plan a step, compute it, read its tokens, and check every invariant."""
        step = self.scheduler.schedule()
        for source, target in step.copies:
            for offset in range(self.block_size):
                self.memory[target * self.block_size + offset] = self.memory.get(source * self.block_size + offset, -1)
        sampled = []
        for each in step.batch:
            sampled += self._compute(each)
        for sequence, token in sampled:
            sequence.take(None if token == EOS else token)
        self.scheduler.free_finished()
        self.check(step)
        return step

    def _compute(self, each: Any) -> list[tuple[Any, int]]:
        sequence, blocks = each.sequence, each.sequence.table.blocks
        new = range(each.context_len - each.num_new, each.context_len)
        slots = block_table.slot_mapping(blocks, self.block_size, each.context_len, each.num_new)
        for position, slot in zip(new, slots, strict=True):
            self.memory[slot] = sequence.tokens[position]
        if not each.samples:
            return []
        everything = block_table.slot_mapping(blocks, self.block_size, each.context_len, each.context_len)
        return [(sequence, next_token([self.memory[slot] for slot in everything]))]

    def check(self, step: Any) -> None:
        """Assert what must hold between any two steps."""
        running, waiting = self.scheduler.running, list(self.scheduler.waiting)
        assert len({id(each) for each in running + waiting}) == len(running) + len(waiting), (
            "a sequence is twice in a queue"
        )
        live = {id(each) for each in running + waiting}
        for sequence in self.sequences:
            assert (id(sequence) in live) != sequence.is_finished, "a sequence is lost, or finished and still queued"
        owners = [0] * self.num_blocks
        for sequence in self.sequences:
            for block in sequence.table.blocks:
                owners[block] += 1
        assert [self.pool.ref_count(block) for block in range(self.num_blocks)] == owners, "counts are not the owners"
        assert self.pool.num_free == owners.count(0), "free + owned is not the pool"
        assert all(sequence.num_computed == 0 for sequence in waiting), "a waiting sequence owns blocks"
        assert all(each.num_uncomputed >= 0 for each in running)
        assert step.num_tokens == sum(each.num_new for each in step.batch) <= self.scheduler.max_step_tokens
        assert len(running) <= self.scheduler.max_running
        self.sequences = [each for each in self.sequences if not each.is_finished]


def random_history(seed: int, num_steps: int, module: Any = scheduler) -> int:
    """Play a random history of adding, stepping and aborting; return how many requests ended, all as if alone."""
    rng = random.Random(seed)
    block_size = rng.choice([1, 2, 4, 16])
    num_blocks = rng.randint(6, 30)
    driver = Driver(
        num_blocks,
        block_size,
        module,
        max_step_tokens=rng.choice([3, 8, 64]),
        max_running=rng.choice([2, 4, 100]),
    )
    finished = 0
    open_requests: list[tuple[Any, list[int], int]] = []
    for _ in range(num_steps):
        if rng.random() < 0.4 and len(open_requests) < 12:
            prompt = [rng.randrange(1, VOCABULARY) for _ in range(rng.randint(1, 2 * block_size + 3))]
            max_new_tokens = rng.randint(1, 12)
            if -(-(len(prompt) + max_new_tokens - 1) // block_size) <= num_blocks:
                open_requests.append((driver.add(prompt, max_new_tokens), prompt, max_new_tokens))
        if open_requests and rng.random() < 0.02:
            driver.abort(open_requests.pop(rng.randrange(len(open_requests)))[0])
        driver.step()
        still_open = []
        for request in open_requests:
            sequence, prompt, max_new_tokens = request
            if not sequence.is_finished:
                still_open.append(request)
                continue
            assert sequence.tokens[len(prompt) :] == solo(prompt, max_new_tokens), f"seed {seed}: not as if alone"
            finished += 1
        open_requests = still_open
    return finished
