"""Runs kernels on PyTorch's tensors or on the emulator's, and hands back what they stored.

    python -m tests.emulator.runner < cases.json > results.json     # in Triton's interpreter

A case is `{"source", "arguments", "grid"}`: `source` defines `kernel`; an argument is a number, None, or a tensor
`{"values", "dtype"}`. A result is `{"tensors", "types"}`: every tensor argument after the launch, and the types and
shapes that the kernel gave to `note`, in order; or `{"error"}`.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

_numbers = itertools.count()

HEAD = """
import triton
import triton.language as tl

import types

noted = []
diary = types.ModuleType("diary")  # a kernel may call what is in a module, and no function of its own file

def note(what):
    shape = hasattr(what, "__iter__")
    noted.append([int(getattr(each, "value", each)) for each in what] if shape else str(what))

diary.note = note

"""


def load(source: str, folder: Path) -> Any:
    """Load a kernel file: Triton wants its source in a file."""
    path = folder / f"case_{next(_numbers)}.py"
    path.write_text(HEAD + source, "utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(
    cases: Iterable[dict[str, Any]], make: Callable[[Any, str], Any], read: Callable[[Any], Any]
) -> Iterable[dict[str, Any]]:
    """Yield a result for each case; `make` makes a tensor of nested lists, `read` turns it back."""
    with tempfile.TemporaryDirectory() as folder:
        for case in cases:
            arguments = [
                make(each["values"], each["dtype"]) if isinstance(each, dict) else each for each in case["arguments"]
            ]
            try:
                module = load(case["source"], Path(folder))
                module.kernel[tuple(case["grid"])](*arguments)
            except Exception as error:
                yield {"error": f"{type(error).__name__}: {error}"}
                continue
            tensors = [
                read(tensor)
                for tensor, each in zip(arguments, case["arguments"], strict=True)
                if isinstance(each, dict)
            ]
            yield {"tensors": tensors, "types": list(module.noted)}


def flat(values: Any) -> list[Any]:
    """Return the numbers of nested lists."""
    return [number for each in values for number in flat(each)] if isinstance(values, list) else [values]


def main() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    import numpy
    import torch

    numpy.seterr(all="ignore")
    torch.set_num_threads(1)

    def make(values: Any, dtype: str) -> Any:
        return torch.tensor(values, dtype=getattr(torch, dtype))

    def read(tensor: Any) -> Any:
        return tensor.double().tolist() if tensor.is_floating_point() else tensor.tolist()

    sys.setrecursionlimit(10_000)
    json.dump(list(run(json.load(sys.stdin), make, read)), sys.stdout)


def same(a: Any, b: Any, relative: float, absolute: float) -> bool:
    """Compare two numbers; NaN is NaN, and an infinity is that infinity."""
    if isinstance(a, bool) or isinstance(b, bool) or (isinstance(a, int) and isinstance(b, int)):
        return int(a) == int(b)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= max(relative * max(abs(a), abs(b)), absolute)


if __name__ == "__main__":
    main()
