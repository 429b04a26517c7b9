"""A decode step of GPT-2 in a few fused kernels, replayed as one CUDA graph: the fast path of the engine.

A step of one token a sequence does little arithmetic and reads all the weights, so it is bound by memory and by the
number of kernels that wait for each other. Hence: layer norm's gain and bias are folded into the weights that follow;
bias, GELU and residual ride on the matrix products; attention writes the new key and value itself; and the vocabulary
projection keeps the best token of each tile, so that no logits reach memory. The chosen token stays on the device and
is the next step's input. What depends on nothing in the step, the weights above all, is fetched before a kernel waits
for the one before it (programmatic dependent launch, on GPUs from Hopper on).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

if TYPE_CHECKING:
    from solutions.kv_cache import KVCache
    from solutions.weights import GPT2Config, Weights

LOG2_E = tl.constexpr(1.4426950408889634)
# Programmatic dependent launch: where a kernel lets the next one begin. With NONE they follow each other.
NONE, BEFORE, AFTER, EARLY = (tl.constexpr(place) for place in range(4))


@triton.jit
def gelu(x):
    """GPT-2's GELU: the tanh form, written with the logistic function."""
    return x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


@triton.jit
def let_next_begin(here: tl.constexpr):
    """Let the next kernel begin to fetch what it can before it waits for this one."""
    if here:
        gdc_launch_dependents()


@triton.jit
def await_inputs(PDL: tl.constexpr):
    """Wait until what the kernel before has written is there."""
    let_next_begin(PDL == BEFORE)
    if PDL:
        gdc_wait()
    let_next_begin(PDL == AFTER)


