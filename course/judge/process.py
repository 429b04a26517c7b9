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
from course.judge.remote import Lost, StartError
from course.judge.report import Report
from course.judge.run import run_checks

START_LIMIT = 30.0  # seconds for the child's interpreter to come up; the exercise's own limit starts after that
MEMORY_LIMIT = 1 << 30  # bytes of address space for exercises that need Python alone
REPLY_LIMIT = 64 << 20  # bytes that one run may send back, a multiple of what any right answer does
PIPE_ROOM = 4096  # bytes that an empty pipe takes at once on every system


class ProcessChannel:
    """Asks an agent in a child process. All requests together may take `time_limit` seconds."""

    def __init__(self, process: subprocess.Popen[bytes], time_limit: float) -> None:
        self.on_output: Callable[[str], None] = lambda text: None
        self._process = process
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        # A thread reads, because waiting on a pipe with a limit is not portable.
        threading.Thread(target=self._read, daemon=True).start()
        self._deadline = time.monotonic() + START_LIMIT
        try:
            self._receive("ready")
        except Lost as lost:
            raise StartError(self._start_text(lost)) from None
        self._deadline = time.monotonic() + time_limit

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
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
            try:
                line = self._lines.get(timeout=max(left, 0.001))
            except Empty:
                raise Lost("timeout") from None
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

    def _read(self) -> None:
        """Queue the lines that come; then, or after more than any answer may send, an empty one."""
        assert self._process.stdout
        room = REPLY_LIMIT
        with contextlib.suppress(OSError, ValueError):
            while room > 0 and (line := self._process.stdout.readline(REPLY_LIMIT)):
                room -= len(line)
                self._lines.put(line)
        self._lines.put(b"")

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


def judge(exercise: Exercise, source: str, time_limit: float | None = None) -> Report:
    """Run an exercise's checks against `source` in a child process and return the report.

    `StartError` when there could be no child.
    """
    if time_limit is not None:
        exercise = exercise._replace(time_limit=time_limit)
    with _child(exercise) as process:
        return run_checks(exercise, source, ProcessChannel(process, exercise.time_limit))


@contextlib.contextmanager
def _child(exercise: Exercise) -> Iterator[subprocess.Popen[bytes]]:
    # -P: child.py stands in no place to import from. The UTF-8 mode makes every system read files alike. -S: what
    # `site` runs (every `.pth` file) can take longer than everything else.
    options = ["-P", "-S", "-X", "utf8", *(["-B"] if sys.dont_write_bytecode else [])]
    memory_limit = MEMORY_LIMIT if exercise.needs == "python" else 0
    packages = [path for path in sys.path if path.endswith("-packages")]
    try:
        process = subprocess.Popen(
            [sys.executable, *options, str(Path(__file__).with_name("child.py")), str(memory_limit), *packages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # only what the interpreter says when it cannot come up
            env=_environment(),
            # A group of its own: it can be killed whole, and Ctrl-C in the terminal is the judge's to handle.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    except (OSError, ValueError) as error:
        raise StartError(f"{sys.executable or 'Python'} cannot be started: {error}") from error
    try:
        yield process
    finally:
        _kill(process)


def _environment() -> dict[str, str]:
    """Return the environment without settings for Python, so that a verdict depends on the answer alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") or name == "PYTHONHOME"}
    return {**kept, "PYTHONHASHSEED": "0"}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it started. The pipes are left to the reader thread, which ends with them."""
    if sys.platform == "win32":
        if process.poll() is None:
            with contextlib.suppress(OSError):
                quiet = subprocess.DEVNULL
                # `kill` ends one process, this the processes that it started too.
                subprocess.call(["taskkill", "/F", "/T", "/PID", str(process.pid)], stdout=quiet, stderr=quiet)
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
