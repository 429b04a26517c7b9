"""Operations that change a block's shape and none of its elements."""

from __future__ import annotations

from itertools import chain
from math import prod
from typing import Any

from course.emulator.blocks import Block, Shape, broadcast
from course.emulator.constants import unwrap
from course.emulator.errors import WouldNotCompile, not_offered
from course.emulator.operands import to_block

LARGEST_BLOCK = 1 << 20


def as_shape(*sizes: Any) -> Shape:
    """Return a shape given as one list or as several sizes. `WouldNotCompile` unless all are constant powers of two."""
    given = unwrap(sizes[0]) if len(sizes) == 1 else sizes
    if not isinstance(given, list | tuple):
        given = (given,)
    shape = []
    for each in map(unwrap, given):
        if not isinstance(each, int):
            raise WouldNotCompile(
                "the sizes of a block must be constexpr: the compiler has to know them",
                "declare the parameter as `NAME: tl.constexpr`, or the variable as `name: tl.constexpr = …`",
            )
        if each < 1 or each & (each - 1):
            raise WouldNotCompile(f"the sizes of a block must be powers of two: {each} in {list(map(unwrap, given))}")
        shape.append(int(each))
    if prod(shape) > LARGEST_BLOCK:
        raise WouldNotCompile(f"a block of {prod(shape)} elements is over Triton's limit of {LARGEST_BLOCK}")
    return tuple(shape)


def axis_of(axis: Any, rank: int) -> int:
    axis = unwrap(axis)
    if not isinstance(axis, int):
        raise WouldNotCompile("an axis must be a constexpr")
    if not -rank <= axis < rank:
        raise WouldNotCompile(f"there is no axis {axis} in a block of {rank} axes")
    return axis % rank


def expand_dims(a: Any, axis: Any) -> Block:
    block = to_block(a)
    for each in sorted(axis_of(one, len(a.shape) + 1) for one in (axis if isinstance(axis, list | tuple) else [axis])):
        block = block[(slice(None),) * each + (None,)]
    return block


def broadcast_to(a: Any, *shape: Any) -> Block:
    a, target = to_block(a), as_shape(*shape)
    fits = len(a.shape) == len(target) and all(have in (1, want) for have, want in zip(a.shape, target, strict=True))
    if a.shape and not fits:
        raise WouldNotCompile(f"a block of shape {list(a.shape)} does not broadcast to {list(target)}")
    return broadcast(a, target)


def reshape(a: Any, *shape: Any, can_reorder: bool = False) -> Block:
    a, target = to_block(a), as_shape(*shape)
    if prod(a.shape) != prod(target):
        raise WouldNotCompile(f"{list(a.shape)} cannot be reshaped to {list(target)}: it has other elements to place")
    if unwrap(can_reorder):
        raise not_offered("reshape with can_reorder", "the order of the elements would be anybody's guess")
    data, poison = a.full()
    return Block(a.dtype, target, data, poison, None, a.buffer)


def transpose(a: Any, *axes: Any) -> Block:
    """Exchange the axes; of two axes without being told which."""
    block = to_block(a)
    order = unwrap(axes[0]) if len(axes) == 1 else axes
    order = [unwrap(each) for each in order] if order else list(range(len(block.shape)))[::-1]
    if len(block.shape) != 2 and not axes:
        raise WouldNotCompile(f"a transposition wants two axes, or to be told their order: {list(block.shape)}")
    if sorted(order) != list(range(len(block.shape))):
        raise WouldNotCompile(f"{order} is no order of the {len(block.shape)} axes of {list(block.shape)}")
    if len(order) != 2:
        raise not_offered("a permutation of other than two axes", "the exercises need matrices only")
    if order == [0, 1]:
        return block
    rows, columns = block.layout
    poison = None if block.poison is None else transposed(block.poison, rows, columns)
    data = transposed(block.data, rows, columns)
    return Block(block.dtype, block.shape[::-1], data, poison, (columns, rows), block.buffer)


def transposed(data: list[Any], rows: int, columns: int) -> list[Any]:
    if rows == 1 or columns == 1:
        return data
    return list(chain.from_iterable(data[column::columns] for column in range(columns)))
