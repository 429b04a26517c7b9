"""The model's own pass as CUDA graphs, for steps with prompts.

Such a step has some 150 kernels, and launching them takes the host longer than running them takes the GPU. A graph is
replayed in one call. It is captured for sizes, and a step takes the smallest that holds it: rows and sequences that it
does not fill are padding, which the kernels skip.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from solutions.batch import Batch, Room, Row, build_batch

TOKENS = (64, 128, 256, 512, 1024, 2048)
SEQUENCES = (8, 64, 256)
SHORT = 64  # contexts up to this have graphs of their own: fewer tiles of queries, and narrow block tables


class _Captured(NamedTuple):
    room: Room
    graph: torch.cuda.CUDAGraph | None  # None on a device that has none: there the pass itself is run


class PromptGraphs:
    """Steps of `model` over `caches`, which leave what they sample in `tokens`, int32, a number a sequence."""

    def __init__(
        self,
        model: Any,
        caches: list[Any],
        tokens: torch.Tensor,
        block_size: int,
        slot_mapping: Callable[..., list[int]],
    ) -> None:
        self.model, self.caches, self.tokens = model, caches, tokens
        self.block_size, self.slot_mapping = block_size, slot_mapping
        self.device = tokens.device
        self._captured: dict[tuple[int, int, int], _Captured] = {}
        self._memory: Any = None  # no two graphs run at once, so all compute in the same memory

    def warm_up(self, max_step_tokens: int) -> None:
        """Capture every size that a step of up to so many tokens may take."""
        for num_tokens, num_seqs, context_len in itertools.product(TOKENS, SEQUENCES, self._contexts()):
            if num_tokens // 2 < max_step_tokens and num_seqs <= min(num_tokens, len(self.tokens)):
                self._capture(num_tokens, num_seqs, context_len)

    def launch(self, rows: Sequence[Row]) -> bool:
        """Start a step; `False`, with nothing started, for one that is larger than all graphs."""
        num_tokens = _at_least(sum(len(row.tokens) for row in rows), TOKENS)
        num_seqs = _at_least(len(rows), [count for count in SEQUENCES if count <= len(self.tokens)])
        context_len = _at_least(max(row.context_len for row in rows), self._contexts())
        if num_tokens is None or num_seqs is None or context_len is None:
            return False
        room, graph = self._capture(num_tokens, num_seqs, context_len)
        batch = self._fill(rows, room)
        if graph is None:
            self._pass(batch)
        else:
            graph.replay()
        return True

    def _contexts(self) -> tuple[int, int]:
        longest = self.model.config.n_positions
        return min(SHORT, longest), longest

    def _fill(self, rows: Sequence[Row], room: Room) -> Batch:
        return build_batch(rows, self.block_size, self.slot_mapping, self.device, room)

    def _pass(self, batch: Batch) -> None:
        with torch.inference_mode():
            sampled = self.model.next_tokens(batch, self.caches)
            self.tokens[: len(sampled)].copy_(sampled)

    def _capture(self, num_tokens: int, num_seqs: int, context_len: int) -> _Captured:
        size = num_tokens, num_seqs, context_len
        if size not in self._captured:
            width = -(-context_len // self.block_size)
            wide = torch.zeros(3 * num_tokens + num_seqs, dtype=torch.int64, device=self.device)
            narrow = torch.zeros(1 + num_seqs * (2 + width) + 4 * num_tokens, dtype=torch.int32, device=self.device)
            room = Room(*size, wide, narrow)
            self._captured[size] = _Captured(room, self._graph_of(self._fill([], room)))
        return self._captured[size]

    def _graph_of(self, batch: Batch) -> torch.cuda.CUDAGraph | None:
        """Capture the pass over a batch of nothing but padding."""
        if self.device.type != "cuda":
            return None
        for _ in range(2):  # compiles and tunes what is not yet
            self._pass(batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            self._pass(batch)
        self._memory = graph.pool()
        return graph


def _at_least(number: int, sizes: Sequence[int]) -> int | None:
    return next((size for size in sizes if size >= number), None)
