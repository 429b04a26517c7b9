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
    position = start + tl.arange(0, TILE)
    if BLOCK_SIZE >= TILE:  # the tile lies in one block
        block = tl.full([TILE], tl.load(block_table_ptr + start // BLOCK_SIZE, mask=start < limit, other=0), tl.int32)
    else:
        block = tl.load(block_table_ptr + position // BLOCK_SIZE, mask=position < limit, other=0)
    # The remainder: BLOCK_SIZE is a power of two. The compiler sees that this one is the same for every tile of a loop.
    return block.to(tl.int64), position & (BLOCK_SIZE - 1)


@triton.jit
def load_tile(
    cache_ptr, scales_ptr, block, offset, kv_head, valid,
    block_stride, slot_stride, head_stride, scales_block_stride, scales_head_stride,
    HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """Return one KV head's keys or values at `block` and `offset` as `dtype`, `[TILE, DIMS]`.

    What is not valid is 0, whatever its slot holds, and so is what pads `HEAD_DIM` to `DIMS`.
    """
    block_ptr = cache_ptr + kv_head * head_stride + block * block_stride
    dim = tl.arange(0, DIMS)[None, :]
    place = (offset * slot_stride)[:, None] + dim  # in its block: 32 bits are enough
    tile = tl.load(block_ptr[:, None] + place, mask=valid[:, None] & (dim < HEAD_DIM), other=0.0)
    if scales_ptr is not None:  # INT8: one scale per block and head
        scales = block * scales_block_stride + kv_head * scales_head_stride
        tile = tile.to(tl.float32) * tl.load(scales_ptr + scales, mask=valid, other=0.0)[:, None]
    return tile.to(dtype)


@triton.jit
def online_softmax(scores, values, acc, largest, total):
    """Take one more tile of keys into the running softmax. Scores are in powers of two: exp(x) = exp2(x · log2 e).

    `acc` is the sum of the values weighted by `exp2(score - largest)`, `total` the sum of those weights. When a tile
    raises `largest`, what was summed before is scaled down to the new one. Returns all three, in that order.
    """
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    rescale = tl.exp2(largest - new_largest)
    weights = tl.exp2(scores - new_largest[:, None])
    total = total * rescale + tl.sum(weights, 1)
    acc = tl.dot(weights.to(values.dtype), values, acc * rescale[:, None], input_precision="ieee")
    return acc, new_largest, total


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
    kv_head = tl.program_id(0)
    seq = tl.program_id(1)
    row = tl.load(query_start_loc_ptr + seq).to(tl.int64)
    if row == tl.load(query_start_loc_ptr + seq + 1):
        return
    context_len = tl.load(context_lens_ptr + seq)
    block_table_ptr = block_tables_ptr + seq.to(tl.int64) * table_stride

    lane = tl.arange(0, HEADS)[:, None]
    head = kv_head * GROUP + lane
    dim = tl.arange(0, DIMS)[None, :]
    mask = (lane < GROUP) & (dim < HEAD_DIM)
    query = tl.load(queries_ptr + row * query_row_stride + head * query_head_stride + dim, mask=mask, other=0.0)
    acc = tl.zeros([HEADS, DIMS], tl.float32)
    largest = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    for start in range(0, context_len, TILE):
        block, offset = locate(block_table_ptr, start, context_len, BLOCK_SIZE, TILE)
        valid = start + tl.arange(0, TILE) < context_len
        keys = load_tile(
            keys_ptr, key_scales_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
            scales_block_stride, scales_head_stride, HEAD_DIM, DIMS, query.dtype,
        )  # fmt: skip
        values = load_tile(
            values_ptr, value_scales_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
            scales_block_stride, scales_head_stride, HEAD_DIM, DIMS, query.dtype,
        )  # fmt: skip
        scores = tl.dot(query, keys.T, input_precision="ieee") * scale
        scores = tl.where(valid[None, :], scores, float("-inf"))
        acc, largest, total = online_softmax(scores, values, acc, largest, total)

    out = out_ptr + row * out_row_stride + head * out_head_stride + dim
    tl.store(out, weighted_mean(acc, total).to(out_ptr.dtype.element_ty), mask=mask)


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
    head = tl.program_id(0)
    kv_head = head // GROUP
    seq = tl.program_id(1)
    first_row = tl.load(query_start_loc_ptr + seq).to(tl.int64)
    query_len = tl.load(query_start_loc_ptr + seq + 1) - first_row.to(tl.int32)
    context_len = tl.load(context_lens_ptr + seq)
    # The last tiles of all sequences have the most keys to read: they start first.
    first_query = (tl.num_programs(2) - 1 - tl.program_id(2)) * QUERIES
    if first_query >= query_len:
        return
    block_table_ptr = block_tables_ptr + seq.to(tl.int64) * table_stride

    # No query of the tile sees a key at `limit` or beyond; every one sees all the keys before `common`.
    common = context_len - query_len + first_query + 1
    limit = tl.minimum(common - 1 + QUERIES, context_len)
    block, offset = locate(block_table_ptr, 0, limit, BLOCK_SIZE, TILE)

    index = first_query + tl.arange(0, QUERIES)  # among the sequence's new tokens, which are the last of its context
    position = context_len - query_len + index
    row = (first_row + index)[:, None]
    dim = tl.arange(0, DIMS)[None, :]
    mask = (index < query_len)[:, None] & (dim < HEAD_DIM)
    query = tl.load(queries_ptr + row * query_row_stride + head * query_head_stride + dim, mask=mask, other=0.0)
    acc = tl.zeros([QUERIES, DIMS], tl.float32)
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    for start in range(0, limit, TILE):
        key_position = start + tl.arange(0, TILE)
        valid = key_position < limit
        keys = load_tile(
            keys_ptr, key_scales_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
            scales_block_stride, scales_head_stride, HEAD_DIM, DIMS, query.dtype,
        )  # fmt: skip
        values = load_tile(
            values_ptr, value_scales_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
            scales_block_stride, scales_head_stride, HEAD_DIM, DIMS, query.dtype,
        )  # fmt: skip
        block, offset = locate(block_table_ptr, start + TILE, limit, BLOCK_SIZE, TILE)  # ahead: no tile waits for it
        scores = tl.dot(query, keys.T, input_precision="ieee") * scale
        if start + TILE > common:  # the tiles before need no causal mask
            scores = tl.where(key_position[None, :] <= position[:, None], scores, float("-inf"))
        acc, largest, total = online_softmax(scores, values, acc, largest, total)

    out = out_ptr + row * out_row_stride + head * out_head_stride + dim
    tl.store(out, weighted_mean(acc, total).to(out_ptr.dtype.element_ty), mask=mask)


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
    check_supported(queries, cache)
    out = queries.new_empty(queries.shape) if out is None else out
    num_seqs = len(context_lens)
    if num_seqs == 0 or max_query_len == 0:
        return out
    num_heads, head_dim = queries.shape[1:]
    _, block_size, num_kv_heads, _ = cache.keys.shape
    group = num_heads // num_kv_heads
    dims = triton.next_power_of_2(head_dim)
    scale_strides = (0, 0) if cache.key_scales is None else cache.key_scales.stride()
    arguments = (
        out, queries, cache.keys, cache.values, cache.key_scales, cache.value_scales,
        block_tables, query_start_loc, context_lens, scale * LOG2_E,
        *out.stride()[:2], *queries.stride()[:2], *cache.keys.stride()[:3], *scale_strides, block_tables.stride(0),
        group, head_dim, block_size,
    )  # fmt: skip
    if max_query_len == 1:
        tile, warps, stages = DECODE_TILES[queries.element_size(), dims]
        heads = max(16, triton.next_power_of_2(group))  # the tensor cores multiply 16 rows at a time
        decode_kernel[(num_kv_heads, num_seqs)](*arguments, heads, dims, tile, num_warps=warps, num_stages=stages)
    else:
        tile_queries, tile, warps, stages = PREFILL_TILES[queries.element_size(), dims]
        prefill_kernel[(num_heads, num_seqs, triton.cdiv(max_query_len, tile_queries))](
            *arguments, tile_queries, dims, tile, num_warps=warps, num_stages=stages,
            maxnreg=PREFILL_REGISTERS.get((queries.element_size(), dims)),
        )  # fmt: skip
    return out


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
