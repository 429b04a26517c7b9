"""GPT-2 on a paged KV cache: one packed forward pass for prefills, chunks and decodes alike.

The pass reads its weights in the layout of the published checkpoints. What a faster path may replace goes through four
methods of the model, its seams: `embed`, `write_kv`, `attend` and `logits`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.nn.functional as F

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
        return self.weights.wte[batch.tokens] + self.weights.wpe[batch.positions]

    def forward(self, batch: Batch, caches: list[Any], observe: Observer | None = None) -> torch.Tensor:
        """Compute a step: write the new tokens' keys and values, and return the last hidden states, `[T, E]`.

        `caches` has one layer's part of the KV cache each. `observe(what, layer, tensor)` is shown every layer's input
        ("hidden") and its heads' output ("heads", `[T, H, D]`), and the last layer's output.
        """
        hidden = self.embed(batch)
        for index, (layer, cache) in enumerate(zip(self.weights.layers, caches, strict=True)):
            if observe:
                observe("hidden", index, hidden)
            hidden = hidden + self.attention(layer, cache, hidden, batch, index, observe)
            hidden = hidden + self.mlp(layer, hidden)
        if observe:
            observe("hidden", len(caches), hidden)
        return hidden

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
        config = self.config
        normed = self.layer_norm(hidden, layer.ln_1_weight, layer.ln_1_bias)
        qkv = torch.addmm(layer.attn_c_attn_bias, normed, layer.attn_c_attn_weight)  # [T, 3 E]
        queries, keys, values = qkv.view(-1, 3, config.n_head, config.head_dim).unbind(1)  # each [T, H, D], a view
        self.write_kv(keys, values, cache, batch.slots, batch.touched)
        heads = self.attend(
            queries, cache, batch.block_tables, batch.query_start_loc, batch.context_lens, batch.max_query_len,
            config.head_dim**-0.5,
        )  # fmt: skip
        if observe:
            observe("heads", index, heads)
        return torch.addmm(layer.attn_c_proj_bias, heads.reshape(-1, config.n_embd), layer.attn_c_proj_weight)

    def mlp(self, layer: LayerWeights, hidden: torch.Tensor) -> torch.Tensor:
        """Return the feed-forward sub-layer's output, `[T, E]`. GPT-2's GELU is the tanh form."""
        normed = self.layer_norm(hidden, layer.ln_2_weight, layer.ln_2_bias)
        inner = F.gelu(torch.addmm(layer.mlp_c_fc_bias, normed, layer.mlp_c_fc_weight), approximate="tanh")
        return torch.addmm(layer.mlp_c_proj_bias, inner, layer.mlp_c_proj_weight)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the logits `[rows, vocabulary]` of the rows `[rows, E]` that need them."""
        normed = self.layer_norm(hidden, self.weights.ln_f_weight, self.weights.ln_f_bias)
        return normed @ self.weights.wte.T

    def next_tokens(self, batch: Batch, caches: list[Any]) -> torch.Tensor:
        """Compute a step and return the greedy next token of each sequence that samples, int64."""
        hidden = self.forward(batch, caches)
        return self.logits(hidden[batch.sample_rows]).argmax(-1)

    def layer_norm(self, hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return each row of `hidden`, `[T, E]`, at mean 0 and variance 1, times `weight` plus `bias`, both `[E]`."""
        return F.layer_norm(hidden, (self.config.n_embd,), weight, bias, self.config.layer_norm_epsilon)
