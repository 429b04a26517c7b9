"""The KV cache: the tensors that the block pool's numbers point into.

One allocation holds the keys and values of every layer; a layer's part of it is a view. Nothing is cleared at the start
or when a block changes hands: a slot that has not been written holds anything, NaN included, and readers must not look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8)
HEAD_DIMS = range(32, 129, 16)
BLOCK_SIZES = (8, 16, 32, 64, 128, 256)


class LayerCache(NamedTuple):
    """One layer's keys and values. Slot `s` is row `s % block_size` of block `s // block_size`.

    For an INT8 cache a stored integer `n` of block `b` and head `h` stands for `n * scales[b, h]`; otherwise the scales
    are `None`.
    """

    keys: torch.Tensor  # [num_blocks, block_size, num_kv_heads, head_dim]
    values: torch.Tensor  # the same
    key_scales: torch.Tensor | None = None  # fp32 [num_blocks, num_kv_heads]
    value_scales: torch.Tensor | None = None  # the same


class KVCache:
    """The keys and values of all layers, in `num_blocks` blocks of `block_size` tokens.

    `dtype` is float32, float16, bfloat16 or int8. `ValueError`, before any memory is taken, for a dtype, head size or
    block size that the kernels do not support, and for a size that is not positive.
    """

    def __init__(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str,
    ) -> None:
        _check(num_layers, block_size, num_kv_heads, head_dim, dtype)
        if num_blocks < 1:
            raise ValueError(f"a KV cache cannot have {num_blocks} blocks")
        self.num_layers, self.num_blocks, self.block_size = num_layers, num_blocks, block_size
        self.num_kv_heads, self.head_dim, self.dtype = num_kv_heads, head_dim, dtype
        # [layer, key or value, block, slot, head, dim]: a block's slots of one layer are next to each other.
        self.data = torch.empty(
            num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim, dtype=dtype, device=device
        )
        self.scales: torch.Tensor | None = None
        if dtype == torch.int8:
            self.scales = torch.empty(num_layers, 2, num_blocks, num_kv_heads, dtype=torch.float32, device=device)
        self._layers = [
            LayerCache(*self.data[i].unbind(), *(() if self.scales is None else self.scales[i].unbind()))
            for i in range(num_layers)
        ]

    @staticmethod
    def bytes_per_block(num_layers: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> int:
        """Return the bytes that one block takes over all layers, keys, values and scales, without allocating it.

        A cache of n blocks takes exactly n times as much. Errors as for the constructor.
        """
        _check(num_layers, block_size, num_kv_heads, head_dim, dtype)
        scale_bytes = torch.float32.itemsize if dtype == torch.int8 else 0
        return 2 * num_layers * num_kv_heads * (block_size * head_dim * dtype.itemsize + scale_bytes)

    @property
    def num_bytes(self) -> int:
        """The bytes of all tensors of this cache."""
        return self.data.nbytes + (0 if self.scales is None else self.scales.nbytes)

    def layer(self, index: int) -> LayerCache:
        """Return layer `index`'s part of the cache: views, so a write to them is a write to the cache."""
        return self._layers[index]

    def copy_blocks(self, copies: Sequence[tuple[int, int]]) -> None:
        """Copy whole blocks, `(from, to)` each, in every layer: keys, values and scales.

        All sources are read before any block is written, so the order of `copies` does not matter.
        """
        if not copies:
            return
        source, target = torch.tensor(copies, device=self.data.device).unbind(1)
        self.data[:, :, target] = self.data[:, :, source]
        if self.scales is not None:
            self.scales[:, :, target] = self.scales[:, :, source]


def _check(num_layers: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> None:
    if num_layers < 1 or num_kv_heads < 1:
        raise ValueError(f"a KV cache cannot have {num_layers} layers of {num_kv_heads} KV heads")
    if block_size not in BLOCK_SIZES:
        raise ValueError(f"block size {block_size} is not supported: choose one of {', '.join(map(str, BLOCK_SIZES))}")
    if head_dim not in HEAD_DIMS:
        raise ValueError(f"head size {head_dim} is not supported: it must be a multiple of 16 from 32 to 128")
    if dtype not in DTYPES:
        names = ", ".join(str(each).removeprefix("torch.") for each in DTYPES)
        raise ValueError(f"a KV cache of {dtype} is not supported: choose one of {names}")
