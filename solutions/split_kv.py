"""Decode attention for what `triton_attention` leaves a GPU waiting with: few sequences, and an INT8 cache.

A context is cut into parts, each part's softmax is computed as if it were all, and a second kernel weighs the parts
("Flash-Decoding", Dao et al., 2023): one long sequence keeps the whole GPU busy.

INT8 takes more instructions for fewer bytes. So a program takes as many neighbouring KV heads as fill a row of 128
bytes, as if they were one wide head: a query is 0 in the dimensions that are not its own head's. And the cache is read
as int16, two numbers each. Tensor cores want two keys' numbers of one dimension in a register, and the instruction that
loads them so (`ldmatrix.trans`) moves 16 bits at a time: of a pair, one half belongs to an even dimension and one to an
odd, and no byte has to change places. Scales stay outside of the products: those of keys multiply the scores, those of
values the weights.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from solutions import triton_attention
from solutions.triton_attention import DECODE_TILES, LOG2_E, check_supported, locate

if TYPE_CHECKING:
    from solutions.triton_attention import LayerCache

# By the bytes of a cached number: as many programs keep an H200 busy, a few on each of its 132 multiprocessors.
PROGRAMS = {1: 1024, 2: 256, 4: 256}
PART = 64  # keys that are worth a program of their own
MOST_SPLITS = 64  # weighing more parts takes longer than it saves
INT8_TILE = (32, 1, 5)  # as `DECODE_TILES`: small programs, so that many are under way while each unpacks
ROW = 128  # bytes of a key or value that a program reads at least

# As `unpack` without it, four numbers at a time.
UNPACK = tl.constexpr("""{
    .reg .b32 biased, low, high, nine;
    mov.b32 nine, 0x48804880;
    xor.b32 biased, $2, 0x80808080;
    prmt.b32 low, biased, 0x48484848, 0x4240;
    prmt.b32 high, biased, 0x48484848, 0x4341;
    sub.f16x2 $0, low, nine;
    sub.f16x2 $1, high, nine;
}""")


@triton.jit
def unpack(pairs, ASM: tl.constexpr):
    """Return the lower and the upper signed byte of int16 numbers in 128ths, as fp16, which has these exactly.

    0x4800 is fp16's 8, of which the last ten bits count 128ths. A byte with its sign bit flipped is what it was and 128
    more: put there, it makes 9 + byte / 128.
    """
    if ASM:
        return tl.inline_asm_elementwise(
            UNPACK, "=r,=r,r", [pairs], dtype=(tl.float16, tl.float16), is_pure=True, pack=2
        )
    else:  # noqa: RET505 (Triton compiles both unless one is an else)
        low, high = (pairs & 0xFF) ^ 0x4880, ((pairs >> 8) & 0xFF) ^ 0x4880
        return low.to(tl.float16, bitcast=True) - 9.0, high.to(tl.float16, bitcast=True) - 9.0


@triton.jit
def load_halves(
    cache_ptr, vectors, column, valid,
    DIM: tl.constexpr, DIMS: tl.constexpr, INT8: tl.constexpr, ASM: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """Return the keys or values that start at `vectors` in two tiles of `dtype`, `column` from 0 to `DIMS // 2 - 1`.

    Floats: their first half and their last. INT8: the numbers of even dimension and those of odd, in 128ths, without
    their scales. What is not valid is 0.
    """
    if INT8:
        pairs = (cache_ptr + vectors).to(tl.pointer_type(tl.int16)) + column
        one, two = unpack(tl.load(pairs, mask=valid & (column < DIM // 2), other=0), ASM)
    else:
        place = cache_ptr + vectors + column
        one = tl.load(place, mask=valid & (column < DIM), other=0.0)
        two = tl.load(place + DIMS // 2, mask=valid & (column + DIMS // 2 < DIM), other=0.0)
    return one.to(dtype), two.to(dtype)


@triton.jit
def load_scales(scales_ptr, scales, stride, valid, own, factor, KV_HEADS: tl.constexpr):
    """Return `factor` times the scale of each key and each query head's KV head, `[TILE, HEADS]`.

    `scales`: where those of the first KV head are; `own`: which of the KV heads a query head reads, `[1, HEADS]`.
    """
    found = (tl.load(scales_ptr + scales, mask=valid, other=0.0) * factor)[:, None]
    for kv_head in tl.static_range(1, KV_HEADS):
        other = tl.load(scales_ptr + scales + kv_head * stride, mask=valid, other=0.0) * factor
        found = tl.where(own == kv_head, other[:, None], found)
    return found


@triton.jit
def split_kernel(
    out_ptr, queries_ptr,  # [splits, num_tokens, num_kv_heads * GROUP, HEAD_DIM], the same without splits
    keys_ptr, values_ptr,  # [num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM]
    key_scales_ptr, value_scales_ptr,  # fp32 [num_blocks, num_kv_heads], or None
    block_tables_ptr,  # int32 [num_seqs, width]
    query_start_loc_ptr, context_lens_ptr,  # int32 [num_seqs + 1], [num_seqs]
    sums_ptr,  # fp32 [splits, num_tokens, num_kv_heads * GROUP]: log2 of the sum of exp2(score); or None
    scale,
    out_split_stride, out_row_stride, out_head_stride, query_row_stride, query_head_stride,
    block_stride, slot_stride, head_stride, scales_block_stride, scales_head_stride, table_stride,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, KV_HEADS: tl.constexpr,
    HEADS: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """One program: one part of a sequence's context, for the query heads that share one of KV_HEADS KV heads.

    HEADS and DIMS are their number and the size of the KV heads together, rounded up. All tiles are `[keys, heads]` or
    `[dims, heads]`: tensor cores multiply no less than 16 rows, but 8 columns.
    """
    first_head = tl.program_id(0) * KV_HEADS
    seq = tl.program_id(1)
    split = tl.program_id(2)
    row = tl.load(query_start_loc_ptr + seq).to(tl.int64)
    if row == tl.load(query_start_loc_ptr + seq + 1):
        return
    context_len = tl.load(context_lens_ptr + seq)
    block_table_ptr = block_tables_ptr + seq.to(tl.int64) * table_stride
    part = tl.cdiv(tl.cdiv(context_len, TILE), tl.num_programs(2)) * TILE
    first = split * part
    limit = tl.minimum(first + part, context_len)

    INT8: tl.constexpr = key_scales_ptr is not None
    lane = tl.arange(0, HEADS)[None, :]
    head = first_head * GROUP + lane
    own = lane // GROUP  # of the KV heads: the one it reads
    column = tl.arange(0, DIMS // 2)[:, None]
    dim_1 = 2 * column if INT8 else column
    dim_2 = dim_1 + (1 if INT8 else DIMS // 2)
    mask_1 = (lane < KV_HEADS * GROUP) & (dim_1 // HEAD_DIM == own)
    mask_2 = (lane < KV_HEADS * GROUP) & (dim_2 // HEAD_DIM == own)
    query_ptr = queries_ptr + row * query_row_stride + head * query_head_stride
    query_1 = tl.load(query_ptr + dim_1 % HEAD_DIM, mask=mask_1, other=0.0)
    query_2 = tl.load(query_ptr + dim_2 % HEAD_DIM, mask=mask_2, other=0.0)
    dtype: tl.constexpr = query_1.dtype
    acc_1 = tl.zeros([DIMS // 2, HEADS], tl.float32)
    acc_2 = tl.zeros([DIMS // 2, HEADS], tl.float32)
    largest = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    for start in range(first, limit, TILE):
        block, offset = locate(block_table_ptr, start, limit, BLOCK_SIZE, TILE)
        valid = start + tl.arange(0, TILE) < limit
        vectors = block * block_stride + offset * slot_stride + first_head * head_stride
        keys_1, keys_2 = load_halves(
            keys_ptr, vectors[:, None], column.T, valid[:, None], KV_HEADS * HEAD_DIM, DIMS, INT8, ASM, dtype
        )
        values_1, values_2 = load_halves(
            values_ptr, vectors[None, :], column, valid[None, :], KV_HEADS * HEAD_DIM, DIMS, INT8, ASM, dtype
        )
        scores = tl.dot(keys_1, query_1, input_precision="ieee")
        scores = tl.dot(keys_2, query_2, scores, input_precision="ieee")
        if INT8:  # numbers are in 128ths
            scales = block * scales_block_stride + first_head * scales_head_stride
            scores *= load_scales(key_scales_ptr, scales, scales_head_stride, valid, own, scale * 128, KV_HEADS)
            value_scales = load_scales(value_scales_ptr, scales, scales_head_stride, valid, own, 128, KV_HEADS)
        else:
            scores *= scale
        scores = tl.where(valid[:, None], scores, float("-inf"))

        new_largest = tl.maximum(largest, tl.max(scores, 0))
        rescale = tl.exp2(largest - new_largest)
        weights = tl.exp2(scores - new_largest[None, :])
        total = total * rescale + tl.sum(weights, 0)
        largest = new_largest
        if INT8:
            weights *= value_scales
        weights = weights.to(dtype)
        acc_1 = tl.dot(values_1, weights, acc_1 * rescale[None, :], input_precision="ieee")
        acc_2 = tl.dot(values_2, weights, acc_2 * rescale[None, :], input_precision="ieee")

    total = tl.where(total > 0, total, 1.0)[None, :]  # a part may be empty
    out = split * out_split_stride + row * out_row_stride + head * out_head_stride
    tl.store(out_ptr + out + dim_1 % HEAD_DIM, (acc_1 / total).to(out_ptr.dtype.element_ty), mask=mask_1)
    tl.store(out_ptr + out + dim_2 % HEAD_DIM, (acc_2 / total).to(out_ptr.dtype.element_ty), mask=mask_2)
    if sums_ptr is not None:  # as `out_ptr` then, without gaps: one for each vector
        tl.store(sums_ptr + out // HEAD_DIM, largest[None, :] + tl.log2(total), mask=lane < KV_HEADS * GROUP)


@triton.jit
def combine_kernel(
    out_ptr,  # [num_tokens, num_heads, HEAD_DIM]
    parts_ptr, sums_ptr,  # fp32 [SPLITS, num_tokens, num_heads, HEAD_DIM] and [SPLITS, num_tokens, num_heads]
    query_start_loc_ptr,
    out_row_stride, out_head_stride, split_stride,  # num_tokens * num_heads
    HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, SPLITS: tl.constexpr, ROWS: tl.constexpr,  # ROWS: SPLITS, rounded up
):  # fmt: skip
    """Weigh the parts of one query's context: a part counts as much as its sum of exp2(score)."""
    head = tl.program_id(0)
    seq = tl.program_id(1)
    row = tl.load(query_start_loc_ptr + seq).to(tl.int64)
    if row == tl.load(query_start_loc_ptr + seq + 1):
        return
    split = tl.arange(0, ROWS)
    dim = tl.arange(0, DIMS)
    vector = split * split_stride + row * tl.num_programs(0) + head
    sums = tl.load(sums_ptr + vector, mask=split < SPLITS, other=float("-inf"))
    weights = tl.exp2(sums - tl.max(sums, 0))[:, None]
    parts = parts_ptr + vector[:, None] * HEAD_DIM + dim
    part = tl.load(parts, mask=(split < SPLITS)[:, None] & (dim < HEAD_DIM), other=0.0)
    out = tl.sum(part * weights, 0) / tl.sum(weights, 0)
    out_ptr += row * out_row_stride + head * out_head_stride
    tl.store(out_ptr + dim, out.to(out_ptr.dtype.element_ty), mask=dim < HEAD_DIM)


