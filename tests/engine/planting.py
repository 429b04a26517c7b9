"""Planting bugs: a module of `solutions/` with a few lines of its source replaced, loaded from a file of its own."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import solutions

SOLUTIONS = Path(solutions.__file__).parent
_numbers = itertools.count()


def source_of(module: str) -> str:
    """Return the source of a module of `solutions/`."""
    return (SOLUTIONS / f"{module}.py").read_text("utf-8")


def planted_source(module: str, changes: Sequence[tuple[str, str]]) -> str:
    """Return a module's source with each `(find, replace)` applied, everywhere it occurs.

    `ValueError` when a text to find is not there any more: a plant that plants nothing proves nothing.
    """
    source = source_of(module)
    for find, replace in changes:
        if find not in source:
            raise ValueError(f"{module}.py has no {find!r}: update the plant")
        source = source.replace(find, replace)
    return source


def plant(module: str, changes: Sequence[tuple[str, str]], folder: Path) -> ModuleType:
    """Return a module of `solutions/` with bugs in it, from a file in `folder`: Triton reads its kernels' source."""
    path = folder / f"{module}_{next(_numbers)}.py"
    path.write_text(planted_source(module, changes), "utf-8")
    return load(path)


def load(path: Path) -> ModuleType:
    """Load a module from a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    return module
