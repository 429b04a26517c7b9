"""What the engine is made of: the reader's answers where they pass, symbol by symbol, the reference elsewhere."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from course.judge import graft
from course.judge.exercise import Exercise, load_exercises
from course.judge.merge import MergeError, put_in
from course.judge.stub import reference_source, stub_source
from course.page_engine.trail import Trail

MODULES = ("block_pool", "block_table", "scheduler")


class Parts(NamedTuple):
    """The same names as `solutions.engine.Parts`."""

    block_pool: type
    block_table: type
    slot_mapping: Callable[..., list[int]]
    sequence: type
    scheduler: type


class Origin(NamedTuple):
    """Whose the symbols of one exercise are. `why` says why an answer is not used, where there is one."""

    exercise: Exercise
    yours: bool
    why: str | None


def reference_parts() -> Parts:
    return _parts({name: graft.reference_module(name) for name in MODULES})


def assemble(answers: Mapping[str, str], trail: Trail) -> tuple[Parts, list[Origin]]:
    """Put an engine's parts together from answers that pass, by exercise; `trail` follows every function.

    Two answers that do not go into one module, because a helper of theirs has one name and two texts, cannot both be
    used: the later one is not, and `why` says so.
    """
    modules: dict[str, Any] = {}
    origins: list[Origin] = []
    for name in MODULES:
        exercises = [each for each in load_exercises() if each.module == name and each.runs_in_page]
        text, found = _merge(name, exercises, answers)
        origins += found
        modules[name] = _module(name, text, found, trail)
    return _parts(modules), origins


def _merge(name: str, exercises: list[Exercise], answers: Mapping[str, str]) -> tuple[str, list[Origin]]:
    """Put the answers to a module's exercises into one text, each of which came as a short file of its own."""
    text = stub_source(name)
    origins = []
    for exercise in exercises:
        answer, why = answers.get(exercise.id), None
        if answer is not None:
            try:
                text = put_in(exercise, text, answer).text
            except MergeError as error:
                why = str(error)
        origins.append(Origin(exercise, answer is not None and why is None, why))
    return text, origins


def _module(name: str, text: str, origins: list[Origin], trail: Trail) -> types.ModuleType:
    # A reference of its own: what follows its functions is no business of the module that others import.
    reference = graft.load_source(reference_source(name), f"solutions/{name}.py", f"course.page_engine.{name}")
    module = graft.load_source(text, f"practice/{name}.py", f"practice.{name}")
    graft.graft(module, reference, [symbol for each in origins if each.yours for symbol in each.exercise.symbols])
    for origin in origins:
        for symbol in origin.exercise.symbols:
            trail.follow(module, symbol, origin.yours)
    return module


def _parts(modules: Mapping[str, Any]) -> Parts:
    return Parts(
        modules["block_pool"].BlockPool,
        modules["block_table"].BlockTable,
        modules["block_table"].slot_mapping,
        modules["scheduler"].Sequence,
        modules["scheduler"].Scheduler,
    )