def num_splits(num_programs: int, max_context_len: int, num_bytes: int) -> int:
    """Return into how many parts to cut contexts of at most `max_context_len`, each the work of `num_programs`.

    `num_bytes` are those of a cached number.
    """
    return max(1, min(PROGRAMS[num_bytes] // max(1, num_programs), max_context_len // PART, MOST_SPLITS))


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
    """As `triton_attention.paged_attention`, which computes prefill, and decode where there is nothing to gain."""
    check_supported(queries, cache)
    num_seqs = len(context_lens)
    num_heads, head_dim = queries.shape[1:]
    _, block_size, num_kv_heads, _ = cache.keys.shape
    int8 = cache.key_scales is not None
    kv_heads = math.gcd(num_kv_heads, ROW // head_dim) if int8 and cache.keys.stride(2) == head_dim else 1
    max_context_len = block_tables.shape[1] * block_size
    splits = num_splits(num_kv_heads // kv_heads * num_seqs, max_context_len, cache.keys.element_size())
    if max_query_len != 1 or num_seqs == 0 or (splits == 1 and not int8):
        return triton_attention.paged_attention(
            queries, cache, block_tables, query_start_loc, context_lens, max_query_len, scale, out
        )
    out = queries.new_empty(queries.shape) if out is None else out
    parts, sums = out[None], None
    if splits > 1:
        parts = queries.new_empty((splits, *queries.shape), dtype=torch.float32)
        sums = parts.new_empty(parts.shape[:3])
    group = num_heads // num_kv_heads
    heads = max(8, triton.next_power_of_2(kv_heads * group))
    dims = triton.next_power_of_2(kv_heads * head_dim)
    small = int8 and queries.element_size() == 2
    tile, warps, stages = INT8_TILE if small else DECODE_TILES[queries.element_size(), dims]
    scale_strides = cache.key_scales.stride() if cache.key_scales is not None else (0, 0)
    split_kernel[(num_kv_heads // kv_heads, num_seqs, splits)](
        parts, queries, cache.keys, cache.values, cache.key_scales, cache.value_scales,
        block_tables, query_start_loc, context_lens, sums, scale * LOG2_E,
        *parts.stride()[:3], *queries.stride()[:2], *cache.keys.stride()[:3], *scale_strides, block_tables.stride(0),
        group, head_dim, block_size, kv_heads, heads, dims, tile, queries.is_cuda, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if sums is not None:
        combine_kernel[(num_heads, num_seqs)](
            out, parts, sums, query_start_loc, *out.stride()[:2], sums.stride(0),
            head_dim, triton.next_power_of_2(head_dim), splits, triton.next_power_of_2(splits), num_warps=1,
        )  # fmt: skip
    return out
