"""The tensors of one step, built once for all layers.

All sequences of a step are packed into one row dimension without padding: the rows of sequence i are
`query_start_loc[i] … query_start_loc[i + 1] - 1`, and they are the last tokens of its context. (vLLM's names.)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch


class Row(NamedTuple):
    """One sequence's part in a step: its `num_new` tokens are the last of a context of `context_len`."""

    tokens: Sequence[int]
    context_len: int
    blocks: Sequence[int]
    samples: bool


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
) -> Batch:
    """Lay a step's sequences out one after the other. All numbers of a type travel to the device in a single copy."""
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
    tables = [block for row in rows for block in (*row.blocks, *[0] * (width - len(row.blocks)))]
    wide = _to_device([tokens, positions, slots, sample_rows], np.int64, device)
    narrow = _to_device([starts, [row.context_len for row in rows], tables, touched], np.int32, device)
    return Batch(
        tokens=wide[0],
        positions=wide[1],
        slots=wide[2],
        sample_rows=wide[3],
        query_start_loc=narrow[0],
        context_lens=narrow[1],
        block_tables=narrow[2].view(len(rows), width),
        touched=narrow[3].view(-1, 4),
        max_query_len=max((len(row.tokens) for row in rows), default=0),
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


def _to_device(parts: list[list[int]], dtype: type[np.integer[Any]], device: torch.device) -> list[torch.Tensor]:
    # By way of NumPy, which takes a third of the time of `torch.tensor` for a list.
    numbers = torch.from_numpy(np.array([*itertools.chain(*parts)], dtype))
    if device.type == "cuda":  # from pinned memory: the host does not wait for the copy
        numbers = numbers.pin_memory().to(device, non_blocking=True)
    return list(numbers.to(device).split([len(part) for part in parts]))
