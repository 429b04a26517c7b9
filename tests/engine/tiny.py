"""A GPT-2 small enough for every test, seeded and with weights large enough that attention matters."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers

from solutions.weights import GPT2Config, Weights, load_weights, read_config

SIZES = {"n_layer": 3, "n_head": 4, "n_embd": 128, "n_positions": 256, "vocab_size": 300}


@functools.cache
def tiny_folder() -> Path:
    """Return a folder with a saved tiny checkpoint; it is removed when the tests end."""
    holder = tempfile.TemporaryDirectory()
    _HOLDERS.append(holder)
    torch.manual_seed(7)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES, bos_token_id=None, eos_token_id=None))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "ln_" in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
            elif parameter.dim() == 1:
                parameter.add_(0.05 * torch.randn_like(parameter))
            else:
                parameter.mul_(4)
    model.save_pretrained(holder.name)
    return Path(holder.name)


_HOLDERS: list[tempfile.TemporaryDirectory[str]] = []


@functools.cache
def tiny_model(dtype: torch.dtype = torch.float32, device: str = "cpu") -> tuple[GPT2Config, Weights, Any]:
    """Return (config, the engine's weights, the transformers model)."""
    config = read_config(tiny_folder())
    reference = transformers.GPT2LMHeadModel.from_pretrained(tiny_folder(), dtype=dtype, attn_implementation="eager")
    return config, load_weights(tiny_folder(), config, dtype, torch.device(device)), reference.to(device).eval()
