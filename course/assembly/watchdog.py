"""Ends a process whose engine hangs, and first says where it was."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from course.assembly import blame

LOOK = 0.05  # seconds between two looks
ALIVE = 1.0  # seconds between two signs of life
GRACE = 2.0  # seconds after which Python's own watchdog speaks, which needs no thread of Python's to run

Send = Callable[[str, dict[str, Any]], None]


class Watchdog:
    """Watches the thread that made it.

    `when` is what goes on, as the end of a sentence ("in step 3"); it may take `limit` seconds from the last call of
    `begin` on. A loop in C code may let no other thread run; then Python writes the stack to the file descriptor
    `last_words`.
    """

    def __init__(self, send: Send, last_words: int) -> None:
        self._send = send
        self._last_words = last_words
        self._watched = threading.get_ident()
        self._deadline: float | None = None
        self._limit = 0.0
        self._sequences: Sequence[Any] = ()
        self.when = "at the start"
        threading.Thread(target=self._watch, daemon=True).start()

    @contextlib.contextmanager
    def watching(self, limit: float, when: str, sequences: Sequence[Any] = ()) -> Iterator[None]:
        """Watch a block of code. `sequences` are the requests' sequences, in order of the requests' numbers."""
        self._limit, self._sequences = limit, sequences
        self.begin(when)
        try:
            yield
        finally:
            self._deadline = None
            faulthandler.cancel_dump_traceback_later()

    def begin(self, when: str, *, tell: bool = True, extra: float = 0.0) -> None:
        """Start the clock again for what begins now, with `extra` seconds for it.

        `tell` the parent too, which names it if this process dies of it.
        """
        self.when = when
        self._deadline = time.monotonic() + self._limit + extra
        if tell:
            faulthandler.dump_traceback_later(self._limit + extra + GRACE, file=self._last_words)
            self._send("doing", {"when": when, "requests": []})

    def _watch(self) -> None:
        said = time.monotonic()
        while True:
            time.sleep(LOOK)
            deadline = self._deadline
            if deadline is not None and time.monotonic() > deadline:
                self._report()
            if time.monotonic() - said > ALIVE:
                said = time.monotonic()
                self._send("alive", {})

    def _report(self) -> None:
        frame = sys._current_frames().get(self._watched)
        failure = blame.of_hang(frame, self.when, self._limit, self._sequences)
        self._send("failed", failure._asdict())
        os._exit(1)
