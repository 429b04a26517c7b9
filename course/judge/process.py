"""The judge's side of the child process: asks, waits no longer than allowed, and always gets rid of the child."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from course.judge import spawn
from course.judge.exercise import Exercise
from course.judge.pipe import lines_of
from course.judge.remote import Lost
from course.judge.report import Report
from course.judge.run import run_checks
from course.judge.spawn import StartError

START_LIMIT = 30.0  # seconds for the child's interpreter to come up; the exercise's own limit starts after that
MEMORY_LIMIT = 1 << 30  # bytes of address space for exercises that need Python alone
COMPILES = ("gpu", "interpreter")  # executors that need far longer than the emulator, for which limits are set
COMPILE_LIMIT = 120.0  # seconds; Triton compiles a kernel for each shape
REPLY_LIMIT = 64 << 20  # bytes that one run may send back, a multiple of what any right answer does
PIPE_ROOM = 4096  # bytes that an empty pipe takes at once on every system


class ProcessChannel:
    """Asks an agent in a child process.

    All requests together may take `time_limit` seconds, but for "prepare", in which nothing of the learner's runs.
    """

    def __init__(self, process: subprocess.Popen[bytes], time_limit: float, memory_limit: int) -> None:
        self.on_output: Callable[[str], None] = lambda text: None
        assert process.stdout
        self._process = process
        self._lines = lines_of(process.stdout, REPLY_LIMIT)
        self._deadline = time.monotonic() + START_LIMIT
        self._write(b"%d\n" % memory_limit)
        try:
            self._receive("ready")
        except Lost as lost:
            raise StartError(self._start_text(lost)) from None
        self._time_limit = time_limit
        self._deadline = time.monotonic() + time_limit

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        if request["do"] != "prepare":
            return self._ask(request)
        self._deadline = time.monotonic() + START_LIMIT
        try:
            return self._ask(request)
        except Lost as lost:
            raise StartError(self._start_text(lost)) from None
        finally:
            self._deadline = time.monotonic() + self._time_limit

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        line = json.dumps(request).encode() + b"\n"
        if len(line) > PIPE_ROOM:
            # A child that was stopped (SIGSTOP) reads nothing, and a write that does not fit would wait for it.
            threading.Thread(target=self._write, args=(line,), daemon=True).start()
        elif not self._write(line):
            raise self._ended()
        reply: dict[str, Any] = self._receive("reply")
        return reply

    def _write(self, line: bytes) -> bool:
        assert self._process.stdin
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except OSError:
            return False
        return True

    def _receive(self, wanted: str) -> Any:
        while True:
            left = self._deadline - time.monotonic()
            line = self._lines.next(max(left, 0.001))
            if line is None:
                raise Lost("timeout")
            if not line:
                raise self._ended()
            if left <= 0:
                raise Lost("timeout")
            try:
                kind, data = json.loads(line)
            except (ValueError, TypeError):
                raise Lost("pipe") from None
            if kind == wanted:
                return data
            if kind == "output":
                self.on_output(data)

    def _ended(self) -> Lost:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0.5)
        code = self._process.poll()
        if code is None:
            return Lost("pipe")
        if code < 0:
            with contextlib.suppress(ValueError):
                return Lost("exit", f"killed by {signal.Signals(-code).name}")
        return Lost("exit", f"exit status {code}" if code < 256 else f"exit status {code:#x}")

    def _start_text(self, lost: Lost) -> str:
        if lost.reason == "timeout":
            return f"{sys.executable} did not come up within {START_LIMIT:g} s"
        assert self._process.stderr
        words = self._process.stderr.read(2000).decode("utf-8", "replace").strip()
        return f"{sys.executable} came to an end at once ({lost.detail or lost.reason})\n{words}".rstrip()


def judge(exercise: Exercise, source: str, time_limit: float | None = None, executor: str | None = None) -> Report:
    """Run an exercise's checks against `source` in a child process and return the report.

    `StartError` when there could be no child, `NotAvailable` when the machine lacks what the executor needs.
    """
    if time_limit is None and executor in COMPILES:
        time_limit = max(exercise.time_limit, COMPILE_LIMIT)
    if time_limit is not None:
        exercise = exercise._replace(time_limit=time_limit)
    with spawn.child() as process:
        needs_python_alone = exercise.runs_in_page and executor in (None, "emulator")
        channel = ProcessChannel(process, exercise.time_limit, MEMORY_LIMIT if needs_python_alone else 0)
        report = run_checks(exercise, source, channel, executor=executor)
        if report.status == "pass" and exercise.needs == "triton" and executor in (None, "emulator"):
            with contextlib.suppress(Lost):
                report.launches = channel.ask({"do": "launches"})["value"]
        return report
