"""What an answer's tensors are made of: each executor offers the same few functions to the checks.

    tensor(values, dtype)                   a tensor of nested lists; None is what nobody has written
    unwritten(shape, dtype)                 memory that nobody has written
    view(tensor, shape, strides, offset)    another look at the same memory
    layer_cache(keys, values, …)            one layer's cache
    read(tensor)                            nested lists of Python numbers
    traffic()                               the bytes that kernels moved since it was last asked, where that is known

Types are named as PyTorch names them; strides and offsets count elements. What was never written reads as NaN, or as
None in a tensor of integers.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

EXECUTORS = {
    "python": (),
    "triton": ("emulator", "interpreter", "gpu"),
    "torch": ("torch", "gpu"),
}
PARTS = ("Tensor", "tensor", "unwritten", "view", "read", "traffic")  # of each executor's module


class NotAvailable(Exception):
    """This machine lacks what the executor needs; the message says what, and what to do."""


class LayerCache:
    """One layer's keys and values, `[num_blocks, block_size, num_kv_heads, head_dim]`, and an INT8 cache's scales."""

    def __init__(self, keys: Any, values: Any, key_scales: Any = None, value_scales: Any = None) -> None:
        self.keys = keys
        self.values = values
        self.key_scales = key_scales
        self.value_scales = value_scales


def layer_cache(keys: Any, values: Any, key_scales: Any = None, value_scales: Any = None) -> LayerCache:
    return LayerCache(keys, values, key_scales, value_scales)


def load(name: str) -> dict[str, Any]:
    """Return an executor's functions and classes by name. `NotAvailable` where this machine cannot run it."""
    module = _module(name)
    module.traffic()  # what an earlier run has moved is not this one's
    return {"LayerCache": LayerCache, "layer_cache": layer_cache} | {each: getattr(module, each) for each in PARTS}


def launches() -> list[dict[str, Any]]:
    """Return the launches of kernels that the emulator has run since it was last asked."""
    from course import emulator

    return emulator.launches()


def _module(name: str) -> ModuleType:
    if name == "emulator":
        from course.judge.executors import emulator

        return emulator
    from course.judge.executors import pytorch

    pytorch.prepare(name)
    return pytorch
