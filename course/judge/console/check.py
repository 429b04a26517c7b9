"""`check`: judges answers and says what was found, in words or as JSON."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from course.judge import spawn
from course.judge.console.answers import Answer, is_started, place_to_write, read_answer
from course.judge.console.invocation import command
from course.judge.console.progress import Progress
from course.judge.console.prose import sentence
from course.judge.console.standing import judge_answer
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import command_of, full_verdict, headline, next_row
from course.judge.executors import NotAvailable
from course.judge.exercise import Exercise


def check_one(
    terminal: Terminal, progress: Progress, exercise: Exercise, executor: str | None = None, *, as_json: bool = False
) -> int:
    """Judge one exercise."""
    answer = read_answer(exercise.module)
    report, seconds = _judge(exercise, answer, progress, executor)
    if as_json:
        _print_json(terminal, report)
    else:
        lines = full_verdict(terminal, exercise, report, seconds, _place(exercise, answer))
        if report["status"] == "pass":
            lines += [*next_row(terminal, command_of(report)), ""]
        terminal.write(["", *lines])
    return _exit_code([report])


def check_started(
    terminal: Terminal,
    progress: Progress,
    exercises: Sequence[Exercise],
    executor: str | None = None,
    *,
    as_json: bool = False,
) -> int:
    """Judge every exercise that is started: a line each, and everything about the first that is not right.

    Those that this machine cannot judge are named and left out.
    """
    answers = {module: read_answer(module) for module in {exercise.module for exercise in exercises}}
    started = [exercise for exercise in exercises if is_started(exercise, answers[exercise.module])]
    if as_json:
        reports = []
        for exercise in started:
            with contextlib.suppress(NotAvailable):
                reports.append(_judge(exercise, answers[exercise.module], progress, executor)[0])
        _print_json(terminal, reports)
        return _exit_code(reports)
    if not started:
        terminal.write(
            [
                "",
                *sentence(terminal, "Nothing to check: no exercise is started yet."),
                "",
                *next_row(terminal, command("next")),
                "",
            ]
        )
        return 1
    if len(started) == 1:
        terminal.write(["", *sentence(terminal, f"Checking {started[0].id}, the one exercise that you have started.")])
        return check_one(terminal, progress, started[0], executor)
    opening = f"Checking the {len(started)} exercises that you have started, of {len(exercises)}:"
    terminal.write(["", *sentence(terminal, opening)])
    reports = []
    first_failure: list[str] = []
    spawn.start_ahead()
    for exercise in started:
        if exercise is not started[-1]:
            spawn.start_ahead()  # the next one's child comes up while this one is judged
        try:
            report, seconds = _judge(exercise, answers[exercise.module], progress, executor)
        except NotAvailable as error:
            terminal.write(f"  {line}" for line in sentence(terminal, str(error)))
            continue
        reports.append(report)
        terminal.write(f"  {line}" for line in headline(terminal, exercise, report, seconds))
        if report["status"] != "pass" and not first_failure:
            place = _place(exercise, answers[exercise.module])
            first_failure = full_verdict(terminal, exercise, report, seconds, place)
    terminal.write(["", *(first_failure or [*next_row(terminal, command("next")), ""])])
    return _exit_code(reports)


def _judge(
    exercise: Exercise, answer: Answer, progress: Progress, executor: str | None
) -> tuple[dict[str, Any], float]:
    start = time.perf_counter()
    report = judge_answer(exercise, answer, progress, executor, compiling=True)
    compiling = report.get("compiled", {}).get("seconds", 0.0)
    return report, time.perf_counter() - start - compiling


def _place(exercise: Exercise, answer: Answer) -> str:
    return f"{exercise.file}:{place_to_write(exercise, answer)[0]}"


def _exit_code(reports: list[dict[str, Any]]) -> int:
    return 0 if reports and all(report["status"] == "pass" for report in reports) else 1


def _print_json(terminal: Terminal, data: object) -> None:
    import json

    terminal.write([json.dumps(data, indent=2)])
