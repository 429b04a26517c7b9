"""Comparison, logic and choice, element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable
from itertools import repeat
from typing import Any

from course.emulator.blocks import (
    Block,
    Poison,
    aligned,
    broadcast,
    common_shape,
    merged,
    padded,
    poisoned,
    spread,
)
from course.emulator.constants import unwrap
from course.emulator.dtypes import FLOATING, int1, pointer_type, round_to
from course.emulator.errors import WouldNotCompile, not_offered
from course.emulator.operands import cast, combine, mapped, operands, to_block


def _comparison(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Block]:
    compute = mapped(function)

    def compare(a: Any, b: Any) -> Block:
        a, b = operands(a, b)
        return combine(int1, compute, a, b)

    return compare


less, less_equal = _comparison(operator.lt), _comparison(operator.le)
greater, greater_equal = _comparison(operator.gt), _comparison(operator.ge)
equal, not_equal = _comparison(operator.eq), _comparison(operator.ne)


def _logic(name: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Block]:
    compute = mapped(function)

    def operate(a: Any, b: Any) -> Block:
        a, b = operands(a, b)
        if a.dtype.kind == FLOATING:
            raise WouldNotCompile(f"{name} of floats ({a.dtype}): compare first, as in x > 0")
        if a.dtype is int1:
            for this, other in ((a, b), (b, a)):
                if name == "&" and other.poison is None and all(other.data):  # masks are mostly all true
                    return broadcast(this, common_shape([a.shape, b.shape]))
        return combine(a.dtype, compute, a, b)

    return operate


bit_and, bit_or, bit_xor = _logic("&", operator.and_), _logic("|", operator.or_), _logic("^", operator.xor)


def invert(a: Block) -> Block:
    if a.dtype is int1:
        return a.like(int1, list(map(operator.not_, a.data)), a.poison)
    if a.dtype.kind == FLOATING or isinstance(a.dtype, pointer_type):
        raise WouldNotCompile(f"~ wants a mask or integers, not {a.dtype}")
    return a.like(a.dtype, round_to(list(map(operator.invert, a.data)), a.dtype), a.poison)


def _shift(name: str, function: Callable[[int, int], int]) -> Callable[[Any, Any], Block]:
    def operate(a: Any, b: Any) -> Block:
        a, b = operands(a, b)
        if a.dtype.kind == FLOATING or a.dtype is int1:
            raise WouldNotCompile(f"{name} wants integers, not {a.dtype}")
        bits = a.dtype.primitive_bitwidth
        shape, layout, (left, right), poison = aligned(a, b)
        if not 0 <= min(right) <= max(right) < bits:
            origin = poisoned(f"a shift by {next(y for y in right if not 0 <= y < bits)} of {bits} bits")
            outside = [None if 0 <= y < bits else origin for y in right]
            poison = outside if poison is None else merged([poison, outside])
            right = [y if 0 <= y < bits else 0 for y in right]
        return Block(a.dtype, shape, round_to(list(map(function, left, right)), a.dtype), poison, layout)

    return operate


shift_left, shift_right = _shift("<<", operator.lshift), _shift(">>", operator.rshift)


# ---- choice ----


def _larger(left: list[Any], right: list[Any]) -> list[Any]:
    return [x if x >= y or y != y else y for x, y in zip(left, right, strict=True)]  # of a number and NaN, the number


def _smaller(left: list[Any], right: list[Any]) -> list[Any]:
    return [x if x <= y or y != y else y for x, y in zip(left, right, strict=True)]


def maximum(a: Any, b: Any) -> Block:
    a, b = operands(a, b)
    return combine(a.dtype, _larger, a, b)


def minimum(a: Any, b: Any) -> Block:
    a, b = operands(a, b)
    return combine(a.dtype, _smaller, a, b)


def where(condition: Any, a: Any, b: Any) -> Block:
    """Choose element by element. Poison that is not chosen is gone."""
    condition = cast(to_block(condition), int1)
    a, b = unwrap(a), unwrap(b)
    buffer = None
    if any(isinstance(each, Block) and isinstance(each.dtype, pointer_type) for each in (a, b)):
        if not (isinstance(a, Block) and isinstance(b, Block) and a.dtype == b.dtype and a.buffer is b.buffer):
            raise not_offered("tl.where between pointers into different buffers", "choose between what you load")
        buffer = a.buffer
    else:
        a, b = operands(a, b)
    shape = common_shape([condition.shape, a.shape, b.shape])
    if condition.poison is None and all(condition.data):
        return broadcast(a, shape)
    layouts = [padded(each.layout, len(shape)) for each in (condition, a, b)]
    layout = tuple(map(max, *layouts))
    chosen, left, right = (spread(each.data, own, layout) for each, own in zip((condition, a, b), layouts, strict=True))
    data = [x if flag else y for flag, x, y in zip(chosen, left, right, strict=True)]
    poison = _chosen_poison(condition, a, b, layouts, layout, chosen)
    return Block(a.dtype, shape, data, poison, layout, buffer)


def _chosen_poison(condition: Block, a: Block, b: Block, layouts: Any, layout: Any, chosen: list[bool]) -> Poison:
    if condition.poison is None and a.poison is None and b.poison is None:
        return None
    own = [
        list(repeat(None, len(chosen))) if each.poison is None else spread(each.poison, its, layout)
        for each, its in zip((condition, a, b), layouts, strict=True)
    ]
    result = [by or (x if flag else y) for flag, by, x, y in zip(chosen, *own, strict=True)]
    return result if any(result) else None


def clamp(a: Any, low: Any, high: Any) -> Block:
    return minimum(maximum(a, low), high)
