"""Attention over a paged cache, one program a tile of queries: one kernel for prompts and for decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

QUERIES = 16
TILE = 16


@triton.jit
def attention_kernel(
    out_ptr, queries_ptr,  # [num_tokens, num_heads, HEAD_DIM]
    keys_ptr, values_ptr,  # [num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM]
    block_tables_ptr,  # int32 [num_seqs, width]
    query_start_loc_ptr, context_lens_ptr,  # int32 [num_seqs + 1], [num_seqs]
    scale,
    out_row_stride, out_head_stride, query_row_stride, query_head_stride,
    block_stride, slot_stride, head_stride, table_stride,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    QUERIES: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One program: a tile of QUERIES new tokens of one sequence, in one query head."""
    head = tl.program_id(0)
    kv_head = head // GROUP
    seq = tl.program_id(2)
    first_row = tl.load(query_start_loc_ptr + seq).to(tl.int64)
    query_len = tl.load(query_start_loc_ptr + seq + 1) - first_row.to(tl.int32)
    context_len = tl.load(context_lens_ptr + seq)
    first_query = tl.program_id(1) * QUERIES
    if first_query >= query_len:
        return

    index = first_query + tl.arange(0, QUERIES)
    row = first_row + index
    dim = tl.arange(0, DIMS)
    inside = dim < HEAD_DIM
    query_mask = (index < query_len)[:, None] & inside[None, :]
    query = tl.load(
        queries_ptr + row[:, None] * query_row_stride + head * query_head_stride + dim[None, :],
        mask=query_mask, other=0.0,
    )  # fmt: skip
    acc = tl.zeros([QUERIES, DIMS], tl.float32)
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    for start in range(0, context_len, TILE):
        key_position = start + tl.arange(0, TILE)
        valid = key_position < context_len
        entry = block_tables_ptr + seq * table_stride + key_position // BLOCK_SIZE
        block = tl.load(entry, mask=valid, other=0).to(tl.int64)
        vectors = block * block_stride + key_position % BLOCK_SIZE * slot_stride + kv_head * head_stride
        mask = valid[:, None] & inside[None, :]
        keys = tl.load(keys_ptr + vectors[:, None] + dim[None, :], mask=mask, other=0.0)
        values = tl.load(values_ptr + vectors[:, None] + dim[None, :], mask=mask, other=0.0)
        scores = tl.dot(query, keys.T, input_precision="ieee") * scale
        visible = (key_position[None, :] <= index[:, None]) & valid[None, :]
        scores = tl.where(visible, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - new_largest[:, None])
        rescale = tl.exp(largest - new_largest)
        acc = tl.dot(weights.to(values.dtype), values, acc * rescale[:, None], input_precision="ieee")
        total = total * rescale + tl.sum(weights, 1)
        largest = new_largest
    out = out_ptr + row[:, None] * out_row_stride + head * out_head_stride + dim[None, :]
    tl.store(out, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=query_mask)


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
    """Return the attention of each query over its sequence's context, causally masked: `[num_tokens, heads, head_dim]`.

    Sequence `i`'s new tokens, rows `query_start_loc[i]` to `query_start_loc[i + 1]`, are the last of its context.
    `cache.keys` and `cache.values`: `[num_blocks, block_size, num_kv_heads, head_dim]`, laid out alike.
    """
    out = queries.new_empty(queries.shape) if out is None else out
    num_heads, head_dim = queries.shape[1:]
    _, block_size, num_kv_heads, _ = cache.keys.shape
    attention_kernel[(num_heads, triton.cdiv(max_query_len, QUERIES), len(context_lens))](
        out, queries, cache.keys, cache.values, block_tables, query_start_loc, context_lens, scale,
        *out.stride()[:2], *queries.stride()[:2], *cache.keys.stride()[:3], block_tables.stride(0),
        num_heads // num_kv_heads, head_dim, block_size, QUERIES, triton.next_power_of_2(head_dim), TILE,
    )  # fmt: skip
    return out
