"""The cases of the differential test: every operation that the emulator offers, on random shapes, types and numbers."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

FLOATS = ("float64", "float32", "float16", "bfloat16")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8")
BITS = {"int64": 64, "int32": 32, "int16": 16, "int8": 8, "uint8": 8}
PART = 0.4  # of the pairs of types: another seed takes others
SHAPES = ((4, 8), (1, 16), (16, 2), (2, 1), (8, 4))


@dataclass
class Case:
    """A kernel, what it is given, and how close its results must be."""

    name: str
    source: str
    arguments: list[Any]
    grid: tuple[int, ...] = (1,)
    relative: float = 0.0
    absolute: float = 0.0
    tensors: list[int] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        return {"source": self.source, "arguments": self.arguments, "grid": list(self.grid)}


def tensor(values: Any, dtype: str) -> dict[str, Any]:
    return {"values": values, "dtype": dtype}


def numbers(rng: random.Random, dtype: str, count: int, special: bool = True) -> list[Any]:
    """Return random numbers of a type: small ones, large ones, and the odd ones of the type."""
    if dtype == "bool":
        return [rng.random() < 0.5 for _ in range(count)]
    if dtype in FLOATS:
        made = [rng.choice((rng.gauss(0, 1), rng.gauss(0, 100), rng.uniform(-2, 2))) for _ in range(count)]
        odd = [0.0, -0.0, math.inf, -math.inf, math.nan, 0.5, -1.5, 65504.0]
        if special:
            for _ in range(count // 6):
                made[rng.randrange(count)] = rng.choice(odd)
        return array("f", made).tolist()  # PyTorch rounds by way of float32
    bits = BITS[dtype]
    low, high = (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return [
        max(low, min(high, rng.choice((rng.randint(-9, 9), rng.randint(low, high), low, high)))) for _ in range(count)
    ]


ELEMENTWISE = """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, floats_ptr, integers_ptr, M: tl.constexpr, N: tl.constexpr):
    row = tl.arange(0, M)[:, None]
    column = tl.arange(0, N)[None, :]
    at = row * N + column
    a = tl.load(a_ptr + at)
    b = tl.load(b_ptr + at)
    c = tl.load(c_ptr + at) != 0
{lines}
    diary.note(x.dtype)
    if x.dtype.is_floating():
        tl.store(floats_ptr + at, x)
    else:
        tl.store(integers_ptr + at, x)
