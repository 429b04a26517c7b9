"""What an engine is made of, and whose each part is: the learner's where the checks pass, the reference's elsewhere.

Symbols belong to exercises, so a part can be the learner's in part: a class whose `grow` is theirs, and whose `fork` is
the reference's. Which exercises write a part follows from their modules and symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from course.judge.exercise import Exercise, load_exercises


class EnginePart(NamedTuple):
    """`symbol` of `module` is what the engine is handed as `field` of `solutions.engine.Parts`.

    `load_weights` is no field there: it is called before there is an engine.
    """

    name: str
    field: str
    module: str
    symbol: str


PARTS = (
    EnginePart("block pool", "block_pool", "block_pool", "BlockPool"),
    EnginePart("block table", "block_table", "block_table", "BlockTable"),
    EnginePart("slot mapping", "slot_mapping", "block_table", "slot_mapping"),
    EnginePart("sequence", "sequence", "scheduler", "Sequence"),
    EnginePart("scheduler", "scheduler", "scheduler", "Scheduler"),
    EnginePart("weights", "load_weights", "weights", "load_weights"),
    EnginePart("model", "model", "gpt2", "GPT2"),
)
# What writes and attends is made twice in the course: in PyTorch, and as kernels for a GPU.
KERNELS = {
    "torch": (
        EnginePart("KV writing", "write_kv", "attention", "write_kv"),
        EnginePart("attention", "attend", "attention", "paged_attention"),
    ),
    "triton": (
        EnginePart("KV writing", "write_kv", "triton_slot_write", "write_kv"),
        EnginePart("attention", "attend", "triton_attention", "paged_attention"),
    ),
}


def engine_parts(kernels: str) -> tuple[EnginePart, ...]:
    """Return the parts of an engine whose `kernels` are "torch" or "triton"."""
    return PARTS + KERNELS[kernels]


def part_of_module(module: str) -> str:
    """Return the name of the part that a module is, or the module's own where it holds several."""
    every = {part.name for part in (*PARTS, *KERNELS["torch"], *KERNELS["triton"]) if part.module == module}
    return every.pop() if len(every) == 1 else module


class Piece(NamedTuple):
    """What one exercise writes of a part.

    `state` is that of its `Standing`, `used` says whether the engine has the learner's, and `reason` why it is not
    proven to be right.
    """

    exercise: Exercise
    state: str
    used: bool
    reason: str = ""

    @property
    def passed(self) -> bool:
        return self.state == "passed"


class Origin(NamedTuple):
    """One part, and the pieces that exercises write of it: none where the course has no exercise for it."""

    part: EnginePart
    pieces: tuple[Piece, ...]

    @property
    def whose(self) -> str:
        """ "yours", "yours in part" or "reference". What its checks do not prove is not counted as yours."""
        passed = [piece.passed for piece in self.pieces]
        if passed and all(passed):
            return "yours"
        return "yours in part" if any(passed) else "reference"

    def as_dict(self) -> dict[str, Any]:
        pieces = [
            {"exercise": each.exercise.id, "state": each.state, "used": each.used, "reason": each.reason or None}
            for each in self.pieces
        ]
        return {"part": self.part.name, "whose": self.whose, "exercises": pieces}


def origins(kernels: str, judge: Callable[[Exercise], Piece]) -> list[Origin]:
    """Return every part of the engine with whose it is. `judge` is asked about each exercise that writes of a part."""
    parts = engine_parts(kernels)
    pieces: dict[EnginePart, list[Piece]] = {part: [] for part in parts}
    for exercise in load_exercises():
        written = parts_of(exercise, parts)
        if written:
            piece = judge(exercise)
            for part in written:
                pieces[part].append(piece)
    return [Origin(part, tuple(pieces[part])) for part in parts]


def parts_of(exercise: Exercise, parts: Iterable[EnginePart]) -> list[EnginePart]:
    """Return the parts that an exercise writes something of: by its symbols, or else all of its module.

    A helper that no part is named after (`write_int8`) may serve any part of its module.
    """
    tops = {symbol.partition(".")[0] for symbol in exercise.symbols}
    of_module = [part for part in parts if part.module == exercise.module]
    return [part for part in of_module if part.symbol in tops] or of_module


def plan(found: Iterable[Origin], texts: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return what the child needs: for each module of which something is the learner's, its text and those symbols."""
    modules: dict[str, dict[str, Any]] = {}
    for origin in found:
        for piece in origin.pieces:
            if piece.used:
                module = piece.exercise.module
                entry = modules.setdefault(module, {"source": texts[module], "symbols": []})
                entry["symbols"] = sorted({*entry["symbols"], *piece.exercise.symbols})
    return modules
