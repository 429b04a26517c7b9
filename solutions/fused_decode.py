"""A decode step of GPT-2 in a few fused kernels, replayed as one CUDA graph: the fast path of the engine.

A step of one token a sequence does little arithmetic and reads all the weights, so it is bound by memory and by the
number of kernels that wait for each other. Hence: layer norm's gain and bias are folded into the weights that follow,
and the mean that it takes away into those that write the residual stream, which leaves one sum of squares to compute;
bias, GELU and residual ride on the matrix products; attention writes the new key and value itself; and the vocabulary
projection keeps the best token of each tile, so that no logits reach memory. Some plans hold the residual stream in
fixed point: sums of integers are the same in any order, so programs that share a sum add to it as they come. The chosen
token stays on the device and is the next step's input. What depends on nothing in the step, the weights above all, is
fetched before a kernel waits for the one before it (programmatic dependent launch, on GPUs from Hopper on).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from solutions.cuda_graphs import Graphs, Staged

if TYPE_CHECKING:
    from solutions.kv_cache import KVCache
    from solutions.weights import GPT2Config, Weights

LOG2_E = tl.constexpr(1.4426950408889634)
# Programmatic dependent launch: where a kernel lets the next one begin. With NONE they follow each other.
NONE, BEFORE, AFTER, EARLY = (tl.constexpr(place) for place in range(4))
UNITS = tl.constexpr(2.0**15)  # of fixed point, to a 1: so 32 bits hold all that fp16 can


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
def from_residual(x):
    """Return numbers of the residual stream in fp32, be they in fixed point or not."""
    return x.to(tl.float32) * (1.0 / UNITS if x.dtype == tl.int32 else 1.0)


@triton.jit
def to_residual(x, dtype: tl.constexpr):
    """Return numbers as the residual stream has them, in fixed point if the dtype is int32."""
    if dtype == tl.int32:
        x = tl.floor(x * UNITS + 0.5)
    return x.to(dtype)


@triton.jit
def product_kernel(
    x_ptr,  # [rows, K], as many rows as tiles have: those beyond M may hold anything. int32: the residual stream
    weight_ptr, bias_ptr,  # [N, K], fp32 [N]
    out_ptr,  # [M, N]; PARTIAL: fp32 [splits, M, N], the sums over a part of the columns each, without bias;
    # or int32 [M, N], the residual stream in fixed point, to which all programs add
    squares_ptr,  # fp32 [parts, M]: sums of the residual stream's squares; SQUARES parts are read, or they are written
    token_ptr,  # BEST: int32 [M, tiles of N], and `out` is fp32 of the same shape
    M, N, epsilon, K: tl.constexpr, DEPTH: tl.constexpr, PART: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, SLICES: tl.constexpr,
    STEP: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr,
    SQUARES: tl.constexpr, GELU: tl.constexpr, ADD: tl.constexpr, PARTIAL: tl.constexpr, BEST: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Multiply a tile of rows with a tile of weights, over DEPTH of the columns.

    Without STEP all of the weights are in registers before the wait, as one or three PARTs of the columns: for a single
    row, or for a few on the tensor cores, where SLICES of the columns are multiplied by the warps side by side.
    SQUARES: x is the residual stream, to be normed; in fixed point its squares are summed up in the same pass over it.
    ADD: onto `out`, the residual stream. BEST: keep only the largest of each row and where it is, the first of equals.
    """
    NORM: tl.constexpr = x_ptr.dtype.element_ty == tl.int32
    SHARE: tl.constexpr = out_ptr.dtype.element_ty == tl.int32
    let_next_begin(PDL == EARLY)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    split = tl.program_id(2)
    if STEP == 0:
        if ROWS == 1:
            column = output[:, None] * 0 + tl.arange(0, PART)[None, :]  # x in the layout of the weights: no exchange
            column += split * DEPTH
            weights = weight_ptr + output[:, None] * K + column
            inputs = x_ptr + column
        else:
            WIDE: tl.constexpr = PART // SLICES
            column = (tl.arange(0, SLICES) * WIDE)[:, None, None] + tl.arange(0, WIDE)[None, None, :]
            weights = weight_ptr + output[None, :, None] * K + split * DEPTH + column
            inputs = x_ptr + row[None, :, None] * K + split * DEPTH + column
        weight = tl.load(weights)
        if PART < DEPTH:
            weight_1 = tl.load(weights + PART)
            weight_2 = tl.load(weights + 2 * PART)
    elif PDL and not BEST:
        fetch_ahead(weight_ptr, output, split * DEPTH, K, DEPTH)
    if SHARE or not PARTIAL:
        bias = tl.load(bias_ptr + output)
    if SHARE:
        bias = tl.where(split == 0, bias, 0.0)
    await_inputs(PDL)
    out = out_ptr + ((0 if SHARE else split) * M + row[:, None]) * N + output[None, :]
    is_row = row[:, None] < M
    if ADD:
        old = tl.load(out, mask=is_row, other=0.0).to(tl.float32)
    if SQUARES:  # asked for now and added up after the product, which need not wait for them
        part = tl.arange(0, triton.next_power_of_2(SQUARES))[:, None]
        squares = tl.load(squares_ptr + part * M + row[None, :], mask=part < SQUARES, other=0.0)
    if STEP:
        acc, square = multiply(
            x_ptr, weight_ptr, row, output, split * DEPTH, K, DEPTH, ROWS, OUTPUTS, STEP, STAGES, SWAP
        )
    elif ROWS == 1:
        x = from_residual(tl.load(inputs))
        product, square = weight.to(tl.float32) * x, x * x
        if PART < DEPTH:
            x_1 = from_residual(tl.load(inputs + PART))
            x_2 = from_residual(tl.load(inputs + 2 * PART))
            product += weight_1.to(tl.float32) * x_1 + weight_2.to(tl.float32) * x_2
            square += x_1 * x_1 + x_2 * x_2
        acc = tl.sum(product, 1)
        if NORM:
            acc *= tl.rsqrt(tl.sum(square, 1) / K + epsilon)
        acc = acc[None, :]
    else:
        sliced = tl.dot(tl.load(inputs), tl.permute(weight, (0, 2, 1)))
        if PART < DEPTH:
            sliced = tl.dot(tl.load(inputs + PART), tl.permute(weight_1, (0, 2, 1)), sliced)
            sliced = tl.dot(tl.load(inputs + 2 * PART), tl.permute(weight_2, (0, 2, 1)), sliced)
        acc = tl.sum(sliced, 0)
    if SQUARES:
        acc *= tl.rsqrt(tl.sum(squares, 0) / K + epsilon)[:, None]
    if NORM and STEP:
        acc *= tl.rsqrt(square / K + epsilon)[:, None]
    if SHARE or not PARTIAL:
        acc += bias[None, :]
    if GELU:
        acc = gelu(acc)
    if ADD:
        acc += old
        tl.store(squares_ptr + tl.program_id(1) * M + row, tl.sum(acc * acc, 1), mask=row < M)
    if BEST:
        acc = tl.where((output < N)[None, :], acc, float("-inf"))
        best = tl.max(acc, 1)
        token = tl.min(tl.where(acc == best[:, None], output[None, :], N - 1), 1)
        place = row * tl.num_programs(1) + tl.program_id(1)
        tl.store(out_ptr + place, best, mask=row < M)
        tl.store(token_ptr + place, token, mask=row < M)
    elif SHARE:
        tl.atomic_add(out, to_residual(acc, tl.int32), mask=is_row, sem="relaxed")
    else:
        tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=is_row)


