"""The parent's side of the child that runs an engine: hears its events, and waits no longer than a step may take."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from course.assembly.parts import part_of_module
from course.judge import spawn
from course.judge.pipe import lines_of

CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")
START_LIMIT = 900.0  # seconds of silence while PyTorch and a model are loaded, before any part is at work
GRACE = 5.0  # seconds that the child's own watchdog has to name what hangs, before the parent ends the child
EVENTS_LIMIT = 1 << 30  # bytes that a child may send back
WORDS_LIMIT = 1 << 20

Event = tuple[str, dict[str, Any]]


class Failed(Exception):
    """A part of the engine crashed or hung, or the child is gone. `failure` is a `blame.Failure`'s fields."""

    def __init__(self, failure: dict[str, Any]) -> None:
        super().__init__(failure["what"])
        self.failure = failure


class Refused(Exception):
    """The engine cannot be had as it was asked for; the text says why. No part is at fault."""


class Worker:
    """A child process with one engine in it; `working` lends one.

    `ask` sends a task and yields the events of the answer, the last of which is "done". It raises `Failed` and
    `Refused`; after `Failed` the child is of no more use.
    """

    def __init__(self, process: subprocess.Popen[bytes], step_limit: float) -> None:
        assert process.stdout
        self._process = process
        self._step_limit = step_limit
        self._silence = START_LIMIT
        self._lines = lines_of(process.stdout, EVENTS_LIMIT)
        self._doing: dict[str, Any] = {"when": "at the start", "requests": []}

    def ask(self, task: str, **job: Any) -> Iterator[Event]:
        # The child says at least once a second that it is alive, so silence means that not even its watchdog runs.
        self._silence = START_LIMIT if task in ("look", "assemble") else self._step_limit + GRACE
        self._write({"task": task, "step_limit": self._step_limit, **job})
        while True:
            kind, data = self._receive()
            if kind == "doing":
                self._doing = data
            elif kind == "failed":
                raise Failed(data)
            elif kind == "refused":
                raise Refused(data["why"])
            elif kind != "alive":
                yield kind, data
            if kind == "done":
                return

    def result(self, task: str, **job: Any) -> dict[str, Any]:
        """Ask, and return what "done" brings; the events before it are of no interest."""
        return dict(self.ask(task, **job))["done"]

    def _write(self, job: dict[str, Any]) -> None:
        assert self._process.stdin
        with contextlib.suppress(OSError):  # a child that is gone is noticed by whoever listens to it
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()

    def _receive(self) -> Event:
        line = self._lines.next(self._silence)
        if line is None:
            raise self._gone(f"did not come back within {self._step_limit:g} s (an endless loop?)")
        if not line:
            raise self._gone(f"ended the whole process{self._ending()}")
        try:
            kind, data = json.loads(line)
        except (ValueError, TypeError):
            raise self._gone("wrote into the engine's own pipe") from None
        return kind, data

    def _gone(self, what: str) -> Failed:
        """Return the failure of a child that can no longer say where it was; Python may have written it down."""
        part, place = None, None
        found = re.search(r'File "(practice/(\w+)\.py)", line (\d+) in (\S+)', self._last_words())
        if found:
            part, place = part_of_module(found[2]), f"{found[1]}:{found[3]}"
            what = f"your {found[4]} {what}"
        return Failed({"part": part, "place": place, "what": what, "interpreter": None, **self._doing})

    def _last_words(self) -> str:
        assert self._process.stderr
        self._process.kill()
        lines, words = lines_of(self._process.stderr, WORDS_LIMIT), ""
        while line := lines.next(0.5):
            words += line.decode("utf-8", "replace")
        return words

    def _ending(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        if code is None:
            return ""
        return f" (exit status {code})" if code >= 0 else f" (killed by signal {-code})"


@contextlib.contextmanager
def working(step_limit: float) -> Iterator[Worker]:
    """Lend a worker whose steps may take `step_limit` seconds each; afterwards its process is gone."""
    with spawn.child(CHILD) as process:
        yield Worker(process, step_limit)


def now() -> float:
    """Return the time for intervals, by a clock that is never set back."""
    return time.perf_counter()
