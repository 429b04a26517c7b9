"""The tensors of one step, built once for all layers.

All sequences of a step are packed into one row dimension without padding: the rows of sequence i are
`query_start_loc[i] … query_start_loc[i + 1] - 1`, and they are the last tokens of its context. (vLLM's names.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch


class Row(NamedTuple):
    """One sequence's part in a step: its `num_new` tokens are the last of a context of `context_len`."""

    tokens: Sequence[int]
    context_len: int
    blocks: Sequence[int]
    samples: bool


class Room(NamedTuple):
    """Tensors for steps up to a size, at the same place for each of them: what a CUDA graph reads."""

    num_tokens: int
    num_seqs: int
    context_len: int  # the longest
    wide: torch.Tensor  # int64, one after the other: tokens, positions, slots, sample_rows
    narrow: torch.Tensor  # int32: query_start_loc, context_lens, block_tables, touched

    @classmethod
    def of(cls, num_tokens: int, num_seqs: int, context_len: int, block_size: int, device: torch.device) -> Room:
        """Return room for steps of so many tokens and sequences."""
        width = -(-context_len // block_size)
        wide = torch.zeros(3 * num_tokens + num_seqs, dtype=torch.int64, device=device)
        narrow = torch.zeros(1 + num_seqs * (2 + width) + 4 * num_tokens, dtype=torch.int32, device=device)
        return cls(num_tokens, num_seqs, context_len, wide, narrow)


@dataclass(frozen=True)
class Batch:
    """What the model and the kernels read in one step. T is the number of rows, S the number of sequences."""

    tokens: torch.Tensor  # int64 [T]
    positions: torch.Tensor  # int64 [T]
    slots: torch.Tensor  # int64 [T]; negative slots are padding and write nothing
    query_start_loc: torch.Tensor  # int32 [S + 1]
    context_lens: torch.Tensor  # int32 [S]
    block_tables: torch.Tensor  # int32 [S, longest table], rows padded with 0
    sample_rows: torch.Tensor  # int64: the last row of each sequence that samples
    touched: torch.Tensor  # int32 [N, 4]: (block, first offset, number of tokens, first row) of every block written to
    max_query_len: int


def build_batch(
    rows: Sequence[Row],
    block_size: int,
    slot_mapping: Callable[[Sequence[int], int, int, int], list[int]],
    device: torch.device,
    room: Room | None = None,
) -> Batch:
    """Lay a step's sequences out one after the other. All numbers of a type travel to the device in a single copy.

    With `room` the tensors are its own, and of its sizes: rows beyond the step's tokens have a negative slot, and
    sequences beyond its own have no rows.
    """
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    starts = [0]
    touched: list[int] = []
    sample_rows: list[int] = []
    for row in rows:
        num_new = len(row.tokens)
        first = row.context_len - num_new
        tokens += row.tokens
        positions += range(first, row.context_len)
        slots += slot_mapping(row.blocks, block_size, row.context_len, num_new)
        touched += _touched_blocks(row.blocks, block_size, first, row.context_len, starts[-1])
        starts.append(starts[-1] + num_new)
        if row.samples:
            sample_rows.append(starts[-1] - 1)
    width = max((len(row.blocks) for row in rows), default=0)
    context_lens = [row.context_len for row in rows]
    max_query_len = max((len(row.tokens) for row in rows), default=0)
    if room:
        width, max_query_len = -(-room.context_len // block_size), min(room.num_tokens, room.context_len)
        for numbers, fill in ((tokens, 0), (positions, 0), (slots, -1)):
            numbers += [fill] * (room.num_tokens - len(numbers))
        for numbers, fill in ((starts, starts[-1]), (context_lens, 0), (sample_rows, 0)):
            numbers += [fill] * (room.num_seqs + (numbers is starts) - len(numbers))
    tables = [block for row in rows for block in (*row.blocks[:width], *[0] * (width - len(row.blocks)))]
    tables += [0] * (width * len(context_lens) - len(tables))
    wide = _to_device([tokens, positions, slots, sample_rows], torch.int64, device, room and room.wide)
    narrow = _to_device([starts, context_lens, tables, touched], torch.int32, device, room and room.narrow)
    return Batch(
        tokens=wide[0],
        positions=wide[1],
        slots=wide[2],
        sample_rows=wide[3],
        query_start_loc=narrow[0],
        context_lens=narrow[1],
        block_tables=narrow[2].view(len(context_lens), width),
        touched=narrow[3].view(-1, 4),
        max_query_len=max_query_len,
    )


def _touched_blocks(blocks: Sequence[int], block_size: int, first: int, end: int, first_row: int) -> list[int]:
    """Return (block, first offset, number of tokens, first row) of each block that positions first … end - 1 lie in."""
    touched: list[int] = []
    position = first
    while position < end:
        offset = position % block_size
        count = min(block_size - offset, end - position)
        touched += (blocks[position // block_size], offset, count, first_row + position - first)
        position += count
    return touched


def _to_device(
    parts: list[list[int]], dtype: torch.dtype, device: torch.device, into: torch.Tensor | None
) -> list[torch.Tensor]:
    numbers = list(itertools.chain(*parts))
    # By way of NumPy, which takes a third of the time of `torch.tensor` for a list.
    here = torch.from_numpy(np.array(numbers, "int64" if dtype == torch.int64 else "int32"))
    if device.type == "cuda":
        here = here.pin_memory()
    there = here.to(device, non_blocking=True) if into is None else into[: len(here)].copy_(here, non_blocking=True)
    return list(there.split([len(part) for part in parts]))
