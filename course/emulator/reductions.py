"""Reductions along an axis: sums, extremes and where they are, running sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate
from math import prod
from typing import Any

from course.emulator.blocks import Block, Origin, Poison, Shape
from course.emulator.constants import unwrap
from course.emulator.dtypes import FLOATING, dtype, float32, int32, pointer_type, round_to, uint32
from course.emulator.errors import WouldNotCompile, not_offered
from course.emulator.operands import cast, to_block
from course.emulator.shapes import axis_of


def lines_along(data: list[Any], shape: Shape, axis: int) -> list[list[Any]]:
    """Cut a list into the lines along an axis, in the order of the other axes."""
    size, inner = shape[axis], prod(shape[axis + 1 :])
    if inner == 1:
        return [data[start : start + size] for start in range(0, len(data), size)]
    step = size * inner
    return [data[start + each : start + step : inner] for start in range(0, len(data), step) for each in range(inner)]


def first_origin(line: list[Origin | None]) -> Origin | None:
    return next(filter(None, line), None)


def reduce(a: Block, axis: Any, keep_dims: Any, of_line: Callable[[list[Any]], Any]) -> Block:
    """Reduce along an axis, or along all of them for None. One poisoned element poisons its whole line."""
    data, poison = a.full()
    rank = len(a.shape)
    if rank == 0:
        raise WouldNotCompile("a scalar has no axis to reduce")
    axis = unwrap(axis)
    if axis is None:
        lines, poisons = [data], None if poison is None else [poison]
        shape: Shape = (1,) * rank if unwrap(keep_dims) else ()
    else:
        axis = axis_of(axis, rank)
        lines = lines_along(data, a.shape, axis)
        poisons = None if poison is None else lines_along(poison, a.shape, axis)
        shape = a.shape[:axis] + ((1,) if unwrap(keep_dims) else ()) + a.shape[axis + 1 :]
    origins: Poison = None if poisons is None else [first_origin(each) for each in poisons]
    return Block(a.dtype, shape, [of_line(each) for each in lines], origins)


def _wider(a: Block, kind: dtype | None = None) -> Block:
    """Sums of small integers are taken in 32 bits."""
    if kind is not None:
        return cast(a, kind)
    if a.dtype.kind != FLOATING and a.dtype.primitive_bitwidth < 32:
        return cast(a, int32 if a.dtype.signed else uint32)
    return a


def sum_(a: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None) -> Block:
    block = _wider(_numbers(a, "tl.sum"), unwrap(dtype))
    result = reduce(block, axis, keep_dims, sum)
    result.data = round_to(result.data, block.dtype)
    return result


def _numbers(a: Any, name: str) -> Block:
    block = to_block(a)
    if isinstance(block.dtype, pointer_type):
        raise WouldNotCompile(f"{name} of pointers")
    return block


def _extreme(choose: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Of numbers and NaN, the numbers count."""

    def of_line(line: list[Any]) -> Any:
        total = sum(line)
        if total != total:
            numbers = [each for each in line if each == each]
            return choose(numbers) if numbers else math.nan
        return choose(line)

    return of_line


def _for_comparing(a: Any, name: str) -> Block:
    """Reductions compare narrow types in 32 bits."""
    block = _numbers(a, name)
    if block.dtype.primitive_bitwidth >= 32:
        return block
    return cast(block, float32 if block.dtype.kind == FLOATING else int32)


def _reduce_to_extreme(name: str, choose: Callable[[list[Any]], Any]) -> Callable[..., Any]:
    def operate(
        a: Any,
        axis: Any = None,
        return_indices: Any = False,
        return_indices_tie_break_left: Any = True,
        keep_dims: Any = False,
    ) -> Any:
        if unwrap(return_indices):
            if not unwrap(return_indices_tie_break_left):
                raise not_offered(f"{name} without return_indices_tie_break_left", "any of the equal ones may be meant")
            return _with_indices(_for_comparing(a, name), axis, keep_dims, choose)
        return reduce(_for_comparing(a, name), axis, keep_dims, _extreme(choose))

    return operate


def _with_indices(a: Block, axis: Any, keep_dims: Any, choose: Callable[[list[Any]], Any]) -> tuple[Block, Block]:
    if any(each != each for each in a.data):
        raise not_offered("the index of an extreme among NaN", "mask what is not a number first")
    values = reduce(a, axis, keep_dims, choose)
    places = reduce(a, axis, keep_dims, lambda line: line.index(choose(line)))
    return values, Block(int32, places.shape, places.data, places.poison)


max_ = _reduce_to_extreme("tl.max", max)
min_ = _reduce_to_extreme("tl.min", min)


def argmax(a: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> Block:
    places: Block = max_(a, axis, True, tie_break_left, keep_dims)[1]
    return places


def argmin(a: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> Block:
    places: Block = min_(a, axis, True, tie_break_left, keep_dims)[1]
    return places


def cumsum(a: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None) -> Block:
    """Running sums along the last axis."""
    a = _wider(_numbers(a, "tl.cumsum"), unwrap(dtype))
    if not a.shape or axis_of(axis, len(a.shape)) != len(a.shape) - 1:
        raise not_offered("tl.cumsum along another axis than the last")
    if unwrap(reverse):
        raise not_offered("tl.cumsum with reverse")
    data, poison = a.full()
    lines = lines_along(data, a.shape, len(a.shape) - 1)
    sums = [each for line in lines for each in accumulate(line)]
    carried: Poison = None
    if poison is not None:
        carried = []
        for origins in lines_along(poison, a.shape, len(a.shape) - 1):
            carried += accumulate(origins, lambda before, now: before or now)
    return Block(a.dtype, a.shape, round_to(sums, a.dtype), carried)