"""


def elementwise(
    rng: random.Random,
    expression: str,
    a: str,
    b: str | None = None,
    *,
    special: bool = True,
    b_values: list[Any] | None = None,
    a_values: list[Any] | None = None,
    relative: float = 0.0,
) -> Case:
    """A case of `x = expression` in blocks `a`, `b` and the mask `c`; several lines may be given."""
    rows, columns = rng.choice(SHAPES)
    count = rows * columns

    def block(dtype: str, values: list[Any] | None = None) -> dict[str, Any]:
        chosen = numbers(rng, dtype, count, special) if values is None else [rng.choice(values) for _ in range(count)]
        return tensor([chosen[row * columns : (row + 1) * columns] for row in range(rows)], dtype)

    lines = expression if "\n" in expression or expression.startswith("    ") else f"    x = {expression}"
    zeros = [[0] * columns for _ in range(rows)]
    return Case(
        f"{expression.strip()} of {a}{'' if b is None else f' and {b}'}",
        ELEMENTWISE.format(lines=lines),
        [
            block(a, a_values), block(b or a, b_values), block("int8", [0, 1]), tensor(zeros, "float64"),
            tensor(zeros, "int64"), rows, columns,
        ],
        relative=relative,
        tensors=[3, 4],
    )  # fmt: skip


def arithmetic(rng: random.Random) -> Iterator[Case]:
    kinds = (*FLOATS, *INTEGERS)
    for a in kinds:
        for b in kinds:
            if rng.random() > PART:
                continue
            for op in "+-*":
                yield elementwise(rng, f"a {op} b", a, b)
            signs_differ = (a == "uint8") != (b == "uint8")
            floating = a in FLOATS or b in FLOATS
            if floating or not signs_differ:
                yield elementwise(rng, "a / b", a, b)
            for op in ("<", "<=", ">", ">=", "==", "!="):
                yield elementwise(rng, f"a {op} b", a, b)
            yield elementwise(rng, "tl.maximum(a, b)", a, b)
            yield elementwise(rng, "tl.minimum(a, b)", a, b)
            yield elementwise(rng, "tl.where(c, a, b)", a, b)
            fitting = [0, 1, 2.6, 100, 127, 0.5, *([] if b == "uint8" else [-9, -1, -2.5])]
            if a in FLOATS:
                yield elementwise(rng, "a.to(b.dtype)", a, b, a_values=fitting)
    for number in ("2", "-3", "0.5", "1e-3", "float('inf')", "1000", "True"):
        for a in (*FLOATS, "int64", "int32", "int8"):
            if (number == "1000" and a == "int8") or rng.random() > PART:
                continue
            for op in "+-*":
                yield elementwise(rng, f"a {op} {number}", a)
                yield elementwise(rng, f"{number} {op} a", a)
            yield elementwise(rng, f"tl.maximum(a, {number})", a)
            yield elementwise(rng, f"a < {number}", a)
            yield elementwise(rng, f"tl.where(c, a, {number})", a)
            yield elementwise(rng, f"    n = {number}\n    x = a * n", a)
            yield elementwise(rng, f"a / {number}", a)
    for a in FLOATS:
        for b in FLOATS:
            yield elementwise(rng, "a.to(b.dtype)", a, b)
        yield elementwise(rng, "-a", a)
        yield elementwise(rng, "tl.abs(a)", a)


def whole_numbers(rng: random.Random) -> Iterator[Case]:
    nonzero = [-100, -7, -3, -2, -1, 1, 2, 3, 5, 64, 127]
    for a in INTEGERS:
        for b in INTEGERS:
            yield elementwise(rng, "a.to(b.dtype)", a, b)
            for op in "&|^":
                yield elementwise(rng, f"a {op} b", a, b)
            if (a == "uint8") == (b == "uint8"):
                divisors = [each for each in nonzero if each > 0] if b == "uint8" else nonzero
                smallest = -(2 ** (BITS[a] - 1))
                dividends = [each for each in numbers(rng, a, 40) if each != smallest]
                yield elementwise(rng, "a // b", a, b, a_values=dividends, b_values=divisors)
                yield elementwise(rng, "a % b", a, b, a_values=dividends, b_values=divisors)
        yield elementwise(rng, "a << b", a, a, b_values=[0, 1, 3, 7])
        yield elementwise(rng, "a >> b", a, a, b_values=[0, 1, 3, 7])
        yield elementwise(rng, "a >> 2", a)
        yield elementwise(rng, "~a", a)
        yield elementwise(rng, "-a", a, a_values=[0, 1, 5, 100] if a == "uint8" else None)
        yield elementwise(rng, "tl.abs(a)", a, a_values=[0, 1, 5, 100] if a == "uint8" else [-100, -1, 0, 1, 127])
        yield elementwise(rng, "a * a * a", a)
        yield elementwise(rng, "a.to(tl.int1)", a)
        yield elementwise(rng, "tl.cdiv(a, 16)", a, a_values=[0, 1, 15, 16, 17, 100])
    yield elementwise(rng, "c & (a > b)", "int32", "int32")
    yield elementwise(rng, "c | (a > b)", "int32", "int32")
    yield elementwise(rng, "c ^ (a > b)", "int32", "int32")
    yield elementwise(rng, "~c", "int32", "int32")
    yield elementwise(rng, "a * c", "int32", "int32")
    yield elementwise(rng, "a * c", "float16")
    yield elementwise(rng, "c.to(tl.float32) * 3", "int32")
    yield elementwise(rng, "(a > 0) & (b > 0) & c", "float32", "int8")
    yield elementwise(rng, "a % 16 + b // 7", "int32", "int32", a_values=[0, 5, 16, 100], b_values=[0, 7, 48])


def functions(rng: random.Random) -> Iterator[Case]:
    for a, relative in (("float32", 3e-7), ("float64", 1e-13)):
        for name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "ceil", "abs"):
            yield elementwise(rng, f"tl.{name}(a)", a, relative=relative)
            yield elementwise(rng, f"tl.math.{name}(a)", a, relative=relative)
        yield elementwise(rng, "tl.sigmoid(a)", a, relative=5e-7)
        yield elementwise(rng, "tl.fma(a, b, a)", a, a, relative=3e-6, special=False)
        yield elementwise(rng, "tl.clamp(a, -1.0, 1.5)", a, special=False)
        yield elementwise(rng, "a.exp2()", a, relative=relative)
    yield elementwise(rng, "tl.sqrt_rn(a)", "float32")
    yield elementwise(rng, "tl.math.div_rn(a, b)", "float32", "float32")
    yield elementwise(rng, "tl.div_rn(a, 127.0)", "float32")
    yield elementwise(rng, "tl.fdiv(a, b)", "float32", "float32")
    yield elementwise(rng, "tl.add(a, b) * tl.sub(a, b) + tl.mul(a, b)", "float32", "float32", relative=1e-6)
    yield elementwise(rng, "a % b", "float32", "float32", special=False)
    yield elementwise(rng, "tl.zeros_like(a) + 1", "float16")
    yield elementwise(rng, "tl.full([M, N], 7, tl.int8) + a", "int8")
    yield elementwise(rng, "tl.full([M, N], 0.1, tl.float16) + a", "float16")
    yield elementwise(rng, "tl.zeros((M, N), dtype=tl.float32) + a", "bfloat16")
    yield elementwise(rng, "tl.cast(a, tl.float16)", "float32")
    yield elementwise(rng, "(a + 12582912.0 - 12582912.0)", "float32", special=False)


def control(rng: random.Random) -> Iterator[Case]:
    for lines in (
        "    n = tl.program_id(0) + 3\n    x = a\n    for i in range(0, n, 2):\n        x += i",
        "    x = a\n    for i in range(5, -1, -2):\n        x = x * 2 + i",
        "    x = a\n    for i in tl.range(3):\n        x += i * N",
        "    x = a\n    for i in tl.static_range(1, 4):\n        x += i * 700000000",
        "    x = a\n    i = 0\n    while i < 3:\n        x += i\n        i += 1",
        "    n = tl.num_programs(0)\n    if n > 0:\n        x = a + n\n    else:\n        x = a - n",
        "    n = tl.program_id(0)\n    x = a + (7 if n > 0 else 5)",
        "    n = tl.program_id(0)\n    x = a + (n >= 0 and n < 1) + (n > 3 or n == 0) + (not n > 0)",
        "    n = tl.program_id(0) + 2147483647\n    x = a + n + 1",
        "    half = N // 2\n    x = a + half",
        "    n: tl.constexpr = N * 2\n    x = a + tl.max(tl.arange(0, n), 0)",
        "    x = tl.where(row * N + column < 5, a, 0) + min(M, N) + max(M, N)",
        "    s = tl.program_id(0)\n    x = a + min(s, 3) + max(s, 3)",
        "    x = a + (0 <= tl.program_id(0) < 1)",
        "    tl.static_assert(M > 0)\n    x = tl.multiple_of(a, [1, 1]) + tl.max_contiguous(a, [1, 1])",
        "    i, j = tl.program_id(0), 5\n    x = a + i + j",
        "    x = a + tl.full([], 3, tl.int32)",
        "    x = tl.broadcast_to(row, M, N) + a",
        "    x = tl.broadcast_to(column, [M, N]) + a",
        "    p, q = tl.broadcast(row, column)\n    x = p * q + a",
    ):
        for dtype in ("int32", "int64", "float32"):
            yield elementwise(rng, lines, dtype, special=False)


REDUCTION = """
@triton.jit
def kernel(a_ptr, floats_ptr, integers_ptr, M: tl.constexpr, N: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :])
    x = {expression}
    diary.note(x.dtype)
    diary.note(x.shape)
    at = {at}
    if x.dtype.is_floating():
        tl.store(floats_ptr + at, x)
    else:
        tl.store(integers_ptr + at, x)
