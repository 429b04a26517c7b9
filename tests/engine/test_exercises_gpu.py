"""The Triton exercises under Triton itself: the references pass, and the catalogued mistakes are rejected.

What Triton's interpreter cannot show is listed, with the reason; the course's emulator rejects all of it
(`tests/judge/test_exercises.py`), and a GPU all but the second list. Run on a GPU:
`python -m pytest -m gpu tests/engine/test_exercises_gpu.py`.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch

from course.judge.exercise import Exercise, load_exercises
from course.judge.page import LocalChannel
from course.judge.process import judge
from course.judge.run import run_checks
from course.judge.stub import exercise_stub, reference_source
from course.mutants.catalogue import Mutant, catalogue

EXERCISES = [exercise for exercise in load_exercises() if exercise.needs == "triton"]
MUTANTS = [(exercise, mutant) for exercise in EXERCISES for mutant in catalogue(exercise)]
ANSWERS = [
    (exercise, path)
    for exercise in EXERCISES
    for path in sorted((Path(__file__).parents[1] / "judge" / "answers" / exercise.module).glob("*.py"))
]

FILLED = "masked lanes of a load without `other` are 0 in the interpreter, and often on a GPU"
EXACT = "the interpreter multiplies float32 exactly"
BEYOND = "what is read beyond the table is not used, and on most days it may be read"
COUNTED = "bytes are counted by the emulator alone"
RACE = "which of two programs stores last is chance: the interpreter runs them in order"
SMALL = "the interpreter multiplies over 8 keys, which the compiler refuses"
BEFORE = "slot -1 is an address before the cache, and what lies there is chance"
SHOWN_BY_CHANCE = {
    ("triton-decode", "table-read-to-the-tile's-end"): BEYOND,
    ("triton-decode", "TK03"): FILLED,
    ("triton-decode", "writes-where-there-is-no-row"): RACE,
    ("triton-decode", "one-load-a-query-head"): COUNTED,
    ("triton-paged-attention", "TK03"): FILLED,
    ("triton-paged-attention", "TK11"): RACE,
    ("triton-paged-attention", "no-early-return"): COUNTED,
    ("int8-attention", "a-scale-for-every-number"): COUNTED,
}
INTERPRETER = SHOWN_BY_CHANCE | {
    ("triton-decode", "TK14"): EXACT,
    ("triton-decode", "TK14-scores"): EXACT,
    ("triton-paged-attention", "TK14"): EXACT,
    ("triton-paged-attention", "TK23"): SMALL,
}
GPU = SHOWN_BY_CHANCE | {("triton-slot-write", "padding-wraps-around"): BEFORE}
LIMIT = 300.0  # seconds: a GPU's compiler takes its time, once for each shape


def _id(value: object) -> str | None:
    if isinstance(value, Exercise | Mutant):
        return value.id
    return value.stem if isinstance(value, Path) else None


def under_the_interpreter(exercise: Exercise, source: str) -> str | None:
    """Return the check that rejects `source`; None when all pass.

    In a fork of this process, which has Triton: the interpreter reads any address that it is told, and may die of it.
    """
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_send_verdict, args=(exercise, source, there))
    child.start()
    there.close()
    try:
        verdict: str | None = here.recv()
    except EOFError:
        verdict = "the process died"
    child.join()
    return verdict


def _send_verdict(exercise: Exercise, source: str, pipe: Connection) -> None:
    faulthandler.disable()  # dying is an answer here, not news
    report = run_checks(exercise, source, LocalChannel(), executor="interpreter").as_dict()
    pipe.send(None if report["status"] == "pass" else report["tests"][-1]["name"])


def on_the_gpu(exercise: Exercise, source: str) -> str | None:
    """The same on a GPU, in a process of its own: a wrong address may end it."""
    report = judge(exercise._replace(time_limit=LIMIT), source, executor="gpu").as_dict()
    assert report["message"] is None or report["tests"], report["message"]
    return None if report["status"] == "pass" else report["tests"][-1]["name"]


interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="Triton compiles here")
each_exercise = pytest.mark.parametrize("exercise", EXERCISES, ids=_id)
each_mutant = pytest.mark.parametrize(("exercise", "mutant"), MUTANTS, ids=_id)
each_answer = pytest.mark.parametrize(("exercise", "path"), ANSWERS, ids=_id)


def test_the_lists_name_mutants() -> None:
    there = {(exercise.id, mutant.id) for exercise, mutant in MUTANTS}
    assert {*INTERPRETER, *GPU} <= there


@interpreted
@each_exercise
def test_the_reference_passes_in_the_interpreter(exercise: Exercise) -> None:
    assert under_the_interpreter(exercise, reference_source(exercise.module)) is None
    assert under_the_interpreter(exercise, exercise_stub(exercise.id)) == exercise.checks[0].name


@interpreted
@each_mutant
def test_the_interpreter_rejects(exercise: Exercise, mutant: Mutant) -> None:
    rejected = under_the_interpreter(exercise, mutant.source) is not None
    assert rejected is ((exercise.id, mutant.id) not in INTERPRETER)


@interpreted
@each_answer
def test_another_answer_passes_in_the_interpreter(exercise: Exercise, path: Path) -> None:
    assert under_the_interpreter(exercise, path.read_text("utf-8")) is None


@pytest.mark.gpu
@each_exercise
def test_the_reference_passes_on_a_gpu(exercise: Exercise) -> None:
    assert on_the_gpu(exercise, reference_source(exercise.module)) is None


@pytest.mark.gpu
@each_answer
def test_another_answer_passes_on_a_gpu(exercise: Exercise, path: Path) -> None:
    assert on_the_gpu(exercise, path.read_text("utf-8")) is None


@pytest.mark.gpu
@each_mutant
def test_a_gpu_rejects(exercise: Exercise, mutant: Mutant) -> None:
    if (exercise.id, mutant.id) in GPU:
        pytest.skip(GPU[exercise.id, mutant.id])
    assert on_the_gpu(exercise, mutant.source) is not None
