"""Right kernels in other styles than the reference's are right on the emulator, and nothing is said of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from course import emulator
from tests.emulator.batches import SOLUTIONS, Batch, largest_error, load, make_batch

# One program for a tile of queries of all the heads that share a KV head; the sequence is searched for; the strides
# are declared as 64 bits; masks are added to the scores; keys are loaded transposed.
TILES_OF_A_GROUP = """
import triton
import triton.language as tl

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def ceil_div(x, y):
    return (x + y - 1) // y


@triton.jit
def find_sequence(starts_ptr, tile, num_seqs, TILE_Q: tl.constexpr):
    left: tl.int32 = 0
    right = num_seqs
    while left < right:
        middle = (left + right) // 2
        first_tile = tl.load(starts_ptr + middle) // TILE_Q + middle
        if first_tile <= tile:
            left = middle + 1
        else:
            right = middle
    return left - 1


@triton.jit
def kernel(
    out_ptr, q_ptr, k_ptr, v_ptr, tables_ptr, starts_ptr, lens_ptr, sinks_ptr, scale, num_seqs: tl.int32,
    table_stride: tl.int64, q_stride_t: tl.int64, q_stride_h: "i64", k_stride_b: tl.int64, k_stride_s: tl.int64,
    k_stride_h: tl.int64, o_stride_t: tl.int64, o_stride_h: tl.int64, GROUP: tl.constexpr,
    HEAD: tl.constexpr, HEAD_PADDED: tl.constexpr, BLOCK: tl.constexpr,
    TILE_Q: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, WINDOW: tl.constexpr = 0,
):
    kv_head, tile = tl.program_id(0), tl.program_id(1)
    tl.static_assert(q_stride_t.dtype == tl.int64)
    seq = find_sequence(starts_ptr, tile, num_seqs, TILE_Q)
    start = tl.load(starts_ptr + seq)
    new = tl.load(starts_ptr + seq + 1) - start
    local = tile - (start // TILE_Q + seq)
    if local * TILE_Q >= new:
        return
    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, HEAD_PADDED)
    query = local * TILE_Q + rows // GROUP
    head = kv_head * GROUP + rows % GROUP
    if HEAD_PADDED != HEAD:
        dim_mask = dims < HEAD
    else:
        dim_mask = tl.full((1,), 1, dtype=tl.int1)
    row_mask = (query < new) & (rows < TILE_Q * GROUP)
    at = (start + query)[:, None] * q_stride_t + head[:, None] * q_stride_h + dims[None, :]
    q = tl.load(q_ptr + at, mask=dim_mask[None, :] & row_mask[:, None], other=0.0, cache_modifier=".cg")
    if sinks_ptr is not None:
        m = tl.load(sinks_ptr + head).to(dtype=tl.float32)
    else:
        m = tl.zeros([ROWS], dtype=tl.float32) - float("inf")
    l = tl.zeros([ROWS], dtype=tl.float32)
    acc = tl.zeros([ROWS, HEAD_PADDED], dtype=tl.float32)
    total = tl.load(lens_ptr + seq)
    past = total - new
    end = min(past + (local + 1) * TILE_Q, total)
    first, last = 0, ceil_div(end, KEYS)
    if WINDOW > 0:
        first = max(0, (past - WINDOW) // KEYS)
    for j in range(first, last):
        keys = j * KEYS + tl.arange(0, KEYS)
        keys = tl.max_contiguous(tl.multiple_of(keys, KEYS), KEYS)
        there = keys < end
        block = tl.load(tables_ptr + seq * table_stride + keys // BLOCK, mask=there, other=0).to(tl.int64)
        spot = block * k_stride_b + (keys % BLOCK) * k_stride_s + kv_head * k_stride_h
        k = tl.load(k_ptr + spot[None, :] + dims[:, None], mask=dim_mask[:, None] & there[None, :], other=0.0)
        v = tl.load(v_ptr + spot[:, None] + dims[None, :], mask=there[:, None] & dim_mask[None, :], other=0.0)
        s = (scale * LOG2_E) * tl.dot(q, k, allow_tf32=False)
        seen = keys[None, :] < past + query[:, None] + 1
        s += tl.where(seen & there[None, :] & row_mask[:, None], 0, -1.0e30)
        m_new = tl.maximum(m, tl.max(s, axis=1))
        p = tl.math.exp2(s - m_new[:, None])
        alpha = tl.math.exp2(m - m_new)
        l = l * alpha + tl.sum(p, axis=1)
        acc *= alpha[:, None]
        acc += tl.dot(p.to(v.dtype), v, allow_tf32=False)
        m = m_new
    acc = acc * (1.0 / l)[:, None]
    to = (start + query)[:, None] * o_stride_t + head[:, None] * o_stride_h + dims[None, :]
    tl.store(out_ptr + to, acc.to(out_ptr.type.element_ty), mask=dim_mask[None, :] & row_mask[:, None])


def paged_attention(queries, cache, block_tables, query_start_loc, context_lens, max_query_len, scale):
    tokens, heads, head_dim = queries.shape
    _, block_size, kv_heads, _ = cache.keys.shape
    out = queries.new_empty(queries.shape)
    group, num_seqs = heads // kv_heads, len(context_lens)
    rows = 16
    tile_q = rows // group
    grid = lambda meta: (kv_heads, tokens // meta["TILE_Q"] + num_seqs)  # noqa: E731
    kernel[grid](
        out, queries, cache.keys, cache.values, block_tables, query_start_loc, context_lens, None, scale, num_seqs,
        block_tables.stride(0), *queries.stride()[:2], *cache.keys.stride()[:3],
        *out.stride()[:2], group, head_dim,
        triton.next_power_of_2(head_dim), block_size, tile_q, rows, KEYS=32, num_warps=4,
    )
    return out
"""

# One program for a query and head, without tl.dot, token by token; an exponential to base e; a running maximum kept as
# a scalar.
ONE_KEY_AT_A_TIME = """
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["scale"])
def kernel(out_ptr, q_ptr, k_ptr, v_ptr, tables_ptr, seqs_ptr, ends_ptr, scale, table_stride, q_stride_t, q_stride_h,
           k_stride_b, k_stride_s, k_stride_h, o_stride_t, o_stride_h, GROUP: tl.constexpr, D: tl.constexpr,
           DP: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    d = tl.arange(0, DP)
    keep = d < D
    q = tl.load(q_ptr + token * q_stride_t + head * q_stride_h + d, mask=keep, other=0.0).to(tl.float32) * scale
    seq = tl.load(seqs_ptr + token)
    end = tl.load(ends_ptr + token)
    best = float("-inf")
    total = 0.0
    acc = tl.zeros((DP,), dtype=tl.float32)
    for position in tl.range(0, end, num_stages=2):
        block = tl.load(tables_ptr + seq * table_stride + position // BLOCK).to(tl.int64)
        place = block * k_stride_b + position % BLOCK * k_stride_s + head // GROUP * k_stride_h
        k = tl.load(k_ptr + place + d, mask=keep, other=0.0).to(tl.float32)
        v = tl.load(v_ptr + place + d, mask=keep, other=0.0).to(tl.float32)
        score = tl.sum(q * k, axis=0)
        higher = score > best
        new_best = tl.where(higher, score, best)
        shrink = tl.exp(best - new_best)
        weight = tl.exp(score - new_best)
        total = total * shrink + weight
        acc = tl.fma(acc, shrink, weight * v)
        best = new_best
    if end > 0 and not total == 0.0:
        tl.store(out_ptr + token * o_stride_t + head * o_stride_h + d, (acc / total).to(out_ptr.dtype.element_ty), keep)


def paged_attention(queries, cache, block_tables, query_start_loc, context_lens, max_query_len, scale):
    from course import emulator

    starts, lengths = query_start_loc.tolist(), context_lens.tolist()
    seqs, ends = [], []
    for seq, length in enumerate(lengths):
        new = starts[seq + 1] - starts[seq]
        seqs += [seq] * new
        ends += range(length - new + 1, length + 1)
    tokens, heads, head_dim = queries.shape
    _, block_size, kv_heads, _ = cache.keys.shape
    out = queries.new_empty(queries.shape)
    kernel[tokens, heads](
        out, queries, cache.keys, cache.values, block_tables, emulator.tensor(seqs, "int32"),
        emulator.tensor(ends, "int32"), scale, block_tables.stride(0), *queries.stride()[:2],
        *cache.keys.stride()[:3], *out.stride()[:2], GROUP=heads // kv_heads, D=head_dim,
        DP=triton.next_power_of_2(head_dim), BLOCK=block_size,
    )
    return out
"""

STYLES = {"tiles_of_a_group": TILES_OF_A_GROUP, "one_key_at_a_time": ONE_KEY_AT_A_TIME}


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    emulator.install()
    yield
    emulator.uninstall()


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(
    ("lengths", "sizes"),
    [
        (([9, 20, 33], [9, 5, 12]), {}),
        (([9, 20], [1, 1]), {"num_heads": 6, "num_kv_heads": 2, "head_dim": 48, "block_size": 8}),
        (([18, 7], [3, 7]), {"dtype": "float16"}),
    ],
)
def test_another_style_is_right(style: str, lengths: Any, sizes: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / f"{style}.py"
    path.write_text(STYLES[style], "utf-8")
    batch: Batch = make_batch(load(SOLUTIONS / "triton_slot_write.py"), *lengths, **sizes)
    half = sizes.get("dtype") == "float16"
    assert largest_error(batch.run(load(path)), batch.expected) < (4e-3 if half else 3e-6)
