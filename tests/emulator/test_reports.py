"""What the emulator says of a mistake, word by word; and that it says nothing of what is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from course import emulator
from tests.emulator import reports, runner


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    emulator.install()
    yield
    emulator.uninstall()


def test_every_mistake_is_told_in_these_words() -> None:
    said = dict(reports.reports())
    assert set(said) == {mistake.title for mistake in reports.MISTAKES}
    assert not [title for title, each in said.items() if each == "nothing"]
    assert "\n".join(f"# {title}\n{each}\n" for title, each in said.items()) == reports.FILE.read_text("utf-8")


RIGHT = {
    "what is masked off may be anything": """
        v = tl.load(x_ptr + i, mask=i < 4)
        tl.store(y_ptr + i, tl.where(i < 4, v, 0.0))
    """,
    "poison may be stored nowhere": """
        v = tl.load(x_ptr + i, mask=i < 4)
        tl.store(y_ptr + i, v, mask=i < 4)
    """,
    "an address that is masked off may be anything": """
        at = tl.load(x_ptr + i, mask=i < 4).to(tl.int32)
        v = tl.load(y_ptr + at, mask=i < 4, other=0.0)
        tl.store(y_ptr + i, v)
    """,
    "addresses beyond the end that are masked off": """
        tl.store(y_ptr + i * 1000, 1.0, mask=i < 1)
    """,
    "a program may store twice to one address": """
        tl.store(y_ptr + i, 1.0)
        tl.store(y_ptr + i, 2.0)
    """,
    "a temporary may have one type in this loop and another in that": """
        for k in range(2):
            v = tl.load(x_ptr + k)
            tl.store(y_ptr + k, v)
        for k in range(2):
            v = k * 2
            tl.store(y_ptr + k, v)
    """,
    "a temporary may have one type in this while loop and another in that": """
        k = 0
        while k < 3:
            v = tl.load(x_ptr + k)
            tl.store(y_ptr + k, v)
            k += 1
        while k < 5:
            v = k * 2
            tl.store(y_ptr + k, v)
            k += 1
    """,
    "a temporary may have one type in this branch and another in that": """
        if n > 3:
            v = tl.load(x_ptr)
            tl.store(y_ptr, v)
        if n > 4:
            v = n
            tl.store(y_ptr, v)
    """,
    "a branch that a constant decides may change a type": """
        v = n
        if N == 8:
            v = v + 0.5
        tl.store(y_ptr, v)
    """,
    "M and N of a product may be small": """
        k = tl.arange(0, 16)
        a = tl.zeros([2, 16], tl.float16) + k[None, :].to(tl.float16)
        c = tl.dot(a, tl.zeros([16, 1], tl.float16))
        tl.store(y_ptr + tl.arange(0, 2)[:, None] + tl.arange(0, 1)[None, :], c)
    """,
    "a division by zero that nobody looks at": """
        q = n // (i - 3)
        tl.store(y_ptr + i, q, mask=i != 3)
    """,
    "a constexpr global": """
        tl.store(y_ptr + i, i * SCALE)
    """,
}


def right_source(name: str) -> str:
    body = "".join(line[4:] + "\n" for line in RIGHT[name].splitlines())
    head = "SCALE = tl.constexpr(2)\n\n@triton.jit\ndef kernel(x_ptr, y_ptr, n, N: tl.constexpr):\n"
    return f"{head}    i = tl.arange(0, N)\n{body}"


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_is_said_of_what_is_right(name: str, tmp_path: Path) -> None:
    runner.load(right_source(name), tmp_path).kernel[(1,)](reports.buffer("8 floats"), reports.buffer("8 floats"), 8, 8)


def run(source: str, folder: Path, *arguments: Any, grid: Any = (1,), **options: Any) -> None:
    runner.load(source, folder).kernel[grid](*arguments, **options)


COPY = """
@triton.jit
def kernel(x_ptr, y_ptr, n, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0), mask=i < n)
"""


def test_bytes_are_counted_as_masks_let_them_through(tmp_path: Path) -> None:
    emulator.traffic()
    x, y = emulator.tensor([1, 2, 3, 4, 5], "float16"), emulator.unwritten((5,), "float32")
    run(COPY, tmp_path, x, y, 5, 4, grid=lambda meta: (-(-meta["n"] // meta["N"]),))
    assert y.tolist() == [1, 2, 3, 4, 5]
    assert emulator.traffic() == {"loaded": 10, "stored": 20}
    assert emulator.traffic() == {"loaded": 0, "stored": 0}


def test_a_block_that_repeats_itself_is_counted_in_full(tmp_path: Path) -> None:
    emulator.traffic()
    source = """
@triton.jit
def kernel(x_ptr, y_ptr):
    i = tl.arange(0, 8)
    v = tl.load(tl.broadcast_to(x_ptr + i[:, None] * 0, 8, 4))
    tl.store(y_ptr + i[:, None] * 4 + tl.arange(0, 4)[None, :], v)
"""
    run(source, tmp_path, reports.buffer("1 floats"), reports.buffer("32 floats"))
    assert emulator.traffic() == {"loaded": 128, "stored": 128}


def test_views_share_what_was_written(tmp_path: Path) -> None:
    memory = emulator.unwritten((4, 4))
    even, odd = (emulator.view(memory, (8,), (2,), offset) for offset in (0, 1))
    assert even.stride() == (2,) and not even.is_contiguous() and len(even) == 8
    source = """
@triton.jit
def kernel(x_ptr, y_ptr, stride):
    i = tl.arange(0, 8)
    tl.store(y_ptr + i * stride, tl.load(x_ptr + i))
