"""The product of matrices: `tl.dot`."""

from __future__ import annotations

from operator import mul
from typing import Any

from course.emulator.arithmetic import add
from course.emulator.blocks import Block, Poison
from course.emulator.constants import unwrap
from course.emulator.dtypes import dtype, float16, float32, float64, int8, int32, round_to, tfloat32
from course.emulator.errors import WouldNotCompile, not_offered
from course.emulator.operands import to_block
from course.emulator.reductions import first_origin, lines_along

try:
    from math import sumprod as _inner  # type: ignore[attr-defined, unused-ignore]
except ImportError:  # Python 3.11

    def _inner(a: tuple[Any, ...], b: tuple[Any, ...], /) -> Any:
        return sum(map(mul, a, b))


MATRIX_TYPES = ("fp64", "fp32", "fp16", "bf16", "int8")
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
    data = product(left, right, rows, inner, columns)
    poison: Poison = None
    if left_poison is not None or right_poison is not None:
        down = [first_origin(each) for each in lines_along(left_poison or [None] * len(left), a.shape, 1)]
        across = [first_origin(each) for each in lines_along(right_poison or [None] * len(right), b.shape, 0)]
        poison = [by_row or by_column for by_row in down for by_column in across]
    result = Block(kind, (rows, columns), round_to(data, kind), poison)
    if acc is None:
        return result
    if not isinstance(acc, Block) or acc.shape != result.shape or acc.dtype is not kind:
        given = acc.type if isinstance(acc, Block) else acc
        raise WouldNotCompile(f"the accumulator of tl.dot must be a block {result.type}, not {given}")
    return add(acc, result)


def product(left: list[Any], right: list[Any], rows: int, inner: int, columns: int) -> list[Any]:
    """Multiply two matrices that are stored row by row.

    Tiles are padded: rows and columns that repeat, mostly of zeros, are multiplied once, and an end of zeros is left
    out, unless an infinity or a NaN would meet it.
    """
    used = inner
    if _is_finite(left):
        while used > 1 and not any(right[(used - 1) * columns : used * columns]):
            used -= 1
    crossing: dict[tuple[Any, ...], int] = {}
    which = [
        crossing.setdefault(tuple(right[column : used * columns : columns]), len(crossing)) for column in range(columns)
    ]
    distinct = list(crossing)
    known: dict[tuple[Any, ...], list[Any]] = {}
    result: list[Any] = []
    for start in range(0, rows * inner, inner):
        line = tuple(left[start : start + used])
        products = known.get(line)
        if products is None:
            products = [_inner(line, column) for column in distinct]
            if len(distinct) < columns:
                products = [products[each] for each in which]
            known[line] = products
        result += products
    return result


def _is_finite(numbers: list[Any]) -> bool:
    total = sum(numbers)
    return bool(total - total == 0)


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
    if kind is float16 and out is float16:
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
