"""Where Triton is installed, an answer's kernels are compiled for a GPU that need not be here."""

from __future__ import annotations

import io
from typing import Any

import pytest

from course import emulator
from course.judge.console import compiled
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import full_verdict
from course.judge.exercise import Exercise, load_exercises
from course.judge.report import Report
from tests.emulator.batches import SOLUTIONS, load, make_batch
from tests.engine.planting import planted_source

pytestmark = pytest.mark.skipif(not compiled.can_compile(), reason="needs Triton")
SYMBOLS = ("decode_kernel", "prefill_kernel", "paged_attention")


@pytest.fixture(scope="module")
def launches() -> list[dict[str, Any]]:
    attention, writer = (load(SOLUTIONS / f"triton_{name}.py") for name in ("attention", "slot_write"))
    batch = make_batch(writer, [9, 20], [1, 1], dtype="float16")
    emulator.launches()
    batch.run(attention)
    emulator.uninstall()
    return [launch | {"module": "practice.triton_attention"} for launch in emulator.launches()]


def compile_with(changes: Any, launches: Any, **options: Any) -> list[dict[str, Any]]:
    source = planted_source("triton_attention", changes)
    return compiled.compile_launches("triton_attention", SYMBOLS, source, launches, **options)


def test_the_reference_compiles_and_its_cost_is_told(launches: list[dict[str, Any]]) -> None:
    (reply,) = compile_with([], launches)
    assert reply["kernel"] == "decode_kernel" and "fp16" in reply["types"]
    assert 16 < reply["registers"] <= 255 and reply["spilled"] == 0 and reply["shared"] > 0
    (line, place) = compiled.lines_of({"arch": 90, "seconds": 1.25, "kernels": [reply, reply]})
    assert line.startswith("`decode_kernel` (fp16): ") and line.endswith("nothing spilled")
    assert "compute capability 9.0" in place


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("tl.arange(0, TILE) < context_len", "tl.arange(0, TILE + 1) < context_len"), "power of 2"),
        (("total = tl.zeros([HEADS], tl.float32)", "total = tl.zeros([HEADS], tl.float16)"), "total"),
        (("keys.T, input_precision", "keys, input_precision"), "equal reduction dimensions"),
        (
            ("lane = tl.arange(0, HEADS)[:, None]", "lane = tl.arange(0, HEADS)[:, None] + nothing"),
            "nothing is not defined",
        ),
    ],
)
def test_what_does_not_compile_is_refused_in_the_compilers_words(
    launches: list[dict[str, Any]], change: tuple[str, str], words: str
) -> None:
    (reply,) = compile_with([change], launches)
    assert words in reply["error"], reply["error"]


def test_too_much_shared_memory_is_refused(launches: list[dict[str, Any]]) -> None:
    hungry = [launch | {"constants": launch["constants"] | {"TILE": 1024}} for launch in launches]
    (reply,) = compile_with([], hungry)
    assert "of shared memory, and a GPU of compute capability 9.0 has 227 KB" in reply["error"]


def test_a_compiler_that_takes_too_long_is_ended(launches: list[dict[str, Any]]) -> None:
    (reply,) = compile_with([], launches, time_limit=0.01)
    assert reply["error"] == "it did not come to an end in 0.01 s"


def test_an_answer_that_leaves_the_process_is_told(launches: list[dict[str, Any]]) -> None:
    (reply,) = compile_with([("import triton\n", "import triton\nimport os\nos._exit(3)\n")], launches)
    assert reply["error"] == "the compiler ended early: exit status 3"


def test_launches_that_differ_in_alignment_only_are_compiled_once(launches: list[dict[str, Any]]) -> None:
    (launch,) = launches
    assert len(compile_with([], [launch, launch | {"aligned": []}])) == 1
    assert compile_with([], [launch | {"module": "beside"}]) == []
    assert compile_with([], []) == []


def plain_terminal() -> Terminal:
    return Terminal(io.StringIO(), color=False, unicode=True, width=120)


def judged(launches: list[dict[str, Any]]) -> tuple[Exercise, Report]:
    """Return a report of checks that all passed, after these launches."""
    exercise = load_exercises()[0]
    events = [event for check in exercise.checks for event in (["check", check.name], ["pass"])]
    report = Report.of(exercise, [*events, ["done"]])
    report.launches = launches
    return exercise, report


COST = {"kernel": "decode_kernel", "types": ["fp16", "i32"], "registers": 72, "spilled": 8, "shared": 19968}


def test_a_verdict_tells_what_the_kernels_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "compile_launches", lambda *given: [COST])
    exercise, report = judged([{"kernel": "decode_kernel"}])
    compiled.add_to(report, exercise, "source")
    told = report.as_dict()
    assert told["status"] == "pass" and told["compiled"]["kernels"] == [COST]
    text = "\n".join(full_verdict(plain_terminal(), exercise, told, 0.5, "practice/x.py:1"))
    assert "compiled  `decode_kernel` (fp16): 72 registers, 19.5 KB of shared memory, 8 bytes spilled\n" in text


def test_a_refusal_makes_the_answer_red(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"kernel": "decode_kernel", "types": ["fp16"], "error": "at 3:4:\narange's range must be a power of 2"}
    monkeypatch.setattr(compiled, "compile_launches", lambda *given: [COST, refused])
    exercise, report = judged([{"kernel": "decode_kernel"}])
    compiled.add_to(report, exercise, "source")
    told = report.as_dict()
    assert told["status"] == "fail" and "compiled" not in told
    text = "\n".join(full_verdict(plain_terminal(), exercise, told, 0.5, "practice/x.py:1"))
    assert "Triton's compiler refuses `decode_kernel` (fp16) for a GPU of compute capability 9.0" in text
    assert "arange's range must be a power of 2" in text


def test_nothing_is_compiled_for_a_red_answer_or_without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "compile_launches", lambda *given: pytest.fail("compiled"))
    exercise, report = judged([])
    compiled.add_to(report, exercise, "source")
    assert report.as_dict()["status"] == "pass"
    red = Report.of(exercise, [["check", exercise.checks[0].name], ["fail", {"message": "no"}]])
    red.launches = [{"kernel": "decode_kernel"}]
    compiled.add_to(red, exercise, "source")
    monkeypatch.setattr(compiled, "can_compile", lambda: False)
    exercise, report = judged([{"kernel": "decode_kernel"}])
    compiled.add_to(report, exercise, "source")
    assert "compiled" not in report.as_dict()