"""
    run(source, tmp_path, reports.buffer("8 floats"), even, 2)
    assert even.tolist() == [float(i) for i in range(8)]
    assert memory.tolist()[0][0] == 0.0 and str(memory.tolist()[0][1]) == "nan"
    with pytest.raises(emulator.PoisonStored, match=r"x_ptr \+ 0, which nobody has written"):
        run(source, tmp_path, odd, reports.buffer("8 floats"), 1)


def test_a_view_is_a_buffer_of_its_own(tmp_path: Path) -> None:
    fused = emulator.tensor([float(i) for i in range(12)])
    with pytest.raises(emulator.InvalidAccess, match=r"x_ptr \+ 4: the buffer holds 4 elements, 0 to 3"):
        run(COPY, tmp_path, emulator.view(fused, (4,), (1,), 4), reports.buffer("8 floats"), 8, 8)


def test_what_a_launcher_gets_wrong_is_a_type_error(tmp_path: Path) -> None:
    x = reports.buffer("8 floats")
    kernel = runner.load(COPY, tmp_path).kernel
    for grid, arguments, options, text in (
        ((1,), (x, x, 8), {}, "kernel: missing a required argument: 'N'"),
        (1, (x, x, 8, 8), {}, "a grid is a tuple"),
        ((1, 1, 1, 1), (x, x, 8, 8), {}, "a grid is a tuple"),
        ((1.5,), (x, x, 8, 8), {}, "integers of 0 or more, not 1.5"),
        ((1,), (x, "y", 8, 8), {}, "`y_ptr` gets a str"),
        ((1,), (x, x, 8, 8), {"num_wraps": 4}, "no parameter 'num_wraps'"),
    ):
        with pytest.raises(TypeError, match=text):
            kernel[grid](*arguments, **options)
    with pytest.raises(RuntimeError, match=r"launch it with kernel\[grid\]"):
        kernel(x, x, 8, 8)
    import triton.language as tl

    with pytest.raises(emulator.EmulatorError, match="inside a kernel only"):
        tl.program_id(0)


def test_a_failed_launch_leaves_nothing_behind(tmp_path: Path) -> None:
    x, y = reports.buffer("8 floats"), reports.buffer("6 floats")
    for _ in range(2):
        with pytest.raises(emulator.InvalidAccess):
            run(COPY, tmp_path, x, y, 8, 4, grid=(2,))
    run(COPY, tmp_path, x, y, 6, 4, grid=(2,))
    assert y.tolist() == [0, 1, 2, 3, 4, 5]


def test_products_of_float32_are_taken_in_tf32_unless_told(tmp_path: Path) -> None:
    factor = 1 + 3 * 2.0**-12
    one = [[factor if row == column == 0 else 0.0 for column in range(16)] for row in range(16)]
    source = """
@triton.jit
def kernel(x_ptr, y_ptr, PRECISION: tl.constexpr):
    at = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    a = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.dot(a, a, input_precision=PRECISION))
"""
    for precision, expected in ((None, 1.0019540786743164), ("tf32", 1.0019540786743164), ("ieee", 1.001465380191803)):
        y = emulator.unwritten((16, 16))
        run(source, tmp_path, emulator.tensor(one), y, precision)
        assert y.tolist()[0][0] == pytest.approx(expected, abs=1e-7)


def test_tensors_say_what_is_wrong_with_their_numbers() -> None:
    for values, dtype, text in (
        ([[1, 2], [3]], "float32", "not all of one length"),
        ([1, [2]], "float32", "not all of one length"),
        ([128], "int8", "128 is not an integer of type int8"),
        ([0.5], "int32", "0.5 is not an integer of type int32"),
        ([1], "float8", "no dtype 'float8': choose one of float64, float32"),
    ):
        with pytest.raises(ValueError, match=text):
            emulator.tensor(values, dtype)
    with pytest.raises(ValueError, match="a view from 6 to 9 of a memory of 8 elements"):
        emulator.view(emulator.tensor([0.0] * 8), (4,), (1,), 6)
    with pytest.raises(emulator.NotOffered, match="a tensor's `softmax`"):
        emulator.tensor([1.0]).softmax(0)


def test_installing_puts_back_what_was_there() -> None:
    import sys

    emulator.uninstall()
    before = sys.modules.get("triton")
    emulator.install()
    emulator.install()
    assert sys.modules["triton"] is not before
    emulator.uninstall()
    assert sys.modules.get("triton") is before


def test_a_kernel_keeps_the_source_that_it_was_defined_with() -> None:
    """The judge gives each version of a learner's file the same name."""
    from course.judge.graft import load_source

    head = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef kernel(y_ptr):\n"
    first = load_source(head + "    tl.store(y_ptr, 1.0)\n", "practice/nowhere.py", "practice.nowhere")
    second = load_source(head + "    tl.store(y_ptr, 2.0)\n", "practice/nowhere.py", "practice.nowhere")
    for module, expected in ((first, 1.0), (second, 2.0)):
        y = emulator.unwritten((1,))
        module.kernel[(1,)](y)
        assert y.tolist() == [expected]
    with pytest.raises(emulator.InvalidAccess, match=r"practice/nowhere.py, line 6:\n      tl.store"):
        second.kernel[(1,)](emulator.unwritten((0,)))


def test_a_kernel_without_a_source_is_refused() -> None:
    import triton

    space: dict[str, Any] = {"triton": triton}
    exec("@triton.jit\ndef kernel(y_ptr):\n    pass\n", space)
    with pytest.raises(emulator.WouldNotCompile, match="the source of kernel cannot be found"):
        space["kernel"][(1,)](emulator.unwritten((1,)))
