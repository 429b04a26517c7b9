"""What checks can do with tensors: the same functions whatever the tensors are made of."""

from __future__ import annotations

import math
from typing import Any

import pytest

from course import emulator
from course.judge import executors
from course.judge.exercise import find_exercise
from course.judge.page import LocalChannel
from course.judge.process import judge
from course.judge.run import run_checks
from course.judge.stub import reference_source


@pytest.fixture(params=["torch"])
def executor(request: pytest.FixtureRequest) -> dict[str, Any]:
    return executors.load(request.param)


def test_a_tensor_reads_as_it_was_made(executor: dict[str, Any]) -> None:
    made = executor["tensor"]([[1.0, 2.0], [3.0, 4.0]], "float16")
    assert tuple(made.shape) == (2, 2)
    assert (made.stride(), made.element_size()) == ((2, 1), 2)
    assert executor["read"](made) == [[1.0, 2.0], [3.0, 4.0]]


def test_a_view_looks_at_the_same_memory(executor: dict[str, Any]) -> None:
    made = executor["tensor"](list(range(12)), "int32")
    rows = executor["view"](made, (3, 2), (4, 1), 2)
    assert executor["read"](rows) == [[2, 3], [6, 7], [10, 11]]
    assert executor["read"](executor["view"](rows, (2,), (1,), 4)) == [6, 7]


def test_unwritten_memory_is_of_no_use(executor: dict[str, Any]) -> None:
    assert all(math.isnan(each) for each in executor["read"](executor["unwritten"]((3,), "float32")))


def test_a_tensor_may_have_places_that_nobody_has_written(executor: dict[str, Any]) -> None:
    made = executor["tensor"]([[1.0, None], [None, 4.0]], "float16")
    emulated = emulator.tensor([[1.0, None], [None, 4.0]], "float16")
    assert str(executor["read"](made)) == str(emulated.tolist()) == "[[1.0, nan], [nan, 4.0]]"
    assert executor["read"](executor["tensor"]([None, 7], "int8")) == [-128, 7]
    assert emulator.tensor([None, 7], "int8").tolist() == [None, 7]


def test_what_the_machine_lacks_is_said() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(executors.NotAvailable, match="it needs a GPU, and PyTorch finds none here"):
        judge(find_exercise("kv-bytes"), reference_source("utilization"), executor="gpu")


def test_a_pytorch_answer_is_judged_in_a_child_process_and_here_alike() -> None:
    """No exercise of the first chapters has tensors: this one is made of the reference's attention."""
    exercise = find_exercise("kv-bytes")._replace(
        needs="torch", module="attention", symbols=("paged_attention",), uses=(), time_limit=30.0
    )
    source = reference_source("attention")
    for report in (judge(exercise, source), run_checks(exercise, source, LocalChannel())):
        # The file loads, and the checks of another exercise find nothing of theirs in it.
        assert report.as_dict()["message"] is None
        assert "KeyError" in (report.as_dict()["tests"][0]["interpreter"] or "")


def test_a_traceback_shows_the_answer_and_not_the_emulator() -> None:
    source = reference_source("triton_attention")
    wrong = source.replace(
        "mask=valid[:, None] & (dim < HEAD_DIM), other=0.0)", "mask=dim < HEAD_DIM + 10**6, other=0.0)"
    )
    assert wrong != source
    exercise = find_exercise("int8-attention")
    for report in (judge(exercise, wrong, executor="emulator"), run_checks(exercise, wrong, LocalChannel())):
        shown = next(test["interpreter"] for test in report.as_dict()["tests"] if test["interpreter"])
        assert "triton_attention.py" in shown
        assert "in decode_kernel" in shown
        assert "course/emulator/" not in shown.replace("\\", "/")
