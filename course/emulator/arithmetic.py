"""Arithmetic element by element, with Triton's types and rounding.

Each operation is computed in Python's numbers and then rounded to its type. A double is wide enough for float32 and
narrower that +, −, ×, / and √ come out as if they had been rounded once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from course.emulator.blocks import Block, aligned, merged, poisoned
from course.emulator.constants import unwrap
from course.emulator.dtypes import (
    FLOATING,
    computation_type,
    float32,
    int1,
    pointer_type,
    round_to,
    type_of_number,
)
from course.emulator.errors import WouldNotCompile, not_offered
from course.emulator.operands import Number, cast, combine, mapped, operands, to_block, to_kind


def _arithmetic(name: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Block]:
    compute = mapped(function)

    def operate(a: Any, b: Any) -> Block:
        a, b = operands(a, b)
        kind = a.dtype
        if kind is int1:
            raise not_offered(f"{name} of two booleans", "combine masks with & and |, or cast them: mask.to(tl.int32)")
        result = combine(kind, compute, a, b)
        result.data = round_to(result.data, kind)
        return result

    return operate


_add_numbers = _arithmetic("+", operator.add)
_subtract_numbers = _arithmetic("-", operator.sub)
multiply = _arithmetic("*", operator.mul)


def add(a: Any, b: Any) -> Block:
    a, b = unwrap(a), unwrap(b)
    if isinstance(a, Block) and isinstance(a.dtype, pointer_type):
        return _move(a, b, operator.add)
    if isinstance(b, Block) and isinstance(b.dtype, pointer_type):
        return _move(b, a, operator.add)
    return _add_numbers(a, b)


def subtract(a: Any, b: Any) -> Block:
    a, b = unwrap(a), unwrap(b)
    if isinstance(a, Block) and isinstance(a.dtype, pointer_type):
        return _move(a, b, operator.sub)
    return _subtract_numbers(a, b)


def _move(pointer: Block, offset: Any, function: Callable[[int, int], int]) -> Block:
    """Pointer arithmetic. Addresses have 64 bits, so nothing wraps here: what can wrap is the offset before."""
    offset = to_block(offset)
    if isinstance(offset.dtype, pointer_type):
        raise WouldNotCompile("two pointers cannot be added or subtracted")
    if offset.dtype.kind == FLOATING:
        raise WouldNotCompile(f"a pointer moves by integers, not by {offset.dtype}: use // where you divide")
    moved = combine(pointer.dtype, mapped(function), pointer, offset)
    moved.buffer = pointer.buffer
    return moved


def divide(a: Any, b: Any) -> Block:
    """`/`: integers are divided as float32, and fp16 too."""
    a, b = operands(a, b, dividing=True)
    if a.dtype.kind != FLOATING:
        a, b = cast(a, float32), cast(b, float32)
    result = combine(a.dtype, _quotients, a, b)
    result.data = round_to(result.data, a.dtype)
    return result


def _quotients(left: list[float], right: list[float]) -> list[float]:
    try:
        return list(map(operator.truediv, left, right))
    except ZeroDivisionError:
        return [x / y if y else _over_zero(x, y) for x, y in zip(left, right, strict=True)]


def _over_zero(x: float, y: float) -> float:
    if x == 0 or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def floor_divide(a: Any, b: Any) -> Block:
    """`//` of integers: as in C, towards zero. A division by 0 gives poison."""
    a, b = operands(a, b, dividing=True)
    if a.dtype.kind == FLOATING:
        raise WouldNotCompile(f"// wants integers, not {a.dtype}: use / and tl.floor")
    return _integer_division(a, b, operator.floordiv, _c_quotient)


def remainder(a: Any, b: Any) -> Block:
    """`%`: as in C, of the dividend's sign. A division by 0 gives poison, of floats NaN."""
    a, b = operands(a, b, dividing=True)
    if a.dtype.kind == FLOATING:
        result = combine(a.dtype, mapped(_float_remainder), a, b)
        result.data = round_to(result.data, a.dtype)
        return result
    return _integer_division(a, b, operator.mod, _c_remainder)


def _integer_division(
    a: Block, b: Block, plain: Callable[[int, int], int], as_in_c: Callable[[int, int], int]
) -> Block:
    if a.dtype is int1:
        raise not_offered("a division of booleans", "cast them: mask.to(tl.int32)")
    if min(b.data) > 0 and min(a.data) >= 0:
        return combine(a.dtype, mapped(plain), a, b)  # C and Python agree
    shape, layout, (left, right), poison = aligned(a, b)
    if 0 in right:
        origin = poisoned("a division by 0")
        zero = [None if y else origin for y in right]
        poison = zero if poison is None else merged([poison, zero])
    data = [as_in_c(x, y) if y else 0 for x, y in zip(left, right, strict=True)]
    return Block(a.dtype, shape, round_to(data, a.dtype), poison, layout)


def _c_quotient(x: int, y: int) -> int:
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _c_remainder(x: int, y: int) -> int:
    return abs(x) % abs(y) if x >= 0 else -(abs(x) % abs(y))


def _float_remainder(x: float, y: float) -> float:
    try:
        return math.fmod(x, y)
    except ValueError:
        return math.nan


def negate(a: Block) -> Block:
    if isinstance(a.dtype, pointer_type) or a.dtype is int1:
        raise WouldNotCompile(f"no - of {a.dtype}")
    return a.like(a.dtype, round_to(list(map(operator.neg, a.data)), a.dtype), a.poison)


def absolute(a: Any) -> Block:
    block = to_block(a)
    if isinstance(block.dtype, pointer_type) or block.dtype is int1:
        raise WouldNotCompile(f"no absolute value of {block.dtype}")
    return block.like(block.dtype, round_to(list(map(abs, block.data)), block.dtype), block.poison)


def fma(a: Any, b: Any, c: Any) -> Block:
    """`a × b + c`, rounded once."""
    blocks = [unwrap(each) for each in (a, b, c)]
    kinds = [to_block(each).dtype for each in blocks if isinstance(each, Block)]
    kind = kinds[0] if kinds else float32
    for each in kinds[1:]:
        kind = computation_type(kind, False, each, False)
    for each in blocks:
        if isinstance(each, Number):
            kind = computation_type(kind, False, type_of_number(each), True)
    shape, layout, (x, y, z), poison = aligned(*(to_kind(each, kind) for each in blocks))
    data = [p * q + r for p, q, r in zip(x, y, z, strict=True)]
    return Block(kind, shape, round_to(data, kind), poison, layout)


def div_rn(a: Any, b: Any) -> Block:
    """Division of float32, rounded to nearest as IEEE says; on a GPU `/` may be an approximation."""
    for each in (a, b):
        if isinstance(each, Block) and each.dtype is not float32:
            raise WouldNotCompile(f"tl.math.div_rn wants fp32, not {each.dtype}")
    return divide(a, b)
