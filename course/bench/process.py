"""A system in a process of its own, spoken to by lines of JSON on pipes, and never waited for without end."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from course.bench.rounds import Round, SystemFailed
from course.bench.workload import Workload
from course.judge import spawn
from course.judge.pipe import lines_of

WORKERS = Path(__file__).parent / "workers"
ANSWERS_LIMIT = 1 << 32  # bytes that a system may answer in all
TAIL = 2_000  # characters of what it wrote to stderr that are kept


class Absent(Exception):
    """The system is not to be had on this machine; the text says why. That is no failure."""


class Process:
    """One system. `worker` is a file of `workers/`, `python` an interpreter or a folder of packages for this one.

    `round_limit` is how many seconds a round may take; the first of each number of requests may compile, and has
    `load_limit`, as loading has.
    """

    def __init__(
        self,
        name: str,
        worker: str,
        *,
        python: str | None = None,
        environment: dict[str, str] | None = None,
        load_limit: float = 900.0,
        round_limit: float = 300.0,
    ) -> None:
        self.name = name
        self.about: dict[str, Any] = {}
        self._load_limit, self._round_limit = load_limit, round_limit
        self._warm: set[int] = set()  # the numbers of requests that it has run
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (`close` closes it)
        self._where = python or "this interpreter"
        interpreter, given = sys.executable, dict(environment or {})
        if python and os.path.isdir(python):
            given["PYTHONPATH"] = os.pathsep.join(filter(None, (python, os.environ.get("PYTHONPATH"))))
        elif python:
            interpreter = python
        try:
            self._process = subprocess.Popen(
                [interpreter, str(WORKERS / "serve.py"), str(WORKERS / worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env={**os.environ, **given},
                start_new_session=True,  # so that it can be ended with all that it started
            )
        except OSError as error:
            self._stderr.close()
            raise Absent(f"{interpreter} cannot be started: {error.strerror}") from error
        assert self._process.stdout
        self._lines = lines_of(self._process.stdout, ANSWERS_LIMIT)

    def begin_load(self, **settings: Any) -> None:
        """Have the system load; `end_load` waits for it. Several may load at the same time."""
        self._send("load", settings)

    def end_load(self) -> None:
        self.about = self._receive("loading", self._load_limit)

    def run(self, workload: Workload) -> Round:
        limit = self._round_limit if len(workload.prompts) in self._warm else self._load_limit
        self._warm.add(len(workload.prompts))
        return Round(**self.ask("round", limit, prompts=workload.prompts, new_tokens=workload.new_tokens))

    def observe(self, workload: Workload) -> dict[str, Any]:
        """Run the workload once more, watched as no timed round is, and return what was seen."""
        return self.ask("observe", self._load_limit, prompts=workload.prompts, new_tokens=workload.new_tokens)

    def ask(self, task: str, limit: float | None = None, **job: Any) -> dict[str, Any]:
        """Have one method of the system's called, and return its answer."""
        self._send(task, job)
        return self._receive(f"in {task}", limit or self._load_limit)

    def close(self) -> None:
        spawn.kill(self._process)
        for pipe in (self._process.stdin, self._process.stdout, self._stderr):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _send(self, task: str, job: dict[str, Any]) -> None:
        assert self._process.stdin
        with contextlib.suppress(OSError):  # a process that is gone is noticed by whoever listens to it
            self._process.stdin.write(json.dumps({"task": task, **job}).encode() + b"\n")
            self._process.stdin.flush()

    def _receive(self, when: str, limit: float) -> dict[str, Any]:
        line = self._lines.next(limit)
        if line is None:
            raise self._failed(when, f"no answer within {limit:g} s")
        if not line:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
            raise self._failed(when, f"the process ended (status {self._process.poll()})")
        answer = json.loads(line)
        if "absent" in answer:
            why = answer["absent"]
            raise Absent(f"{why}, in {self._where}" if why.startswith("No module") else why)
        if "failed" in answer:
            raise self._failed(when, answer["failed"])
        done: dict[str, Any] = answer["done"]
        return done

    def _failed(self, when: str, why: str) -> SystemFailed:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - TAIL))
        return SystemFailed(self.name, when, why, self._stderr.read().decode("utf-8", "replace"))
