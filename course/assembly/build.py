"""From settings to an engine: the machine, the model with its weights and tokenizer, the parts."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file

from course.assembly.blame import find_part
from course.assembly.load import Assembled, Modules, assemble
from course.parity.models import find_folder
from solutions.engine import Engine, Parts, Tokenizer
from solutions.tokenizer import load_tokenizer
from solutions.weights import CONFIGS, GPT2Config, LayerWeights, Weights, random_weights, read_config, tensor_shapes

WIDE = 512  # a narrower model has too little to share out: on a CPU, more than one thread only gets in its way


class Refusal(Exception):
    """The engine cannot be had as it was asked for; no part is at fault."""


class Setup(NamedTuple):
    """All that an engine is built from, and that lasts from one engine to the next."""

    folder: Path
    config: GPT2Config
    weights: Weights
    tokenizer: Tokenizer
    assembled: Assembled
    block_size: int
    kv_dtype: torch.dtype | None


class TokenNumbers:
    """Shows token numbers in the place of text, for a model whose tokens mean nothing."""

    eos_token_id: int | None = None

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size

    def encode(self, text: str) -> list[int]:
        return [byte % self._vocab_size for byte in text.encode()]

    def decode(self, tokens: list[int]) -> str:
        return "".join(f" {token}" for token in tokens)


def machine(device: str | None) -> dict[str, Any]:
    """Say what there is to compute on; `device` is what was asked for, or None for a GPU where there is one."""
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise Refusal("there is no GPU here that PyTorch can use: leave --device away, or say --device cpu")
    device = device or ("cuda" if has_gpu else "cpu")
    return {
        "device": device,
        "gpu": torch.cuda.get_device_name() if device == "cuda" else None,
        "versions": {"python": platform.python_version(), "torch": torch.__version__, **_optional_versions()},
    }


def set_up(
    modules: Modules,
    kernels: str,
    *,
    model: str,
    scratch: str | None,
    device: str,
    dtype: str,
    kv_dtype: str | None,
    block_size: int,
) -> Setup:
    """Load the parts and the model. With a `scratch` folder, only the model's sizes count: its weights are random."""
    folder = Path(scratch) if scratch else _folder(model)
    if scratch:
        write_random_checkpoint(_sizes(model), folder)
    assembled = assemble(modules, kernels)
    with refusing():
        config = read_config(folder)
        if device == "cpu" and config.n_embd < WIDE:
            torch.set_num_threads(1)
        tokenizer = TokenNumbers(config.vocab_size) if scratch else load_tokenizer(str(folder), config.vocab_size)
        weights = assembled.load_weights(folder, config, getattr(torch, dtype), torch.device(device))
    kv = getattr(torch, kv_dtype) if kv_dtype else None
    return Setup(folder, config, weights, tokenizer, assembled, block_size, kv)


def build_engine(setup: Setup, blocks: int, parts: Parts | None = None) -> Engine:
    """Return an engine with a pool of `blocks` blocks, of the setup's parts unless others are given."""
    with refusing():
        return Engine(
            setup.config,
            setup.weights,
            setup.tokenizer,
            block_size=setup.block_size,
            num_blocks=blocks,
            kv_dtype=setup.kv_dtype,
            parts=parts or setup.assembled.parts,
        )


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Turn an error of the reference's own (a bad checkpoint, a size that no kernel has) into a refusal."""
    try:
        yield
    except (OSError, ValueError, torch.cuda.OutOfMemoryError) as error:
        if find_part(list(traceback.walk_tb(error.__traceback__))[::-1])[0] is not None:
            raise
        raise Refusal(str(error).partition("\n")[0]) from error


def write_random_checkpoint(config: GPT2Config, folder: Path) -> None:
    """Write a model with seeded random weights as `transformers` would."""
    layout = json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **asdict(config)})
    (folder / "config.json").write_text(layout, "utf-8")
    weights = random_weights(config, seed=0)
    save_file(_named(config, weights), folder / "model.safetensors", metadata={"format": "pt"})


def _named(config: GPT2Config, weights: Weights) -> dict[str, torch.Tensor]:
    """Return the tensors by their names in a checkpoint, in the order in which those are listed."""
    fields = ("wte", "wpe", "ln_f_weight", "ln_f_bias")
    named = dict(zip(list(tensor_shapes(config))[:4], (getattr(weights, field) for field in fields), strict=True))
    for index, layer in enumerate(weights.layers):
        for field in LayerWeights._fields:
            part = field.replace("_weight", ".weight").replace("_bias", ".bias")
            part = part.replace("attn_", "attn.", 1).replace("mlp_", "mlp.", 1)
            named[f"h.{index}.{part}"] = getattr(layer, field)
    return named


def _folder(model: str) -> Path:
    try:
        return find_folder(model)
    except ValueError as error:
        raise Refusal(str(error)) from error


def _sizes(model: str) -> GPT2Config:
    if model in CONFIGS:
        return CONFIGS[model]
    if not os.path.isfile(os.path.join(model, "config.json")):
        raise Refusal(f"{model!r} is no folder with a config.json, and none of {', '.join(CONFIGS)}")
    return read_config(Path(model))


def _optional_versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("triton", "transformers", "safetensors"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
