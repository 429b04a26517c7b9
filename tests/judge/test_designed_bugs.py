"""The exercises that hand out a file which is whole and wrong."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import pytest

from course.judge import executors, graft, paged
from course.judge.exercise import Exercise, find_exercise, load_exercises
from course.judge.process import judge
from course.judge.stub import exercise_solution, exercise_stub, reference_source, stub_source
from tests.judge.learner import LIMIT, Learner

BUGS = [exercise for exercise in load_exercises() if exercise.is_bug]
EACH = pytest.mark.parametrize("exercise", BUGS, ids=lambda exercise: exercise.id)


class Local:
    """The `solution` of a check, made of a module in this process."""

    def __init__(self, exercise: Exercise, name: str) -> None:
        functions = executors.load("emulator")
        module = graft.load_file(str(exercise.folder / f"{name}.py"), f"designed_bug_{name}")
        self._namespace = {**vars(module), **functions}

    def __getattr__(self, name: str) -> Any:
        function = self._namespace[name]
        return lambda *args, as_="", **kwargs: function(*args, **kwargs)


def row(numbers: list[float]) -> list[str]:
    return [f"{number:.4f}" for number in numbers]


def test_they_are_there() -> None:
    assert [exercise.id for exercise in BUGS] == ["find-strides", "find-mask"]


@EACH
def test_a_line_or_two_mend_it(exercise: Exercise) -> None:
    broken, fixed = exercise_stub(exercise.id), exercise_solution(exercise.id)
    changed = [line for line in difflib.ndiff(broken.splitlines(), fixed.splitlines()) if line[0] == "+"]
    assert 1 <= len(changed) <= 2
    assert (stub_source(exercise.module), reference_source(exercise.module)) == (broken, fixed)


def test_the_report_of_the_strides_is_what_the_broken_file_gives() -> None:
    exercise = find_exercise("find-strides")
    printed = {line.split()[0]: line.split()[1:] for line in exercise.task.splitlines() if re.match(r" +\d", line)}
    for context_len in (1, 11):
        case = paged.make_case([context_len], [1], num_heads=4, num_kv_heads=4)
        out = paged.run(Local(exercise, "broken"), case, used_before=True)
        assert printed[str(context_len)] == row(paged.head_errors(out, paged.right(case)))


def test_the_report_of_the_mask_is_what_the_broken_file_gives() -> None:
    exercise = find_exercise("find-mask")
    printed = [line for line in exercise.task.splitlines() if re.search(r"\d\.\d{4}", line)]
    for line, (context_len, query_len) in zip(printed, ((5, 5), (7, 2), (11, 1), (1, 1)), strict=False):
        case = paged.make_case([context_len], [query_len])
        out, wanted = paged.run(Local(exercise, "broken"), case), paged.right(case)
        assert re.findall(r"\d\.\d{4}", line) == row(paged.head_errors(out, wanted))
        differ = [
            str(position) for _, position, at in case.places() if paged.head_errors([out[at]], [wanted[at]])[0] > 1e-4
        ]
        assert line.endswith(f"  {', '.join(differ) or 'none'}")
        if (context_len, query_len) == (11, 1):
            seen, first = ([f"{number:.4f}" for number in each[:4]] for each in (out[0][0], case.values[0][0][0]))
            assert seen == first
            assert [re.findall(r"-?\d\.\d{4}", each) for each in printed[4:]] == [seen, first]


def test_it_may_be_mended_anywhere() -> None:
    """Two swaps undo each other: the kernel may take the strides in the order in which they come."""
    exercise = find_exercise("find-strides")
    swapped = exercise_stub(exercise.id).replace(
        "position % BLOCK_SIZE * slot_stride + kv_head * head_stride",
        "position % BLOCK_SIZE * head_stride + kv_head * slot_stride",
    )
    assert judge(exercise, swapped).as_dict()["status"] == "pass"


def test_the_other_bug_by_name() -> None:
    """An answer that leaves a function out is told so."""
    exercise = find_exercise("find-mask")
    report = judge(exercise, exercise_solution(exercise.id).replace("def paged_attention", "def attention")).as_dict()
    assert report["message"] == "practice/find_mask.py has no paged_attention: was it renamed or deleted?"


@pytest.fixture
def learner(tmp_path: Path) -> Learner:
    return Learner(tmp_path)


@EACH
def test_the_command_line_knows_it(learner: Learner, exercise: Exercise) -> None:
    broken, fixed = exercise_stub(exercise.id), exercise_solution(exercise.id)
    assert learner.read(exercise.module) == broken
    red = learner.run("check", exercise.id, *LIMIT)
    assert red.returncode == 1 and "the largest errors are head 0" in red.stdout
    learner.write(exercise.module, fixed)
    assert learner.run("check", exercise.id, *LIMIT).returncode == 0
    shown = learner.run("diff", exercise.id)
    assert shown.returncode == 0 and "the same" in shown.stdout
    assert learner.run("reset", exercise.id).returncode == 0
    assert learner.read(exercise.module) == broken
    shown = learner.run("diff", exercise.id, "--give-up")
    (line, *_) = [line for line in fixed.splitlines() if line not in broken.splitlines()]
    assert f"+ {line}" in shown.stdout
    assert exercise.hints[0].split(".")[0].split()[0] in learner.run("hint", exercise.id).stdout
