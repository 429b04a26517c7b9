"""GPT-2 on a paged KV cache: one packed forward pass for prefills, chunks and decodes alike.

The pass reads its weights in the layout of the published checkpoints. What a faster path may replace goes through four
methods of the model, its seams: `embed`, `write_kv`, `attend` and `logits`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch

if TYPE_CHECKING:
    from solutions.weights import GPT2Config, LayerWeights, Weights


class Batch(Protocol):
    """What the forward pass reads of a step's metadata; see `batch.Batch`."""

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    touched: torch.Tensor
    query_start_loc: torch.Tensor
    context_lens: torch.Tensor
    block_tables: torch.Tensor
    sample_rows: torch.Tensor
    max_query_len: int


Observer = Callable[[str, int, torch.Tensor], None]


class GPT2:
    """The forward pass. T is the number of packed rows, E the width, H the number of heads, D the head size.

    `write_kv` puts a layer's new keys and values, both `[T, H, D]`, into its cache; `attend` returns the attention
    output `[T, H, D]` of the queries over the cache. Their arguments are those of `attention.write_kv` and
    `attention.paged_attention`.
    """

    def __init__(
        self, config: GPT2Config, weights: Weights, write_kv: Callable[..., None], attend: Callable[..., torch.Tensor]
    ) -> None:
        self.config = config
        self.weights = weights
        self.write_kv = write_kv
        self.attend = attend

    def embed(self, batch: Batch) -> torch.Tensor:
        """Return the input of the first layer, `[T, E]`: a token's embedding plus its position's."""
        raise NotImplementedError("packed-forward: GPT2.embed is not written yet")

    def forward(self, batch: Batch, caches: list[Any], observe: Observer | None = None) -> torch.Tensor:
        """Compute a step: write the new tokens' keys and values, and return the last hidden states, `[T, E]`.

        `caches` has one layer's part of the KV cache each. `observe(what, layer, tensor)` is shown every layer's input
        ("hidden") and its heads' output ("heads", `[T, H, D]`), and the last layer's output.
        """
        raise NotImplementedError("packed-forward: GPT2.forward is not written yet")

    def attention(
        self,
        layer: LayerWeights,
        cache: Any,
        hidden: torch.Tensor,
        batch: Batch,
        index: int = 0,
        observe: Observer | None = None,
    ) -> torch.Tensor:
        """Return the attention sub-layer's output for the layer's input `hidden`, both `[T, E]`."""
        raise NotImplementedError("packed-forward: GPT2.attention is not written yet")

    def mlp(self, layer: LayerWeights, hidden: torch.Tensor) -> torch.Tensor:
        """Return the feed-forward sub-layer's output, `[T, E]`. GPT-2's GELU is the tanh form."""
        raise NotImplementedError("packed-forward: GPT2.mlp is not written yet")

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits `[rows, vocabulary]` of the rows `[rows, E]` that need them."""
        raise NotImplementedError("packed-forward: GPT2.logits is not written yet")

    def next_tokens(self, batch: Batch, caches: list[Any]) -> torch.Tensor:
        """Compute a step and return the greedy next token of each sequence that samples, int64."""
        raise NotImplementedError("packed-forward: GPT2.next_tokens is not written yet")

    def layer_norm(self, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return each row of `hidden`, `[T, E]`, at mean 0 and variance 1, times `weight` plus `bias`, both `[E]`."""
        raise NotImplementedError("packed-forward: GPT2.layer_norm is not written yet")
