"""Decode attention that splits each context over several programs, and reads INT8 two numbers at a time.

One program for each sequence and KV head leaves most of a GPU idle when sequences are few; when they are many, too few
warps are still under way to hide what each one waits for. So a context is cut into parts, each part's softmax is
computed as if it were all, and a second kernel weighs the parts ("Flash-Decoding", Dao et al., 2023).

An INT8 cache is read as int16, two numbers each. Tensor cores want two keys' numbers of one dimension in a register,
and the instruction that loads them so (`ldmatrix.trans`) moves 16 bits at a time: of a pair, one half belongs to an
even dimension and one to an odd, and no byte has to change places. Scales stay outside of the products: those of keys
multiply the scores, those of values the weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from solutions import triton_attention
from solutions.triton_attention import LOG2_E, check_supported, locate, weighted_mean

if TYPE_CHECKING:
    from solutions.triton_attention import LayerCache

# (bytes of a cached number, or 4 for fp32 queries; head size rounded up) to (keys a tile, warps, pipeline stages, most
# registers a thread).
TILES = {
    (1, 32): (64, 2, 5, 128),
    (1, 64): (64, 2, 5, 128),
    (1, 128): (64, 2, 5, 168),
    **{shape: (*tile, None) for shape, tile in triton_attention.DECODE_TILES.items()},
}
PROGRAMS = 768  # as many programs keep an H200 busy: a few on each of its 132 multiprocessors
PART = 128  # keys that are worth a program of their own

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
    cache_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
    HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, INT8: tl.constexpr, ASM: tl.constexpr, dtype: tl.constexpr,
):  # fmt: skip
    """Return one KV head's keys or values at `block` and `offset` in two tiles `[TILE, DIMS // 2]` of `dtype`.

    Floats: their first half and their last. INT8: those of even dimension and those of odd, in 128ths, without their
    scales. What is not valid is 0.
    """
    vectors = block * block_stride + offset * slot_stride + kv_head * head_stride
    column = tl.arange(0, DIMS // 2)[None, :]
    if INT8:
        pairs = (cache_ptr + vectors).to(tl.pointer_type(tl.int16))[:, None] + column
        one, two = unpack(tl.load(pairs, mask=valid[:, None] & (column < HEAD_DIM // 2), other=0), ASM)
    else:
        place = cache_ptr + vectors[:, None] + column
        one = tl.load(place, mask=valid[:, None] & (column < HEAD_DIM), other=0.0)
        two = tl.load(place + DIMS // 2, mask=valid[:, None] & (column + DIMS // 2 < HEAD_DIM), other=0.0)
    return one.to(dtype), two.to(dtype)


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
    sums_split_stride, sums_row_stride,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr, ASM: tl.constexpr,
):  # fmt: skip
    """One program: as `triton_attention.decode_kernel`, for one part of the context."""
    kv_head = tl.program_id(0)
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
    lane = tl.arange(0, HEADS)[:, None]
    head = kv_head * GROUP + lane
    column = tl.arange(0, DIMS // 2)[None, :]
    dim_1 = 2 * column if INT8 else column
    dim_2 = dim_1 + (1 if INT8 else DIMS // 2)
    mask_1, mask_2 = (lane < GROUP) & (dim_1 < HEAD_DIM), (lane < GROUP) & (dim_2 < HEAD_DIM)
    query_ptr = queries_ptr + row * query_row_stride + head * query_head_stride
    query_1 = tl.load(query_ptr + dim_1, mask=mask_1, other=0.0)
    query_2 = tl.load(query_ptr + dim_2, mask=mask_2, other=0.0)
    dtype: tl.constexpr = query_1.dtype
    acc_1 = tl.zeros([HEADS, DIMS // 2], tl.float32)
    acc_2 = tl.zeros([HEADS, DIMS // 2], tl.float32)
    largest = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    for start in range(first, limit, TILE):
        block, offset = locate(block_table_ptr, start, limit, BLOCK_SIZE, TILE)
        valid = start + tl.arange(0, TILE) < limit
        keys_1, keys_2 = load_halves(
            keys_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
            HEAD_DIM, DIMS, INT8, ASM, dtype,
        )  # fmt: skip
        values_1, values_2 = load_halves(
            values_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
            HEAD_DIM, DIMS, INT8, ASM, dtype,
        )  # fmt: skip
        scores = tl.dot(query_1, keys_1.T, input_precision="ieee")
        scores = tl.dot(query_2, keys_2.T, scores, input_precision="ieee")
        if INT8:
            scales = block * scales_block_stride + kv_head * scales_head_stride
            key_scales = tl.load(key_scales_ptr + scales, mask=valid, other=0.0) * (scale * 128)
            value_scales = tl.load(value_scales_ptr + scales, mask=valid, other=0.0) * 128
            scores *= key_scales[None, :]
        else:
            scores *= scale
        scores = tl.where(valid[None, :], scores, float("-inf"))

        new_largest = tl.maximum(largest, tl.max(scores, 1))
        rescale = tl.exp2(largest - new_largest)
        weights = tl.exp2(scores - new_largest[:, None])
        total = total * rescale + tl.sum(weights, 1)
        largest = new_largest
        if INT8:
            weights *= value_scales[None, :]
        weights = weights.to(dtype)
        acc_1 = tl.dot(weights, values_1, acc_1 * rescale[:, None], input_precision="ieee")
        acc_2 = tl.dot(weights, values_2, acc_2 * rescale[:, None], input_precision="ieee")

    out = out_ptr + split * out_split_stride + row * out_row_stride + head * out_head_stride
    tl.store(out + dim_1, weighted_mean(acc_1, total).to(out_ptr.dtype.element_ty), mask=mask_1)
    tl.store(out + dim_2, weighted_mean(acc_2, total).to(out_ptr.dtype.element_ty), mask=mask_2)
    if sums_ptr is not None:
        lane = tl.arange(0, HEADS)
        sums = sums_ptr + split * sums_split_stride + row * sums_row_stride + kv_head * GROUP + lane
        tl.store(sums, largest + tl.log2(tl.maximum(total, 1.0)), mask=lane < GROUP)


@triton.jit
def combine_kernel(
    out_ptr,  # [num_tokens, num_heads, HEAD_DIM]
    parts_ptr, sums_ptr,  # fp32 [SPLITS, num_tokens, num_heads, HEAD_DIM] and [SPLITS, num_tokens, num_heads]
    query_start_loc_ptr,
    out_row_stride, out_head_stride, split_stride, row_stride, head_stride, sums_split_stride, sums_row_stride,
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
    sums_ptr += row * sums_row_stride + head
    sums = tl.load(sums_ptr + split * sums_split_stride, mask=split < SPLITS, other=float("-inf"))
    weights = tl.exp2(sums - tl.max(sums, 0))
    parts = parts_ptr + split[:, None] * split_stride + row * row_stride + head * head_stride + dim[None, :]
    part = tl.load(parts, mask=(split < SPLITS)[:, None] & (dim < HEAD_DIM)[None, :], other=0.0)
    out = tl.sum(part * weights[:, None], 0) / tl.sum(weights, 0)
    out_ptr += row * out_row_stride + head * out_head_stride
    tl.store(out_ptr + dim, out.to(out_ptr.dtype.element_ty), mask=dim < HEAD_DIM)


def num_splits(num_programs: int, max_context_len: int) -> int:
    """Return into how many parts to cut contexts of at most `max_context_len`, of which there are `num_programs`."""
    return max(1, min(PROGRAMS // num_programs, max_context_len // PART))


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
    """As `triton_attention.paged_attention`, which computes whatever is not decode."""
    num_seqs = len(context_lens)
    if max_query_len != 1 or num_seqs == 0:
        return triton_attention.paged_attention(
            queries, cache, block_tables, query_start_loc, context_lens, max_query_len, scale, out
        )
    check_supported(queries, cache)
    out = queries.new_empty(queries.shape) if out is None else out
    num_heads, head_dim = queries.shape[1:]
    _, block_size, num_kv_heads, _ = cache.keys.shape
    group = num_heads // num_kv_heads
    dims = triton.next_power_of_2(head_dim)
    heads = max(16, triton.next_power_of_2(group))  # the tensor cores multiply 16 rows at a time
    size = 4 if queries.element_size() == 4 else cache.keys.element_size()
    tile, warps, stages, registers = TILES[size, dims]
    splits = num_splits(num_kv_heads * num_seqs, block_tables.shape[1] * block_size)
    parts, sums = out[None], None
    if splits > 1:
        parts = queries.new_empty((splits, *queries.shape), dtype=torch.float32)
        sums = parts.new_empty(parts.shape[:3])
    scale_strides = (0, 0) if cache.key_scales is None else cache.key_scales.stride()
    split_kernel[(num_kv_heads, num_seqs, splits)](
        parts, queries, cache.keys, cache.values, cache.key_scales, cache.value_scales,
        block_tables, query_start_loc, context_lens, sums, scale * LOG2_E,
        *parts.stride()[:3], *queries.stride()[:2], *cache.keys.stride()[:3], *scale_strides,
        block_tables.stride(0), *((0, 0) if sums is None else sums.stride()[:2]),
        group, head_dim, block_size, heads, dims, tile, queries.is_cuda,
        num_warps=warps, num_stages=stages, maxnreg=registers,
    )  # fmt: skip
    if sums is not None:
        combine_kernel[(num_heads, num_seqs)](
            out, parts, sums, query_start_loc, *out.stride()[:2], *parts.stride()[:3], *sums.stride()[:2],
            head_dim, dims, splits, triton.next_power_of_2(splits), num_warps=1,
        )  # fmt: skip
    return out
