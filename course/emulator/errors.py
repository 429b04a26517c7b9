"""What the emulator reports: one class a kind of mistake, and where in the learner's kernel it happened."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass
from types import FrameType, TracebackType

PACKAGE = __name__.rpartition(".")[0]


class EmulatorError(Exception):
    """A mistake that the emulator has seen. Its text is for the learner: what, then where, then what it was about.

    It is raised with the first and the last of these; `locate` puts the place between them.
    """

    def __init__(self, what: str, *details: str) -> None:
        super().__init__(what, *details)
        self.what = what
        self.details = details
        self.place: str | None = None

    def locate(self, kernel: str, program: tuple[int, int, int] | None, traceback: TracebackType | None) -> None:
        """Say where this was raised: in a launch of `kernel`, under the frames of `traceback`."""
        if self.place is None:
            spot = _spot_of(_frames(traceback))
            where = (
                f"in {kernel}" if spot is None or spot.function == kernel else f"in {spot.function}, called by {kernel}"
            )
            program_text = "" if program is None else f", program ({', '.join(map(str, program))})"
            self.place = where + program_text + ("" if spot is None else f", {spot.lines()}")

    def __str__(self) -> str:
        lines = [self.what, *([] if self.place is None else [self.place]), *self.details]
        return "\n  ".join(lines)


class InvalidAccess(EmulatorError):
    """A load or a store outside its buffer."""


class PoisonStored(EmulatorError):
    """A value that is not defined was stored, or decided a branch, an address or a mask."""


class WriteConflict(EmulatorError):
    """Two programs, or two elements of one block, store to the same address."""


class WouldNotCompile(EmulatorError):
    """Triton's compiler refuses this."""


class NotOffered(EmulatorError):
    """Triton has it, the emulator does not."""


class AssertionFailed(EmulatorError):
    """An assertion in the kernel does not hold."""


def not_offered(name: str, instead: str = "") -> NotOffered:
    text = f"{name} is not offered by the emulator"
    return NotOffered(f"{text}: {instead}" if instead else f"{text}: the exercises do without it (is it spelt right?)")


@dataclass(frozen=True)
class Spot:
    """A line of a kernel."""

    function: str
    filename: str
    line: int

    def lines(self) -> str:
        source = linecache.getline(self.filename, self.line).strip()
        return f"{self.filename}, line {self.line}:" + (f"\n      {source}" if source else "")

    def inline(self) -> str:
        source = linecache.getline(self.filename, self.line).strip()
        return f"line {self.line} of {self.function}" + (f": {source}" if source else "")


def here() -> Spot | None:
    """Return the line of the kernel that is running: the innermost frame that is not the emulator's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return None if frame is None else _spot(frame, frame.f_lineno)


def _frames(traceback: TracebackType | None) -> list[tuple[FrameType, int]]:
    frames = []
    while traceback is not None:
        frames.append((traceback.tb_frame, traceback.tb_lineno))
        traceback = traceback.tb_next
    return frames


def _spot_of(frames: list[tuple[FrameType, int]]) -> Spot | None:
    for frame, line in reversed(frames):
        if not _is_ours(frame):
            return _spot(frame, line)
    return None


def _spot(frame: FrameType, line: int) -> Spot:
    while frame.f_code.co_name.startswith("<") and frame.f_back is not None:  # a lambda that stands for an operand
        frame = frame.f_back
        while _is_ours(frame) and frame.f_back is not None:
            frame = frame.f_back
    return Spot(frame.f_code.co_name, frame.f_code.co_filename, line)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).rpartition(".")[0] == PACKAGE