@triton.jit
def multiply(
    x_ptr, weight_ptr, row, output, first, K: tl.constexpr, DEPTH: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, STEP: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr,
):  # fmt: skip
    """Return x · weights over the columns from `first` to `first + DEPTH`, [ROWS, OUTPUTS] in fp32.

    Second comes the sum of each row's squares, where x is the residual stream in fixed point, and otherwise zeros.
    SWAP has the weights on the left: tensor cores take 64 rows at a time there, and on the right as few as 8.
    """
    column = first + tl.arange(0, STEP)
    x = x_ptr + row[:, None] * K + column[None, :]
    weight = weight_ptr + output[:, None] * K + column[None, :]
    acc = tl.zeros([OUTPUTS, ROWS], tl.float32) if SWAP else tl.zeros([ROWS, OUTPUTS], tl.float32)
    NORM: tl.constexpr = x_ptr.dtype.element_ty == tl.int32
    squares = tl.zeros([ROWS, STEP if NORM else 1], tl.float32)
    for start in tl.range(0, DEPTH, STEP, num_stages=STAGES):
        x_tile, weight_tile = tl.load(x + start), tl.load(weight + start)
        if NORM:
            wide = from_residual(x_tile)
            squares += wide * wide
            x_tile = wide.to(weight_tile.dtype)
        acc = tl.dot(weight_tile, x_tile.T, acc) if SWAP else tl.dot(x_tile, weight_tile.T, acc)
    if SWAP:
        acc = tl.trans(acc)
    return acc, tl.sum(squares, 1)


@triton.jit
def fetch_ahead(weight_ptr, output, first, K: tl.constexpr, DEPTH: tl.constexpr):
    """Bring a tile of weights into the L2 cache, by lines of 64 numbers."""
    line = weight_ptr + output[:, None] * K + first + (tl.arange(0, 4) * 64)[None, :]
    for start in tl.static_range(0, DEPTH, 256):
        prefetch(line + start)


@triton.jit
def prefetch(line):
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [line], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def store_normed(x, h_ptr, row, column, epsilon, WIDTH: tl.constexpr):
    """Store a row's layer norm: its mean is 0, and the gain and bias are in the next weights."""
    normed = x * tl.rsqrt(tl.sum(x * x, 0) / WIDTH + epsilon)
    tl.store(h_ptr + row * WIDTH + column, normed.to(h_ptr.dtype.element_ty), mask=column < WIDTH)


