"""Decoding over a paged cache, one program a query head: the first kernel of a new engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

TILE = 16


@triton.jit
def decode_kernel(
    out_ptr, queries_ptr,  # [num_tokens, num_heads, HEAD_DIM]
    keys_ptr, values_ptr,  # [num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM]
    block_tables_ptr,  # int32 [num_seqs, width]
    query_start_loc_ptr, context_lens_ptr,  # int32 [num_seqs + 1], [num_seqs]
    scale,
    out_row_stride, out_head_stride, query_row_stride, query_head_stride,
    block_stride, head_stride, slot_stride, table_stride,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One program: the one query of a sequence, in one query head."""
    head = tl.program_id(0)
    kv_head = head // GROUP
    seq = tl.program_id(1)
    row = tl.load(query_start_loc_ptr + seq).to(tl.int64)
    if row == tl.load(query_start_loc_ptr + seq + 1):
        return
    context_len = tl.load(context_lens_ptr + seq)
    dim = tl.arange(0, DIMS)
    inside = dim < HEAD_DIM
    query = tl.load(queries_ptr + row * query_row_stride + head * query_head_stride + dim, mask=inside, other=0.0)
    acc = tl.zeros([DIMS], tl.float32)
    largest = float("-inf")
    total = 0.0
    for start in range(0, context_len, TILE):
        position = start + tl.arange(0, TILE)
        valid = position < context_len
        entry = block_tables_ptr + seq * table_stride + position // BLOCK_SIZE
        block = tl.load(entry, mask=valid, other=0).to(tl.int64)
        vectors = block * block_stride + position % BLOCK_SIZE * slot_stride + kv_head * head_stride
        mask = valid[:, None] & inside[None, :]
        keys = tl.load(keys_ptr + vectors[:, None] + dim[None, :], mask=mask, other=0.0).to(tl.float32)
        values = tl.load(values_ptr + vectors[:, None] + dim[None, :], mask=mask, other=0.0).to(tl.float32)
        scores = tl.where(valid, tl.sum(keys * query[None, :], 1) * scale, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 0))
        weights = tl.exp(scores - new_largest)
        rescale = tl.exp(largest - new_largest)
        acc = acc * rescale + tl.sum(weights[:, None] * values, 0)
        total = total * rescale + tl.sum(weights, 0)
        largest = new_largest
    out = out_ptr + row * out_row_stride + head * out_head_stride + dim
    tl.store(out, (acc / total).to(out_ptr.dtype.element_ty), mask=inside)


def paged_attention(
    queries: torch.Tensor,
    cache: Any,
    block_tables: torch.Tensor,
    query_start_loc: torch.Tensor,
    context_lens: torch.Tensor,
    max_query_len: int,
    scale: float,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return the attention of each sequence's one query over its context: `[num_tokens, num_heads, head_dim]`.

    `cache.keys` and `cache.values`: `[num_blocks, block_size, num_kv_heads, head_dim]`, laid out alike.
    """
    out = queries.new_empty(queries.shape) if out is None else out
    num_heads, head_dim = queries.shape[1:]
    _, block_size, num_kv_heads, _ = cache.keys.shape
    query_row_stride, query_head_stride = queries.stride()[:2]
    out_row_stride, out_head_stride = out.stride()[:2]
    block_stride, head_stride, slot_stride = cache.keys.stride()[:3]
    decode_kernel[(num_heads, len(context_lens))](
        out, queries, cache.keys, cache.values, block_tables, query_start_loc, context_lens, scale,
        out_row_stride, out_head_stride, query_row_stride, query_head_stride,
        block_stride, head_stride, slot_stride, block_tables.stride(0),
        num_heads // num_kv_heads, head_dim, block_size, triton.next_power_of_2(head_dim), TILE,
    )  # fmt: skip
    return out
