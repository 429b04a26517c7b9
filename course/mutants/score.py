"""Holds the checks against every mutant and says which got away."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from course.judge.exercise import Exercise, find_exercise
from course.judge.page import LocalChannel
from course.judge.process import judge
from course.judge.report import Report
from course.judge.run import run_checks
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


def judge_catalogue(exercises: Sequence[Exercise]) -> Iterator[tuple[Verdict, str]]:
    """Yield the verdict on every catalogued mutant, with the check that should have rejected it."""
    jobs = [(exercise, each.id, each.source, each.check) for exercise in exercises for each in catalogue(exercise)]
    verdicts = _run((exercise, change, source) for exercise, change, source, _ in jobs)
    for verdict, (_, _, _, check) in zip(verdicts, jobs, strict=True):
        yield verdict, check


def judge_mechanical(exercises: Sequence[Exercise]) -> Iterator[Verdict]:
    """Yield the verdict on every mechanical mutant, with the reason where one is known to change nothing."""
    jobs = [(exercise, change, source) for exercise in exercises for change, source in mechanical(exercise)]
    explained = {(exercise.id, change): why for exercise in exercises for change, why in equivalents(exercise).items()}
    for verdict in _run(jobs):
        reason = explained.get((verdict.exercise, verdict.change))
        yield Verdict(verdict.exercise, verdict.change, verdict.rejected_by, reason)


def tally(
    exercises: Sequence[Exercise], catalogued: Iterable[Verdict], mechanical: Iterable[Verdict]
) -> dict[str, dict[str, int]]:
    """Count, for each exercise: catalogued mutants, and mechanical ones that were rejected or explained."""
    scores = {exercise.id: {"catalogued": 0, "rejected": 0, "explained": 0} for exercise in exercises}
    for verdict in catalogued:
        scores[verdict.exercise]["catalogued"] += 1
    for verdict in mechanical:
        scores[verdict.exercise]["explained" if verdict.rejected_by is None else "rejected"] += 1
    return scores


def _run(jobs: Iterable[tuple[Exercise, str, str]]) -> Iterator[Verdict]:
    """Judge in child processes; what needs PyTorch in processes of our own, which load it once and not for each job."""
    here = multiprocessing.get_context("fork")
    with (
        concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads,
        concurrent.futures.ProcessPoolExecutor(os.cpu_count(), here) as processes,
    ):
        # All of these processes come to be now: forked later, they would keep open what a thread is handing to a child.
        processes.submit(int).result()
        futures = [
            processes.submit(_verdict_here, exercise.id, change, source)
            if exercise.needs == "torch"
            else threads.submit(_verdict, exercise, change, source)
            for exercise, change, source in jobs
        ]
        for future in futures:
            yield future.result()


def _verdict_here(exercise_id: str, change: str, source: str) -> Verdict:
    """Judge in this process. A mutant that hangs is interrupted, which its check then reports as an error."""
    exercise = find_exercise(exercise_id)
    signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, exercise.time_limit)
    try:
        return _as_verdict(exercise, change, run_checks(exercise, source, LocalChannel()))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _interrupt(*_: object) -> None:
    raise TimeoutError("the answer did not end in time")


def _verdict(exercise: Exercise, change: str, source: str) -> Verdict:
    return _as_verdict(exercise, change, judge(exercise, source, HANG_LIMIT if exercise.needs == "python" else None))


def _as_verdict(exercise: Exercise, change: str, found: Report) -> Verdict:
    report = found.as_dict()
    if report["status"] == "pass":
        return Verdict(exercise.id, change, None)
    return Verdict(exercise.id, change, report["tests"][-1]["name"] if report["tests"] else "loading")