@triton.jit
def reduce_norm_kernel(
    partials_ptr, bias_ptr,  # fp32 [SPLITS, M, WIDTH], fp32 [WIDTH]
    x_ptr, h_ptr,  # [M, WIDTH]: the residual stream, which in fixed point (int32) has the product already; its norm
    M, epsilon, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, SPLITS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add a product's partial sums and bias to the residual stream, unless it has them, and normalise the stream."""
    let_next_begin(PDL == EARLY)
    row = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    mask = column < WIDTH
    SUM: tl.constexpr = x_ptr.dtype.element_ty != tl.int32
    if SUM:
        bias = tl.load(bias_ptr + column, mask=mask, other=0.0)
    await_inputs(PDL)
    x = from_residual(tl.load(x_ptr + row * WIDTH + column, mask=mask, other=0))
    if SUM:
        x += bias
        for split in tl.static_range(SPLITS):
            x += tl.load(partials_ptr + (split * M + row) * WIDTH + column, mask=mask, other=0.0)
        tl.store(x_ptr + row * WIDTH + column, x.to(x_ptr.dtype.element_ty), mask=mask)
    store_normed(x, h_ptr, row, column, epsilon, WIDTH)


@triton.jit
def attend_kernel(
    qkv_ptr,  # [M, 3, HEADS, HEAD_DIM]
    keys_ptr, values_ptr,  # one layer's cache
    tables_ptr, positions_ptr,  # int32 [M, width]: block tables; int32 [M], negative where there is no row
    out_ptr,  # [M, HEADS, HEAD_DIM]; OUTPUTS: int32 [M, HEADS · HEAD_DIM], the residual stream in fixed point
    weight_ptr, bias_ptr,  # the output projection's: [HEADS · HEAD_DIM, HEADS · HEAD_DIM], fp32 [HEADS · HEAD_DIM]
    scale, table_stride, block_stride, slot_stride, head_stride,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    TILE: tl.constexpr, DOT: tl.constexpr, STAGES: tl.constexpr, AHEAD: tl.constexpr, OUTPUTS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """One program: one row and head. Writes the new key and value, and attends to them and to those of the cache.

    OUTPUTS: it is the output projection too. Each program adds its head's share to so many columns of the residual
    stream, and attends once more for them: several programs have the same row and head.
    The cache's are of earlier steps: before the wait the first tile is fetched, and AHEAD more into the L2 cache.
    DOT: on the tensor cores, which multiply 8 columns at a time; all are the one query.
    """
    let_next_begin(PDL == EARLY)
    row = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    dim = tl.arange(0, HEAD_DIM)
    lane = tl.arange(0, 8 if DOT else 1)[None, :]
    position = tl.load(positions_ptr + row)
    table_ptr = tables_ptr + row * table_stride
    keys_ptr += head * head_stride
    values_ptr += head * head_stride
    place, valid = place_context(table_ptr, 0, position, block_stride, slot_stride, BLOCK_SIZE, TILE)
    key, value = load_context(keys_ptr, values_ptr, place, valid, dim)
    here = tl.maximum(position, 0)
    target = tl.load(table_ptr + here // BLOCK_SIZE).to(tl.int64) * block_stride + here % BLOCK_SIZE * slot_stride + dim
    if OUTPUTS:
        output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
        weight = tl.load(weight_ptr + output[:, None] * (HEADS * HEAD_DIM) + head * HEAD_DIM + dim[None, :])
        bias = tl.where(head == 0, tl.load(bias_ptr + output), 0.0)
    if PDL and AHEAD:
        for start in range(TILE, tl.minimum(position, (AHEAD + 1) * TILE), TILE):
            place, _ = place_context(table_ptr, start, position, block_stride, slot_stride, BLOCK_SIZE, TILE)
            prefetch(keys_ptr + place)
            prefetch(values_ptr + place)
    await_inputs(PDL)
    new_ptr = qkv_ptr + (row * 3 * HEADS + head) * HEAD_DIM + dim
    query = tl.load(new_ptr)
    new_key = tl.load(new_ptr + HEADS * HEAD_DIM)
    new_value = tl.load(new_ptr + 2 * HEADS * HEAD_DIM)
    own = tl.sum(query.to(tl.float32) * new_key.to(tl.float32), 0)
    is_row = dim < tl.where((position < 0) | (tl.program_id(1) > 0), 0, HEAD_DIM)
    tl.store(keys_ptr + target, new_key.to(keys_ptr.dtype.element_ty), mask=is_row)
    tl.store(values_ptr + target, new_value.to(values_ptr.dtype.element_ty), mask=is_row)

    largest = tl.full([8 if DOT else 1], own * scale, tl.float32)
    total = tl.full([8 if DOT else 1], 1.0, tl.float32)
    acc = new_value.to(tl.float32)[:, None] + lane * 0.0
    acc, largest, total = take_tile(query, key, value, valid, acc, largest, total, scale, DOT)
    # Without stages one tile has all of the context, and the loop is not compiled.
    if STAGES:  # noqa: SIM102 (a constant by itself)
        if position > TILE:  # a loop alone would begin to fetch where there is nothing
            for start in tl.range(TILE, position, TILE, num_stages=STAGES):
                place, valid = place_context(table_ptr, start, position, block_stride, slot_stride, BLOCK_SIZE, TILE)
                key, value = load_context(keys_ptr, values_ptr, place, valid, dim)
                acc, largest, total = take_tile(query, key, value, valid, acc, largest, total, scale, DOT)
    acc /= total[None, :]
    if OUTPUTS:
        attended = tl.sum(tl.where(lane == 0, acc, 0.0), 1)
        share = tl.sum(weight.to(tl.float32) * attended[None, :], 1) + bias
        out = out_ptr + row * (HEADS * HEAD_DIM) + output
        tl.atomic_add(out, to_residual(share, tl.int32), sem="relaxed")
    else:
        out = out_ptr + (row * HEADS + head) * HEAD_DIM + dim[:, None] + lane * 0
        tl.store(out, acc.to(out_ptr.dtype.element_ty), mask=(lane == 0) & (dim >= 0)[:, None])


@triton.jit
def take_tile(query, key, value, valid, acc, largest, total, scale, DOT: tl.constexpr):
    """Take one more tile of keys into the running softmax; see `triton_attention.online_softmax`.

    Scores are columns, [TILE, 8] or [TILE, 1], and so is `acc`.
    """
    if DOT:
        scores = tl.dot(key, tl.broadcast_to(query[:, None], [key.shape[1], 8]))
    else:
        scores = tl.sum(key.to(tl.float32) * query.to(tl.float32)[None, :], 1)[:, None]
    scores = tl.where(valid[:, None], scores * scale, float("-inf"))
    new_largest = tl.maximum(largest, tl.max(scores, 0))
    rescale = tl.exp2(largest - new_largest)
    weights = tl.exp2(scores - new_largest[None, :])
    total = total * rescale + tl.sum(weights, 0)
    acc = acc * rescale[None, :]
    if DOT:
        acc = tl.dot(value.T, weights.to(value.dtype), acc)
    else:
        acc += tl.sum(value.to(tl.float32) * weights, 0)[:, None]
    return acc, new_largest, total


@triton.jit
def place_context(
    table_ptr, start, limit, block_stride, slot_stride, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """Return where a tile of keys is in the cache, and which of its positions are before `limit`."""
    position = start + tl.arange(0, TILE)
    valid = position < limit
    block = tl.load(table_ptr + position // BLOCK_SIZE, mask=valid, other=0).to(tl.int64)
    return block * block_stride + position % BLOCK_SIZE * slot_stride, valid


@triton.jit
def load_context(keys_ptr, values_ptr, place, valid, dim):
    """Return a tile of keys and values; those that are not valid are 0."""
    place = place[:, None] + dim[None, :]
    key = tl.load(keys_ptr + place, mask=valid[:, None], other=0.0)
    value = tl.load(values_ptr + place, mask=valid[:, None], other=0.0)
    return key, value


@triton.jit
def embed(token, position, wte_ptr, wpe_ptr, x_ptr, h_ptr, row, epsilon, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    """Store a token's embedding, less its mean, as the row of the residual stream, and its layer norm."""
    column = tl.arange(0, COLUMNS)
    mask = column < WIDTH
    x = tl.load(wte_ptr + token.to(tl.int64) * WIDTH + column, mask=mask, other=0.0).to(tl.float32)
    x += tl.load(wpe_ptr + tl.maximum(position, 0) * WIDTH + column, mask=mask, other=0.0).to(tl.float32)
    x = tl.where(mask, x - tl.sum(x, 0) / WIDTH, 0.0)
    tl.store(x_ptr + row * WIDTH + column, to_residual(x, x_ptr.dtype.element_ty), mask=mask)
    store_normed(x, h_ptr, row, column, epsilon, WIDTH)


@triton.jit
def enter_kernel(
    given_ptr,  # int32: (source, token, position, place of the first block) of each row, then all rows' blocks
    tokens_ptr, positions_ptr, steps_ptr, tables_ptr,  # int32 [M] each; int32 [M, table_width]
    wte_ptr, wpe_ptr, x_ptr, h_ptr, table_width, epsilon,
    WIDTH: tl.constexpr, COLUMNS: tl.constexpr, BLOCKS: tl.constexpr,  # BLOCKS: table_width, rounded up
):  # fmt: skip
    """Begin a turn: one program a row. Behind its own blocks its table has what lies there: no context comes so far."""
    row = tl.program_id(0)
    entry = given_ptr + row * 4
    source = tl.load(entry)
    block = tl.arange(0, BLOCKS)
    blocks_ptr = given_ptr + tl.num_programs(0) * 4 + tl.load(entry + 3)
    blocks = tl.load(blocks_ptr + block, mask=block < table_width)
    tl.store(tables_ptr + row * table_width + block, blocks, mask=block < table_width)
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
    """A matrix product's weights `[N, K]` and its bias, fp32 `[N]`; see `_reading` and `_writing`."""

    weight: torch.Tensor
    bias: torch.Tensor


class Cut(NamedTuple):
    """How `product_kernel` is launched: a program's tile, warps, and where it lets the next kernel begin.

    `splits` programs share the columns of a tile; with 0 one has them all, and adds them to the residual stream itself.
    `direct`: it reads the residual stream in fixed point and norms it in each program, without a kernel before it.
    """

    rows: int
    outputs: int
    splits: int
    warps: int
    begin: int
    slices: int = 1
    step: int = 0
    stages: int = 0
    swap: bool = False
    direct: bool = False


class Attend(NamedTuple):
    """How `attend_kernel` is launched. With 0 stages it has no loop: contexts must fit into one tile.

    With `outputs` it is the output projection too, and that is not launched.
    """

    tile: int
    warps: int
    dot: bool
    begin: int
    ahead: int = 7
    stages: int = 2
    outputs: int = 0


class Norm(NamedTuple):
    """How `reduce_norm_kernel` is launched: behind a product with splits, unless the one after it is `direct`."""

    warps: int
    begin: int


class Plan(NamedTuple):
    """How the kernels of a step are launched. `attend_long` is for turns in which a context passes SHORT tokens.

    `fixed`: the residual stream is in fixed point, and programs with a share of a sum add to it themselves.
    """

    qkv: Cut
    attend: Attend
    attend_long: Attend
    proj: Cut
    up: Cut
    down: Cut
    norm: Norm
    head: Cut
    fixed: bool = False


# Found on an H200 with GPT-2 small, at contexts of 64, 112 and 512, and of 5 to 60 tokens as they grow; a batch takes
# the plan of the next larger size. On a GPU with less shared memory products take fewer stages, and attention smaller
# tiles.
SHORT = 128
PLANS = {
    1: Plan(
        Cut(1, 16, 1, 8, 3, direct=True), Attend(128, 4, False, 2, 0, 0, 128), Attend(512, 8, False, 2, 0, 1, 256),
        Cut(1, 8, 1, 4, 1), Cut(1, 16, 1, 4, 1, direct=True), Cut(1, 32, 4, 8, 3),
        Norm(4, 1), Cut(1, 32, 1, 8, 2, direct=True), fixed=True,
    ),
    4: Plan(
        Cut(16, 64, 1, 4, 1, 1, 64, 6, True), Attend(128, 4, True, 3), Attend(256, 8, True, 2, 1, 1),
        Cut(8, 8, 0, 2, 3, 2), Cut(8, 16, 1, 2, 3, 2), Cut(8, 8, 0, 8, 2, 8),
        Norm(8, 1), Cut(16, 128, 1, 4, 1, 1, 128, 3),
    ),
    8: Plan(
        Cut(16, 64, 1, 4, 2, 1, 64, 6, True), Attend(128, 4, True, 3), Attend(512, 8, True, 3, 1, 1),
        Cut(8, 8, 0, 2, 3, 2), Cut(8, 16, 1, 2, 1, 2), Cut(8, 8, 0, 4, 2, 4),
        Norm(8, 1), Cut(16, 128, 1, 4, 3, 1, 128, 3),
    ),
    16: Plan(
        Cut(16, 64, 1, 4, 2, 1, 128, 6, True, True), Attend(128, 4, True, 3, 0, 0), Attend(128, 4, True, 3, 1),
        Cut(16, 16, 3, 2, 3, 2), Cut(16, 64, 1, 4, 2, 1, 128, 6, True), Cut(16, 64, 6, 4, 2, 1, 128, 4, True),
        Norm(4, 1), Cut(16, 128, 1, 4, 2, 1, 128, 3), fixed=True,
    ),
    32: Plan(
        Cut(32, 64, 1, 4, 1, 1, 128, 4, True), Attend(128, 4, True, 3), Attend(128, 4, True, 3, 1),
        Cut(32, 32, 4, 4, 2, 1, 64, 3), Cut(32, 32, 1, 4, 2, 1, 128, 4), Cut(32, 64, 4, 4, 3, 1, 256, 3, True),
        Norm(8, 2), Cut(32, 128, 1, 4, 2, 1, 64, 4),
    ),
    64: Plan(
        Cut(64, 64, 1, 4, 3, 1, 64, 5), Attend(128, 2, True, 3, 0), Attend(64, 1, True, 3, 1, 3),
        Cut(64, 32, 0, 4, 2, 1, 128, 5), Cut(32, 64, 1, 4, 3, 1, 128, 4, True), Cut(64, 64, 4, 4, 3, 1, 128, 4),
        Norm(8, 2), Cut(64, 128, 1, 4, 2, 1, 64, 4),
    ),
    128: Plan(
        Cut(64, 64, 1, 4, 2, 1, 128, 3), Attend(16, 1, True, 1, 0, 3), Attend(64, 1, True, 2, 0, 3),
        Cut(64, 64, 0, 4, 2, 1, 128, 4), Cut(64, 64, 1, 4, 1, 1, 128, 3), Cut(64, 64, 2, 4, 3, 1, 128, 4),
        Norm(8, 1), Cut(128, 256, 1, 8, 2, 1, 64, 4),
    ),
    256: Plan(
        Cut(64, 64, 1, 4, 3, 1, 128, 3), Attend(16, 1, True, 1, 1, 3), Attend(32, 1, True, 3, 1),
        Cut(64, 64, 0, 4, 3, 1, 128, 4), Cut(64, 64, 1, 4, 2, 1, 128, 3), Cut(64, 64, 2, 4, 1, 1, 128, 4),
        Norm(8, 1), Cut(128, 256, 1, 8, 3, 1, 64, 4),
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

    def __init__(self, sampled: npt.NDArray[np.int32], done: torch.cuda.Event | None) -> None:
        self._sampled = sampled  # [steps, rows]
        self._done = done

    def wait(self) -> None:
        if self._done is not None:
            self._done.synchronize()

    def tokens(self) -> list[list[int]]:
        """Wait for the sampled tokens and return each row's, one a step."""
        self.wait()
        return self._sampled.T.tolist()  # type: ignore[no-any-return]


class _Recorded(NamedTuple):
    """What begins a turn of so many rows, and what runs a step of it, with short contexts or with long ones."""

    enter: Callable[[], None]
    short: Callable[[], None]
    long: Callable[[], None]


class FusedDecoder:
    """Greedy decode steps for up to `max_rows` sequences of a GPT-2, over one KV cache.

    A *turn* is up to `max_steps` steps of the same rows: their tables must hold blocks for all of them. `ValueError`
    for a model or a cache that the kernels do not support; `unsupported` says so without one.
    """

    def __init__(
        self,
        config: GPT2Config,
        weights: Weights,
        cache: KVCache,
        max_rows: int = 256,
        max_steps: int = 16,
        graphs: Graphs | None = None,
    ) -> None:
        if problem := unsupported(config, weights, cache.dtype):
            raise ValueError(f"the fused step does not support {problem}: use the model's own pass")
        self.config, self.cache, self.weights = config, cache, weights
        self.device = weights.wte.device
        self.max_rows, self.max_steps = max_rows, max_steps
        self.uses_pdl = self.device.type == "cuda" and torch.cuda.get_device_capability(self.device) >= (9, 0)
        self.shared_memory = _shared_memory(self.device)
        self.linears = [_fold_layer(layer) for layer in weights.layers]
        self.head = _fold_head(weights)
        width, inner = config.n_embd, 4 * config.n_embd
        int32, fp32, dtype = torch.int32, torch.float32, weights.wte.dtype

        def empty(*shape: int, dtype: torch.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=dtype, device=self.device)

        table_width = -(-config.n_positions // cache.block_size)
        self.given = Staged(max_rows * (4 + table_width), self.device)
        self.tables = empty(max_rows, table_width, dtype=int32)
        self.tokens, self.positions, self.steps = (empty(max_rows, dtype=int32) for _ in range(3))
        self.sampled = empty(max_steps * max_rows, dtype=int32)  # by step, then by row: as many as the turn has
        rows = max_rows + -max_rows % 128  # whole tiles
        self.x, self.h, self.heads = (empty(rows, width, dtype=dtype) for _ in range(3))
        self.fixed = empty(rows, width, dtype=int32)  # what x is, in fixed point: a plan has the one or the other
        self.qkv, self.inner = empty(rows, 3 * width, dtype=dtype), empty(rows, inner, dtype=dtype)
        self.partials, self.squares = empty(8 * rows * width, dtype=fp32), empty(rows * width, dtype=fp32)
        tiles = len(self.head.weight) // 16
        self.best, self.best_tokens = empty(max_rows * tiles, dtype=fp32), empty(max_rows * tiles, dtype=int32)
        on_gpu = self.device.type == "cuda"
        self._read = [  # two: the host reads what one turn has sampled while the next is under way
            (torch.zeros_like(self.sampled, device="cpu", pin_memory=on_gpu), torch.cuda.Event() if on_gpu else None)
            for _ in range(2)
        ]
        self.graphs = graphs or Graphs(self.device)
        self.sizes = [*(size for size in SIZES if size < max_rows), max_rows]
        self._recorded: dict[int, _Recorded] = {}

    def warm_up(self) -> None:
        """Compile the kernels and record the graphs of every batch size, for short contexts and for long ones."""
        for size in self.sizes:
            self._record(size)

    def launch(self, entries: Sequence[Entry], num_steps: int) -> Turn:
        """Start a turn and return at once."""
        num_rows = len(entries)
        size = min(size for size in self.sizes if size >= num_rows)
        enter, short, long = self._record(size)
        rows: list[int] = []
        blocks: list[int] = []
        for source, token, position, held in entries:
            rows += (source, token, position, len(blocks))
            blocks += held
        rows += (-1, 0, -1, 0) * (size - num_rows)  # rows of no sequence
        self.given.send(rows + blocks)
        enter()
        replay = long if max(entry.position for entry in entries) + num_steps > SHORT else short
        for _ in range(num_steps):
            replay()
        return self.read_later(self.sampled, num_steps, size, num_rows)

    def read_later(self, sampled: torch.Tensor, num_steps: int, size: int, num_rows: int) -> Turn:
        """Start the copy of `sampled`, `num_steps` steps of `size` rows, to the host; the turn waits for it.

        Of each step the first `num_rows` rows count.
        """
        self._read.reverse()
        numbers, done = self._read[0]
        numbers[: len(sampled)].copy_(sampled, non_blocking=True)
        if done is not None:
            done.record()
        return Turn(numbers.numpy()[: num_steps * size].reshape(num_steps, size)[:, :num_rows], done)

    def choose(self, normed: torch.Tensor) -> torch.Tensor:
        """Return the best next token of each row of last hidden states, `[rows, E]`, at mean 0 and variance 1.

        The vocabulary is padded, and the padding left out of the choice: a matrix of odd size is multiplied far slower.
        """
        logits = torch.addmm(self.head.bias.to(normed.dtype), normed, self.head.weight.T)
        return logits[:, : self.config.vocab_size].argmax(-1)

    def _record(self, size: int) -> _Recorded:
        """Return what begins a turn of `size` rows and what runs one of its steps, recorded when first asked for."""
        if size not in self._recorded:
            self.given.there.zero_()  # the numbers of another size lead anywhere
            # The tokens are those of a turn under way, with which the next one begins.
            recorded = [self.graphs.record(functools.partial(self._enter, size), kept=self.tokens)]
            self.positions.fill_(-1)  # the steps that are run for recording write nowhere
            for long in (False, True):
                self.steps.zero_()  # each is a turn's first step: the longest turn may have no second
                recorded.append(self.graphs.record(functools.partial(self._step, size, long), kept=self.tokens))
            self._recorded[size] = _Recorded(*recorded)
        return self._recorded[size]

    def _enter(self, size: int) -> None:
        config = self.config
        enter_kernel[(size,)](
            self.given.there, self.tokens, self.positions, self.steps, self.tables, self.weights.wte, self.weights.wpe,
            self._residual(plan_of(size)), self.h, self.tables.shape[1], config.layer_norm_epsilon, config.n_embd,
            triton.next_power_of_2(config.n_embd), triton.next_power_of_2(self.tables.shape[1]),
        )  # fmt: skip

    def _step(self, size: int, long: bool) -> None:
        """Launch the kernels of one step."""
        plan = plan_of(size)
        attend = plan.attend_long if long else plan.attend
        normed = (self.fixed if plan.qkv.direct else self.h, 0)
        # A step's first kernel waits for all of the step before: positions and cache are settled from there on.
        cut = plan.qkv._replace(begin=0)
        for index, (qkv, proj, up, down) in enumerate(self.linears):
            self._multiply(qkv, normed, self.qkv, size, cut)
            self._attend(index, size, attend)
            if attend.outputs:
                normed = self._normed(proj, size, plan, plan.proj, plan.up)
            else:
                normed = self._add(proj, self.heads, size, plan, plan.proj, plan.up)
            self._multiply(up, normed, self.inner, size, plan.up, gelu=True)
            cut = plan.qkv if index + 1 < len(self.linears) else plan.head
            normed = self._add(down, self.inner, size, plan, plan.down, cut)
        self._multiply(self.head, normed, self.best, size, plan.head, best=True)
        config, weights, num_tiles = self.config, self.weights, len(self.head.weight) // plan.head.outputs
        self._launch(
            advance_kernel, (size,), 4, 1, self.best, self.best_tokens, num_tiles, self.tokens, self.positions,
            self.steps, self.sampled, weights.wte, weights.wpe, self._residual(plan), self.h, config.n_positions - 1,
            config.vocab_size, config.layer_norm_epsilon, config.n_embd, triton.next_power_of_2(config.n_embd),
            triton.next_power_of_2(num_tiles),
        )  # fmt: skip

    def _launch(self, kernel: Any, grid: tuple[int, ...], warps: int, begin: int, *arguments: Any) -> None:
        begin = begin if self.uses_pdl else 0
        kernel[grid](*arguments, begin, num_warps=warps, **({"launch_pdl": True} if begin else {}))

    def _residual(self, plan: Plan) -> torch.Tensor:
        return self.fixed if plan.fixed else self.x

    def _add(
        self, linear: Linear, x: torch.Tensor, size: int, plan: Plan, cut: Cut, after: Cut
    ) -> tuple[torch.Tensor, int]:
        """Add a product to the residual stream; return what the one `after` it reads, as for `_multiply`."""
        if cut.splits == 0:
            self._multiply(linear, (x, 0), self.x, size, cut, add=True)
            return self.x, len(linear.weight) // cut.outputs
        cut = cut._replace(splits=math.gcd(cut.splits, x.shape[1]))  # fewer where a width is not to be cut so
        self._multiply(linear, (x, 0), self.fixed if plan.fixed else self.partials, size, cut, partial=True)
        return self._normed(linear, size, plan, cut, after)

    def _normed(self, linear: Linear, size: int, plan: Plan, cut: Cut, after: Cut) -> tuple[torch.Tensor, int]:
        """Return what the product `after` a product with splits reads, as for `_multiply`; norm it if it does not."""
        if after.direct:
            return self.fixed, 0
        width = self.config.n_embd
        self._launch(
            reduce_norm_kernel, (size,), plan.norm.warps, plan.norm.begin, self.partials, linear.bias,
            self._residual(plan), self.h, size, self.config.layer_norm_epsilon, width, triton.next_power_of_2(width),
            0 if plan.fixed else cut.splits,
        )  # fmt: skip
        return self.h, 0

    def _multiply(
        self, linear: Linear, inputs: tuple[torch.Tensor, int], out: torch.Tensor, size: int, cut: Cut, *,
        gelu: bool = False, add: bool = False, partial: bool = False, best: bool = False,
    ) -> None:  # fmt: skip
        """Launch a product. `inputs` are what to multiply and, where `squares` are to norm it, how many SQUARES."""
        (num_outputs, width), (x, squares) = linear.weight.shape, inputs
        depth = width // max(1, cut.splits)
        step = min(cut.step, depth)
        row_size = cut.rows * x.itemsize // 2
        stages = min(cut.stages, self._room(step * (row_size + cut.outputs))) if step else 0
        self._launch(
            product_kernel, (triton.cdiv(size, cut.rows), num_outputs // cut.outputs, max(1, cut.splits)), cut.warps,
            cut.begin, x, *linear, out, self.squares, self.best_tokens, size,
            self.config.vocab_size if best else num_outputs, self.config.layer_norm_epsilon, width, depth,
            part_of(depth), cut.rows, cut.outputs, cut.slices, step, stages, cut.swap,
            squares, gelu, add, partial, best,
        )  # fmt: skip

    def _attend(self, index: int, size: int, cut: Attend) -> None:
        layer = self.cache.layer(index)
        heads, head_dim = self.config.n_head, self.config.head_dim
        tile = cut.tile
        if cut.stages:  # else it must hold all of a short context
            most = self._room(2 * head_dim * cut.stages)  # keys and values
            tile = min(tile, 1 << most.bit_length() - 1)
        self._launch(
            attend_kernel, (size * heads, self.config.n_embd // cut.outputs if cut.outputs else 1), cut.warps,
            cut.begin, self.qkv, layer.keys, layer.values, self.tables, self.positions,
            self.fixed if cut.outputs else self.heads, *self.linears[index][1], head_dim**-0.5 * LOG2_E.value,
            self.tables.stride(0), *layer.keys.stride()[:3], heads, head_dim, self.cache.block_size, tile, cut.dot,
            cut.stages, cut.ahead, cut.outputs,
        )  # fmt: skip

    def _room(self, numbers: int) -> int:
        """Return how many times that many numbers of two bytes fit into a program's shared memory, at least once."""
        return max(1, self.shared_memory // (2 * numbers))


def _shared_memory(device: torch.device) -> int:
    """Return the bytes of shared memory that one program may have: fewer than an H200's on most GPUs."""
    if device.type != "cuda":
        return 1 << 30
    limit: int = torch.cuda.get_device_properties(device).shared_memory_per_block_optin
    return limit


def part_of(depth: int) -> int:
    """Return `depth`, or a third of it, whichever is a power of two."""
    return depth // 3 if depth % 3 == 0 else depth


def unsupported(config: GPT2Config, weights: Weights, kv_dtype: torch.dtype) -> str | None:
    """Return what of a model or cache the fused step cannot compute; None when it can."""
    if weights.wte.dtype not in (torch.float16, torch.bfloat16):
        return f"{weights.wte.dtype} weights"
    if kv_dtype != weights.wte.dtype:
        return f"a {kv_dtype} cache with {weights.wte.dtype} weights"
    part = part_of(config.n_embd)
    if part < 256 or part & (part - 1) or config.head_dim not in (32, 64, 128):
        return f"a width of {config.n_embd} with heads of {config.head_dim}"
    return None


def _reading(weight: torch.Tensor, bias: torch.Tensor, gain: torch.Tensor, shift: torch.Tensor) -> Linear:
    """Turn a layer norm's gain and bias and the product after it, `[K, N]`, into one `Linear`."""
    wide = weight.float()
    return Linear((wide * gain.float()[:, None]).T.to(weight.dtype).contiguous(), bias.float() + shift.float() @ wide)


def _writing(weight: torch.Tensor, bias: torch.Tensor) -> Linear:
    """Take from a product that is added to the residual stream, `[K, N]`, what it adds to the stream's mean.

    Nothing but layer norms reads the stream, and they take the mean away.
    """
    wide, offset = weight.float(), bias.float()
    return Linear((wide - wide.mean(1, keepdim=True)).T.to(weight.dtype).contiguous(), offset - offset.mean())


def _fold_layer(layer: Any) -> tuple[Linear, Linear, Linear, Linear]:
    return (
        _reading(layer.attn_c_attn_weight, layer.attn_c_attn_bias, layer.ln_1_weight, layer.ln_1_bias),
        _writing(layer.attn_c_proj_weight, layer.attn_c_proj_bias),
        _reading(layer.mlp_c_fc_weight, layer.mlp_c_fc_bias, layer.ln_2_weight, layer.ln_2_bias),
        _writing(layer.mlp_c_proj_weight, layer.mlp_c_proj_bias),
    )


def _fold_head(weights: Weights) -> Linear:
    """The output head, its vocabulary padded to a whole number of tiles."""
    missing = -len(weights.wte) % 256
    wte = F.pad(weights.wte, (0, 0, 0, missing))
    return _reading(wte.T, wte.new_zeros(len(wte)), weights.ln_f_weight, weights.ln_f_bias)
