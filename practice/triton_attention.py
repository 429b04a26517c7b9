"""Paged attention as FlashAttention-2 in Triton: keys and values are read through the block table, tile by tile.

Scores never reach memory: the softmax is computed online, in one pass over the keys (Dao, 2023, "FlashAttention-2").
Decode has a kernel of its own, which reads each key and value once for all the query heads that share it. The launcher
takes its grid from numbers that the host knows, so nothing waits for the GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
HEAD_DIMS = range(32, 129, 16)
LOG2_E = 1.4426950408889634

# (bytes of a query element, head size rounded up) to (queries a tile, keys a tile, warps, pipeline stages). Every entry
# stays under the 99 KB of shared memory of a consumer card.
PREFILL_TILES = {
    (2, 32): (128, 64, 8, 3),
    (2, 64): (64, 64, 4, 3),
    (2, 128): (128, 64, 8, 2),
    (4, 32): (32, 32, 8, 3),
    (4, 64): (32, 32, 8, 2),
    (4, 128): (16, 32, 4, 2),
}
# Most registers a thread, where a few spilled ones cost less than having half as many programs on a multiprocessor.
PREFILL_REGISTERS = {(2, 128): 128}
# The same to (keys a tile, warps, pipeline stages). Block numbers are loaded too: that takes some of the stages.
DECODE_TILES = {
    (2, 32): (64, 2, 5),
    (2, 64): (64, 2, 5),
    (2, 128): (64, 2, 5),
    (4, 32): (32, 4, 5),
    (4, 64): (32, 4, 5),
    (4, 128): (32, 4, 5),
}


class LayerCache(Protocol):
    """What attention asks of one layer's cache; see `kv_cache.LayerCache`."""

    @property
    def keys(self) -> torch.Tensor: ...
    @property
    def values(self) -> torch.Tensor: ...
    @property
    def key_scales(self) -> torch.Tensor | None: ...
    @property
    def value_scales(self) -> torch.Tensor | None: ...


