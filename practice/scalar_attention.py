"""Paged attention in plain Python lists, one number at a time: what a kernel computes, with nothing hidden.

A vector is a list of `head_dim` floats. Names and shapes are those of `attention`, which does the same with tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Vector = Sequence[float]
Rows = Sequence[Sequence[Vector]]  # [num_tokens][heads][head_dim]


class LayerCache:
    """The keys and values of one layer, by slot: `keys[block][offset][kv_head]` is a vector.

    A slot that was never written holds `None`, so that arithmetic with it is an error and not a number.
    """

    def __init__(self, num_blocks: int, block_size: int, num_kv_heads: int) -> None:
        self.block_size = block_size
        self.num_kv_heads = num_kv_heads
        self.keys: list[list[Any]] = [[None] * block_size for _ in range(num_blocks)]
        self.values: list[list[Any]] = [[None] * block_size for _ in range(num_blocks)]


def write_kv(keys: Rows, values: Rows, cache: LayerCache, slots: Sequence[int]) -> None:
    """Write each token's key and value, one vector per KV head, to the token's slot.

    `keys`, `values`: `[num_tokens][num_kv_heads][head_dim]`. `slots`: one for each token; slot
    `block * block_size + offset` is `cache.keys[block][offset]`. A negative slot is padding: nothing is written for it.
    """
    raise NotImplementedError("kv-write-gather: write_kv is not written yet")


def gather_kv(cache: LayerCache, block_table: Sequence[int], context_len: int) -> tuple[list[Any], list[Any]]:
    """Return a context's keys and its values in order of position, each `[context_len][num_kv_heads][head_dim]`.

    `block_table` may be longer than the context needs; its further entries are not looked at.
    """
    raise NotImplementedError("kv-write-gather: gather_kv is not written yet")


class OnlineSoftmax:
    """The mean of values, weighted by the softmax of their scores, where keys come a block at a time.

    Of the keys so far it knows the largest score, `maximum`; `total`, the sum of `exp(score - maximum)`; and
    `accumulator`, the sum of `exp(score - maximum) * value`. (Milakov and Gimelshein, 2018; FlashAttention, 2022.)
    """

    def __init__(self, head_dim: int) -> None:
        self.maximum = -math.inf
        self.total = 0.0
        self.accumulator = [0.0] * head_dim

    def add(self, scores: Sequence[float], values: Sequence[Any]) -> None:
        """Take in one block of keys: `scores` `[num_keys]` and `values` `[num_keys][head_dim]`.

        A key with a score of minus infinity is masked: it counts for nothing, and its value is not touched.
        """
        raise NotImplementedError("online-softmax: OnlineSoftmax.add is not written yet")

    def result(self) -> list[float]:
        """Return the weighted mean of the values so far, `[head_dim]`: zeros where no key was seen."""
        raise NotImplementedError("online-softmax: OnlineSoftmax.result is not written yet")


def attend(
    query: Vector, cache: LayerCache, block_table: Sequence[int], num_keys: int, kv_head: int, scale: float
) -> list[float]:
    """Return the attention of one head's query over its sequence's first `num_keys` tokens: `[head_dim]`.

    `query`: `[head_dim]`. `scale` multiplies its dot product with each key. Keys and values of `kv_head` are read where
    they are, block by block; nothing is gathered first. Slots behind the first `num_keys` tokens are not touched.
    """
    raise NotImplementedError("paged-attention: attend is not written yet")


def paged_attention(
    queries: Rows,
    cache: LayerCache,
    block_tables: Sequence[Sequence[int]],
    query_start_loc: Sequence[int],
    context_lens: Sequence[int],
    scale: float,
) -> list[list[list[float]]]:
    """Return the attention of each query over its sequence's context, causally masked: as `queries` in shape.

    `queries`: `[num_tokens][num_heads][head_dim]`, the sequences' new tokens one after the other: those of sequence `i`
    are rows `query_start_loc[i]` to `query_start_loc[i + 1]`, perhaps none. They are the last of its `context_lens[i]`
    tokens, all of which are in the cache. A query sees its own token and those before it.

    Each KV head serves `num_heads / num_kv_heads` neighbouring query heads (GQA). Rows of no sequence are zeros.
    """
    raise NotImplementedError("paged-attention: paged_attention is not written yet")
