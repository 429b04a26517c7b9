"""Engines with one bug each: what the parity report must name, and what the chapter's picture shows.

Every bug is a mistake that somebody makes; `docs/gpt2-parity.md` tells their stories.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F

from solutions.attention import paged_attention
from solutions.engine import Engine, Parts
from solutions.gpt2 import GPT2
from solutions.weights import GPT2Config, LayerWeights, Weights


class PositionsRestart(GPT2):
    """Positions start at 0 in every forward pass."""

    def embed(self, batch: Any) -> torch.Tensor:
        starts = batch.query_start_loc.long()
        rows = torch.arange(len(batch.tokens)) - starts[:-1].repeat_interleave(starts.diff())
        return super().embed(replace(batch, positions=rows))


class ExactGelu(GPT2):
    """The GELU of the textbook, x · Φ(x), for GPT-2's tanh form."""

    def mlp(self, layer: LayerWeights, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.layer_norm(hidden, layer.ln_2_weight, layer.ln_2_bias)
        inner = F.gelu(torch.addmm(layer.mlp_c_fc_bias, normed, layer.mlp_c_fc_weight))
        return torch.addmm(layer.mlp_c_proj_bias, inner, layer.mlp_c_proj_weight)


class NoFinalNorm(GPT2):
    """The logits are made of the last layer's output as it is."""

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.weights.wte.T


class CutByHead(GPT2):
    """The fused projection is cut into q, k, v of head 0, then of head 1, …, instead of into three thirds."""

    def attention(self, layer: LayerWeights, *rest: Any) -> torch.Tensor:
        # Columns in another order and the right cut are the right columns and the wrong cut.
        shape = (self.config.n_head, 3, self.config.head_dim)
        weight, bias = layer.attn_c_attn_weight, layer.attn_c_attn_bias
        moved = layer._replace(
            attn_c_attn_weight=weight.unflatten(1, shape).transpose(1, 2).flatten(1),
            attn_c_attn_bias=bias.unflatten(0, shape).transpose(0, 1).flatten(),
        )
        return super().attention(moved, *rest)


class Untransposed(GPT2):
    """The square output projection is used as a Linear's `[out, in]`: no shape is wrong."""

    def attention(self, layer: LayerWeights, *rest: Any) -> torch.Tensor:
        return super().attention(layer._replace(attn_c_proj_weight=layer.attn_c_proj_weight.T), *rest)


def swapped_strides(queries: torch.Tensor, cache: Any, *rest: Any) -> torch.Tensor:
    """Head h starts h slots further on, where it should start h heads further on: head 0 starts where it should."""

    def by_slots(stored: torch.Tensor) -> torch.Tensor:
        num_blocks, block_size, num_heads, head_dim = stored.shape
        block, slot, _, one = stored.stride()
        return stored.as_strided((num_blocks - 1, block_size, num_heads, head_dim), (block, slot, slot, one))

    return paged_attention(queries, cache._replace(keys=by_slots(cache.keys), values=by_slots(cache.values)), *rest)


def mask_by_row(
    queries: torch.Tensor, cache: Any, tables: torch.Tensor, starts: torch.Tensor, _: Any, *rest: Any
) -> torch.Tensor:
    """The mask takes a query's row in its pass for its position: a decoded token sees the first key only."""
    return paged_attention(queries, cache, tables, starts, starts.diff(), *rest)


def first_block_only(queries: torch.Tensor, cache: Any, tables: torch.Tensor, *rest: Any) -> torch.Tensor:
    """Every entry of the block table is read as its first."""
    return paged_attention(queries, cache, tables[:, :1].expand_as(tables), *rest)


def half_scale(queries: torch.Tensor, *rest: Any) -> torch.Tensor:
    """The scores are scaled by half of what they should be."""
    return paged_attention(queries * 0.5, *rest)


def _unchanged(config: GPT2Config, weights: Weights) -> tuple[GPT2Config, Weights]:
    return config, weights


def _other_epsilon(config: GPT2Config, weights: Weights) -> tuple[GPT2Config, Weights]:
    return replace(config, layer_norm_epsilon=1e-12), weights


def _half(config: GPT2Config, weights: Weights) -> tuple[GPT2Config, Weights]:
    layers = tuple(LayerWeights(*(tensor.half() for tensor in layer)) for layer in weights.layers)
    others = {name: getattr(weights, name).half() for name in ("wte", "wpe", "ln_f_weight", "ln_f_bias")}
    return config, Weights(layers=layers, **others)


@dataclass(frozen=True)
class Bug:
    """One bug: a short name, what is done instead of what is right, and how an engine comes to have it."""

    name: str
    what: str
    parts: Parts | None = None
    change: Callable[[GPT2Config, Weights], tuple[GPT2Config, Weights]] = _unchanged

    def engine(self, config: GPT2Config, weights: Weights, **options: Any) -> Engine:
        """Return an engine that has the bug."""
        return Engine(*self.change(config, weights), parts=self.parts, **options)


BUGS = {
    "none": Bug("no bug", "everything as it should be, in fp32"),
    "gelu": Bug("exact GELU", "x · Φ(x) where GPT-2 has the tanh form", Parts(model=ExactGelu)),
    "epsilon": Bug("layer norm ε", "1e-12 where GPT-2 has 1e-5", change=_other_epsilon),
    "positions": Bug("positions restart", "every pass counts positions from 0", Parts(model=PositionsRestart)),
    "cut": Bug("q, k, v per head", "the fused projection cut head by head, not in thirds", Parts(model=CutByHead)),
    "transpose": Bug("Conv1D as Linear", "the square output projection transposed", Parts(model=Untransposed)),
    "norm": Bug("no final norm", "the logits made of the last layer's output as it is", Parts(model=NoFinalNorm)),
    "strides": Bug("swapped strides", "head h starts h slots further on, not h heads", Parts(attend=swapped_strides)),
    "mask": Bug("mask by row", "a query's row in its pass taken for its position", Parts(attend=mask_by_row)),
    "table": Bug("first block only", "every table entry read as the first", Parts(attend=first_block_only)),
    "scale": Bug("half the scale", "scores scaled by half of what they should be", Parts(attend=half_scale)),
    "half": Bug("fp16", "no bug: weights and KV cache in half precision", change=_half),
}
