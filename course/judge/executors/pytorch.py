"""PyTorch as an executor: on the CPU, under Triton's own interpreter, or on a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from course.judge.executors import NotAvailable

INSTALL = 'install it, for example: python -m pip install -e ".[engine]"'
SMALLEST = {"int8": -128, "int32": -(1 << 31), "int64": -(1 << 63)}

_device = "cpu"


def prepare(name: str) -> None:
    """Get ready to run as "torch", "interpreter" or "gpu". `NotAvailable` where that cannot be."""
    global _device
    if name == "interpreter":
        os.environ["TRITON_INTERPRET"] = "1"  # Triton looks at it while it is imported
    try:
        import torch
    except ImportError as error:
        raise NotAvailable(f"it needs PyTorch, which this Python does not have ({error}): {INSTALL}") from error
    if name in ("interpreter", "gpu"):
        try:
            import triton  # noqa: F401
        except ImportError as error:
            raise NotAvailable(f"it needs Triton, which this Python does not have ({error}): {INSTALL}") from error
    if name == "gpu" and not torch.cuda.is_available():
        raise NotAvailable("it needs a GPU, and PyTorch finds none here: leave --on gpu out")
    torch.set_num_threads(1)  # the tensors are small, and a learner's machine has other things to do
    _device = "cuda" if name == "gpu" else "cpu"


def __getattr__(name: str) -> Any:
    if name == "Tensor":
        import torch

        return torch.Tensor
    raise AttributeError(name)


def tensor(values: Any, dtype: str = "float32") -> Any:
    import torch

    return torch.tensor(_filled(values, dtype), dtype=getattr(torch, dtype), device=_device)


def unwritten(shape: Sequence[int], dtype: str = "float32") -> Any:
    import torch

    return torch.full(tuple(shape), _nothing(dtype), dtype=getattr(torch, dtype), device=_device)


def _nothing(dtype: str) -> float:
    return SMALLEST.get(dtype, float("nan"))


def _filled(values: Any, dtype: str) -> Any:
    if isinstance(values, list | tuple):
        return [_filled(each, dtype) for each in values] if None in values or _is_nested(values) else values
    return _nothing(dtype) if values is None else values


def _is_nested(values: Sequence[Any]) -> bool:
    return len(values) > 0 and isinstance(values[0], list | tuple)


def view(tensor: Any, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Any:
    return tensor.as_strided(tuple(shape), tuple(strides), tensor.storage_offset() + offset)


def read(tensor: Any) -> Any:
    if not hasattr(tensor, "detach"):
        raise ValueError(f"a tensor is needed here, and this is a {type(tensor).__name__}")
    return tensor.detach().cpu().tolist()


def traffic() -> None:
    """Nobody counts here."""
