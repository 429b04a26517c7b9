"""Writing keys and values into the paged cache, by slot: two small Triton kernels and their launcher.

A float cache is written token by token: a slot says where a token goes, and that is all there is to know. An INT8 cache
is written block by block, because all the tokens of a block and head share one scale.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import triton
import triton.language as tl

if TYPE_CHECKING:
    import torch

BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
SLOTS_PER_TILE = 16


class LayerCache(Protocol):
    """What a write asks of one layer's cache; see `kv_cache.LayerCache`."""

    @property
    def keys(self) -> torch.Tensor: ...
    @property
    def values(self) -> torch.Tensor: ...
    @property
    def key_scales(self) -> torch.Tensor | None: ...
    @property
    def value_scales(self) -> torch.Tensor | None: ...


@triton.jit
def slot_write_kernel(
    keys_ptr,  # [num_tokens, NUM_HEADS, HEAD_DIM]
    values_ptr,
    key_cache_ptr,  # [num_blocks, BLOCK_SIZE, NUM_HEADS, HEAD_DIM]
    value_cache_ptr,
    slots_ptr,  # int64 [num_tokens]
    keys_row_stride,
    keys_head_stride,
    values_row_stride,
    values_head_stride,
    cache_block_stride,
    cache_slot_stride,
    cache_head_stride,
    NUM_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HEADS: tl.constexpr,  # NUM_HEADS and HEAD_DIM, rounded up to powers of two
    DIMS: tl.constexpr,
):
    """Write one token: program `row` copies all its heads to slot `slots[row]`."""
    raise NotImplementedError("triton-slot-write: slot_write_kernel is not written yet")


@triton.jit
def int8_write_kernel(
    keys_ptr,  # [num_tokens, num_heads, HEAD_DIM]
    values_ptr,
    key_cache_ptr,  # int8 [num_blocks, BLOCK_SIZE, num_heads, HEAD_DIM]
    value_cache_ptr,
    key_scales_ptr,  # fp32 [num_blocks, num_heads]
    value_scales_ptr,
    touched_ptr,  # int32 [num_touched, 4]
    keys_row_stride,
    keys_head_stride,
    values_row_stride,
    values_head_stride,
    cache_block_stride,
    cache_slot_stride,
    cache_head_stride,
    scales_block_stride,
    scales_head_stride,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,  # HEAD_DIM rounded up to a power of two
    SLOTS: tl.constexpr,  # tokens handled at once
):
    """Append to one block and head: no other program touches them, so the scale can change without a race."""
    entry = touched_ptr + tl.program_id(0) * 4
    head = tl.program_id(1)
    block = tl.load(entry).to(tl.int64)
    first_slot = tl.load(entry + 1)  # the block's slots before this one are written, those from here on are not
    count = tl.load(entry + 2)
    first_row = tl.load(entry + 3).to(tl.int64)
    if count > 0:
        cache = block * cache_block_stride + head * cache_head_stride
        scales = block * scales_block_stride + head * scales_head_stride
        keys_ptr += first_row * keys_row_stride + head * keys_head_stride
        values_ptr += first_row * values_row_stride + head * values_head_stride
        append(
            keys_ptr, keys_row_stride, key_cache_ptr + cache, cache_slot_stride, key_scales_ptr + scales,
            first_slot, count, HEAD_DIM, DIMS, SLOTS,
        )  # fmt: skip
        append(
            values_ptr, values_row_stride, value_cache_ptr + cache, cache_slot_stride, value_scales_ptr + scales,
            first_slot, count, HEAD_DIM, DIMS, SLOTS,
        )  # fmt: skip


