"""Loads one model twice: as the engine has it, and as `transformers` has it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch

from solutions.weights import GPT2Config, Weights, load_weights, read_config


def find_folder(name: str) -> Path:
    """Return a model's folder: the one named, or the hub's snapshot of that name (fetched if need be).

    `ValueError` when there is neither.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=["config.json", "*.safetensors", "*.json", "*.txt"]))
    except Exception as error:  # the hub's client has many ways to fail
        reason = str(error).partition("\n")[0]
        raise ValueError(f"{name!r} is no folder here, and the Hugging Face hub did not give it: {reason}") from error


def load_pair(name: str, dtype: torch.dtype, device: str) -> tuple[GPT2Config, Weights, Any]:
    """Return (config, the engine's weights, the transformers model) of one model; 'random' is a seeded GPT-2 small."""
    import transformers

    if name == "random":
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as saved:
            transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(saved)
            return load_pair(saved, dtype, device)
    folder = find_folder(name)
    config = read_config(folder)
    weights = load_weights(folder, config, dtype, torch.device(device))
    return config, weights, load_reference(folder, dtype, device)


def load_reference(folder: Path, dtype: torch.dtype, device: str) -> Any:
    """Return the `transformers` model of a folder, ready to be compared with."""
    import transformers

    # Eager attention: its products can be seen, and it is the plainest definition there is.
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.to(device).eval()
