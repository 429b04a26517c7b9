"""Triton without a GPU: the part of `triton.language` that the exercises use, in the standard library alone.

`install()` makes `import triton` and `import triton.language as tl` mean the emulator. A kernel file runs unchanged on
it, in Triton's interpreter and on a GPU. Beyond the interpreter it reports what a GPU would get wrong in silence: an
access outside its buffer, a value that is not defined, two programs that store to one address, and what the compiler
refuses. An operation that it does not offer is an error that names it, never a wrong value.
"""

from __future__ import annotations

import sys
import types

from course.emulator import language
from course.emulator.errors import (
    AssertionFailed,
    EmulatorError,
    InvalidAccess,
    NotOffered,
    PoisonStored,
    WouldNotCompile,
    WriteConflict,
)
from course.emulator.launch import JITFunction, jit, launches
from course.emulator.memory import Tensor, tensor, traffic, unwritten, view

__all__ = [
    "AssertionFailed", "EmulatorError", "InvalidAccess", "NotOffered", "PoisonStored", "Tensor", "WouldNotCompile",
    "WriteConflict", "install", "launches", "tensor", "traffic", "uninstall", "unwritten", "view",
]  # fmt: skip

_displaced: dict[str, types.ModuleType] = {}


def install() -> None:
    """Put the emulator in the place of `triton`, for imports from now on. Twice is as good as once."""
    if isinstance(sys.modules.get("triton"), language.Module):
        return
    _displaced.update(_take_away())
    triton, tl = language.Module("triton"), language.language_module()
    vars(triton).update(
        jit=jit, cdiv=cdiv, next_power_of_2=next_power_of_2, language=tl, JITFunction=JITFunction, __path__=[]
    )
    vars(tl)["__path__"] = []
    sys.modules.update({"triton": triton, "triton.language": tl, "triton.language.math": tl.math})


def uninstall() -> None:
    """Take the emulator away; a `triton` that was there before is there again."""
    if isinstance(sys.modules.get("triton"), language.Module):
        _take_away()
        sys.modules.update(_displaced)
        _displaced.clear()


def _take_away() -> dict[str, types.ModuleType]:
    names = [name for name in sys.modules if name.partition(".")[0] == "triton"]
    return {name: sys.modules.pop(name) for name in names}


def cdiv(x: int, y: int) -> int:
    """Return `x / y`, rounded up."""
    return (x + y - 1) // y


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is `n` or more."""
    return 1 << max(0, n - 1).bit_length()
