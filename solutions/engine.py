"""The engine: takes requests, plans steps, runs the model, and hands out tokens as they come.

This module only wires the parts. Which part does what is decided by `Parts`, so that any of them can be another's: the
learner's, or a faster one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Sequence as Ints
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch

from solutions.batch import Row, build_batch
from solutions.block_pool import BlockPool
from solutions.block_table import BlockTable, slot_mapping
from solutions.gpt2 import GPT2
from solutions.kv_cache import KVCache
from solutions.scheduler import Scheduler, Sequence, Step
from solutions.weights import GPT2Config, Weights


@dataclass(frozen=True)
class Parts:
    """What an engine is made of. The defaults are the reference; `write_kv` and `attend` default by device."""

    block_pool: type = BlockPool
    block_table: type = BlockTable
    slot_mapping: Callable[..., list[int]] = slot_mapping
    sequence: type = Sequence
    scheduler: type = Scheduler
    model: type = GPT2
    write_kv: Callable[..., None] | None = None
    attend: Callable[..., torch.Tensor] | None = None


class Tokenizer(Protocol):
    """Turns text into token numbers and back."""

    eos_token_id: int | None

    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: list[int]) -> str: ...


class Output(NamedTuple):
    """News of one request: its new tokens, perhaps none, and why it ended ("eos", "length"), or None."""

    request: int
    tokens: list[int]
    finished: str | None


class _Request(NamedTuple):
    number: int
    sequence: Sequence
    eos_token: int | None


class Engine:
    """Greedy generation for many requests at once, over one pool of KV blocks.

    `num_blocks` defaults to what fits into `memory_share` of the device's free memory, and at most to what
    `max_running` sequences of full length could use. Requests may be added and aborted between any two steps.
    """

    def __init__(
        self,
        config: GPT2Config,
        weights: Weights,
        tokenizer: Tokenizer | None = None,
        *,
        block_size: int = 16,
        num_blocks: int | None = None,
        kv_dtype: torch.dtype | None = None,
        memory_share: float = 0.9,
        max_step_tokens: int = 4096,
        max_running: int = 256,
        parts: Parts | None = None,
    ) -> None:
        parts = parts or Parts()
        self.config = config
        self.tokenizer = tokenizer
        self.device = weights.wte.device
        self.block_size = block_size
        shape = (config.n_layer, block_size, config.n_head, config.head_dim, kv_dtype or weights.wte.dtype)
        if num_blocks is None:
            bytes_per_block = KVCache.bytes_per_block(*shape)
            num_blocks = _default_num_blocks(self.device, bytes_per_block, memory_share)
            num_blocks = min(num_blocks, max_running * -(-config.n_positions // block_size))
        self.cache = KVCache(shape[0], num_blocks, *shape[1:], device=self.device)
        self.pool = parts.block_pool(num_blocks)
        self.scheduler = parts.scheduler(self.pool, max_step_tokens=max_step_tokens, max_running=max_running)
        default_write, default_attend = _kernels(self.device)
        self.model = parts.model(config, weights, parts.write_kv or default_write, parts.attend or default_attend)
        self.parts = parts
        self.caches = [self.cache.layer(index) for index in range(config.n_layer)]
        self._open: dict[int, _Request] = {}
        self._requests: dict[int, _Request] = {}  # the same, by the identity of their sequence
        self._num_requests = 0

    def describe(self) -> str:
        """Return one line about the KV cache: what it holds and the bytes it takes, all of them from the start."""
        return (
            f"KV cache: {self.cache.num_blocks} blocks of {self.block_size} tokens, {self.config.n_layer} layers, "
            f"{str(self.cache.dtype).removeprefix('torch.')}: {self.cache.num_bytes:,} bytes on {self.device}"
        )

    def add(self, prompt: str | Ints[int], max_new_tokens: int, eos_token: int | None = None) -> int:
        """Queue a request and return its number.

        `ValueError`, with nothing changed, when the prompt is empty, longer than the model's context allows, holds a
        token that the vocabulary has not, or can never fit into the pool. `eos_token` ends the sequence and is not
        among its tokens; None means that only the length ends it.
        """
        tokens = self._tokens_of(prompt)
        if max_new_tokens < 1:
            raise ValueError(f"a request for {max_new_tokens} new tokens asks for nothing")
        if len(tokens) + max_new_tokens > self.config.n_positions:
            raise ValueError(
                f"a prompt of {len(tokens)} tokens and {max_new_tokens} new ones are more than the model's "
                f"{self.config.n_positions} positions"
            )
        sequence = self.parts.sequence(self.new_table(), tokens, len(tokens), max_new_tokens)
        self.scheduler.add(sequence)
        request = _Request(self._num_requests, sequence, eos_token)
        self._num_requests += 1
        self._open[request.number] = self._requests[id(sequence)] = request
        return request.number

    def abort(self, request: int) -> None:
        """End a request now; its blocks are free before the next step. Ended and unknown requests are left alone."""
        found = self._open.get(request)
        if found is not None:
            found.sequence.ended = True
            self._forget(found)
            self.scheduler.free_finished()

    def new_table(self) -> BlockTable:
        """Return an empty block table over the engine's pool."""
        table: BlockTable = self.parts.block_table(self.pool, self.block_size)
        return table

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.scheduler.has_work)

    def step(self) -> list[Output]:
        """Run one step over all requests and return what is new."""
        step: Step = self.scheduler.schedule()
        self.cache.copy_blocks(step.copies)
        return self.run(step) if step.batch else []

    def run(self, step: Step) -> list[Output]:
        """Compute a step that is planned, and return what is new."""
        batch = build_batch(rows_of(step), self.block_size, self.parts.slot_mapping, self.device)
        with torch.inference_mode():
            sampled = self.model.next_tokens(batch, self.caches).tolist()
        outputs = self.take(step, [[token] for token in sampled])
        self.scheduler.free_finished()
        return outputs

    def stream(
        self, prompts: Ints[str | Ints[int]], max_new_tokens: int, eos_token: int | None = None
    ) -> Iterator[Output]:
        """Add the prompts and yield their tokens as they come, until all have ended. `request` counts from 0 here."""
        numbers = {self.add(prompt, max_new_tokens, eos_token): index for index, prompt in enumerate(prompts)}
        open_requests = set(numbers)
        try:
            while open_requests:
                for request, tokens, finished in self.step():
                    if request in numbers:
                        if finished:
                            open_requests.discard(request)
                        yield Output(numbers[request], tokens, finished)
        finally:  # the caller may stop listening
            for number in open_requests:
                self.abort(number)

    def generate(
        self, prompts: Ints[str | Ints[int]], max_new_tokens: int, eos_token: int | None = None
    ) -> list[list[int]]:
        """Return the new tokens of each prompt."""
        results: list[list[int]] = [[] for _ in prompts]
        for output in self.stream(prompts, max_new_tokens, eos_token):
            results[output.request] += output.tokens
        return results

    def take(self, step: Step, sampled: list[list[int]]) -> list[Output]:
        """Give each sequence that sampled its tokens, up to the one that ends it, and return what is new."""
        outputs = []
        for sequence, tokens in zip([each.sequence for each in step.batch if each.samples], sampled, strict=True):
            request = self._requests.get(id(sequence))
            if request is None:
                continue  # aborted while the step ran
            eos = request.eos_token
            end = tokens.index(eos) if eos is not None and eos in tokens else None
            for token in tokens[:end]:
                sequence.take(token)
            if end is not None:
                sequence.take(None)
            finished = None if not sequence.is_finished else "length" if end is None else "eos"
            outputs.append(Output(request.number, tokens[:end], finished))
            if finished:
                self._forget(request)
        return outputs

    def _forget(self, request: _Request) -> None:
        del self._open[request.number], self._requests[id(request.sequence)]

    def _tokens_of(self, prompt: str | Ints[int]) -> list[int]:
        if isinstance(prompt, str):
            if self.tokenizer is None:
                raise ValueError("a text prompt needs a tokenizer: pass one to the engine, or pass token numbers")
            prompt = self.tokenizer.encode(prompt)
        tokens = [*map(int, prompt)]
        if not tokens:
            raise ValueError("the prompt is empty: there is nothing to continue")
        for token in (min(tokens), max(tokens)):
            if not 0 <= token < self.config.vocab_size:
                raise ValueError(f"token {token} is not in the vocabulary of {self.config.vocab_size}")
        return tokens


def rows_of(step: Step) -> list[Row]:
    """Return what a step computes, for `build_batch`."""
    return [
        Row(each.sequence.tokens[each.context_len - each.num_new : each.context_len], each.context_len,
            each.sequence.table.blocks, each.samples)
        for each in step.batch
    ]  # fmt: skip


def _kernels(device: torch.device) -> tuple[Callable[..., None], Callable[..., torch.Tensor]]:
    """Return what writes and what attends on a device: Triton on a GPU, PyTorch elsewhere."""
    if device.type == "cuda":
        from solutions import split_kv, triton_slot_write

        return triton_slot_write.write_kv, split_kv.paged_attention
    from solutions import attention

    return attention.write_kv, attention.paged_attention


def _default_num_blocks(device: torch.device, bytes_per_block: int, memory_share: float) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
    else:
        free = 1 << 30  # a CPU run is for learning and testing: a gigabyte is plenty
    num_blocks = int(free * memory_share) // bytes_per_block
    if num_blocks < 1:
        raise ValueError(f"{free:,} bytes are free on {device}: not enough for one block of {bytes_per_block:,} bytes")
    return num_blocks
