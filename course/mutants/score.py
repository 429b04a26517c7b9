"""Holds the checks against every mutant and says which got away."""

from __future__ import annotations

import concurrent.futures
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from course.judge.exercise import Exercise, load_exercises
from course.judge.process import judge
from course.mutants.catalogue import catalogue, equivalents
from course.mutants.mechanical import mechanical

HANG_LIMIT = 2.0  # seconds; the reference takes a tenth of that


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant: `rejected_by` is the check that failed, None when all passed."""

    exercise: str
    change: str
    rejected_by: str | None
    explained: str | None = None


def judge_catalogue() -> Iterator[tuple[Verdict, str]]:
    """Yield the verdict on every catalogued mutant, with the check that should have rejected it."""
    jobs = [
        (exercise, each.id, each.source, each.check) for exercise in load_exercises() for each in catalogue(exercise)
    ]
    verdicts = _run((exercise, change, source) for exercise, change, source, _ in jobs)
    for verdict, (_, _, _, check) in zip(verdicts, jobs, strict=True):
        yield verdict, check


def judge_mechanical() -> Iterator[Verdict]:
    """Yield the verdict on every mechanical mutant, with the reason where one is known to change nothing."""
    jobs = [(exercise, change, source) for exercise in load_exercises() for change, source in mechanical(exercise)]
    explained = {
        (exercise.id, change): why for exercise in load_exercises() for change, why in equivalents(exercise).items()
    }
    for verdict in _run(jobs):
        reason = explained.get((verdict.exercise, verdict.change))
        yield Verdict(verdict.exercise, verdict.change, verdict.rejected_by, reason)


def _run(jobs: Iterable[tuple[Exercise, str, str]]) -> Iterator[Verdict]:
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(lambda job: _verdict(*job), jobs)


def _verdict(exercise: Exercise, change: str, source: str) -> Verdict:
    report = judge(exercise, source, time_limit=HANG_LIMIT).as_dict()
    if report["status"] == "pass":
        return Verdict(exercise.id, change, None)
    return Verdict(exercise.id, change, report["tests"][-1]["name"] if report["tests"] else "loading")
