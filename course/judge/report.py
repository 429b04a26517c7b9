"""The report of one run, as a fold over the run's events.

The shape is exercism's `results.json`, version 3, with fields of ours beside it. Because a report is made from events
alone, a run that was killed is reported from the events that had arrived.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from course.judge.exercise import Exercise
from course.judge.views import LOOKS_AT

COMPILES = "compiles"  # stands among the checks when Triton's compiler refuses what passed them all


class Report:
    """Takes events in order (`add`) and gives the report (`as_dict`)."""

    def __init__(self, exercise: Exercise) -> None:
        self._exercise = exercise
        self._checks = {check.name: check for check in exercise.checks}
        self._tests: list[dict[str, Any]] = []
        self._message: str | None = None
        self._interpreter: str | None = None
        self._unfinished = False
        self._finished = False
        self._early_output = ""
        self._compiled: dict[str, Any] | None = None
        self.launches: list[dict[str, Any]] = []  # of kernels, as the emulator tells them

    @classmethod
    def of(cls, exercise: Exercise, events: Iterable[list[Any]]) -> Report:
        report = cls(exercise)
        for event in events:
            report.add(event)
        return report

    def add(self, event: list[Any]) -> None:
        kind, *rest = event
        getattr(self, f"_on_{kind}")(*rest)

    def last_call(self) -> str:
        """Return the call that was made last, for a sentence."""
        calls = self._tests[-1]["calls"] if self._tests else []
        return calls[-1]["call"] if calls else "the check"

    @property
    def status(self) -> str:
        if self._message is not None:
            return "error"
        done = self._finished and all(test["status"] == "pass" for test in self._tests)
        return "pass" if done else "fail"

    def as_dict(self) -> dict[str, Any]:
        failed = self.status != "pass"
        compiled = {} if self._compiled is None else {"compiled": self._compiled}
        return compiled | {
            "version": 3,
            "status": self.status,
            "message": self._message,
            "exercise": self._exercise.id,
            "unfinished": self._unfinished,
            "tests": self._tests,
            "interpreter": self._interpreter,
            "output": self._early_output,
            "next": f"python practice/judge.py {'hint ' + self._exercise.id if failed else 'next'}",
        }

    # One method an event. A run is: broken | check (start (call (return | raise))*)* (pass | fail) …, done; `lost`
    # may come anywhere, `output` too. After `done` may come compiled | refused, where Triton is installed.

    def _on_broken(self, message: str, interpreter: str | None) -> None:
        self._message = message
        self._interpreter = interpreter

    def _on_check(self, name: str) -> None:
        check = self._checks[name]
        self._tests.append(_test(name, check.promise, check.source))

    def _on_start(self) -> None:
        self._tests[-1]["calls"] = []

    def _on_call(self, text: str) -> None:
        self._tests[-1]["calls"].append({"call": text, "returned": None, "raised": None, "state": None})

    def _on_return(self, name: str | None, value: str, state: Any) -> None:
        call = self._tests[-1]["calls"][-1]
        if name is not None:
            call["call"] = f"{name} = {call['call']}"
        call["returned"] = value
        call["state"] = state

    def _on_raise(self, kind: str, state: Any) -> None:
        call = self._tests[-1]["calls"][-1]
        call["raised"] = kind
        call["state"] = state

    def _on_output(self, text: str) -> None:
        if self._tests:
            self._tests[-1]["output"] += text
        else:
            self._early_output += text

    def _on_pass(self) -> None:
        self._tests[-1]["status"] = "pass"

    def _on_fail(self, fields: dict[str, Any]) -> None:
        fields = dict(fields)
        self._unfinished = fields.pop("unfinished", False)
        self._tests[-1].update(fields)
        self._tests[-1]["why"] = fields.get("why") or self._checks[self._tests[-1]["name"]].why

    def _on_done(self) -> None:
        self._finished = True

    def _on_compiled(self, costs: dict[str, Any]) -> None:
        self._compiled = costs

    def _on_refused(self, message: str, words: str) -> None:
        self._tests.append(
            _test(COMPILES, "Triton's compiler takes it.", "") | {"message": message, "interpreter": words}
        )

    def _looks(self) -> str:
        """Say that the call may have ended, and the look at its objects that follows it not."""
        names = [symbol.partition(".")[2] for symbol in LOOKS_AT if symbol in self._exercise.symbols]
        if not names or not self._tests:
            return ""
        return f"\nEach call is followed by a look at {' and '.join(names)}: it may be in one of these."

    def _on_lost(self, reason: str, detail: str) -> None:
        during = f"{self.last_call()}" if self._tests else f"loading {self._exercise.file}"
        message = {
            "timeout": f"{during} did not end within {self._exercise.time_limit:g} s (an endless loop?){self._looks()}",
            "stopped": f"stopped during {during}",
            "exit": f"{during} ended the process itself" + (f" ({detail})" if detail else ""),
            "pipe": f"{during} wrote into the judge's own pipe, or closed it",
        }[reason]
        if self._tests:
            self._on_fail({"message": message})
        else:
            self._on_broken(message, None)


def _test(name: str, promise: str, code: str) -> dict[str, Any]:
    """Return the entry of a check that has begun."""
    return {
        "name": name,
        "status": "fail",  # until it has passed
        "message": None,
        "output": "",
        "test_code": code,
        "promise": promise,
        "why": None,
        "calls": [],
        "expected": None,
        "interpreter": None,
    }
