"""Operands: Python numbers become blocks, two types become the one that is computed in, and casts between types."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from course.emulator.blocks import Block, aligned, merged, poisoned
from course.emulator.constants import unwrap
from course.emulator.dtypes import (
    BOOLEAN,
    FLOATING,
    computation_type,
    dtype,
    int1,
    pointer_type,
    promote_integers,
    round_to,
    type_of_number,
)
from course.emulator.errors import WouldNotCompile, not_offered

Number = bool | int | float


def to_block(value: Any) -> Block:
    """Return a Python number as a scalar block of the type that Triton gives it; a block as it is."""
    value = unwrap(value)
    if isinstance(value, Block):
        return value
    if isinstance(value, Number):
        return constant(value, type_of_number(value))
    raise WouldNotCompile(f"{_describe(value)} cannot be computed with: it is neither a number nor a block")


def constant(value: Number, kind: dtype) -> Block:
    """Return a number as a scalar block. `WouldNotCompile` for an integer that does not fit."""
    if kind.kind == FLOATING:
        return Block(kind, (), round_to([float(value)], kind))
    if kind is int1:
        return Block(kind, (), [bool(value)])
    if isinstance(value, float) and value != int(value):
        raise WouldNotCompile(f"{value} is no integer of type {kind}")
    if not kind.lowest <= value <= kind.highest:
        raise WouldNotCompile(f"{value} is out of range for type {kind}")
    return Block(kind, (), [int(value)])


def _describe(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def operands(a: Any, b: Any, dividing: bool = False) -> tuple[Block, Block]:
    """Bring two operands to the type that they are computed in; numbers of Python join the other's type."""
    if type(a) is Block and type(b) is Block and a.dtype is b.dtype and not (dividing and a.dtype.kind == FLOATING):
        return a, b
    a, b = unwrap(a), unwrap(b)
    a_number, b_number = isinstance(a, Number), isinstance(b, Number)
    a_kind = type_of_number(a) if a_number else to_block(a).dtype
    b_kind = type_of_number(b) if b_number else to_block(b).dtype
    if isinstance(a_kind, pointer_type) or isinstance(b_kind, pointer_type):
        raise WouldNotCompile(f"{a_kind} and {b_kind} do not go together: integers can be added to a pointer, no more")
    kind = computation_type(a_kind, a_number, b_kind, b_number, dividing)
    return to_kind(a, kind), to_kind(b, kind)


def to_kind(value: Any, kind: dtype) -> Block:
    return cast(value, kind) if isinstance(value, Block) else constant(value, kind)


def combine(kind: dtype, compute: Callable[[list[Any], list[Any]], list[Any]], a: Block, b: Block) -> Block:
    """Compute with two blocks, element by element."""
    if a.shape == b.shape and a.layout == b.layout and a.poison is None and b.poison is None:
        return Block(kind, a.shape, compute(a.data, b.data), None, a.layout)
    if not b.shape and b.poison is None:
        return Block(kind, a.shape, compute(a.data, b.data * len(a.data)), a.poison, a.layout)
    if not a.shape and a.poison is None:
        return Block(kind, b.shape, compute(a.data * len(b.data), b.data), b.poison, b.layout)
    shape, layout, (left, right), poison = aligned(a, b)
    return Block(kind, shape, compute(left, right), poison, layout)


def mapped(function: Callable[[Any, Any], Any]) -> Callable[[list[Any], list[Any]], list[Any]]:
    return lambda left, right: list(map(function, left, right))


# ---- casts ----


def cast(a: Block, kind: dtype) -> Block:
    """Return the block in another type: floats rounded to nearest even, integers cut to their low bits.

    A float that does not fit an integer type gives poison: what a GPU makes of it depends on the GPU.
    """
    own = a.dtype
    if own is kind or own == kind:
        return a
    if isinstance(own, pointer_type) or isinstance(kind, pointer_type):
        raise not_offered(f"a cast from {own} to {kind}")
    data, poison = a.data, a.poison
    if kind is int1:
        return a.like(kind, [x != 0 for x in data], poison)
    if kind.kind == FLOATING:
        if own.kind == FLOATING:
            wider = own.primitive_bitwidth < kind.primitive_bitwidth
            return a.like(kind, data if wider else round_to(data, kind), poison)
        return a.like(kind, round_to(list(map(float, data)), kind), poison)
    if own.kind == BOOLEAN:
        return a.like(kind, list(map(int, data)), poison)
    if own.kind != FLOATING:
        return a.like(kind, round_to(data, kind), poison)
    return _float_to_integer(a, kind)


def _float_to_integer(a: Block, kind: dtype) -> Block:
    try:
        data = list(map(int, a.data))
        if kind.lowest <= min(data) and max(data) <= kind.highest:
            return a.like(kind, data, a.poison)
    except (ValueError, OverflowError):
        pass
    fits = [math.isfinite(x) and kind.lowest <= int(x) <= kind.highest for x in a.data]
    first = next(x for x, ok in zip(a.data, fits, strict=True) if not ok)
    origin = poisoned(f"a cast of {first:g}, which does not fit {kind}")
    outside = [None if ok else origin for ok in fits]
    poison = outside if a.poison is None else merged([a.poison, outside])
    return a.like(kind, [int(x) if ok else 0 for x, ok in zip(a.data, fits, strict=True)], poison)


def widest_integer(a: dtype, b: dtype) -> dtype:
    """Return the type of a loop's variable that runs from one integer to another."""
    if a.kind == FLOATING or b.kind == FLOATING:
        raise WouldNotCompile(f"the bounds of a loop must be integers, not {a} and {b}")
    return promote_integers(a, b)
