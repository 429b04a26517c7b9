"""Paged attention in PyTorch: the reference that the kernels are held against, and the engine's attention on a CPU.

It runs on any device and computes in float32, or in float64 where the queries are float64. It reads the lengths on the
host, so on a GPU it makes the host wait; the Triton kernels have the same signatures and do not.
"""

from __future__ import annotations

from typing import Protocol

import torch

INT8_MAX = 127


class LayerCache(Protocol):
    """What attention asks of one layer's cache; see `kv_cache.LayerCache`."""

    @property
    def keys(self) -> torch.Tensor: ...
    @property
    def values(self) -> torch.Tensor: ...
    @property
    def key_scales(self) -> torch.Tensor | None: ...
    @property
    def value_scales(self) -> torch.Tensor | None: ...


def write_kv(
    keys: torch.Tensor,
    values: torch.Tensor,
    cache: LayerCache,
    slots: torch.Tensor,
    touched: torch.Tensor | None = None,
) -> None:
    """Write one key and one value per token and KV head to the tokens' slots.

    `keys`, `values`: `[num_tokens, num_kv_heads, head_dim]`; `slots`: int64 `[num_tokens]`, each slot at most once. A
    negative slot is padding: nothing is written for it. `touched` is not used: it lists for the Triton kernel, block by
    block, what follows from `slots`.
    """
    real = slots >= 0
    keys, values, slots = keys[real], values[real], slots[real]
    if cache.key_scales is not None and cache.value_scales is not None:
        _write_int8(keys, cache.keys, cache.key_scales, slots)
        _write_int8(values, cache.values, cache.value_scales, slots)
        return
    block_size = cache.keys.shape[1]
    blocks, offsets = slots // block_size, slots % block_size
    cache.keys[blocks, offsets] = keys.to(cache.keys.dtype)
    cache.values[blocks, offsets] = values.to(cache.values.dtype)


def _write_int8(new: torch.Tensor, stored: torch.Tensor, scales: torch.Tensor, slots: torch.Tensor) -> None:
    """Quantise `new` `[num_tokens, num_kv_heads, head_dim]` into `stored`, with one scale per block and head.

    The scale is the largest magnitude written to the block so far over 127. Where new tokens raise it, the block's
    earlier tokens are requantised; each such growth adds at most half a step to their error, so a value is off by at
    most `(growths + 1) / 2 * scale`. Blocks are filled from their first slot: a write to it starts the block anew.
    """
    block_size = stored.shape[1]
    for block in torch.unique(slots // block_size).tolist():
        rows = slots // block_size == block
        offsets = slots[rows] % block_size
        num_old = int(offsets.min())  # the slots before the first new one; the others have not been written
        old_scale = scales[block] if num_old > 0 else torch.zeros_like(scales[block])
        tokens = new[rows].float()
        largest = tokens.abs().amax((0, 2))  # [num_kv_heads]
        # On a GPU, PyTorch divides by a number as it multiplies by its inverse, which rounds otherwise.
        scale = torch.maximum(old_scale, largest / torch.full_like(largest, INT8_MAX))
        grows = scale > old_scale
        old = stored[block, :num_old]
        requantised = _round(old * old_scale[:, None], scale)
        stored[block, :num_old] = torch.where(grows[:, None], requantised, old)
        stored[block, offsets] = _round(tokens, scale)
        scales[block] = scale


def _round(values: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return `values` `[tokens, num_kv_heads, head_dim]` in steps of `scale`, half to even, saturated at ±127."""
    steps = values / torch.where(scale > 0, scale, 1.0)[:, None]  # a scale of 0 means that every value is 0
    return steps.round().clamp(-INT8_MAX, INT8_MAX).to(torch.int8)


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
    """Return the attention of each query over its sequence's context, causally masked: `[num_tokens, heads, head_dim]`.

    `queries`: `[num_tokens, num_heads, head_dim]`, the sequences' new tokens one after the other: those of sequence `i`
    are rows `query_start_loc[i]` to `query_start_loc[i + 1]` (int32 `[num_seqs + 1]`), at most `max_query_len` of them,
    perhaps none. They are the last of its `context_lens[i]` tokens (int32 `[num_seqs]`), all of which are in the cache.
    `block_tables`: int32 `[num_seqs, width]`; entries beyond a sequence's context are never used.

    Each KV head serves `num_heads / num_kv_heads` neighbouring query heads (GQA). `scale` multiplies the scores. Rows
    that belong to no sequence are left as they are in `out`, or are 0 where none was given.
    """
    raise NotImplementedError("paged-attention-torch: paged_attention is not written yet")
