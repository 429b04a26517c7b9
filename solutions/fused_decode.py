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


@triton.jit
def gelu(x):
    """GPT-2's GELU: the tanh form, written with the logistic function."""
    return x / (1.0 + tl.exp(-1.5957691216057308 * (x + 0.044715 * x * x * x)))


@triton.jit
def await_inputs(PDL: tl.constexpr):
    """Let the next kernel begin to fetch its weights, and wait until what the one before has written is there."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def gemv_kernel(
    x_ptr,  # [ROWS, K]
    weight_ptr, bias_ptr, sums_ptr,  # [N, K], fp32 [N], fp32 [N]: each row of weights summed
    out_ptr,  # [ROWS, N]
    N, epsilon,
    ROWS: tl.constexpr, K: tl.constexpr, COLUMNS: tl.constexpr, OUTPUTS: tl.constexpr,  # COLUMNS: K, rounded up
    NORM: tl.constexpr, GELU: tl.constexpr, ADD: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Multiply a few rows: one program holds OUTPUTS rows of weights. NORM: of x's layer norm; ADD: onto `out`.

    norm(x) · w = (x · w - mean · sum(w)) / deviation, so mean and deviation come from the same pass over x.
    """
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    column = output[:, None] * 0 + tl.arange(0, COLUMNS)[None, :]  # x in the layout of the weights: no exchange
    mask = column < K
    weight = tl.load(weight_ptr + output[:, None] * K + column, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + output)
    if NORM:
        sums = tl.load(sums_ptr + output)
    await_inputs(PDL)
    for row in tl.static_range(ROWS):
        x = tl.load(x_ptr + row * K + column, mask=mask, other=0.0).to(tl.float32)
        product = tl.sum(weight * x, 1)
        if NORM:
            mean = tl.sum(x, 1) / K
            product = (product - mean * sums) * tl.rsqrt(tl.sum(x * x, 1) / K - mean * mean + epsilon)
        product += bias
        if GELU:
            product = gelu(product)
        out = out_ptr + row * N + output
        if ADD:
            product += tl.load(out)
        tl.store(out, product.to(out_ptr.dtype.element_ty))


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
    if SWAP:
        acc = tl.zeros([OUTPUTS, ROWS], tl.float32)
    else:
        acc = tl.zeros([ROWS, OUTPUTS], tl.float32)
    for start in tl.range(0, DEPTH, STEP, num_stages=STAGES):
        x_tile = tl.load(x + start, mask=mask, other=0.0)
        weight_tile = tl.load(weight + start)
        if SWAP:
            acc = tl.dot(weight_tile, x_tile.T, acc)
        else:
            acc = tl.dot(x_tile, weight_tile.T, acc)
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
def head_kernel(
    h_ptr,  # [M, K]
    weight_ptr, bias_ptr,  # [the vocabulary rounded up, K], fp32
    best_ptr, token_ptr,  # fp32 and int32 [M, tiles of the vocabulary]
    M, vocabulary, K: tl.constexpr,
    ROWS: tl.constexpr, OUTPUTS: tl.constexpr, STEP: tl.constexpr, STAGES: tl.constexpr, SWAP: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Find the best token of one tile of the vocabulary, for a tile of rows; the first of equals."""
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
    x = tl.load(x_ptr + row * WIDTH + column, mask=mask, other=0.0)
    if SPLITS > 0:
        for split in tl.static_range(SPLITS):
            x += tl.load(partials_ptr + (split * M + row) * WIDTH + column, mask=mask, other=0.0)
        x += bias
        tl.store(x_ptr + row * WIDTH + column, x, mask=mask)
    store_normed(x, h_ptr, row, column, epsilon, WIDTH)


@triton.jit
def attend_kernel(
    qkv_ptr,  # [M, 3, HEADS, HEAD_DIM]
    keys_ptr, values_ptr,  # one layer's cache
    entries_ptr, positions_ptr,  # int32 [M, 3 + width]: see `FusedDecoder`; int32 [M], negative where there is no row
    out_ptr,  # [M, HEADS, HEAD_DIM]
    scale, entry_stride, block_stride, slot_stride, head_stride,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One program: one row and head. Writes the new key and value, and attends to them and to those of the cache.

    The cache's are of earlier steps, so the first tile is fetched before the wait.
    """
    row = tl.program_id(0) // HEADS
    head = tl.program_id(0) % HEADS
    dim = tl.arange(0, HEAD_DIM)
    lane = tl.arange(0, 16)[:, None]  # the tensor cores multiply 16 rows at a time; all are the one query
    position = tl.load(positions_ptr + row)
    table_ptr = entries_ptr + row * entry_stride + 3
    keys_ptr += head * head_stride
    values_ptr += head * head_stride
    key, value, valid = load_context(
        keys_ptr, values_ptr, table_ptr, 0, position, dim, block_stride, slot_stride, BLOCK_SIZE, TILE
    )
    await_inputs(PDL)
    new_ptr = qkv_ptr + (row * 3 * HEADS + head) * HEAD_DIM
    query = tl.load(new_ptr + dim[None, :] + lane * 0)
    new_query = tl.load(new_ptr + dim).to(tl.float32)
    new_key = tl.load(new_ptr + HEADS * HEAD_DIM + dim)
    new_value = tl.load(new_ptr + 2 * HEADS * HEAD_DIM + dim)
    here = tl.maximum(position, 0)
    target = tl.load(table_ptr + here // BLOCK_SIZE).to(tl.int64) * block_stride + here % BLOCK_SIZE * slot_stride + dim
    is_row = dim < tl.where(position < 0, 0, HEAD_DIM)
    tl.store(keys_ptr + target, new_key.to(keys_ptr.dtype.element_ty), mask=is_row)
    tl.store(values_ptr + target, new_value.to(values_ptr.dtype.element_ty), mask=is_row)

    largest = tl.full([16], tl.sum(new_query * new_key.to(tl.float32), 0) * scale, tl.float32)
    total = tl.full([16], 1.0, tl.float32)
    acc = tl.zeros([16, HEAD_DIM], tl.float32) + new_value.to(tl.float32)[None, :]
    for start in range(0, position, TILE):
        if start > 0:
            key, value, valid = load_context(
                keys_ptr, values_ptr, table_ptr, start, position, dim, block_stride, slot_stride, BLOCK_SIZE, TILE
            )
        scores = tl.where(valid[None, :], tl.dot(query, key.T) * scale, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        rescale = tl.exp2(largest - new_largest)
        weights = tl.exp2(scores - new_largest[:, None])
        total = total * rescale + tl.sum(weights, 1)
        acc = tl.dot(weights.to(value.dtype), value, acc * rescale[:, None])
        largest = new_largest
    out = out_ptr + (row * HEADS + head) * HEAD_DIM + dim[None, :] + lane * 0
    tl.store(out, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=lane == 0)


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
    tl.store(x_ptr + row * WIDTH + column, x, mask=mask)
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


class Tile(NamedTuple):
    """How a matrix product is cut. `splits` programs share the columns of a tile of outputs."""

    splits: int
    rows: int
    outputs: int
    step: int
    stages: int
    warps: int
    swap: bool


class Plan(NamedTuple):
    """How a step of a number of rows is cut; without tiles for `qkv` … `down`, they are `gemv`s."""

    head: Tile
    attend: tuple[int, int]  # keys a tile, warps
    qkv: Tile | None = None
    proj: Tile | None = None
    up: Tile | None = None
    down: Tile | None = None


# Tuned on an H200, GPT-2 small, context 64. A size that is not here takes the next larger one's plan.
FEW = Plan(head=Tile(1, 16, 128, 128, 3, 4, False), attend=(64, 4))
PLANS = {
    1: FEW,
    2: FEW,
    4: FEW,
    8: Plan(
        head=Tile(1, 16, 128, 128, 3, 4, False), attend=(64, 1),
        qkv=Tile(1, 16, 16, 256, 3, 4, False), proj=Tile(2, 16, 16, 128, 3, 4, False),
        up=Tile(1, 16, 16, 256, 3, 4, False), down=Tile(4, 16, 32, 256, 3, 4, False),
    ),
    32: Plan(
        head=Tile(1, 32, 128, 64, 4, 4, False), attend=(64, 1),
        qkv=Tile(1, 32, 16, 256, 3, 4, False), proj=Tile(4, 32, 32, 64, 3, 4, False),
        up=Tile(1, 32, 64, 128, 4, 4, True), down=Tile(4, 32, 64, 256, 3, 4, True),
    ),
    256: Plan(
        head=Tile(1, 128, 256, 64, 4, 8, False), attend=(64, 1),
        qkv=Tile(1, 64, 64, 64, 4, 4, False), proj=Tile(1, 64, 32, 64, 4, 4, False),
        up=Tile(1, 64, 64, 64, 4, 4, False), down=Tile(3, 64, 64, 64, 4, 4, False),
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

    A *turn* is up to `max_steps` steps of the same rows: their tables must hold blocks for all of them. `ValueError` for
    a model or a cache that the kernels do not support; `supports` asks without one.
    """

    def __init__(
        self, config: GPT2Config, weights: Weights, cache: KVCache, max_rows: int = 256, max_steps: int = 16
    ) -> None:
        if problem := unsupported(config, weights, cache):
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
        self.partials = empty(4 * max_rows * width, dtype=fp32)
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
        which = self._num_turns % 2
        self._num_turns += 1
        given, read = self._given[which], self._read[which][: num_steps * size]
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
        read.copy_(self.sampled[: num_steps * size], non_blocking=True)
        done = None
        if self.device.type == "cuda":
            done = torch.cuda.Event()
            done.record()
        return Turn(read.view(num_steps, size), len(entries), done)

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
        few = plan.qkv is None
        width, epsilon = self.config.n_embd, self.config.layer_norm_epsilon
        first = True
        for index, (qkv, proj, up, down) in enumerate(self.linears):
            if few:
                self._gemv(qkv, self.x, self.qkv, size, norm=True, pdl=self.uses_pdl and not first)
                self._attend(index, size, plan.attend)
                self._gemv(proj, self.heads, self.x, size, add=True)
                self._gemv(up, self.x, self.inner, size, norm=True, gelu=True)
                self._gemv(down, self.inner, self.x, size, add=True)
            else:
                assert plan.qkv and plan.proj and plan.up and plan.down
                # A step's first kernel waits for the whole step before: positions and cache are settled from there on.
                self._linear(qkv, self.h, self.qkv, size, plan.qkv, pdl=self.uses_pdl and not first)
                self._attend(index, size, plan.attend)
                self._linear(proj, self.heads, self.partials, size, plan.proj, partial=True)
                self._reduce_norm(proj.bias, size, plan.proj.splits)
                self._linear(up, self.h, self.inner, size, plan.up, gelu=True)
                self._linear(down, self.inner, self.partials, size, plan.down, partial=True)
                self._reduce_norm(down.bias, size, plan.down.splits)
            first = False
        if few:
            self._reduce_norm(self.head.bias, size, 0)
        splits, rows, outputs, step, stages, warps, swap = plan.head
        num_tiles = len(self.head.weight) // outputs
        head_kernel[(triton.cdiv(size, rows), num_tiles)](
            self.h, *self.head[:2], self.best, self.best_tokens, size, self.config.vocab_size, width,
            rows, outputs, min(step, width), stages, swap, self.uses_pdl, **self._options(warps),
        )  # fmt: skip
        advance_kernel[(size,)](
            self.best, self.best_tokens, num_tiles, self.tokens, self.positions, self.steps, self.sampled,
            self.weights.wte, self.weights.wpe, self.x, self.h, self.config.n_positions - 1, self.config.vocab_size,
            epsilon, width, triton.next_power_of_2(width), triton.next_power_of_2(num_tiles), self.uses_pdl,
            **self._options(4),
        )  # fmt: skip

    def _gemv(
        self, linear: Linear, x: torch.Tensor, out: torch.Tensor, size: int, *, norm: bool = False, gelu: bool = False,
        add: bool = False, pdl: bool | None = None,
    ) -> None:  # fmt: skip
        num_outputs, depth = linear.weight.shape
        pdl = self.uses_pdl if pdl is None else pdl
        outputs, warps = (4, 8) if depth > 1024 else (8, 4)
        gemv_kernel[(num_outputs // outputs,)](
            x, *linear, out, num_outputs, self.config.layer_norm_epsilon, size, depth, triton.next_power_of_2(depth),
            outputs, norm, gelu, add, pdl, **self._options(warps, pdl),
        )  # fmt: skip

    def _linear(
        self, linear: Linear, x: torch.Tensor, out: torch.Tensor, size: int, tile: Tile, *, gelu: bool = False,
        partial: bool = False, pdl: bool | None = None,
    ) -> None:  # fmt: skip
        num_outputs, width = linear.weight.shape
        pdl = self.uses_pdl if pdl is None else pdl
        depth = width // tile.splits
        linear_kernel[(triton.cdiv(size, tile.rows), num_outputs // tile.outputs, tile.splits)](
            x, *linear[:2], out, size, num_outputs, width, depth, tile.rows, tile.outputs, min(tile.step, depth),
            tile.stages, tile.swap, gelu, partial, pdl, **self._options(tile.warps, pdl),
        )  # fmt: skip

    def _reduce_norm(self, bias: torch.Tensor, size: int, splits: int) -> None:
        width = self.config.n_embd
        reduce_norm_kernel[(size,)](
            self.partials, bias, self.x, self.h, size, self.config.layer_norm_epsilon, width,
            triton.next_power_of_2(width), splits, self.uses_pdl, **self._options(4),
        )  # fmt: skip

    def _attend(self, index: int, size: int, cut: tuple[int, int]) -> None:
        layer = self.cache.layer(index)
        tile, warps = cut
        heads, head_dim = self.config.n_head, self.config.head_dim
        attend_kernel[(size * heads,)](
            self.qkv, layer.keys, layer.values, self.entries, self.positions, self.heads, head_dim**-0.5 * LOG2_E.value,
            self.entries.stride(0), *layer.keys.stride()[:3], heads, head_dim, self.cache.block_size, tile,
            self.uses_pdl, **self._options(warps),
        )  # fmt: skip

    def _options(self, warps: int, pdl: bool | None = None) -> dict[str, Any]:
        pdl = self.uses_pdl if pdl is None else pdl
        return {"num_warps": warps, **({"launch_pdl": True} if pdl else {})}


def unsupported(config: GPT2Config, weights: Weights, cache: KVCache) -> str | None:
    """Return what of a model or cache the fused step cannot compute; None when it can."""
    if weights.wte.dtype not in (torch.float16, torch.bfloat16):
        return f"{weights.wte.dtype} weights"
    if cache.dtype != weights.wte.dtype:
        return f"a {cache.dtype} cache with {weights.wte.dtype} weights"
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
