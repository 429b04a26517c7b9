"""Lines from a pipe, waited for no longer than allowed."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
from queue import Empty, SimpleQueue
from typing import IO, Protocol

CHUNK = 1 << 16


class Lines(Protocol):
    """Reads lines of at most `room` bytes in all."""

    def next(self, timeout: float) -> bytes | None:
        """Return the next line; b"" at the end, or after more than `room` bytes; None when the time is up."""


def lines_of(pipe: IO[bytes], room: int) -> Lines:
    """Return a reader of what comes through `pipe`."""
    return _ThreadedLines(pipe, room) if sys.platform == "win32" else _PolledLines(pipe, room)


class _PolledLines:
    def __init__(self, pipe: IO[bytes], room: int) -> None:
        self._pipe = pipe.fileno()
        self._room = room
        self._poll = select.poll()
        self._poll.register(self._pipe, select.POLLIN)
        self._parts: list[bytes] = []  # what has come of the lines that are next

    def next(self, timeout: float) -> bytes | None:
        while True:
            if self._parts and b"\n" in self._parts[-1]:
                head, _, rest = self._parts[-1].partition(b"\n")
                line = b"".join((*self._parts[:-1], head, b"\n"))
                self._parts = [rest] if rest else []
                return line
            if not self._poll.poll(timeout * 1000):
                return None
            chunk = os.read(self._pipe, CHUNK)
            self._room -= len(chunk)
            if not chunk or self._room < 0:
                return b""
            self._parts.append(chunk)


class _ThreadedLines:
    """Windows can wait for a pipe only by reading from it."""

    def __init__(self, pipe: IO[bytes], room: int) -> None:
        self._pipe = pipe
        self._room = room
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def next(self, timeout: float) -> bytes | None:
        try:
            return self._lines.get(timeout=timeout)
        except Empty:
            return None

    def _read(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while self._room > 0 and (line := self._pipe.readline(self._room)):
                self._room -= len(line)
                self._lines.put(line)
        self._lines.put(b"")
