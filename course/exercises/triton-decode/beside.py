"""Launches parts of a kernel by themselves."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

answer: Any = None  # the judge puts the learner's module here


@triton.jit
def _locate_kernel(
    blocks_ptr, offsets_ptr, products_ptr, block_table_ptr, start, limit, factor,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    block, offset = answer.locate(block_table_ptr, start, limit, BLOCK_SIZE, TILE)
    index = tl.arange(0, TILE)
    valid = start + index < limit
    tl.store(blocks_ptr + index, block, mask=valid)
    tl.store(offsets_ptr + index, offset, mask=valid)
    tl.store(products_ptr + index, block * factor, mask=valid)


def launch_locate(
    blocks: Any, offsets: Any, products: Any, block_table: Any, start: int, limit: int, factor: int, block_size: int,
    tile: int,
) -> None:  # fmt: skip
    """Store what `locate` returns for the positions from `start` to `limit`, and the blocks times `factor`."""
    _locate_kernel[(1,)](blocks, offsets, products, block_table, start, limit, factor, block_size, tile)


@triton.jit
def _softmax_kernel(out_ptr, scores_ptr, values_ptr, num_tiles, ROWS: tl.constexpr, TILE: tl.constexpr):
    row = tl.arange(0, ROWS)[:, None]
    index = tl.arange(0, TILE)
    acc = tl.zeros([ROWS, TILE], tl.float32)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for tile in range(num_tiles):
        key = tile * TILE + index
        scores = tl.load(scores_ptr + row * num_tiles * TILE + key[None, :])
        values = tl.load(values_ptr + key[:, None] * TILE + index[None, :])
        acc, largest, total = answer.online_softmax(scores, values, acc, largest, total)
    tl.store(out_ptr + row * TILE + index[None, :], acc / total[:, None])


def launch_softmax(out: Any, scores: Any, values: Any, num_tiles: int) -> None:
    """Store the mean of the values `[num_tiles * 16, 16]`, weighted by the scores `[16, num_tiles * 16]`."""
    _softmax_kernel[(1,)](out, scores, values, num_tiles, 16, 16)
