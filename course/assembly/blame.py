"""Says whose fault it is: which part, and for which request, from the frames of a crash or of a hang."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import Any, NamedTuple

from course.assembly.parts import KERNELS, PARTS
from solutions.engine import Engine

TEXT_LIMIT = 8_000  # characters of the interpreter's words
PRACTICE = "practice/"

Frames = list[tuple[FrameType, int]]  # the innermost first, each with the line that it was in


class Failure(NamedTuple):
    """What went wrong, in plain data. `part` and `place` are None where no line of the learner's was running.

    `requests` are those that it concerns: one where that can be told, else all of the step's batch.
    """

    part: str | None
    place: str | None
    what: str
    when: str
    requests: list[int]
    interpreter: str | None


def of_exception(error: BaseException, when: str, sequences: Sequence[Any]) -> Failure:
    """Describe an exception that came out of the engine. `sequences` are its requests' in order of their numbers."""
    steps = list(traceback.walk_tb(error.__traceback__))[::-1]
    part, place, function = find_part(steps)
    what = {
        "SystemExit": "tried to leave the program (sys.exit?)",
        "RecursionError": "calls itself without end (RecursionError)",
        "NotImplementedError": "is not written yet",
    }.get(type(error).__name__, f"raised {type(error).__name__}")
    return Failure(
        part, place, f"{_subject(function, steps)} {what}", when, find_requests(steps, sequences), _words(error)
    )


def of_hang(frame: FrameType | None, when: str, limit: float, sequences: Sequence[Any]) -> Failure:
    """Describe where a thread is that did not come back within `limit` seconds."""
    steps = list(traceback.walk_stack(frame))
    part, place, function = find_part(steps)
    what = f"{_subject(function, steps)} did not come back within {limit:g} s (an endless loop?)"
    return Failure(part, place, what, when, find_requests(steps, sequences), None)


def find_part(steps: Frames) -> tuple[str | None, str | None, str | None]:
    """Return the part, the place and the function of the innermost line of the learner's that was running."""
    mine = [(frame.f_code, line) for frame, line in steps if frame.f_code.co_filename.startswith(PRACTICE)]
    if not mine:
        return None, None, None
    code, line = mine[0]
    # A helper is part of what called it.
    names = [name for code, _ in mine if (name := _part_of(code.co_filename, code.co_qualname))]
    name = names[0] if names else code.co_filename.removeprefix(PRACTICE).removesuffix(".py")
    function = code.co_qualname.replace(".<locals>", "").replace(".<lambda>", "")
    return name, f"{code.co_filename}:{line}", function if "<" not in function else function.partition(".<")[0]


def find_requests(steps: Frames, sequences: Sequence[Any]) -> list[int]:
    """Return the request whose sequence, table or blocks a running function has in hand; else those of the batch.

    Told by identity, and without asking any object of the learner's for anything.
    """
    numbers: dict[int, int] = {}
    for number, sequence in enumerate(sequences):
        table = _attribute(sequence, "table")
        numbers |= dict.fromkeys(map(id, (sequence, table, _attribute(table, "blocks"))), number)
    numbers.pop(id(None), None)
    for frame, _ in steps:
        if frame.f_code is Engine.step.__code__:
            break
        for value in list(frame.f_locals.values()):
            for each in (value, *(value if isinstance(value, tuple) else ())):
                if id(each) in numbers:
                    return [numbers[id(each)]]
    return sorted(numbers[id(sequence)] for sequence in _batch(steps) if id(sequence) in numbers)


def _batch(steps: Frames) -> Iterator[Any]:
    """Yield the sequences of the step that was under way."""
    for frame, _ in steps:
        if frame.f_code is Engine.step.__code__ and "step" in frame.f_locals:
            for scheduled in _attribute(frame.f_locals["step"], "batch") or []:
                yield scheduled[0] if isinstance(scheduled, tuple) else _attribute(scheduled, "sequence")


def _attribute(value: object, name: str) -> Any:
    """Return an attribute that is stored in the object itself: a property could be the very thing that hangs."""
    return getattr(value, "__dict__", {}).get(name)


def _part_of(filename: str, qualname: str) -> str | None:
    module, top = filename.removeprefix(PRACTICE).removesuffix(".py"), qualname.partition(".")[0]
    for part in (*PARTS, *KERNELS["torch"], *KERNELS["triton"]):
        if (part.module, part.symbol) == (module, top):
            return part.name
    return None


def _subject(function: str | None, steps: Frames) -> str:
    return f"your {function}" if function else f"the engine, in {_where(steps)},"


def _where(steps: Frames) -> str:
    """Return the innermost place in the course's own code."""
    for frame, line in steps:
        path = frame.f_code.co_filename.replace("\\", "/")
        for folder in ("/solutions/", "/course/"):
            if folder in path:
                return f"{folder[1:]}{path.rpartition(folder)[2]}:{line}"
    return "Python"


def _words(error: BaseException) -> str:
    """Return the interpreter's own words, from the first line of the learner's on where there is one."""
    tb: TracebackType | None = error.__traceback__
    first = tb
    while first is not None and not first.tb_frame.f_code.co_filename.startswith(PRACTICE):
        first = first.tb_next
    try:
        shown = traceback.TracebackException(type(error), error, first or tb, limit=-6, compact=True)
        return "".join(shown.format()).rstrip()[-TEXT_LIMIT:]
    except BaseException:  # an exception's own `__str__` is the learner's too
        return type(error).__name__
