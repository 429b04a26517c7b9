"""Puts the parts of an engine together: the learner's file completed from the reference, as the judge does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch

from course.assembly.parts import engine_parts
from course.judge import graft
from solutions.engine import Parts
from solutions.weights import GPT2Config, Weights

Modules = dict[str, dict[str, Any]]  # what `parts.plan` made


class Assembled(NamedTuple):
    """What an engine is made of, and what loads its model's weights."""

    parts: Parts
    load_weights: Callable[[Path, GPT2Config, torch.dtype, torch.device], Weights]


def assemble(modules: Modules, kernels: str) -> Assembled:
    """Return the parts: from the learner's modules where `modules` has one, else from solutions/."""
    loaded: dict[str, ModuleType] = {}
    found = {}
    for part in engine_parts(kernels):
        if part.module not in loaded:
            loaded[part.module] = _module(part.module, modules.get(part.module))
        found[part.field] = getattr(loaded[part.module], part.symbol)
    return Assembled(load_weights=found.pop("load_weights"), parts=Parts(**found))


def _module(name: str, mine: dict[str, Any] | None) -> ModuleType:
    reference = graft.reference_module(name)
    if mine is None:
        return reference
    module = graft.load_source(mine["source"], f"practice/{name}.py", f"practice.{name}")
    # A kernel is compiled from its source, so a module of kernels is completed in its source.
    (graft.graft_source if hasattr(reference, "triton") else graft.graft)(module, reference, mine["symbols"])
    return module
