"""Functions of one number, element by element: exponentials, logarithms, roots."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from course.emulator.arithmetic import add, divide, negate
from course.emulator.blocks import Block
from course.emulator.dtypes import float32, float64, round_to
from course.emulator.errors import WouldNotCompile
from course.emulator.operands import to_block


def _function(name: str, fast: Callable[[float], float], careful: Callable[[float], float]) -> Callable[[Any], Block]:
    def apply(a: Any) -> Block:
        block = to_block(a)
        kind = block.dtype
        if kind is not float32 and kind is not float64:
            raise WouldNotCompile(f"{name} wants fp32 or fp64, not {kind}", "cast it first: x.to(tl.float32)")
        try:
            data = list(map(fast, block.data))
        except (OverflowError, ValueError, ZeroDivisionError):
            data = list(map(careful, block.data))
        return block.like(kind, round_to(data, kind), block.poison)

    return apply


def _guarded(function: Callable[[float], float], at_zero: Callable[[float], float]) -> Callable[[float], float]:
    """A function of non-negative numbers: NaN below 0, `at_zero` at 0, be it 0 or -0."""
    return lambda x: function(x) if x > 0 else at_zero(x) if x == 0 else math.nan


def _growing(function: Callable[[float], float]) -> Callable[[float], float]:
    def careful(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf

    return careful


def _finite(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: function(x) if math.isfinite(x) else math.nan


def _integral(function: Callable[[float], float]) -> Callable[[float], float]:
    """`math.floor` gives integers, and keeps neither infinities nor the sign of a zero."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


def _inverse_root(x: float) -> float:
    return 1.0 / math.sqrt(x)


exp = _function("tl.exp", math.exp, _growing(math.exp))
exp2 = _function("tl.exp2", math.exp2, _growing(math.exp2))
log = _function("tl.log", math.log, _guarded(math.log, lambda x: -math.inf))
log2 = _function("tl.log2", math.log2, _guarded(math.log2, lambda x: -math.inf))
sqrt = _function("tl.sqrt", math.sqrt, _guarded(math.sqrt, lambda x: x))
rsqrt = _function("tl.rsqrt", _inverse_root, _guarded(_inverse_root, lambda x: math.copysign(math.inf, x)))
sin = _function("tl.sin", math.sin, _finite(math.sin))
cos = _function("tl.cos", math.cos, _finite(math.cos))
erf = _function("tl.erf", math.erf, math.erf)
floor = _function("tl.floor", _integral(math.floor), _integral(math.floor))
ceil = _function("tl.ceil", _integral(math.ceil), _integral(math.ceil))


def sigmoid(a: Any) -> Block:
    return divide(1.0, add(1.0, exp(negate(to_block(a)))))