"""


def reductions(rng: random.Random) -> Iterator[Case]:
    places = {
        "0": "tl.arange(0, N)", "1": "tl.arange(0, M)", "-1": "tl.arange(0, M)", "None": "0",
        "0, keep_dims=True": "tl.arange(0, N)[None, :]", "1, keep_dims=True": "tl.arange(0, M)[:, None]",
    }  # fmt: skip
    for dtype in (*FLOATS, *INTEGERS):
        for axis, at in places.items():
            for name in ("sum", "max", "min"):
                loose = {"float64": 1e-13, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}.get(dtype, 0.0)
                yield _reduction(rng, f"tl.{name}(a, axis={axis})", at, dtype, loose if name == "sum" else 0.0)
        for axis in ("0", "1"):
            for name in ("argmax", "argmin"):
                yield _reduction(rng, f"tl.{name}(a, {axis})", places[axis], dtype, 0.0)
        at = "tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]"
        yield _reduction(rng, "tl.cumsum(a, 1)", at, dtype, loose)
        yield _reduction(rng, "a.T + 1", "tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]", dtype, 0.0)
        yield _reduction(rng, "tl.trans(a)", "tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]", dtype, 0.0)
        yield _reduction(rng, "tl.reshape(a, [M * N])", "tl.arange(0, M * N)", dtype, 0.0)
        yield _reduction(rng, "a.reshape(N, M)", "tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]", dtype, 0.0)
        yield _reduction(rng, "tl.expand_dims(tl.sum(a, 1), 1) + a", at, dtype, loose)
        yield _reduction(rng, "tl.max(a, 1)[:, None] * tl.zeros([1, N], tl.int8) + a", at, dtype, 0.0)
    yield _reduction(rng, "tl.sum(a > 0, 1)", "tl.arange(0, M)", "int32", 0.0)
    yield _reduction(rng, "tl.sum(a, 1, dtype=tl.int64)", "tl.arange(0, M)", "int32", 0.0)
    yield _reduction(rng, "tl.max(tl.max(a, 1), 0)", "0", "float32", 0.0)
    yield _reduction(rng, "tl.permute(a, (1, 0))", "tl.arange(0, N)[:, None] * M + tl.arange(0, M)[None, :]", "int8", 0)


def _reduction(rng: random.Random, expression: str, at: str, dtype: str, loose: float) -> Case:
    rows, columns = rng.choice(SHAPES)
    made = numbers(rng, dtype, rows * columns, special=False)
    zeros = [0] * (rows * columns)
    return Case(
        f"{expression} of {dtype} {rows}×{columns}",
        REDUCTION.format(expression=expression, at=at),
        [
            tensor([made[row * columns : (row + 1) * columns] for row in range(rows)], dtype),
            tensor(zeros, "float64"), tensor(zeros, "int64"), rows, columns,
        ],
        relative=loose,
        absolute=200 * loose,
        tensors=[1, 2],
    )  # fmt: skip


DOT = """
@triton.jit
def kernel(a_ptr, b_ptr, c_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    a = tl.load(a_ptr + tl.arange(0, M)[:, None] * K + tl.arange(0, K)[None, :])
    b = tl.load(b_ptr + tl.arange(0, K)[:, None] * N + tl.arange(0, N)[None, :])
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    c = tl.load(c_ptr + at)
    x = {expression}
    diary.note(x.dtype)
    tl.store(out_ptr + at, x)
"""


def products(rng: random.Random) -> Iterator[Case]:
    ieee = ', input_precision="ieee"'
    for dtype, sum_type, loose in (
        ("float32", "float32", 2e-6), ("float64", "float64", 1e-13), ("float16", "float32", 2e-6),
        ("int8", "int32", 0.0),
    ):  # fmt: skip
        for expression in (f"tl.dot(a, b{ieee})", f"tl.dot(a, b, c{ieee})", f"tl.dot(a, b, acc=c{ieee}) + c",
                           f"tl.dot(a, tl.trans(tl.trans(b)){ieee})"):  # fmt: skip
            acc = expression.startswith("tl.dot(a, b,") and "c" in expression.split("input")[0]
            if dtype == "int8" and acc:
                expression = expression.replace('ieee")', 'ieee", out_dtype=tl.int32)')
            if dtype == "float64" and acc:
                expression = expression.replace('ieee")', 'ieee", out_dtype=tl.float64)')
            rows, columns, inner = rng.choice((4, 16, 32)), rng.choice((8, 16)), rng.choice((32, 64))
            a = [numbers(rng, dtype, inner, False) for _ in range(rows)]
            b = [numbers(rng, dtype, columns, False) for _ in range(inner)]
            for each in range(rng.choice((0, 5))):  # padding
                a[-1 - each % rows], b[-1 - each] = [0] * inner, [0] * columns
            for each in rng.sample(range(columns), rng.choice((0, 3))):  # a column of zeros, columns that repeat
                twin = rng.choice((None, 0, 1))
                for line in b:
                    line[each] = 0 if twin is None else line[twin]
            c = [numbers(rng, sum_type, columns, False) for _ in range(rows)]
            zeros = [[0] * columns for _ in range(rows)]
            largest = 300.0 * 300.0 * inner
            yield Case(
                f"{expression} of {dtype} {rows}×{inner}×{columns}",
                DOT.format(expression=expression),
                [
                    tensor(a, dtype),
                    tensor(b, dtype),
                    tensor(c, sum_type),
                    tensor(zeros, sum_type),
                    rows,
                    columns,
                    inner,
                ],
                relative=loose,
                absolute=loose * largest,
                tensors=[3],
            )


MEMORY = """
@triton.jit
def kernel(a_ptr, out_ptr, counter_ptr, n, stride, N: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, N)
    a = tl.load(a_ptr + row * stride + i, mask=i < n, other={other})
    before = tl.atomic_add(counter_ptr + row, 1)
    tl.atomic_add(counter_ptr + 4 + i % 2, row + before, mask=i < n)
    if row < 3:
        tl.store(out_ptr + row * stride + i, a * 2, mask=(i < n - 1) & (i >= row))
    one = tl.load(a_ptr + row * stride + n - 1)
    tl.store(out_ptr + row * stride + n - 1, one, mask=row == 1)
"""


def memory(rng: random.Random) -> Iterator[Case]:
    for dtype in (*FLOATS, "int64", "int32", "int8"):
        for other in ("0", "0.0", "3", "-1"):
            columns = rng.choice((8, 16))
            width = rng.randint(5, columns)
            values = [numbers(rng, dtype, width, False) for _ in range(4)]
            yield Case(
                f"load, store and atomic_add of {dtype}, other={other}",
                MEMORY.format(other=other),
                [
                    tensor(values, dtype), tensor([[1] * width for _ in range(4)], dtype),
                    tensor([0] * 6, "int32"), width, width, columns,
                ],
                grid=(4,),
                tensors=[1, 2],
            )  # fmt: skip


def all_cases(seed: int) -> list[Case]:
    rng = random.Random(seed)
    groups = (arithmetic, whole_numbers, functions, control, reductions, products, memory)
    return [case for group in groups for case in group(rng)]
