# Written as vectors: a program owns one query row of one head, finds its sequence by itself, and multiplies by summing.
# Decoding is one program a KV head, as the grid has it, with keys laid out the other way round. None calls another.
import triton
import triton.language as tl

STEP = tl.constexpr(16)  # keys at a time, whatever the launcher would choose


@triton.jit
def locate(table, first, end, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    where = tl.arange(0, TILE) + first
    entry = where // BLOCK_SIZE
    number = tl.load(table + entry, mask=where < end, other=0)
    return tl.cast(number, tl.int64), where - entry * BLOCK_SIZE


@triton.jit
def load_tile(
    cache,
    scales,
    block,
    offset,
    head,
    wanted,
    by_block,
    by_slot,
    by_head,
    scales_by_block,
    scales_by_head,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    dtype: tl.constexpr,
):
    column = tl.arange(0, DIMS)
    start = cache + (offset * by_slot + (block * by_block + head * by_head))
    inside = wanted[:, None] & (column < HEAD_DIM)[None, :]
    found = tl.load(start[:, None] + column[None, :], mask=inside, other=0)
    if scales is not None:
        step = tl.load(scales + (block * scales_by_block + head * scales_by_head), mask=wanted, other=0)
        found = found.to(tl.float32) * step[:, None]
    return found.to(dtype)


@triton.jit
def online_softmax(scores, values, acc, largest, total):
    here = tl.max(scores, axis=1)
    top = tl.where(here > largest, here, largest)
    old = tl.exp2(largest - top)
    share = tl.exp2(scores - top[:, None])
    new = tl.dot(share.to(values.dtype), values, input_precision="ieee")
    return acc * old[:, None] + new, top, tl.fma(total, old, tl.sum(share, axis=1))


@triton.jit
def decode_kernel(
    out,
    q,
    k,
    v,
    k_scales,
    v_scales,
    tables,
    starts,
    lengths,
    scale,
    out_by_row,
    out_by_head,
    q_by_row,
    q_by_head,
    by_block,
    by_slot,
    by_head,
    scales_by_block,
    scales_by_head,
    by_table,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr,
    DIMS: tl.constexpr,
    TILE: tl.constexpr,
):
    seq = tl.program_id(1)
    row = tl.load(starts + seq).to(tl.int64)
    if tl.load(starts + seq + 1) > row:
        length = tl.load(lengths + seq)
        kv = tl.program_id(0)
        member = tl.arange(0, HEADS)
        column = tl.arange(0, DIMS)
        mine = (member < GROUP)[:, None] & (column < HEAD_DIM)[None, :]
        head = kv * GROUP + member
        places = head[:, None] * q_by_head + column[None, :]
        query = tl.load(q + row * q_by_row + places, mask=mine, other=0)
        top = tl.full([HEADS], -1e30, tl.float32)
        total = tl.zeros([HEADS], tl.float32)
        acc = tl.zeros([HEADS, DIMS], tl.float32)
        for tile in range(tl.cdiv(length, STEP)):
            key = tile * STEP + tl.arange(0, STEP)
            there = key < length
            block = tl.load(tables + seq * by_table.to(tl.int64) + key // BLOCK_SIZE, mask=there, other=0).to(tl.int64)
            vector = block * by_block + (key % BLOCK_SIZE) * by_slot + kv * by_head
            across = column[:, None] + vector[None, :]
            k_t = tl.load(k + across, mask=there[None, :] & (column < HEAD_DIM)[:, None], other=0)
            v_t = tl.load(v + across, mask=there[None, :] & (column < HEAD_DIM)[:, None], other=0)
            if k_scales is not None:
                place = block * scales_by_block + kv * scales_by_head
                k_t = k_t.to(tl.float32) * tl.load(k_scales + place, mask=there, other=0)[None, :]
                v_t = v_t.to(tl.float32) * tl.load(v_scales + place, mask=there, other=0)[None, :]
            scores = tl.dot(query, k_t.to(query.dtype), input_precision="ieee") * scale
            scores += tl.where(there, 0.0, -1e30)[None, :]
            higher = tl.maximum(top, tl.max(scores, 1))
            old = tl.exp2(top - higher)
            share = tl.exp2(scores - higher[:, None])
            v_tile = tl.trans(v_t).to(query.dtype)
            acc = acc * old[:, None] + tl.dot(share.to(query.dtype), v_tile, input_precision="ieee")
            total = total * old + tl.sum(share, 1)
            top = higher
        target = out + row * out_by_row + head[:, None] * out_by_head + column[None, :]
        tl.store(target, (acc / total[:, None]).to(out.dtype.element_ty), mask=mine)


@triton.jit
def prefill_kernel(
    out,
    q,
    k,
    v,
    k_scales,
    v_scales,
    tables,
    starts,
    lengths,
    scale,
    num_seqs,
    out_by_row,
    out_by_head,
    q_by_row,
    q_by_head,
    by_block,
    by_slot,
    by_head,
    scales_by_block,
    scales_by_head,
    by_table,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    DIMS: tl.constexpr,
):
    row = tl.program_id(0)
    head = tl.program_id(1)
    seq = 0  # the last sequence that starts at this row or before it
    for other in range(1, num_seqs):
        seq = tl.where(tl.load(starts + other) <= row, other, seq)
    end = tl.load(starts + seq + 1)
    if row < end:
        last = tl.load(lengths + seq) - (end - row)  # this row's position
        kv = head // GROUP
        column = tl.arange(0, DIMS)
        inside = column < HEAD_DIM
        query = tl.load(q + row.to(tl.int64) * q_by_row + head * q_by_head + column, mask=inside, other=0).to(
            tl.float32
        )
        top = -1e30
        total = 0.0
        acc = tl.zeros([DIMS], tl.float32)
        for tile in range(last // STEP + 1):
            key = tile * STEP + tl.arange(0, STEP)
            seen = key <= last
            block = tl.load(tables + seq * by_table.to(tl.int64) + key // BLOCK_SIZE, mask=seen, other=0).to(tl.int64)
            vector = block * by_block + (key % BLOCK_SIZE) * by_slot + kv * by_head
            mask = seen[:, None] & inside[None, :]
            k_tile = tl.load(k + vector[:, None] + column[None, :], mask=mask, other=0).to(tl.float32)
            v_tile = tl.load(v + vector[:, None] + column[None, :], mask=mask, other=0).to(tl.float32)
            if k_scales is not None:
                place = block * scales_by_block + kv * scales_by_head
                k_tile *= tl.load(k_scales + place, mask=seen, other=0)[:, None]
                v_tile *= tl.load(v_scales + place, mask=seen, other=0)[:, None]
            scores = tl.where(seen, tl.sum(k_tile * query[None, :], 1) * scale, -1e30)
            higher = tl.maximum(top, tl.max(scores, 0))
            share = tl.exp2(scores - higher)
            old = tl.exp2(top - higher)
            acc = acc * old + tl.sum(v_tile * share[:, None], 0)
            total = total * old + tl.sum(share, 0)
            top = higher
        target = out + row.to(tl.int64) * out_by_row + head * out_by_head + column
        tl.store(target, (acc / total).to(out.dtype.element_ty), mask=inside)


def paged_attention(queries, cache, block_tables, query_start_loc, context_lens, max_query_len, scale, out=None):
    num_rows, num_heads, head_dim = queries.shape
    block_size, num_kv_heads = cache.keys.shape[1:3]
    if num_heads % num_kv_heads or block_size % 8 or queries.stride(2) != 1:
        raise ValueError(f"{num_heads} heads over {num_kv_heads}, blocks of {block_size}: not supported")
    if out is None:
        out = queries.new_empty(queries.shape)
    num_seqs = len(context_lens)
    if not num_seqs or not max_query_len:
        return out
    tensors = (
        out,
        queries,
        cache.keys,
        cache.values,
        cache.key_scales,
        cache.value_scales,
        block_tables,
        query_start_loc,
        context_lens,
        scale / 0.6931471805599453,
    )
    strides = [out.stride(0), out.stride(1), queries.stride(0), queries.stride(1)]
    strides += [cache.keys.stride(axis) for axis in range(3)]
    strides += [0, 0] if cache.key_scales is None else list(cache.key_scales.stride())
    strides.append(block_tables.stride(0))
    group, dims = num_heads // num_kv_heads, triton.next_power_of_2(head_dim)
    if max_query_len > 1:
        grid = (num_rows, num_heads)
        prefill_kernel[grid](*tensors, num_seqs, *strides, group, head_dim, block_size, dims, num_warps=1)
    else:
        sizes = (group, head_dim, block_size, max(16, triton.next_power_of_2(group)), dims, 16)
        decode_kernel[num_kv_heads, num_seqs](*tensors, *strides, *sizes, num_warps=1)
    return out
