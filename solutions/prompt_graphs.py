"""The pass over prompts as CUDA graphs.

Such a step has some 100 kernels, and launching them takes the host longer than running them takes the GPU. A graph is
replayed in one call. It is recorded for sizes, and a step takes the smallest that holds it: rows and sequences that it
does not fill are padding, which the kernels skip.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from solutions.batch import Batch, Row
from solutions.cuda_graphs import Graphs, Staged, flatten
from solutions.prompt_pass import PromptPass

if TYPE_CHECKING:
    from solutions.fused_decode import FusedDecoder

TOKENS = (256, *sorted(each << power for each in (4, 5, 6) for power in range(7, 15)))  # 512, 640, 768, 1024, 1280, …
SEQUENCES = (32, 256)
LENGTHS = (128,)  # up to here a sequence's queries are one tile of the kernel


class Size(NamedTuple):
    """What a step has, or what a graph has room for. `length` is the most tokens of one sequence."""

    tokens: int
    sequences: int
    length: int


class PromptGraphs:
    """Steps of `model` over `caches`. Their tokens are chosen by `decoder`, and are in its `tokens` afterwards."""

    def __init__(
        self,
        model: Any,
        caches: list[Any],
        decoder: FusedDecoder,
        block_size: int,
        max_step_tokens: int,
        graphs: Graphs,
    ) -> None:
        self.caches, self.decoder, self.tokens = caches, decoder, decoder.tokens
        self.forward = PromptPass(model, decoder).forward
        self.block_size, self.graphs = block_size, graphs
        self.table_width: int = -(-model.config.n_positions // block_size)
        most = Size(max_step_tokens, len(self.tokens), model.config.n_positions)
        self.sizes = [
            [*(size for size in sizes if size < limit), limit]
            for sizes, limit in zip((TOKENS, SEQUENCES, LENGTHS), most, strict=True)
        ]
        self.given = Staged(self._room(most), dtype=torch.int64, device=self.tokens.device)
        self._replays: dict[Size, Callable[[], None]] = {}

    def warm_up(self) -> None:
        """Record every size that a step may take, the largest first: the others fit into its memory."""
        for size in itertools.product(*map(reversed, self.sizes)):
            self._replay(Size(*size))

    def launch(self, rows: Sequence[Row]) -> None:
        """Start a step and return at once. A negative token stands for one that is in `tokens` by then, at `~token`."""
        lengths = [len(row.tokens) for row in rows]
        needed = Size(sum(lengths), len(rows), max(lengths))
        size = Size(*(min(filter(number.__le__, sizes)) for number, sizes in zip(needed, self.sizes, strict=True)))
        replay = self._replay(size)
        self._fill(rows, size)
        replay()

    def _fill(self, rows: Sequence[Row], size: Size) -> None:
        """Write what `build_batch` makes of a step, and padding, and start its copy."""
        given = self.given.begin()[: self._room(size)]
        given[:] = 0
        step = self._view(given, size, np.int32)
        tokens, row, index = flatten([each.tokens for each in rows])
        blocks, owner, place = flatten([each.blocks for each in rows])
        lengths = np.array([len(each.tokens) for each in rows])
        ends = lengths.cumsum()
        context_lens = np.array([each.context_len for each in rows])
        positions = (context_lens - lengths)[row] + index
        step.block_tables[owner, place] = blocks
        block = step.block_tables[row, positions // self.block_size].astype(np.int64)
        num_tokens, num_seqs = len(tokens), len(rows)
        step.tokens[:num_tokens], step.positions[:num_tokens] = tokens, positions
        step.slots[:num_tokens], step.slots[num_tokens:] = block * self.block_size + positions % self.block_size, -1
        step.query_start_loc[1 : 1 + num_seqs], step.query_start_loc[1 + num_seqs :] = ends, num_tokens
        step.context_lens[:num_seqs] = context_lens
        last_rows = ends[[each.samples for each in rows]] - 1
        step.sample_rows[: len(last_rows)] = last_rows
        self.given.send(len(given))

    def _room(self, size: Size) -> int:
        """Return how many int64 a step's numbers take."""
        return 3 * size.tokens + size.sequences + 1 + size.sequences * (2 + self.table_width) // 2

    def _view(self, given: Any, size: Size, int32: Any) -> Any:
        """Return a `Batch` of views of `given`, an array or a tensor of int64; some are seen as `int32`."""
        fields: dict[str, Any] = {}
        for name in ("tokens", "positions", "slots", "sample_rows"):
            count = size.sequences if name == "sample_rows" else size.tokens
            fields[name], given = given[:count], given[count:]
        given = given.view(int32)
        for name, count in (("query_start_loc", 1 + size.sequences), ("context_lens", size.sequences)):
            fields[name], given = given[:count], given[count:]
        tables = given[: size.sequences * self.table_width].reshape(size.sequences, self.table_width)
        none = tables[:0]  # only an INT8 cache is written by the blocks that are touched
        return Batch(**fields, block_tables=tables, touched=none, max_query_len=min(size.tokens, size.length))

    def _replay(self, size: Size) -> Callable[[], None]:
        """Return what runs a step of a size; it is recorded where it is not yet."""
        if size not in self._replays:
            batch = self._view(self.given.there, size, torch.int32)
            self.given.there.zero_()
            batch.slots.fill_(-1)  # nothing but padding
            self._replays[size] = self.graphs.record(lambda: self._pass(batch), self.tokens)
        return self._replays[size]

    def _pass(self, batch: Batch) -> None:
        with torch.inference_mode():
            given = batch.tokens
            fed = torch.where(given < 0, self.tokens[(~given).clamp(min=0)], given)
            normed = self.forward(dataclasses.replace(batch, tokens=fed), self.caches)
            self.tokens[: len(batch.sample_rows)].copy_(self.decoder.choose(normed[batch.sample_rows]))