@triton.jit
def append(
    new_ptr, row_stride, cache_ptr, slot_stride, scale_ptr, first_slot, count,
    HEAD_DIM: tl.constexpr, DIMS: tl.constexpr, SLOTS: tl.constexpr,
):  # fmt: skip
    """Quantise `count` new rows into a block, from `first_slot` on; requantise what is before it if the scale grows."""
    tile = tl.arange(0, SLOTS)[:, None]
    dim = tl.arange(0, DIMS)[None, :]
    # A block is filled from its first slot, so a write to that slot starts it anew: the old scale is not read.
    old_scale = tl.load(scale_ptr, mask=first_slot > 0, other=0.0)
    largest = tl.zeros([SLOTS, DIMS], tl.float32)
    for start in range(0, count, SLOTS):
        row = start + tile
        new = tl.load(new_ptr + row * row_stride + dim, mask=(row < count) & (dim < HEAD_DIM), other=0.0)
        largest = tl.maximum(largest, tl.abs(new.to(tl.float32)))
    scale = tl.maximum(old_scale, tl.math.div_rn(tl.max(tl.max(largest, 1), 0), 127.0))
    step = tl.where(scale > 0, scale, 1.0)  # a scale of 0 means that every value is 0

    if (scale > old_scale) | (first_slot == 0):
        for start in range(0, first_slot, SLOTS):
            slot = start + tile
            mask = (slot < first_slot) & (dim < HEAD_DIM)
            old = tl.load(cache_ptr + slot * slot_stride + dim, mask=mask, other=0).to(tl.float32) * old_scale
            tl.store(cache_ptr + slot * slot_stride + dim, to_int8(old, step), mask=mask)
        tl.store(scale_ptr, scale)

    for start in range(0, count, SLOTS):
        row = start + tile
        mask = (row < count) & (dim < HEAD_DIM)
        new = tl.load(new_ptr + row * row_stride + dim, mask=mask, other=0.0).to(tl.float32)
        tl.store(cache_ptr + (first_slot + row) * slot_stride + dim, to_int8(new, step), mask=mask)


@triton.jit
def to_int8(values, step):
    """Return `values` in steps of `step`, rounded half to even, saturated at ±127."""
    # `/` may be an approximation on a GPU; a value half-way between two steps must be seen as such.
    steps = tl.math.div_rn(values, tl.zeros_like(values) + step)
    steps = tl.minimum(tl.maximum(steps, -127.0), 127.0)
    # In float32 the numbers around 1.5 · 2²³ are the integers, so this addition rounds as IEEE says: half to even.
    return (steps + 12582912.0 - 12582912.0).to(tl.int8)


def write_kv(
    keys: torch.Tensor,
    values: torch.Tensor,
    cache: LayerCache,
    slots: torch.Tensor,
    touched: torch.Tensor | None = None,
) -> None:
    """Write one key and one value per token and KV head to the tokens' slots.

    `keys`, `values`: `[num_tokens, num_kv_heads, head_dim]`, perhaps views; `slots`: int64 `[num_tokens]`, each slot at
    most once. A negative slot is padding: nothing is written for it. An INT8 cache is written by `touched` instead:
    int32 `[num_touched, 4]`, one entry `(block, first slot in the block, number of tokens, first row)` for each block
    that the step writes to, its tokens in neighbouring rows; an entry of 0 tokens is padding. `ValueError` for a block
    size that is not a power of two from 8 to 256, tensors that do not fit together, or INT8 without `touched`.
    """
    num_tokens, num_heads, head_dim = keys.shape
    _, block_size, *cached = cache.keys.shape
    if block_size not in BLOCK_SIZES:
        raise ValueError(f"block size {block_size} is not supported: choose one of {', '.join(map(str, BLOCK_SIZES))}")
    if cached != [num_heads, head_dim] or keys.shape != values.shape or cache.keys.stride() != cache.values.stride():
        raise ValueError(
            f"keys {[*keys.shape]} and values {[*values.shape]} do not fit a cache of {[*cache.keys.shape]}"
        )
    if any(each.stride(-1) != 1 for each in (keys, values, cache.keys)):
        raise ValueError("the numbers of one head must be next to each other in memory: call .contiguous()")
    tensors = (keys, values, cache.keys, cache.values)
    strides = (*keys.stride()[:2], *values.stride()[:2], *cache.keys.stride()[:3])
    dims = triton.next_power_of_2(head_dim)
    if cache.key_scales is None or cache.value_scales is None:
        if num_tokens > 0:
            heads = triton.next_power_of_2(num_heads)
            slot_write_kernel[(num_tokens,)](
                *tensors, slots, *strides, num_heads, head_dim, block_size, heads, dims, num_warps=4
            )
        return
    if touched is None:
        raise ValueError("an INT8 cache is written block by block: pass `touched`")
    if len(touched) > 0:
        int8_write_kernel[(len(touched), num_heads)](
            *tensors, cache.key_scales, cache.value_scales, touched, *strides, *cache.key_scales.stride(),
            head_dim, dims, min(block_size, SLOTS_PER_TILE), num_warps=4,
        )  # fmt: skip
