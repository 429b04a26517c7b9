"""A step with prompts, on the weights of the fused decode step: eight kernels a layer where the model's own has eleven.

The matrix products are the library's, which are hard to beat with hundreds of rows. What is saved lies around them: the
residual stream is what a product adds to, GELU is computed as the product's result leaves its registers, and one kernel
adds a bias and normalises. The model's own `embed`, `write_kv` and `attend` are used, the rest of it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
import triton

from solutions.fused_decode import reduce_norm_kernel

if TYPE_CHECKING:
    from solutions.batch import Batch
    from solutions.fused_decode import FusedDecoder, Linear


class PromptPass:
    """The forward pass of `model` with the folded weights of `decoder`."""

    def __init__(self, model: Any, decoder: FusedDecoder) -> None:
        self.model, self.config = model, model.config
        self.layers = [tuple(_Product(linear) for linear in layer) for layer in decoder.linears]

    def forward(self, batch: Batch, caches: list[Any]) -> torch.Tensor:
        """Compute a step: write the new tokens' keys and values, and return the last layer norm's, `[T, E]`.

        Its gain and bias are in the decoder's head, as those of the others are in the product that follows.
        """
        config, model = self.config, self.model
        embedded = model.embed(batch)
        x = embedded - embedded.mean(1, keepdim=True)
        normed = F.layer_norm(x, x.shape[1:], eps=config.layer_norm_epsilon)
        for (qkv, proj, up, down), cache in zip(self.layers, caches, strict=True):
            fused = torch.addmm(qkv.bias, normed, qkv.weight)
            queries, keys, values = fused.view(-1, 3, config.n_head, config.head_dim).unbind(1)
            model.write_kv(keys, values, cache, batch.slots, batch.touched)
            heads = model.attend(
                queries, cache, batch.block_tables, batch.query_start_loc, batch.context_lens, batch.max_query_len,
                config.head_dim**-0.5,
            )  # fmt: skip
            normed = self._add(x, heads.reshape(x.shape), proj)
            normed = self._add(x, up.with_gelu(normed), down)
        return normed

    def _add(self, x: torch.Tensor, inputs: torch.Tensor, product: _Product) -> torch.Tensor:
        """Add a product to the residual stream `x`, in place, and return its layer norm."""
        x.addmm_(inputs, product.weight)
        num_rows, width = x.shape
        normed = torch.empty_like(x)
        no_partials, num_splits = x, 0  # a tensor that is not read
        reduce_norm_kernel[(num_rows,)](
            no_partials, product.linear.bias, x, normed, num_rows, self.config.layer_norm_epsilon,
            width, triton.next_power_of_2(width), num_splits, 0,
        )  # fmt: skip
        return normed


class _Product:
    """A `Linear` as the library's products want it."""

    def __init__(self, linear: Linear) -> None:
        self.linear = linear
        self.weight = linear.weight.T  # [K, N], a view
        self.bias = linear.bias.to(linear.weight.dtype)

    def with_gelu(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return GPT-2's GELU of the product."""
        if inputs.is_cuda:  # in one kernel; on a CPU this function's GELU is another one
            return torch._addmm_activation(self.bias, inputs, self.weight, use_gelu=True)
        return F.gelu(torch.addmm(self.bias, inputs, self.weight), approximate="tanh")
