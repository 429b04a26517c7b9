"""Which function stands behind each of Python's operators on blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course.emulator.arithmetic import absolute, add, divide, floor_divide, multiply, negate, remainder, subtract
from course.emulator.blocks import Block
from course.emulator.errors import WouldNotCompile
from course.emulator.logic import (
    bit_and,
    bit_or,
    bit_xor,
    equal,
    greater,
    greater_equal,
    invert,
    less,
    less_equal,
    not_equal,
    shift_left,
    shift_right,
)

_PAIRS: dict[str, Callable[[Any, Any], Block]] = {
    "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "floordiv": floor_divide, "mod": remainder,
    "and": bit_and, "or": bit_or, "xor": bit_xor, "lshift": shift_left, "rshift": shift_right,
}  # fmt: skip


def _reflected(function: Callable[[Any, Any], Block]) -> Callable[[Any, Any], Block]:
    return lambda self, other: function(other, self)


def _refused(what: str, instead: str) -> Callable[[Any, Any], Block]:
    def refuse(self: Any, other: Any) -> Block:
        raise WouldNotCompile(f"Triton has no {what}: {instead}")

    return refuse


_MATMUL = _refused("`@` between blocks", "write tl.dot(a, b)")
_POWER = _refused("power of a block", "multiply, or write tl.exp2(x) for two to the x")

OPERATORS: dict[str, Callable[..., Block]] = {
    **{f"__{name}__": function for name, function in _PAIRS.items()},
    **{f"__r{name}__": _reflected(function) for name, function in _PAIRS.items()},
    "__lt__": less, "__le__": less_equal, "__gt__": greater, "__ge__": greater_equal,
    "__eq__": equal, "__ne__": not_equal, "__neg__": negate, "__invert__": invert, "__pos__": lambda self: self,
    "__abs__": absolute,
    "__matmul__": _MATMUL, "__rmatmul__": _MATMUL, "__pow__": _POWER, "__rpow__": _POWER,
}  # fmt: skip
