"""The exercises that need PyTorch, judged on a GPU: the same verdicts as on a CPU.

Each in a process of its own: after an index beyond a tensor, CUDA serves that process no more.
"""

from __future__ import annotations

import pytest

from course.judge.exercise import Exercise, load_exercises
from course.judge.process import judge
from course.judge.stub import reference_source
from course.mutants.catalogue import Mutant, catalogue

pytestmark = pytest.mark.gpu

EXERCISES = [exercise for exercise in load_exercises() if exercise.needs == "torch"]
MUTANTS = [(exercise, mutant) for exercise in EXERCISES for mutant in catalogue(exercise)]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.id)
def test_the_reference_passes(exercise: Exercise) -> None:
    report = judge(exercise, reference_source(exercise.module), executor="gpu").as_dict()
    assert report["status"] == "pass", report["tests"][-1]


@pytest.mark.parametrize(("exercise", "mutant"), MUTANTS, ids=[f"{each.id}-{mutant.id}" for each, mutant in MUTANTS])
def test_a_mistake_is_rejected_by_its_check(exercise: Exercise, mutant: Mutant) -> None:
    report = judge(exercise, mutant.source, executor="gpu").as_dict()
    assert report["status"] != "pass"
    assert report["tests"][-1]["name"] == mutant.check
