"""GPT-2's sizes and weights, and loading them from safetensors straight to the device, one tensor at a time.

Every tensor's presence, shape and bytes are checked in the files' headers first, so that a bad checkpoint is named
before any device memory is taken.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

import torch

# What the forward pass takes for granted; a checkpoint that says otherwise is another model.
EXPECTED = {
    "activation_function": "gelu_new",
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "n_inner": None,
    "tie_word_embeddings": True,
}


@dataclass(frozen=True)
class GPT2Config:
    """The sizes of a GPT-2 model, by the names that `config.json` uses."""

    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    n_positions: int = 1024
    vocab_size: int = 50257
    layer_norm_epsilon: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.n_embd // self.n_head


CONFIGS = {
    "gpt2": GPT2Config(),
    "gpt2-medium": GPT2Config(n_layer=24, n_head=16, n_embd=1024),
    "gpt2-large": GPT2Config(n_layer=36, n_head=20, n_embd=1280),
    "gpt2-xl": GPT2Config(n_layer=48, n_head=25, n_embd=1600),
}


class LayerWeights(NamedTuple):
    """The weights of one layer. Matrices are `[in, out]` (Hugging Face's Conv1D): `x @ weight + bias`."""

    ln_1_weight: torch.Tensor  # [E]
    ln_1_bias: torch.Tensor
    attn_c_attn_weight: torch.Tensor  # [E, 3 E]: queries, keys and values, a third each
    attn_c_attn_bias: torch.Tensor
    attn_c_proj_weight: torch.Tensor  # [E, E]
    attn_c_proj_bias: torch.Tensor
    ln_2_weight: torch.Tensor
    ln_2_bias: torch.Tensor
    mlp_c_fc_weight: torch.Tensor  # [E, 4 E]
    mlp_c_fc_bias: torch.Tensor
    mlp_c_proj_weight: torch.Tensor  # [4 E, E]
    mlp_c_proj_bias: torch.Tensor


class Weights(NamedTuple):
    """All weights of a model. The output head is the token embedding: the two are tied."""

    wte: torch.Tensor  # [vocabulary, E]: token embedding
    wpe: torch.Tensor  # [positions, E]: position embedding
    layers: tuple[LayerWeights, ...]
    ln_f_weight: torch.Tensor  # [E]
    ln_f_bias: torch.Tensor


def read_config(folder: Path) -> GPT2Config:
    """Read `config.json`. `ValueError` when it describes a model that this engine does not compute."""
    path = folder / "config.json"
    data = json.loads(path.read_text("utf-8"))
    if data.get("model_type") != "gpt2":
        raise ValueError(f"{path}: model_type is {data.get('model_type')!r}; this engine computes 'gpt2'")
    for name, expected in EXPECTED.items():
        value = data.get(name, expected)
        if value != expected and not (name == "n_inner" and value == 4 * data["n_embd"]):
            raise ValueError(f"{path}: {name} is {value!r}; this engine computes {expected!r}")
    config = GPT2Config(**{field.name: data[field.name] for field in fields(GPT2Config) if field.name in data})
    if config.n_embd % config.n_head:
        raise ValueError(f"{path}: a width of {config.n_embd} cannot be split over {config.n_head} heads")
    return config


def tensor_shapes(config: GPT2Config) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor that a checkpoint must hold, by its name without prefix."""
    raise NotImplementedError("load-gpt2: tensor_shapes is not written yet")


def load_weights(folder: Path, config: GPT2Config, dtype: torch.dtype, device: torch.device) -> Weights:
    """Load a checkpoint's tensors as `dtype` to `device`.

    `ValueError`, which names the tensor, when one is missing, truncated or of another shape. At no time are there two
    copies of more than one tensor.
    """
    raise NotImplementedError("load-gpt2: load_weights is not written yet")


def random_weights(
    config: GPT2Config, seed: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Weights:
    """Return untrained weights as the published model was initialised: enough to compare and measure, not to read."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}
    for name, shape in tensor_shapes(config).items():
        if "ln_" in name:
            tensor = torch.full(shape, float(name.endswith("weight")))
        elif name.endswith("bias"):
            tensor = torch.zeros(shape)
        else:
            tensor = torch.empty(shape).normal_(std=0.02, generator=generator)
        tensors[name] = tensor.to(device, dtype)
    return assemble(config, tensors)


def assemble(config: GPT2Config, tensors: dict[str, torch.Tensor]) -> Weights:
    """Put tensors, by their names in a checkpoint, in their places."""
    names = [name.replace("_weight", ".weight").replace("_bias", ".bias") for name in LayerWeights._fields]
    names = [name.replace("attn_", "attn.", 1).replace("mlp_", "mlp.", 1) for name in names]
    return Weights(
        wte=tensors["wte.weight"],
        wpe=tensors["wpe.weight"],
        layers=tuple(
            LayerWeights(*(tensors[f"h.{layer}.{name}"] for name in names)) for layer in range(config.n_layer)
        ),
        ln_f_weight=tensors["ln_f.weight"],
        ln_f_bias=tensors["ln_f.bias"],
    )
