"""The catalogue of real mistakes, read from each exercise's `mutants.toml`."""

from __future__ import annotations

import textwrap
import tomllib
from dataclasses import dataclass

from course.judge.exercise import Exercise
from course.judge.stub import reference_source, replace_symbols, symbol_sources


@dataclass(frozen=True)
class Mutant:
    """One wrong version: `source` is the whole module, `check` names the check that must reject it."""

    exercise: str
    id: str
    check: str
    source: str


def catalogue(exercise: Exercise) -> list[Mutant]:
    """Return an exercise's catalogued mutants. `ValueError` when one does not apply to the reference any more."""
    data = tomllib.loads((exercise.folder / "mutants.toml").read_text("utf-8"))
    return [Mutant(exercise.id, each["id"], each["check"], _apply(exercise, each)) for each in data.get("mutant", [])]


def equivalents(exercise: Exercise) -> dict[str, str]:
    """Return the mechanical changes that change nothing that was promised, each with the reason."""
    data = tomllib.loads((exercise.folder / "mutants.toml").read_text("utf-8"))
    return {each["change"]: each["reason"] for each in data.get("equivalent", [])}


def _apply(exercise: Exercise, entry: dict[str, str | dict[str, str]]) -> str:
    reference = reference_source(exercise.module)
    code = entry.get("code")
    if isinstance(code, dict):
        return replace_symbols(reference, {symbol: text.lstrip("\n") for symbol, text in code.items()})
    symbol, find, replace = str(entry["symbol"]), str(entry["find"]), str(entry["replace"])
    before = symbol_sources(reference)[symbol]
    if before.count(find) != 1:
        raise ValueError(
            f"{exercise.id}, mutant {entry['id']}: `find` occurs {before.count(find)} times in {symbol}, not once:\n"
            f"{textwrap.indent(find, '    ')}"
        )
    return replace_symbols(reference, {symbol: before.replace(find, replace)})
