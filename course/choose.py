"""Chooses the engine: the fast one where the machine, the dtypes and the model allow it, else the plain one."""

from __future__ import annotations

from typing import Any

import torch

from solutions.engine import Engine
from solutions.weights import GPT2Config, Weights


def choose_engine(config: GPT2Config, weights: Weights, *args: Any, **options: Any) -> tuple[Engine, str]:
    """Return an engine made of what `Engine` takes, and which it is and why, in a few words."""
    if why := plain_because(config, weights, options.get("kv_dtype"), options.get("parts")):
        return Engine(config, weights, *args, **options), f"the plain engine: {why}"
    from solutions.fast_engine import FastEngine

    return FastEngine(config, weights, *args, **options), "the fast engine"


def plain_because(
    config: GPT2Config, weights: Weights, kv_dtype: torch.dtype | None = None, parts: object = None
) -> str | None:
    """Return why the plain engine is to be taken; None for the fast one."""
    if parts is not None:
        return "its parts are named one by one"
    if weights.wte.device.type != "cuda":
        return "the fused step needs a GPU"
    from solutions.fused_decode import unsupported

    problem = unsupported(config, weights, kv_dtype or weights.wte.dtype)
    return f"the fused step does not support {problem}" if problem else None
