"""The model's own pass as CUDA graphs, for steps with prompts.

Such a step has some 150 kernels, and launching them takes the host longer than running them takes the GPU. A graph is
replayed in one call. It is recorded for sizes, and a step takes the smallest that holds it: rows and sequences that it
does not fill are padding, which the kernels skip.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from solutions.batch import Batch, Room, Row, build_batch
from solutions.cuda_graphs import Graphs

TOKENS = sorted(each << power for each in (2, 3) for power in range(5, 14))  # 64, 96, 128, 192, 256, …
SEQUENCES = (8, 64, 256)
CONTEXTS = (64,)  # short ones need fewer tiles of queries, and narrow block tables


class _Recorded(NamedTuple):
    room: Room
    replay: Callable[[], None]


class PromptGraphs:
    """Steps of `model` over `caches`, which leave what they sample in `tokens`, int32, a number a sequence."""

    def __init__(
        self,
        model: Any,
        caches: list[Any],
        tokens: torch.Tensor,
        block_size: int,
        slot_mapping: Callable[..., list[int]],
        max_step_tokens: int,
        graphs: Graphs,
    ) -> None:
        self.model, self.caches, self.tokens = model, caches, tokens
        self.block_size, self.slot_mapping, self.graphs = block_size, slot_mapping, graphs
        most = max_step_tokens, len(tokens), model.config.n_positions
        self.sizes = [
            [*(size for size in sizes if size < limit), limit]
            for sizes, limit in zip((TOKENS, SEQUENCES, CONTEXTS), most, strict=True)
        ]
        self._recorded: dict[tuple[int, ...], _Recorded] = {}

    def warm_up(self) -> None:
        """Record every size that a step may take, the largest first: the others fit into its memory."""
        for size in reversed([*itertools.product(*self.sizes)]):
            fewer = max((count for count in self.sizes[1] if count < size[1]), default=0)
            if fewer < size[0]:  # each sequence has a token
                self._record(size)

    def launch(self, rows: Sequence[Row]) -> None:
        """Start a step and return at once. A negative token stands for one that is in `tokens` by then, at `~token`."""
        needed = sum(len(row.tokens) for row in rows), len(rows), max(row.context_len for row in rows)
        room, replay = self._record(tuple(
            min(size for size in sizes if size >= number) for number, sizes in zip(needed, self.sizes, strict=True)
        ))  # fmt: skip
        self._fill(rows, room)
        replay()

    def _fill(self, rows: Sequence[Row], room: Room) -> Batch:
        return build_batch(rows, self.block_size, self.slot_mapping, self.tokens.device, room)

    def _record(self, size: tuple[int, ...]) -> _Recorded:
        if size not in self._recorded:
            num_tokens, num_seqs, context_len = size
            room = Room.of(num_tokens, num_seqs, context_len, self.block_size, self.tokens.device)
            batch = self._fill([], room)  # nothing but padding: it is recorded once, and each step fills its tensors
            self._recorded[size] = _Recorded(room, self.graphs.record(lambda: self._pass(batch), self.tokens))
        return self._recorded[size]

    def _pass(self, batch: Batch) -> None:
        with torch.inference_mode():
            given = batch.tokens
            fed = torch.where(given < 0, self.tokens[(~given).clamp(min=0)], given)
            sampled = self.model.next_tokens(dataclasses.replace(batch, tokens=fed), self.caches)
            self.tokens[: len(sampled)].copy_(sampled)
