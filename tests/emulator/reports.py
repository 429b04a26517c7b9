"""Kernels with a mistake each, and what the emulator says of it: the texts are in `reports.txt`, to be read.

python -m tests.emulator.reports     # writes the file anew
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from course import emulator
from tests.emulator import runner

FILE = Path(__file__).with_name("reports.txt")


@dataclass(frozen=True)
class Mistake:
    """A kernel of two buffers and a number, called `kernel`; `n` is run-time, `N` constexpr."""

    title: str
    body: str
    x: Any = "8 floats"
    y: Any = "8 floats"
    n: int = 8
    grid: int = 1
    before: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


def buffer(what: Any) -> Any:
    """Make a buffer: `8 floats`, `8 unwritten`, or numbers of a type."""
    if what is None:
        return None
    if isinstance(what, tuple):
        return emulator.tensor(*what)
    count, kind = what.split()
    size = int(count)
    return emulator.unwritten((size,)) if kind == "unwritten" else emulator.tensor([float(i) for i in range(size)])


LANES = "i = tl.arange(0, N)\n"
MATRIX = "i = tl.arange(0, N)\nat = i[:, None] * N + i[None, :]\n"

MISTAKES = [
    Mistake("a load beyond its buffer", LANES + "tl.store(y_ptr + i, tl.load(x_ptr + i))", x="6 floats"),
    Mistake(
        "a mask that lets too much through",
        LANES + "tl.store(y_ptr + i, tl.load(x_ptr + i + 3, mask=i < n, other=0.0))",
        n=7,
    ),
    Mistake("a load before its buffer", LANES + "tl.store(y_ptr + i, tl.load(x_ptr + i - 1))"),
    Mistake("a store beyond its buffer", MATRIX + "tl.store(y_ptr + at, 1.0, mask=i[:, None] < 2)", y="12 floats"),
    Mistake(
        "an offset that wraps around",
        "block = tl.load(x_ptr)\ntl.store(y_ptr + block * n, 1.0)",
        x=([7768], "int32"),
        n=276480,
    ),
    Mistake(
        "a masked load without other",
        LANES + "v = tl.load(x_ptr + i, mask=i < n)\ntl.store(y_ptr + i, v * 0.0)",
        x="6 floats",
        n=6,
    ),
    Mistake(
        "a sum over memory that nobody has written",
        LANES + "v = tl.load(x_ptr + i)\ntl.store(y_ptr, tl.sum(v, 0))",
        x="8 unwritten",
    ),
    Mistake(
        "a branch on memory that nobody has written",
        "v = tl.load(x_ptr)\nif v > 0:\n    tl.store(y_ptr, v)",
        x="8 unwritten",
    ),
    Mistake(
        "a mask of memory that nobody has written",
        LANES + "v = tl.load(x_ptr + i)\ntl.store(y_ptr + i, 1.0, mask=v > 0)",
        x="8 unwritten",
    ),
    Mistake(
        "an address from a masked load",
        LANES + "v = tl.load(x_ptr + i, mask=i < 4)\ntl.store(y_ptr + v, 1.0, mask=i < 5)",
        x=(list(range(8)), "int32"),
    ),
    Mistake(
        "a loop's bound that is not defined",
        "n = tl.load(x_ptr).to(tl.int32)\nfor k in range(n):\n    tl.store(y_ptr + k, 1.0)",
        x="8 unwritten",
    ),
    Mistake(
        "the maximum over a row's hole",
        LANES + "v = tl.load(x_ptr + i, mask=i < n)\ntl.store(y_ptr, tl.max(v, 0))",
        n=5,
    ),
    Mistake(
        "a product with a hole",
        MATRIX + "a = tl.load(x_ptr + at, mask=at < n)\ntl.store(y_ptr + at, tl.dot(a, a))",
        x=([[1.0] * 16] * 16,),
        y=([[1.0] * 16] * 16,),
        n=250,
        numbers={"N": 16},
    ),
    Mistake("a division by zero", LANES + "tl.store(y_ptr + i, n // i)"),
    Mistake("a number that does not fit int8", LANES + "tl.store(y_ptr + i, (tl.load(x_ptr + i) * 100).to(tl.int8))"),
    Mistake("a sum into memory that nobody has written", "tl.atomic_add(y_ptr, 1.0)", y="8 unwritten"),
    Mistake("two programs store to one address", "tl.store(y_ptr + tl.program_id(0) // 2, 1.0)", grid=4),
    Mistake(
        "a program reads what another stores",
        "p = tl.program_id(0)\ntl.store(x_ptr + p, tl.load(x_ptr + (p + 7) % 8))",
        grid=8,
    ),
    Mistake("two elements with one address", LANES + "tl.store(y_ptr + i // 2, 1.0)"),
    Mistake(
        "a product that tensor cores do not take",
        MATRIX + "a = tl.load(x_ptr + at)\ntl.store(y_ptr + at, tl.dot(a, a))",
        x=([[1.0] * 8] * 8,),
        y=([[1.0] * 8] * 8,),
    ),
    Mistake(
        "a product of int8 with a short K",
        MATRIX + "a = tl.load(x_ptr + at)\ntl.store(y_ptr + at, tl.dot(a, a))",
        x=([[1] * 16] * 16, "int8"),
        y=([[1] * 16] * 16, "int32"),
        numbers={"N": 16},
    ),
    Mistake(
        "a product of two types",
        MATRIX + "a = tl.load(x_ptr + at)\ntl.store(y_ptr + at, tl.dot(a, a.to(tl.float16)))",
        x=([[1.0] * 16] * 16,),
        y=([[1.0] * 16] * 16,),
        numbers={"N": 16},
    ),
    Mistake("a size that is no power of two", "tl.store(y_ptr + tl.arange(0, 6), 1.0)"),
    Mistake("a size known at run time only", "tl.store(y_ptr + tl.arange(0, n), 1.0)"),
    Mistake("a size that became a scalar", "half = N // 2\ntl.store(y_ptr + tl.arange(0, half), 1.0)"),
    Mistake("shapes that do not fit", LANES + "v = i[:, None] + tl.arange(0, 4)[:, None]"),
    Mistake("a block decides a branch", LANES + "if i < n:\n    tl.store(y_ptr, 1.0)"),
    Mistake("`and` between masks", LANES + "tl.store(y_ptr + i, 1.0, mask=i < n and i > 0)"),
    Mistake(
        "a product written with `@`", MATRIX + "v = tl.load(x_ptr + at)\ntl.store(y_ptr + at, v @ v.T)", x="64 floats"
    ),
    Mistake("a power written with `**`", LANES + "tl.store(y_ptr + i, 2.0 ** tl.load(x_ptr + i))"),
    Mistake("a square written with `**`", LANES + "tl.store(y_ptr + i, i**2)"),
    Mistake("a mask of integers", LANES + "v = tl.load(x_ptr + i, mask=i, other=0)"),
    Mistake("other without a mask", LANES + "v = tl.load(x_ptr + i, other=0)"),
    Mistake("one pointer, many values", LANES + "tl.store(y_ptr, i)"),
    Mistake("a pointer moved by a float", "v = tl.load(x_ptr + n / 2)"),
    Mistake("a pointer that is None", "v = tl.load(x_ptr)", x=None),
    Mistake("an element of a block", LANES + "v = i[0]"),
    Mistake(
        "a type that changes in a loop",
        "acc = 0\nfor k in range(0, n):\n    acc += tl.load(x_ptr + k)\ntl.store(y_ptr, acc)",
    ),
    Mistake(
        "a type that changes in a while loop",
        "k = 0\nacc = 0\nwhile k < n:\n    acc += 0.5\n    k += 1\ntl.store(y_ptr, acc)",
    ),
    Mistake("a type that changes in a branch", "acc = 0\nif n > 3:\n    acc += 1.5\ntl.store(y_ptr, acc)"),
    Mistake("a name that ends with its loop", "for k in range(0, n):\n    v = tl.load(x_ptr + k)\ntl.store(y_ptr, v)"),
    Mistake("a name given in one branch", "if n > 10:\n    k = 1\ntl.store(y_ptr, k)"),
    Mistake("a name given nowhere", "tl.store(y_ptr, v)"),
    Mistake("a global that is no constexpr", "tl.store(y_ptr, SCALE)", before="SCALE = 2.0\n"),
    Mistake("Python's function", "tl.store(y_ptr, abs(n))"),
    Mistake(
        "a run-time value for a constexpr",
        "size(n)",
        before="@triton.jit\ndef size(N: tl.constexpr):\n    return tl.arange(0, N)\n",
    ),
    Mistake(
        "returns of two types",
        "p = tl.program_id(0)\ntl.store(y_ptr + p, f(p))",
        grid=2,
        before="@triton.jit\ndef f(p):\n    if p == 0:\n        return 1.0\n    return p\n",
    ),
    Mistake("`break`", "for k in range(0, n):\n    if k > 2:\n        break"),
    Mistake("`return` in a loop", "for k in range(0, n):\n    if k > 2:\n        return"),
    Mistake(
        "an exponential of fp16", LANES + "tl.store(y_ptr + i, tl.exp(tl.load(x_ptr + i)))", x=([1.0] * 8, "float16")
    ),
    Mistake("an operation that is not offered", LANES + "tl.store(y_ptr + i, tl.sort(tl.load(x_ptr + i)))"),
    Mistake("a method that is not offered", LANES + "tl.store(y_ptr + i, tl.load(x_ptr + i).histogram(4))"),
    Mistake("a bitcast", "tl.store(y_ptr, n.to(tl.float32, bitcast=True))"),
    Mistake("a decorator that is not offered", "tl.store(y_ptr, 1.0)", before="@triton.autotune(configs=[], key=[])"),
    Mistake("an assertion", 'tl.device_assert(n < 8, "n is too large")'),
    Mistake("a static assertion", 'tl.static_assert(N >= 16, "N is too small")'),
]


def source_of(mistake: Mistake) -> str:
    body = "\n".join("    " + line for line in mistake.body.splitlines())
    return f"{mistake.before}\n@triton.jit\ndef kernel(x_ptr, y_ptr, n, N: tl.constexpr):\n{body}\n"


def report(mistake: Mistake, folder: Path) -> str:
    """Return what the emulator says of a mistake, or that it says nothing."""
    try:
        kernel = runner.load(source_of(mistake), folder).kernel
        kernel[(mistake.grid,)](buffer(mistake.x), buffer(mistake.y), mistake.n, mistake.numbers.get("N", 8))
    except emulator.EmulatorError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def reports() -> Iterator[tuple[str, str]]:
    emulator.install()
    with tempfile.TemporaryDirectory() as folder:
        for number, mistake in enumerate(MISTAKES):
            (own := Path(folder, str(number))).mkdir()
            said = report(mistake, own)
            file = next(own.glob("*.py"))
            yield mistake.title, said.replace(str(file), "kernel.py")
    emulator.uninstall()


def text() -> str:
    return "\n".join(f"# {title}\n{said}\n" for title, said in reports())


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
