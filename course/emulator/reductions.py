"""Operations that change shapes: reductions along an axis, transposition, and the product of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import accumulate, chain
from math import prod
from operator import mul
from typing import Any

from course.emulator.arithmetic import cast, to_block, unwrap
from course.emulator.blocks import Block, Origin, Poison, Shape, broadcast
from course.emulator.dtypes import (
    FLOATING,
    dtype,
    float16,
    float32,
    float64,
    int8,
    int32,
    pointer_type,
    round_to,
    tfloat32,
    uint32,
)
from course.emulator.errors import WouldNotCompile, not_offered

LARGEST_BLOCK = 1 << 20

try:
    from math import sumprod as _inner
except ImportError:  # Python 3.11

    def _inner(a: list[Any], b: list[Any], /) -> Any:
        return sum(map(mul, a, b))


# ---- shapes ----


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
    a = to_block(a)
    for each in sorted(axis_of(one, len(a.shape) + 1) for one in (axis if isinstance(axis, list | tuple) else [axis])):
        a = a[(slice(None),) * each + (None,)]
    return a


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
    a = to_block(a)
    order = unwrap(axes[0]) if len(axes) == 1 else axes
    order = [unwrap(each) for each in order] if order else list(range(len(a.shape)))[::-1]
    if len(a.shape) != 2 and not axes:
        raise WouldNotCompile(f"a transposition wants two axes, or to be told their order: {list(a.shape)}")
    if sorted(order) != list(range(len(a.shape))):
        raise WouldNotCompile(f"{order} is no order of the {len(a.shape)} axes of {list(a.shape)}")
    if len(order) != 2:
        raise not_offered("a permutation of other than two axes", "the exercises need matrices only")
    if order == [0, 1]:
        return a
    rows, columns = a.layout
    poison = None if a.poison is None else transposed(a.poison, rows, columns)
    data = transposed(a.data, rows, columns)
    return Block(a.dtype, a.shape[::-1], data, poison, (columns, rows), a.buffer)


def transposed(data: list[Any], rows: int, columns: int) -> list[Any]:
    if rows == 1 or columns == 1:
        return data
    return list(chain.from_iterable(data[column::columns] for column in range(columns)))


# ---- reductions ----


def _lines(data: list[Any], shape: Shape, axis: int) -> list[list[Any]]:
    """Cut a list into the lines along an axis, in the order of the other axes."""
    size, inner = shape[axis], prod(shape[axis + 1 :])
    if inner == 1:
        return [data[start : start + size] for start in range(0, len(data), size)]
    step = size * inner
    return [data[start + each : start + step : inner] for start in range(0, len(data), step) for each in range(inner)]


def _first_origin(line: list[Origin | None]) -> Origin | None:
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
        lines = _lines(data, a.shape, axis)
        poisons = None if poison is None else _lines(poison, a.shape, axis)
        shape = a.shape[:axis] + ((1,) if unwrap(keep_dims) else ()) + a.shape[axis + 1 :]
    origins: Poison = None if poisons is None else [_first_origin(each) for each in poisons]
    return Block(a.dtype, shape, [of_line(each) for each in lines], origins)


def _wider(a: Block, kind: dtype | None = None) -> Block:
    """Sums of small integers are taken in 32 bits."""
    if kind is not None:
        return cast(a, kind)
    if a.dtype.kind != FLOATING and a.dtype.primitive_bitwidth < 32:
        return cast(a, int32 if a.dtype.signed else uint32)
    return a


def sum_(a: Any, axis: Any = None, keep_dims: Any = False, dtype: Any = None) -> Block:
    a = _wider(_numbers(a, "tl.sum"), unwrap(dtype))
    result = reduce(a, axis, keep_dims, sum)
    result.data = round_to(result.data, a.dtype)
    return result


def _numbers(a: Any, name: str) -> Block:
    a = to_block(a)
    if isinstance(a.dtype, pointer_type):
        raise WouldNotCompile(f"{name} of pointers")
    return a


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
    a = _numbers(a, name)
    if a.dtype.primitive_bitwidth >= 32:
        return a
    return cast(a, float32 if a.dtype.kind == FLOATING else int32)


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
    return max_(a, axis, True, tie_break_left, keep_dims)[1]


def argmin(a: Any, axis: Any, tie_break_left: Any = True, keep_dims: Any = False) -> Block:
    return min_(a, axis, True, tie_break_left, keep_dims)[1]


def cumsum(a: Any, axis: Any = 0, reverse: Any = False, dtype: Any = None) -> Block:
    """Running sums along the last axis."""
    a = _wider(_numbers(a, "tl.cumsum"), unwrap(dtype))
    if not a.shape or axis_of(axis, len(a.shape)) != len(a.shape) - 1:
        raise not_offered("tl.cumsum along another axis than the last")
    if unwrap(reverse):
        raise not_offered("tl.cumsum with reverse")
    data, poison = a.full()
    lines = _lines(data, a.shape, len(a.shape) - 1)
    sums = [each for line in lines for each in accumulate(line)]
    spread: Poison = None
    if poison is not None:
        spread = [
            each
            for line in _lines(poison, a.shape, len(a.shape) - 1)
            for each in accumulate(line, lambda before, now: before or now)
        ]
    return Block(a.dtype, a.shape, round_to(sums, a.dtype), spread)


# ---- the product of matrices ----

MATRIX_TYPES = ("fp64", "fp32", "fp16", "bf16", "i8")
PRECISIONS = ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6")


def dot(
    a: Any,
    b: Any,
    acc: Any = None,
    input_precision: Any = None,
    allow_tf32: Any = None,
    max_num_imprecise_acc: Any = None,
    out_dtype: Any = None,
) -> Block:
    """Return `a @ b + acc`. Products of float32 are taken in TF32 unless `input_precision` says otherwise."""
    a, b, acc = to_block(a), to_block(b), unwrap(acc)
    rows, inner, columns = _matrix_sizes(a, b)
    kind = _product_type(a.dtype, acc, unwrap(out_dtype))
    precision = _precision(unwrap(input_precision), unwrap(allow_tf32))
    (left, left_poison), (right, right_poison) = a.full(), b.full()
    if a.dtype is float32 and precision == "tf32":
        left, right = tfloat32(left), tfloat32(right)
    lines = [left[start : start + inner] for start in range(0, rows * inner, inner)]
    crossing = [right[column::columns] for column in range(columns)]
    data = [_inner(line, column) for line in lines for column in crossing]
    poison: Poison = None
    if left_poison is not None or right_poison is not None:
        down = [_first_origin(each) for each in _lines(left_poison or [None] * len(left), a.shape, 1)]
        across = [_first_origin(each) for each in _lines(right_poison or [None] * len(right), b.shape, 0)]
        poison = [by_row or by_column for by_row in down for by_column in across]
    product = Block(kind, (rows, columns), round_to(data, kind), poison)
    if acc is None:
        return product
    if not isinstance(acc, Block) or acc.shape != product.shape or acc.dtype is not kind:
        given = acc.type if isinstance(acc, Block) else acc
        raise WouldNotCompile(f"the accumulator of tl.dot must be a block {product.type}, not {given}")
    return acc + product


def _matrix_sizes(a: Block, b: Block) -> tuple[int, int, int]:
    if len(a.shape) != 2 or len(b.shape) != 2:
        if len(a.shape) == len(b.shape) == 3:
            raise not_offered("tl.dot of three axes", "use one program for each matrix")
        raise WouldNotCompile(f"tl.dot wants two matrices, not {list(a.shape)} and {list(b.shape)}")
    if a.dtype is not b.dtype:
        raise WouldNotCompile(f"tl.dot wants two matrices of one type, not {a.dtype} and {b.dtype}: cast one of them")
    if a.dtype.name not in MATRIX_TYPES:
        raise WouldNotCompile(f"tl.dot does not multiply matrices of {a.dtype}")
    (rows, inner), (other, columns) = a.shape, b.shape
    if inner != other:
        raise WouldNotCompile(
            f"tl.dot of {list(a.shape)} and {list(b.shape)}: the second axis of one must be the first of the other"
        )
    least = 32 if a.dtype is int8 else 16
    if inner < least:
        raise WouldNotCompile(
            f"tl.dot of {list(a.shape)} and {list(b.shape)}: K, the axis that is summed over, must be at least {least} "
            f"for {a.dtype}",
            "tensor cores multiply tiles of that size: make the tile larger and mask what is beyond the end with 0",
        )
    return rows, inner, columns


def _product_type(kind: dtype, acc: Any, out: dtype | None) -> dtype:
    if out is None:
        out = acc.dtype if isinstance(acc, Block) else float32
    if kind is int8:
        return int32
    if out.name == "bf16":
        raise WouldNotCompile("tl.dot does not accumulate in bf16: use fp32, and cast the result")
    if kind is float16:
        return out
    return float64 if kind is float64 else float32


def _precision(precision: Any, allow_tf32: Any) -> str:
    if precision is None:
        return "tf32" if allow_tf32 is None or allow_tf32 else "ieee"
    if str(precision).lower() not in PRECISIONS:
        raise WouldNotCompile(f"input_precision must be one of {', '.join(PRECISIONS)}, not {precision!r}")
    if str(precision).lower().startswith("bf16"):
        raise not_offered(f"input_precision={precision!r}", 'choose "ieee", "tf32x3" or "tf32"')
    return str(precision).lower()
