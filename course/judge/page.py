"""The judge inside a browser page, where checks and answer share one interpreter.

There the expected values lie within the answer's reach, so a verdict of the page is advice; the command line's is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from course.judge import run
from course.judge.agent import Agent
from course.judge.exercise import find_exercise
from course.judge.report import Report


class LocalChannel:
    """Asks an agent in this interpreter. Requests and replies are JSON data here too, but need not become text."""

    def __init__(self) -> None:
        self.on_output: Callable[[str], None] = lambda text: None
        self._agent = Agent(lambda text: self.on_output(text))

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._agent.handle(request)


def prepare(exercise_id: str) -> None:
    """Import all that a check of the exercise will, so that no run pays for it."""
    exercise = find_exercise(exercise_id)
    run.prepare(exercise, LocalChannel())
    _ = exercise.checks


def check(exercise_id: str, source: str, post: Callable[[str], object]) -> str:
    """Judge `source` and return the report as JSON.

    `post` is given JSON arrays of events, the last one before each call, so that whoever listens knows where a run that
    never returns has got to.
    """
    pending: list[list[Any]] = []

    def listen(event: list[Any]) -> None:
        pending.append(event)
        if event[0] in ("call", "output"):
            post(json.dumps(pending))
            pending.clear()

    report = run.run_checks(find_exercise(exercise_id), source, LocalChannel(), listen)
    return json.dumps(report.as_dict())


def lost(exercise_id: str, events: str, reason: str) -> str:
    """Return the report of a run that was killed: `events` is the JSON list of what was posted."""
    report = Report.of(find_exercise(exercise_id), (event for batch in json.loads(events) for event in batch))
    report.add(["lost", reason, ""])
    return json.dumps(report.as_dict())