@triton.jit
def gemv_kernel(
    x_ptr,  # [K]
    weight_ptr, bias_ptr, sums_ptr,  # [N, K], fp32 [N], fp32 [N]: each row of weights summed
    out_ptr,  # [N]
    epsilon, K: tl.constexpr, PART: tl.constexpr, OUTPUTS: tl.constexpr,  # PART: K or a third of it, a power of two
    NORM: tl.constexpr, GELU: tl.constexpr, ADD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Multiply a single row: one program holds OUTPUTS rows of weights. NORM: of x's layer norm; ADD: onto `out`.

    norm(x) · w = (x · w - mean · sum(w)) / deviation, so mean and deviation come from the same pass over x.
    """
    let_next_begin(PDL == EARLY)
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    column = output[:, None] * 0 + tl.arange(0, PART)[None, :]  # x in the layout of the weights: no exchange
    place = weight_ptr + output[:, None] * K + column
    weight = tl.load(place)
    if PART < K:
        weight_1 = tl.load(place + PART)
        weight_2 = tl.load(place + 2 * PART)
    bias = tl.load(bias_ptr + output)
    if NORM:
        sums = tl.load(sums_ptr + output)
    await_inputs(PDL)
    x = tl.load(x_ptr + column).to(tl.float32)
    product, total, squares = weight.to(tl.float32) * x, x, x * x
    if PART < K:
        x_1 = tl.load(x_ptr + column + PART).to(tl.float32)
        x_2 = tl.load(x_ptr + column + 2 * PART).to(tl.float32)
        product += weight_1.to(tl.float32) * x_1 + weight_2.to(tl.float32) * x_2
        total += x_1 + x_2
        squares += x_1 * x_1 + x_2 * x_2
    result = tl.sum(product, 1)
    if NORM:
        mean = tl.sum(total, 1) / K
        result = (result - mean * sums) * tl.rsqrt(tl.sum(squares, 1) / K - mean * mean + epsilon)
    result += bias
    if GELU:
        result = gelu(result)
    if ADD:
        result += tl.load(out_ptr + output)
    tl.store(out_ptr + output, result.to(out_ptr.dtype.element_ty))


@triton.jit
def multiply(
    x_ptr, weight_ptr, row, output, first, M, K: tl.constexpr, DEPTH: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, STEP: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr,
):  # fmt: skip
    """Return x · weights over the columns from `first` to `first + DEPTH`, [ROWS, OUTPUTS] in fp32.

    SWAP has the weights on the left: tensor cores take 64 rows at a time there, and on the right as few as 8.
    """
    column = first + tl.arange(0, STEP)
    x = x_ptr + row[:, None] * K + column[None, :]
    weight = weight_ptr + output[:, None] * K + column[None, :]
    mask = row[:, None] < M
    acc = tl.zeros([OUTPUTS, ROWS], tl.float32) if SWAP else tl.zeros([ROWS, OUTPUTS], tl.float32)
    for start in tl.range(0, DEPTH, STEP, num_stages=STAGES):
        x_tile = tl.load(x + start, mask=mask, other=0.0)
        weight_tile = tl.load(weight + start)
        acc = tl.dot(weight_tile, x_tile.T, acc) if SWAP else tl.dot(x_tile, weight_tile.T, acc)
    if SWAP:
        acc = tl.trans(acc)
    return acc


@triton.jit
def fetch_ahead(weight_ptr, output, first, K: tl.constexpr, DEPTH: tl.constexpr):
    """Bring a tile of weights into the L2 cache, by lines of 64 numbers."""
    line = weight_ptr + output[:, None] * K + first + (tl.arange(0, 4) * 64)[None, :]
    for start in tl.static_range(0, DEPTH, 256):
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [line + start], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def linear_kernel(
    x_ptr,  # [M, K]
    weight_ptr, bias_ptr,  # [N, K], fp32 [N]
    out_ptr,  # [M, N]; PARTIAL: fp32 [splits, M, N], the sums over a part of the columns each, without bias
    M, N, K: tl.constexpr, DEPTH: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, STEP: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr,
    GELU: tl.constexpr, PARTIAL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    let_next_begin(PDL == EARLY)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    split = tl.program_id(2)
    if PDL:
        fetch_ahead(weight_ptr, output, split * DEPTH, K, DEPTH)
    if not PARTIAL:
        bias = tl.load(bias_ptr + output)
    await_inputs(PDL)
    acc = multiply(x_ptr, weight_ptr, row, output, split * DEPTH, M, K, DEPTH, ROWS, OUTPUTS, STEP, STAGES, SWAP)
    if not PARTIAL:
        acc += bias[None, :]
        if GELU:
            acc = gelu(acc)
    out = out_ptr + (split * M + row[:, None]) * N + output[None, :]
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=row[:, None] < M)


@triton.jit
def skinny_kernel(
    x_ptr, weight_ptr, bias_ptr, out_ptr,  # as for `linear_kernel`
    M, N, K: tl.constexpr, DEPTH: tl.constexpr, COLUMNS: tl.constexpr,  # COLUMNS: DEPTH, rounded up
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, SLICES: tl.constexpr,
    GELU: tl.constexpr, PARTIAL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """As `linear_kernel` for few rows: all of a program's weights are in its registers before it waits.

    The columns are cut into slices that the warps multiply side by side.
    """
    let_next_begin(PDL == EARLY)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    split = tl.program_id(2)
    WIDE: tl.constexpr = COLUMNS // SLICES
    column = (tl.arange(0, SLICES) * WIDE)[:, None, None] + tl.arange(0, WIDE)[None, None, :]
    place = split * DEPTH + column
    weight = tl.load(weight_ptr + output[None, :, None] * K + place, mask=column < DEPTH, other=0.0)
    if not PARTIAL:
        bias = tl.load(bias_ptr + output)
    await_inputs(PDL)
    mask = (row < M)[None, :, None] & (column < DEPTH)
    x = tl.load(x_ptr + row[None, :, None] * K + place, mask=mask, other=0.0)
    acc = tl.sum(tl.dot(x, tl.permute(weight, (0, 2, 1))), 0)
    if not PARTIAL:
        acc += bias[None, :]
        if GELU:
            acc = gelu(acc)
    out = out_ptr + (split * M + row[:, None]) * N + output[None, :]
    tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=row[:, None] < M)


@triton.jit
def head_kernel(
    h_ptr,  # [M, K]
    weight_ptr, bias_ptr,  # [the vocabulary rounded up, K], fp32
    best_ptr, token_ptr,  # fp32 and int32 [M, tiles of the vocabulary]
    M, vocabulary, K: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, STEP: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Find the best token of one tile of the vocabulary, for a tile of rows; the first of equals."""
    let_next_begin(PDL == EARLY)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    bias = tl.load(bias_ptr + output)
    await_inputs(PDL)
    logits = multiply(h_ptr, weight_ptr, row, output, 0, M, K, K, ROWS, OUTPUTS, STEP, STAGES, SWAP) + bias[None, :]
    logits = tl.where((output < vocabulary)[None, :], logits, float("-inf"))
    best = tl.max(logits, 1)
    token = tl.min(tl.where(logits == best[:, None], output[None, :], vocabulary - 1), 1)
    place = row * tl.num_programs(1) + tl.program_id(1)
    tl.store(best_ptr + place, best, mask=row < M)
    tl.store(token_ptr + place, token, mask=row < M)


@triton.jit
def store_normed(x, h_ptr, row, column, epsilon, WIDTH: tl.constexpr):
    """Store a row's layer norm, without its gain and bias, which are in the next weights."""
    mask = column < WIDTH
    mean = tl.sum(x, 0) / WIDTH
    centred = tl.where(mask, x - mean, 0.0)
    normed = centred * tl.rsqrt(tl.sum(centred * centred, 0) / WIDTH + epsilon)
    tl.store(h_ptr + row * WIDTH + column, normed.to(h_ptr.dtype.element_ty), mask=mask)


@triton.jit
def reduce_norm_kernel(
    partials_ptr, bias_ptr,  # fp32 [SPLITS, M, WIDTH], fp32 [WIDTH]
    x_ptr, h_ptr,  # fp32 [M, WIDTH]: the residual stream; [M, WIDTH]: its layer norm
    M, epsilon, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, SPLITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add a matrix product's partial sums and its bias to the residual stream, and normalise it for the next."""
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    mask = column < WIDTH
    bias = tl.load(bias_ptr + column, mask=mask, other=0.0)
    await_inputs(PDL)
    x = tl.load(x_ptr + row * WIDTH + column, mask=mask, other=0.0).to(tl.float32)
    if SPLITS > 0:
        for split in tl.static_range(SPLITS):
            x += tl.load(partials_ptr + (split * M + row) * WIDTH + column, mask=mask, other=0.0)
        x += bias
        tl.store(x_ptr + row * WIDTH + column, x.to(x_ptr.dtype.element_ty), mask=mask)
    store_normed(x, h_ptr, row, column, epsilon, WIDTH)


@triton.jit
def attend_kernel(
    qkv_ptr,  # [M, 3, HEADS, HEAD_DIM]
    keys_ptr, values_ptr,  # one layer's cache
    entries_ptr, positions_ptr,  # int32 [M, 3 + width]: see `FusedDecoder`; int32 [M], negative where there is no row
    out_ptr,  # [M, HEADS, HEAD_DIM]
    scale, entry_stride, block_stride, slot_stride, head_stride,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, DOT: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One program: one row and head. Writes the new key and value, and attends to them and to those of the cache.

    The cache's are of earlier steps, so the first tile is fetched before the wait. DOT: on the tensor cores, which
    multiply 16 rows at a time; all are the one query.
    """
    let_next_begin(PDL == EARLY)
    row = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    dim = tl.arange(0, HEAD_DIM)
    lane = tl.arange(0, 16 if DOT else 1)[:, None]
    position = tl.load(positions_ptr + row)
    table_ptr = entries_ptr + row * entry_stride + 3
    keys_ptr += head * head_stride
    values_ptr += head * head_stride
    key, value, valid = load_context(
        keys_ptr, values_ptr, table_ptr, 0, position, dim, block_stride, slot_stride, BLOCK_SIZE, TILE
    )
    here = tl.maximum(position, 0)
    target = tl.load(table_ptr + here // BLOCK_SIZE).to(tl.int64) * block_stride + here % BLOCK_SIZE * slot_stride + dim
    await_inputs(PDL)
    new_ptr = qkv_ptr + (row * 3 * HEADS + head) * HEAD_DIM
    query = tl.load(new_ptr + dim[None, :] + lane * 0)
    own = tl.sum(tl.load(new_ptr + dim).to(tl.float32) * tl.load(new_ptr + HEADS * HEAD_DIM + dim).to(tl.float32), 0)
    new_key = tl.load(new_ptr + HEADS * HEAD_DIM + dim)
    new_value = tl.load(new_ptr + 2 * HEADS * HEAD_DIM + dim)
    is_row = dim < tl.where(position < 0, 0, HEAD_DIM)
    tl.store(keys_ptr + target, new_key.to(keys_ptr.dtype.element_ty), mask=is_row)
    tl.store(values_ptr + target, new_value.to(values_ptr.dtype.element_ty), mask=is_row)

    largest = tl.full([16 if DOT else 1], own * scale, tl.float32)
    total = tl.full([16 if DOT else 1], 1.0, tl.float32)
    acc = total[:, None] * new_value.to(tl.float32)[None, :]
    acc, largest, total = take_tile(query, key, value, valid, acc, largest, total, scale, DOT)
    for start in range(TILE, position, TILE):
        key, value, valid = load_context(
            keys_ptr, values_ptr, table_ptr, start, position, dim, block_stride, slot_stride, BLOCK_SIZE, TILE
        )
        acc, largest, total = take_tile(query, key, value, valid, acc, largest, total, scale, DOT)
    out = out_ptr + (row * HEADS + head) * HEAD_DIM + dim[None, :] + lane * 0
    tl.store(out, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=(lane == 0) & (dim >= 0)[None, :])


@triton.jit
def take_tile(query, key, value, valid, acc, largest, total, scale, DOT: tl.constexpr):
    """Take one more tile of keys into the running softmax; see `triton_attention.online_softmax`."""
    scores = tl.dot(query, key.T) if DOT else tl.sum(key.to(tl.float32) * query.to(tl.float32), 1)[None, :]
    scores = tl.where(valid[None, :], scores * scale, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, 1))
    rescale = tl.exp2(largest - new_largest)
    weights = tl.exp2(scores - new_largest[:, None])
    total = total * rescale + tl.sum(weights, 1)
    acc = acc * rescale[:, None]
    if DOT:
        acc = tl.dot(weights.to(value.dtype), value, acc)
    else:
        acc += tl.sum(value.to(tl.float32) * tl.trans(weights), 0)[None, :]
    return acc, new_largest, total


@triton.jit
def load_context(
    keys_ptr, values_ptr, table_ptr, start, limit, dim, block_stride, slot_stride,
    BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Return a tile of keys and values, and which of its positions are before `limit`; the others are 0."""
    position = start + tl.arange(0, TILE)
    valid = position < limit
    block = tl.load(table_ptr + position // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
    place = (block * block_stride + position % BLOCK_SIZE * slot_stride)[:, None] + dim[None, :]
    key = tl.load(keys_ptr + place, mask=valid[:, None], other=0.0)
    value = tl.load(values_ptr + place, mask=valid[:, None], other=0.0)
    return key, value, valid


@triton.jit
def embed(token, position, wte_ptr, wpe_ptr, x_ptr, h_ptr, row, epsilon, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    """Store a token's embedding as the row of the residual stream, and its layer norm."""
    column = tl.arange(0, COLUMNS)
    mask = column < WIDTH
    x = tl.load(wte_ptr + token.to(tl.int64) * WIDTH + column, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(wpe_ptr + tl.maximum(position, 0) * WIDTH + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(x_ptr + row * WIDTH + column, x.to(x_ptr.dtype.element_ty), mask=mask)
    store_normed(x, h_ptr, row, column, epsilon, WIDTH)


@triton.jit
def enter_kernel(
    entries_ptr, tokens_ptr, positions_ptr, steps_ptr, wte_ptr, wpe_ptr, x_ptr, h_ptr, entry_stride, epsilon,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Begin a turn: one program a row."""
    row = tl.program_id(0)
    entry = entries_ptr + row * entry_stride
    source = tl.load(entry)
    token = tl.where(source < 0, tl.load(entry + 1), tl.load(tokens_ptr + tl.maximum(source, 0)))
    position = tl.load(entry + 2)
    tl.store(positions_ptr + row, position)
    tl.store(steps_ptr + row, 0)
    embed(token, position, wte_ptr, wpe_ptr, x_ptr, h_ptr, row, epsilon, WIDTH, COLUMNS)


@triton.jit
def advance_kernel(
    best_ptr, token_ptr, num_tiles,  # [M, num_tiles]
    tokens_ptr, positions_ptr, steps_ptr, sampled_ptr,  # int32 [M] each; int32 [steps, M]
    wte_ptr, wpe_ptr, x_ptr, h_ptr, last_position, vocabulary, epsilon,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, TILES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """End a step: choose each row's token, keep it for the host, and make it the next step's input."""
    row = tl.program_id(0)
    tile = tl.arange(0, TILES)
    await_inputs(PDL)
    best = tl.load(best_ptr + row * num_tiles + tile, mask=tile < num_tiles, other=float("-inf"))
    token = tl.load(token_ptr + row * num_tiles + tile, mask=tile < num_tiles, other=0)
    token = tl.min(tl.where(best == tl.max(best, 0), token, vocabulary - 1), 0)
    step = tl.load(steps_ptr + row)
    position = tl.load(positions_ptr + row)
    position = tl.where(position < 0, position, tl.minimum(position + 1, last_position))
    tl.store(sampled_ptr + step * tl.num_programs(0) + row, token)
    tl.store(steps_ptr + row, step + 1)
    tl.store(tokens_ptr + row, token)
    tl.store(positions_ptr + row, position)
    embed(token, position, wte_ptr, wpe_ptr, x_ptr, h_ptr, row, epsilon, WIDTH, COLUMNS)


class Linear(NamedTuple):
    """A matrix product's weights `[N, K]`, a preceding layer norm's gain folded in, and what else it needs, in fp32."""

    weight: torch.Tensor
    bias: torch.Tensor  # [N]; the layer norm's bias is folded in
    sums: torch.Tensor  # [N]: each row of `weight` summed


class Gemv(NamedTuple):
    """How `gemv_kernel` is launched. `begin` is, here and below, where it lets the next kernel begin."""

    outputs: int
    warps: int
    begin: int


class Skinny(NamedTuple):
    """How `skinny_kernel` is launched: `splits` programs share the columns of a tile of outputs."""

    splits: int
    rows: int
    outputs: int
    slices: int
    warps: int
    begin: int


class Tiled(NamedTuple):
    """How `linear_kernel` and `head_kernel` are launched."""

    splits: int
    rows: int
    outputs: int
    step: int
    stages: int
    warps: int
    swap: bool
    begin: int


class Attend(NamedTuple):
    """How `attend_kernel` is launched: keys a tile, and whether it uses the tensor cores."""

    tile: int
    warps: int
    dot: bool
    begin: int


class Norm(NamedTuple):
    """How `reduce_norm_kernel` is launched."""

    warps: int
    begin: int


class Plan(NamedTuple):
    """How the kernels of a step are launched. `qkv`, `proj`, `up` and `down` are `Gemv` all, or none is."""

    qkv: Gemv | Skinny | Tiled
    attend: Attend
    proj: Gemv | Skinny | Tiled
    up: Gemv | Skinny | Tiled
    down: Gemv | Skinny | Tiled
    norm: Norm
    head: Tiled


# Found on an H200 with GPT-2 small at a context of 64 tokens; a batch takes the plan of the next larger size.
PLANS = {
    1: Plan(
        Gemv(8, 4, 3), Attend(128, 4, False, 2), Gemv(8, 4, 1), Gemv(8, 4, 1), Gemv(4, 8, 1), Norm(4, 1),
        Tiled(1, 16, 128, 128, 3, 4, False, 1),
    ),
    4: Plan(
        Skinny(1, 8, 8, 4, 4, 3), Attend(128, 4, False, 2), Skinny(2, 8, 16, 2, 2, 3), Skinny(1, 8, 8, 4, 4, 3),
        Skinny(4, 8, 32, 4, 4, 2), Norm(8, 1), Tiled(1, 16, 128, 128, 3, 4, False, 2),
    ),
    8: Plan(
        Skinny(1, 8, 32, 4, 4, 1), Attend(128, 4, True, 3), Skinny(2, 8, 16, 4, 4, 2), Skinny(1, 8, 32, 4, 4, 3),
        Skinny(4, 8, 32, 4, 4, 2), Norm(8, 1), Tiled(1, 16, 128, 128, 3, 4, False, 2),
    ),
    16: Plan(
        Tiled(1, 16, 64, 256, 3, 4, True, 1), Attend(64, 2, True, 2), Skinny(2, 16, 16, 2, 2, 1),
        Skinny(1, 16, 32, 4, 4, 2), Skinny(4, 16, 32, 4, 4, 2), Norm(8, 1), Tiled(1, 16, 64, 128, 4, 4, False, 2),
    ),
    32: Plan(
        Tiled(1, 32, 32, 128, 4, 4, False, 2), Attend(64, 1, True, 1), Tiled(4, 32, 32, 64, 3, 4, False, 1),
        Tiled(1, 32, 64, 128, 4, 4, True, 1), Tiled(4, 32, 64, 128, 3, 4, True, 3), Norm(4, 2),
        Tiled(1, 32, 128, 64, 4, 4, False, 2),
    ),
    64: Plan(
        Tiled(1, 64, 32, 128, 3, 4, False, 3), Attend(64, 1, True, 1), Tiled(2, 64, 32, 128, 3, 4, False, 1),
        Tiled(1, 32, 64, 128, 4, 4, True, 2), Tiled(4, 32, 64, 256, 3, 4, True, 3), Norm(4, 2),
        Tiled(1, 64, 128, 64, 4, 4, False, 1),
    ),
    256: Plan(
        Tiled(1, 64, 64, 64, 6, 4, False, 2), Attend(32, 1, True, 3), Tiled(2, 64, 64, 128, 3, 4, False, 2),
        Tiled(1, 64, 64, 128, 3, 4, False, 2), Tiled(2, 64, 64, 128, 4, 4, False, 1), Norm(8, 1),
        Tiled(1, 128, 256, 64, 4, 8, False, 2),
    ),
}  # fmt: skip
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def plan_of(num_rows: int) -> Plan:
    return PLANS[min((size for size in PLANS if size >= num_rows), default=max(PLANS))]


class Entry(NamedTuple):
    """One row of a turn: a sequence whose newest token is to be computed at `position`.

    The token is `token`, or where `source` is not negative the one that row `source` of the turn before sampled last.
    """

    source: int
    token: int
    position: int
    blocks: Sequence[int]


class Turn:
    """Steps that run on the device; `tokens()` waits for them."""

    def __init__(self, sampled: torch.Tensor, num_rows: int, done: torch.cuda.Event | None) -> None:
        self._sampled = sampled
        self._num_rows = num_rows
        self._done = done

    def tokens(self) -> list[list[int]]:
        """Return the sampled tokens: of each step those of all rows."""
        if self._done is not None:
            self._done.synchronize()
        return [row[: self._num_rows] for row in self._sampled.tolist()]


class FusedDecoder:
    """Greedy decode steps for up to `max_rows` sequences of a GPT-2, over one KV cache.

    A *turn* is up to `max_steps` steps of the same rows: their tables must hold blocks for all of them. `ValueError`
    for a model or a cache that the kernels do not support; `unsupported` says so without one.
    """

    def __init__(
        self, config: GPT2Config, weights: Weights, cache: KVCache, max_rows: int = 256, max_steps: int = 16
    ) -> None:
        if problem := unsupported(config, weights, cache.dtype):
            raise ValueError(f"the fused step does not support {problem}: use the model's own pass")
        self.config, self.cache, self.weights = config, cache, weights
        self.device = weights.wte.device
        self.max_rows, self.max_steps = max_rows, max_steps
        self.uses_pdl = self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) >= (9, 0)
        self.linears = [_fold_layer(layer) for layer in weights.layers]
        self.head = _fold_head(weights)
        width, inner = config.n_embd, 4 * config.n_embd
        int32, fp32, dtype = torch.int32, torch.float32, weights.wte.dtype

        def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        entry_size = 3 + -(-config.n_positions // cache.block_size)
        self.entries = empty(max_rows, entry_size, dtype=int32)
        self.tokens, self.positions, self.steps = (empty(max_rows, dtype=int32) for _ in range(3))
        self.sampled = empty(max_steps * max_rows, dtype=int32)
        self.x, self.h = empty(max_rows, width, dtype=fp32), empty(max_rows, width, dtype=dtype)
        self.qkv, self.heads = empty(max_rows, 3 * width, dtype=dtype), empty(max_rows, width, dtype=dtype)
        self.inner = empty(max_rows, inner, dtype=dtype)
        self.partials = empty(8 * max_rows * width, dtype=fp32)
        tiles = len(self.head.weight) // 16
        self.best, self.best_tokens = empty(max_rows * tiles, dtype=fp32), empty(max_rows * tiles, dtype=int32)
        pinned = {"pin_memory": self.device.type == "cuda"}
        # Two of each: the host prepares a turn while the one before is under way.
        self._given = [torch.zeros(max_rows, entry_size, dtype=int32, **pinned) for _ in range(2)]
        self._read = [torch.zeros(max_steps * max_rows, dtype=int32, **pinned) for _ in range(2)]
        self._num_turns = 0
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}

    def warm_up(self) -> None:
        """Compile the kernels and capture the graphs of every batch size."""
        for size in SIZES:
            if size <= self.max_rows:
                self._graph(size)

    def launch(self, entries: Sequence[Entry], num_steps: int) -> Turn:
        """Start a turn and return at once."""
        size = min(size for size in (*SIZES, self.max_rows) if size >= len(entries))
        given = self._given[self._num_turns % 2]
        given[:size, 2] = -1  # rows of no sequence
        given[:size, 0] = -1
        lines = given.numpy()
        for line, entry in zip(lines, entries, strict=False):
            line[:3] = entry[:3]
            line[3 : 3 + len(entry.blocks)] = entry.blocks
        replay = self._graph(size).replay if self.device.type == "cuda" else lambda: self._step(size)
        self.entries[:size].copy_(given[:size], non_blocking=True)
        self._enter(size)
        for _ in range(num_steps):
            replay()
        return self.read_later(self.sampled[: num_steps * size].view(num_steps, size), len(entries))

    def read_later(self, sampled: torch.Tensor, num_rows: int) -> Turn:
        """Start the way of `sampled`, `[steps, rows]`, to the host; it ends when the GPU has come so far."""
        read = self._read[self._num_turns % 2][: sampled.numel()].view(sampled.shape)
        self._num_turns += 1
        read.copy_(sampled, non_blocking=True)
        done = None
        if self.device.type == "cuda":
            done = torch.cuda.Event()
            done.record()
        return Turn(read, num_rows, done)

    def _graph(self, size: int) -> torch.cuda.CUDAGraph:
        if size not in self._graphs:
            self.positions.fill_(-1)  # the captured steps and those before them write nowhere
            self.steps.zero_()
            for _ in range(2):
                self._step(size)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self._step(size)
            self._graphs[size] = graph
        return self._graphs[size]

    def _enter(self, size: int) -> None:
        config = self.config
        enter_kernel[(size,)](
            self.entries, self.tokens, self.positions, self.steps, self.weights.wte, self.weights.wpe, self.x, self.h,
            self.entries.stride(0), config.layer_norm_epsilon, config.n_embd, triton.next_power_of_2(config.n_embd),
        )  # fmt: skip

    def _step(self, size: int) -> None:
        """Launch the kernels of one step."""
        plan = plan_of(size)
        is_gemv = isinstance(plan.qkv, Gemv)
        # A step's first kernel waits for all of the step before: positions and cache are settled from there on.
        qkv_cut: Any = plan.qkv._replace(begin=0)
        for index, (qkv, proj, up, down) in enumerate(self.linears):
            if is_gemv:
                self._gemv(qkv, self.x, self.qkv, qkv_cut, norm=True)
                self._attend(index, size, plan.attend)
                self._gemv(proj, self.heads, self.x, plan.proj, add=True)
                self._gemv(up, self.x, self.inner, plan.up, norm=True, gelu=True)
                self._gemv(down, self.inner, self.x, plan.down, add=True)
            else:
                self._linear(qkv, self.h, self.qkv, size, qkv_cut)
                self._attend(index, size, plan.attend)
                self._linear(proj, self.heads, self.partials, size, plan.proj, partial=True)
                self._reduce_norm(proj.bias, size, plan.proj, plan.norm)
                self._linear(up, self.h, self.inner, size, plan.up, gelu=True)
                self._linear(down, self.inner, self.partials, size, plan.down, partial=True)
                self._reduce_norm(down.bias, size, plan.down, plan.norm)
            qkv_cut = plan.qkv
        if is_gemv:
            self._reduce_norm(self.head.bias, size, None, plan.norm)
        num_tiles = self._head(size, plan.head)
        config, weights = self.config, self.weights
        self._launch(
            advance_kernel, (size,), 4, 1, self.best, self.best_tokens, num_tiles, self.tokens, self.positions,
            self.steps, self.sampled, weights.wte, weights.wpe, self.x, self.h, config.n_positions - 1,
            config.vocab_size, config.layer_norm_epsilon, config.n_embd, triton.next_power_of_2(config.n_embd),
            triton.next_power_of_2(num_tiles),
        )  # fmt: skip

    def _launch(self, kernel: Any, grid: tuple[int, ...], warps: int, begin: int, *arguments: Any) -> None:
        begin = begin if self.uses_pdl else 0
        kernel[grid](*arguments, begin, num_warps=warps, **({"launch_pdl": True} if begin else {}))

    def _gemv(
        self, linear: Linear, x: torch.Tensor, out: torch.Tensor, cut: Any, *, norm: bool = False, gelu: bool = False,
        add: bool = False,
    ) -> None:  # fmt: skip
        num_outputs, depth = linear.weight.shape
        self._launch(
            gemv_kernel, (num_outputs // cut.outputs,), cut.warps, cut.begin, x, *linear, out,
            self.config.layer_norm_epsilon, depth, part_of(depth), cut.outputs, norm, gelu, add,
        )  # fmt: skip

    def _linear(
        self, linear: Linear, x: torch.Tensor, out: torch.Tensor, size: int, cut: Any, *, gelu: bool = False,
        partial: bool = False,
    ) -> None:  # fmt: skip
        num_outputs, width = linear.weight.shape
        depth = width // cut.splits
        grid = (triton.cdiv(size, cut.rows), num_outputs // cut.outputs, cut.splits)
        shapes = (x, linear.weight, linear.bias, out, size, num_outputs, width, depth)
        if isinstance(cut, Skinny):
            columns = triton.next_power_of_2(depth)
            tile: tuple[Any, ...] = (columns, cut.rows, cut.outputs, cut.slices)
            self._launch(skinny_kernel, grid, cut.warps, cut.begin, *shapes, *tile, gelu, partial)
        else:
            tile = (cut.rows, cut.outputs, min(cut.step, depth), cut.stages, cut.swap)
            self._launch(linear_kernel, grid, cut.warps, cut.begin, *shapes, *tile, gelu, partial)

    def _reduce_norm(self, bias: torch.Tensor, size: int, cut: Any, norm: Norm) -> None:
        """Add what a product cut in `cut` left in `partials`; with None, only normalise."""
        width = self.config.n_embd
        self._launch(
            reduce_norm_kernel, (size,), norm.warps, norm.begin, self.partials, bias, self.x, self.h, size,
            self.config.layer_norm_epsilon, width, triton.next_power_of_2(width), 0 if cut is None else cut.splits,
        )  # fmt: skip

    def _attend(self, index: int, size: int, cut: Attend) -> None:
        layer = self.cache.layer(index)
        heads, head_dim = self.config.n_head, self.config.head_dim
        self._launch(
            attend_kernel, (size * heads,), cut.warps, cut.begin, self.qkv, layer.keys, layer.values, self.entries,
            self.positions, self.heads, head_dim**-0.5 * LOG2_E.value, self.entries.stride(0), *layer.keys.stride()[:3],
            heads, head_dim, self.cache.block_size, cut.tile, cut.dot,
        )  # fmt: skip

    def _head(self, size: int, cut: Tiled) -> int:
        """Find the best token of each tile of the vocabulary; return the number of tiles."""
        width = self.config.n_embd
        num_tiles = len(self.head.weight) // cut.outputs
        self._launch(
            head_kernel, (triton.cdiv(size, cut.rows), num_tiles), cut.warps, cut.begin, self.h, self.head.weight,
            self.head.bias, self.best, self.best_tokens, size, self.config.vocab_size, width, cut.rows, cut.outputs,
            min(cut.step, width), cut.stages, cut.swap,
        )  # fmt: skip
        return num_tiles


def part_of(depth: int) -> int:
    """Return `depth`, or a third of it, whichever is a power of two."""
    return depth // 3 if depth % 3 == 0 else depth


def unsupported(config: GPT2Config, weights: Weights, kv_dtype: torch.dtype) -> str | None:
    """Return what of a model or cache the fused step cannot compute; None when it can."""
    if weights.wte.dtype not in (torch.float16, torch.bfloat16):
        return f"{weights.wte.dtype} weights"
    if kv_dtype != weights.wte.dtype:
        return f"a {kv_dtype} cache with {weights.wte.dtype} weights"
    if config.n_embd % 256 or config.head_dim not in (32, 64, 128):
        return f"a width of {config.n_embd} with heads of {config.head_dim}"
    return None


def _fold(weight: torch.Tensor, bias: torch.Tensor, gain: torch.Tensor | None, shift: torch.Tensor | None) -> Linear:
    """Turn a layer norm's gain and bias and the product after it, `[K, N]`, into one `Linear`."""
    wide = weight.float()
    folded = (wide if gain is None else wide * gain.float()[:, None]).T.to(weight.dtype).contiguous()
    offset = bias.float() if shift is None else bias.float() + shift.float() @ wide
    return Linear(folded, offset.contiguous(), folded.float().sum(1))


def _fold_layer(layer: Any) -> tuple[Linear, Linear, Linear, Linear]:
    return (
        _fold(layer.attn_c_attn_weight, layer.attn_c_attn_bias, layer.ln_1_weight, layer.ln_1_bias),
        _fold(layer.attn_c_proj_weight, layer.attn_c_proj_bias, None, None),
        _fold(layer.mlp_c_fc_weight, layer.mlp_c_fc_bias, layer.ln_2_weight, layer.ln_2_bias),
        _fold(layer.mlp_c_proj_weight, layer.mlp_c_proj_bias, None, None),
    )


def _fold_head(weights: Weights) -> Linear:
    """The output head, its vocabulary padded to a whole number of tiles."""
    head = _fold(weights.wte.T, weights.wte.new_zeros(len(weights.wte)), weights.ln_f_weight, weights.ln_f_bias)
    missing = -len(weights.wte) % 256
    weight = torch.nn.functional.pad(head.weight, (0, 0, 0, missing))
    return Linear(weight, torch.nn.functional.pad(head.bias, (0, missing)), head.sums)
