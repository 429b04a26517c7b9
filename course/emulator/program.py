"""The launch that runs: which program it is at, and which programs have stored what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from course.emulator.blocks import Buffer
from course.emulator.errors import EmulatorError, WriteConflict
from course.emulator.memory import Memory

Program = tuple[int, int, int]


@dataclass
class Scope:
    """A function that runs: the names whose loop or branch has ended, and what each open one began with.

    Those of a branch that is decided by a constant are None. `while` loops are told by their number.
    """

    ended: set[str] = field(default_factory=set)
    branches: list[dict[str, Any] | None] = field(default_factory=list)
    whiles: dict[int, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Launch:
    """One launch of a kernel. Programs run one after the other, in no order that a kernel may count on."""

    kernel: str
    grid: Program
    program: Program = (0, 0, 0)
    scopes: list[Scope] = field(default_factory=list)
    memories: list[Memory] = field(default_factory=list)

    def number(self) -> int:
        x, y, z = self.program
        return (z * self.grid[1] + y) * self.grid[0] + x

    def name_of(self, number: int) -> str:
        x, y = self.grid[:2]
        return f"({number % x}, {number // x % y}, {number // (x * y)})"

    def check_reads(self, buffer: Buffer, places: list[int]) -> None:
        """A program must not read what another program of this launch stores: either may come first."""
        stored = buffer.memory.stored
        if stored and not stored.keys().isdisjoint(places):
            place = next(place for place in places if place in stored)
            raise WriteConflict(
                f"program {self.program} reads {buffer.address(place)}, "
                f"which program {self.name_of(stored[place])} stores in the same launch: either may come first"
            )

    def note_stores(self, buffer: Buffer, places: list[int]) -> None:
        """`WriteConflict` when another program has stored to one of these places."""
        memory = buffer.memory
        stored = memory.stored
        if stored and not stored.keys().isdisjoint(places):
            place = next(place for place in places if place in stored)
            raise WriteConflict(
                f"programs {self.name_of(stored[place])} and {self.program} both store to "
                f"{buffer.address(place)}: which value stays is not defined"
            )
        if not memory.storing:
            self.memories.append(memory)
        memory.storing.update(places)

    def end_program(self) -> None:
        """Remember what the program has stored, for those that come after it."""
        number = self.number()
        for memory in self.memories:
            memory.stored.update(dict.fromkeys(memory.storing, number))
            memory.storing.clear()
        self.memories.clear()


_running: list[Launch] = []


def current() -> Launch:
    """Return the launch that runs. `EmulatorError` outside a kernel."""
    if not _running:
        raise EmulatorError("triton.language works inside a kernel only: launch one with kernel[grid](…)")
    return _running[-1]


def begin(launch: Launch) -> None:
    _running.append(launch)


def end() -> None:
    _running.pop()


def is_running() -> bool:
    return bool(_running)