@triton.jit
def locate(block_table_ptr, start, limit, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    """Return the blocks that hold positions `start … start + TILE - 1`, and the offset of each position in its block.

    Both are `[TILE]`. Positions at `limit` or beyond are not looked up: their block may be any. Block numbers are
    widened to 64 bits, and so is every address computed from them: a pool may hold more than 2³¹ elements.
    """
    raise NotImplementedError("triton-decode: locate is not written yet")


@triton.jit
def load_tile(
    cache_ptr, scales_ptr, block, offset, kv_head, valid,
    block_stride, slot_stride, head_stride, scales_block_stride, scales_head_stride,
    HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """Return one KV head's keys or values at `block` and `offset` as `dtype`, `[TILE, DIMS]`.

    What is not valid is 0, whatever its slot holds, and so is what pads `HEAD_DIM` to `DIMS`.
    """
    raise NotImplementedError("int8-attention: load_tile is not written yet")


@triton.jit
def online_softmax(scores, values, acc, largest, total):
    """Take one more tile of keys into the running softmax. Scores are in powers of two: exp(x) = exp2(x · log2 e).

    `acc` is the sum of the values weighted by `exp2(score - largest)`, `total` the sum of those weights. When a tile
    raises `largest`, what was summed before is scaled down to the new one. Returns all three, in that order.
    """
    raise NotImplementedError("triton-decode: online_softmax is not written yet")


@triton.jit
def weighted_mean(acc, total):
    """Return the finished softmax's mean of the values; of no values at all it is 0."""
    return acc / tl.where(total > 0, total, 1.0)[:, None]


@triton.jit
def decode_kernel(
    out_ptr, queries_ptr,  # [num_tokens, num_kv_heads * GROUP, HEAD_DIM]
    keys_ptr, values_ptr,  # [num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM]
    key_scales_ptr, value_scales_ptr,  # fp32 [num_blocks, num_kv_heads], or None
    block_tables_ptr,  # int32 [num_seqs, width]
    query_start_loc_ptr, context_lens_ptr,  # int32 [num_seqs + 1], [num_seqs]
    scale,
    out_row_stride, out_head_stride, query_row_stride, query_head_stride,
    block_stride, slot_stride, head_stride, scales_block_stride, scales_head_stride, table_stride,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr,  # HEADS, DIMS: GROUP and HEAD_DIM, rounded up
):  # fmt: skip
    """One program: the one query of a sequence, in all the query heads that share a KV head."""
    raise NotImplementedError("triton-decode: decode_kernel is not written yet")


@triton.jit
def prefill_kernel(
    out_ptr, queries_ptr,  # [num_tokens, num_kv_heads * GROUP, HEAD_DIM]
    keys_ptr, values_ptr,  # [num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM]
    key_scales_ptr, value_scales_ptr,  # fp32 [num_blocks, num_kv_heads], or None
    block_tables_ptr,  # int32 [num_seqs, width]
    query_start_loc_ptr, context_lens_ptr,  # int32 [num_seqs + 1], [num_seqs]
    scale,
    out_row_stride, out_head_stride, query_row_stride, query_head_stride,
    block_stride: tl.constexpr, slot_stride: tl.constexpr, head_stride: tl.constexpr,  # known: cheaper addresses
    scales_block_stride, scales_head_stride, table_stride,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    QUERIES: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr,  # DIMS: HEAD_DIM, rounded up
):  # fmt: skip
    """One program: a tile of QUERIES new tokens of one sequence, in one query head. Serves any number of new tokens."""
    raise NotImplementedError("triton-paged-attention: prefill_kernel is not written yet")


def paged_attention(
    queries: torch.Tensor,
    cache: LayerCache,
    block_tables: torch.Tensor,
    query_start_loc: torch.Tensor,
    context_lens: torch.Tensor,
    max_query_len: int,
    scale: float,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the attention of each query over its sequence's context, causally masked: `[num_tokens, heads, head_dim]`.

    `queries`: `[num_tokens, num_heads, head_dim]`, perhaps a view, the sequences' new tokens one after the other: those
    of sequence `i` are rows `query_start_loc[i]` to `query_start_loc[i + 1]` (int32 `[num_seqs + 1]`), at most
    `max_query_len` of them, perhaps none. They are the last of its `context_lens[i]` tokens (int32 `[num_seqs]`), all
    of which are in the cache. `block_tables`: int32 `[num_seqs, width]`; entries beyond a context are never used.

    Each KV head serves `num_heads / num_kv_heads` neighbouring query heads (GQA). `scale` multiplies the scores. Rows
    of `out` that belong to no sequence are left as they are. `ValueError` for a block size, head size or number of
    heads that the kernels do not support.
    """
    raise NotImplementedError("triton-paged-attention: paged_attention is not written yet")


def check_supported(queries: torch.Tensor, cache: LayerCache) -> None:
    """Raise `ValueError` for a block size, head size, number of heads or layout that the kernels do not support."""
    num_heads, head_dim = queries.shape[1:]
    _, block_size, num_kv_heads, _ = cache.keys.shape
    if block_size not in BLOCK_SIZES:
        raise ValueError(f"block size {block_size} is not supported: choose one of {', '.join(map(str, BLOCK_SIZES))}")
    if head_dim not in HEAD_DIMS or head_dim != cache.keys.shape[-1]:
        raise ValueError(
            f"head size {head_dim} is not supported: it must be the cache's, a multiple of 16 from 32 to 128"
        )
    if num_heads % num_kv_heads != 0:
        raise ValueError(f"{num_heads} query heads cannot share {num_kv_heads} KV heads evenly")
    if cache.keys.stride() != cache.values.stride() or queries.stride(-1) != 1 or cache.keys.stride(-1) != 1:
        raise ValueError("keys and values must be laid out alike, the numbers of one head next to each other")
