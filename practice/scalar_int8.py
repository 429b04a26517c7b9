"""An INT8 KV cache in plain Python lists: symmetric, with one scale per block and KV head, and requantised on append.

A stored integer `n` stands for `n * scale`. Names and shapes are those of `attention`, which does the same with
tensors, where scales are fp32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

INT8_MAX = 127

Vector = Sequence[float]
Rows = Sequence[Sequence[Vector]]  # [num_tokens][num_kv_heads][head_dim]


class Int8Cache:
    """The keys and values of one layer, by slot: `keys[block][offset][kv_head]` is a vector of integers.

    They stand for that vector times `key_scales[block][kv_head]`. What was never written is `None`, scales too.
    """

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.block_size = block_size
        self.keys: list[list[Any]] = [[None] * block_size for _ in range(num_blocks)]
        self.values: list[list[Any]] = [[None] * block_size for _ in range(num_blocks)]
        self.key_scales: list[Any] = [None] * num_blocks
        self.value_scales: list[Any] = [None] * num_blocks


def quantise(vector: Vector, scale: float) -> list[int]:
    """Return `vector` in whole steps of `scale`, rounded half to even, saturated at ±127; zeros where `scale` is 0."""
    raise NotImplementedError("int8-append: quantise is not written yet")


def append(old: Sequence[Any], scales: Any, new: Rows) -> tuple[list[Any], list[float]]:
    """Return a block's tokens and its scales, one per KV head, after `new` tokens have joined the `old` ones.

    `old`: `[num_old][num_kv_heads][head_dim]` integers, in steps of `scales` `[num_kv_heads]`; where there are none,
    `scales` are left from whoever had the block before. `new`: at least one token, not quantised yet.

    A scale is the largest magnitude appended so far over 127. A head whose scale grows has its old tokens requantised,
    and any other is left alone, so a number is off by at most `(growths + 1) / 2 * scale`.
    """
    raise NotImplementedError("int8-append: append is not written yet")


def write_kv(keys: Rows, values: Rows, cache: Int8Cache, slots: Sequence[int]) -> None:
    """Write each token's key and value, one vector per KV head, to the token's slot.

    `keys`, `values`: `[num_tokens][num_kv_heads][head_dim]`. `slots`: one for each token; a negative one is padding.
    Blocks are filled from their first slot, so a write to it starts the block anew, and the slots of a block rise from
    row to row. All the tokens of a block are appended at once.
    """
    raise NotImplementedError("int8-append: write_kv is not written yet")
