"""The judge's side of the child process: asks, waits no longer than allowed, and always gets rid of the child."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from course.judge.exercise import Exercise
from course.judge.remote import Lost
from course.judge.report import Report
from course.judge.run import run_checks

START_LIMIT = 60.0  # seconds for the child's interpreter to come up; the exercise's own limit starts after that
MEMORY_LIMIT = 1 << 30  # bytes of address space for exercises that need Python alone


class ProcessChannel:
    """Asks an agent in a child process. All requests together may take `time_limit` seconds."""

    def __init__(self, process: subprocess.Popen[bytes], time_limit: float) -> None:
        self.on_output: Callable[[str], None] = lambda text: None
        self._process = process
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        # A thread reads, because waiting on a pipe with a limit is not portable.
        threading.Thread(target=self._read, daemon=True).start()
        self._deadline = time.monotonic() + START_LIMIT
        self._receive("ready")
        self._deadline = time.monotonic() + time_limit

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise Lost("exit", self._exit_text()) from None
        reply: dict[str, Any] = self._receive("reply")
        return reply

    def _receive(self, wanted: str) -> Any:
        while True:
            try:
                line = self._lines.get(timeout=max(self._deadline - time.monotonic(), 0.001))
            except Empty:
                raise Lost("timeout") from None
            if not line:
                raise Lost("exit", self._exit_text())
            kind, data = json.loads(line)
            if kind == wanted:
                return data
            self.on_output(data)

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _exit_text(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        code = self._process.poll()
        if code is None:
            return "it closed the judge's pipe"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"killed by {signal.Signals(-code).name}"
        return f"exit status {code}"


def judge(exercise: Exercise, source: str, time_limit: float | None = None) -> Report:
    """Run an exercise's checks against `source` in a child process and return the report."""
    with _child(exercise) as process:
        return run_checks(exercise, source, ProcessChannel(process, time_limit or exercise.time_limit))


@contextlib.contextmanager
def _child(exercise: Exercise) -> Iterator[subprocess.Popen[bytes]]:
    memory_limit = MEMORY_LIMIT if exercise.needs == "python" else 0
    process = subprocess.Popen(
        # -P: the folder of child.py is no place to import from; the UTF-8 mode makes every system read files alike.
        [sys.executable, "-P", "-X", "utf8", str(Path(__file__).with_name("child.py")), str(memory_limit)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started. The pipes are left to the reader thread, which ends with them."""
    if sys.platform == "win32":
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
