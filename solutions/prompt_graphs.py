"""Steps with prompts as CUDA graphs.

Such a step has some 100 kernels, and launching them takes the host longer than running them takes the GPU. A graph is
replayed in one call. It is recorded for sizes, and a step takes the smallest that holds it: rows and sequences that it
does not fill are padding, which the kernels skip. The host sends tokens and blocks as they come; the graph's first
kernel lays them out.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl

from solutions.batch import Batch, Row
from solutions.cuda_graphs import Graphs, Staged
from solutions.prompt_pass import PromptPass

if TYPE_CHECKING:
    from solutions.fused_decode import FusedDecoder

TOKENS = (256, *sorted(each << power for each in (4, 5, 6) for power in range(7, 15)))  # 512, 640, 768, 1024, 1280, …
SEQUENCES = (32, 256)
LENGTHS = (128,)  # up to here a sequence's queries are one tile of the kernel
TILE = 128  # numbers that a program of `lay_out_kernel` moves at once


@triton.jit
def lay_out_kernel(
    given_ptr, known_ptr,  # int32: see `PromptGraphs._flatten`; int32: tokens that only the device has
    tokens_ptr, positions_ptr, slots_ptr, sample_rows_ptr,  # int64, as in `Batch`
    query_start_loc_ptr, context_lens_ptr, tables_ptr,  # int32, likewise; [num_programs - 1, table_width]
    num_rows, table_width, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Lay a step out as `build_batch` does. One program a sequence, and one more for the rows that are padding."""
    seq = tl.program_id(0)
    num_seqs, num_tokens, num_samples = tl.load(given_ptr), tl.load(given_ptr + 1), tl.load(given_ptr + 2)
    given_ptr += 3
    lane = tl.arange(0, TILE)
    if seq == tl.num_programs(0) - 1:
        tl.store(query_start_loc_ptr + seq, num_tokens)
        for start in range(num_tokens, num_rows, TILE):
            mask = start + lane < num_rows
            tl.store(tokens_ptr + start + lane, 0, mask=mask)
            tl.store(positions_ptr + start + lane, 0, mask=mask)
            tl.store(slots_ptr + start + lane, -1, mask=mask)
        return
    head, is_seq = given_ptr + 5 * seq, seq < num_seqs
    first_row = tl.load(head, mask=is_seq, other=num_tokens)
    num_new = tl.load(head + 1, mask=is_seq, other=0)
    context_len = tl.load(head + 2, mask=is_seq, other=0)
    first_block = tl.load(head + 3, mask=is_seq, other=0)
    sample = tl.load(head + 4, mask=is_seq, other=-1)
    tl.store(query_start_loc_ptr + seq, first_row)
    tl.store(context_lens_ptr + seq, context_len)
    tl.store(sample_rows_ptr + sample, first_row + num_new - 1, mask=sample >= 0)
    tl.store(sample_rows_ptr + seq, 0, mask=seq >= num_samples)
    new_ptr = given_ptr + 5 * num_seqs + first_row
    blocks_ptr = given_ptr + 5 * num_seqs + num_tokens + first_block
    for start in range(0, tl.cdiv(context_len, BLOCK_SIZE), TILE):
        mask = start + lane < tl.cdiv(context_len, BLOCK_SIZE)
        block = tl.load(blocks_ptr + start + lane, mask=mask, other=0)
        tl.store(tables_ptr + seq * table_width + start + lane, block, mask=mask)
    for start in range(0, num_new, TILE):
        mask = start + lane < num_new
        row = first_row + start + lane
        token = tl.load(new_ptr + start + lane, mask=mask, other=0)
        known = tl.load(known_ptr + -1 - token, mask=mask & (token < 0), other=0)
        tl.store(tokens_ptr + row, tl.where(token < 0, known, token), mask=mask)
        position = context_len - num_new + start + lane
        tl.store(positions_ptr + row, position, mask=mask)
        block = tl.load(blocks_ptr + position // BLOCK_SIZE, mask=mask, other=0).to(tl.int64)
        tl.store(slots_ptr + row, block * BLOCK_SIZE + position % BLOCK_SIZE, mask=mask)


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
        device = self.tokens.device
        self.given = Staged(3 + most.tokens + most.sequences * (5 + self.table_width), device)
        # What a step reads, in room for the largest; a smaller one reads the beginning of each.
        self.rows = torch.zeros((3, most.tokens), dtype=torch.int64, device=device)
        self.sample_rows = self.rows.new_zeros(most.sequences)
        self.sequences = torch.zeros((2, most.sequences + 1), dtype=torch.int32, device=device)
        self.tables = self.sequences.new_zeros(most.sequences, self.table_width)
        self._replays: dict[Size, Callable[[], None]] = {}

    def warm_up(self) -> None:
        """Record every size that a step may take, the largest first: the others fit into its memory."""
        for size in itertools.product(*map(reversed, self.sizes)):
            self._replay(Size(*size))

    def launch(self, rows: Sequence[Row]) -> None:
        """Start a step and return at once. A negative token stands for one that is in `tokens` by then, at `~token`."""
        numbers, size = self._flatten(rows)
        replay = self._replay(size)
        self.given.send(numbers)
        replay()

    def _flatten(self, rows: Sequence[Row]) -> tuple[list[int], Size]:
        """Return a step as numbers for `lay_out_kernel`, and the size of the graph that takes them.

        First how many sequences, tokens and sampling sequences there are; then of each sequence the first row, the
        number of its new tokens, its context's length, the place of its first block, and which one it is of those that
        sample, or -1; then all new tokens; then all blocks.
        """
        heads: list[int] = []
        tokens: list[int] = []
        blocks: list[int] = []
        longest = num_samples = 0
        for new, context_len, held, samples in rows:
            heads += (len(tokens), len(new), context_len, len(blocks), num_samples if samples else -1)
            tokens += new
            blocks += held
            longest = max(longest, len(new))
            num_samples += samples
        needed = Size(len(tokens), len(rows), longest)
        size = Size(*(min(filter(number.__le__, sizes)) for number, sizes in zip(needed, self.sizes, strict=True)))
        return [len(rows), len(tokens), num_samples, *heads, *tokens, *blocks], size

    def _replay(self, size: Size) -> Callable[[], None]:
        """Return what runs a step of a size; it is recorded where it is not yet."""
        if size not in self._replays:
            self.given.there.zero_()  # no sequence: nothing but padding
            self._replays[size] = self.graphs.record(lambda: self._pass(size), self.tokens)
        return self._replays[size]

    def _pass(self, size: Size) -> None:
        with torch.inference_mode():
            self._compute(self._lay_out(size))

    def _lay_out(self, size: Size) -> Batch:
        """Launch what lays a step out, and return it."""
        tokens, positions, slots = self.rows[:, : size.tokens]
        query_start_loc, context_lens = self.sequences[0, : size.sequences + 1], self.sequences[1, : size.sequences]
        sample_rows, tables = self.sample_rows[: size.sequences], self.tables[: size.sequences]
        lay_out_kernel[(size.sequences + 1,)](
            self.given.there, self.tokens, tokens, positions, slots, sample_rows, query_start_loc, context_lens, tables,
            size.tokens, self.table_width, self.block_size, TILE,
        )  # fmt: skip
        return Batch(
            tokens, positions, slots, query_start_loc, context_lens, tables, sample_rows,
            touched=tables[:0],  # only an INT8 cache is written by the blocks that are touched
            max_query_len=min(size.tokens, size.length),
        )  # fmt: skip

    def _compute(self, batch: Batch) -> None:
        normed = self.forward(batch, self.caches)
        self.tokens[: len(batch.sample_rows)].copy_(self.decoder.choose(normed[batch.sample_rows]))
