"""An exercise's definition, read from its folder `course/exercises/<id>/`."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import tomllib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from course.judge.executors import EXECUTORS

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "course" / "exercises"


# Named tuples here, because importing `dataclasses` alone would take a tenth of the time to a verdict.
class Check(NamedTuple):
    """One promise, and the function that holds an answer to it. `source` is the function's text."""

    name: str
    promise: str
    why: str | None
    run: Callable[[Any], None]
    source: str


class Exercise(NamedTuple):
    """What an exercise asks for. `id` is its name for ever; `order` is its place in the course."""

    id: str
    title: str
    chapter: int
    order: int
    difficulty: str
    module: str
    symbols: tuple[str, ...]
    uses: tuple[str, ...]
    needs: str
    time_limit: float
    hints: tuple[str, ...]
    leaves_out: tuple[str, ...] = ()  # what of the module is nobody's to write, and too much to show beside the task

    @property
    def executors(self) -> tuple[str, ...]:
        """What its tensors can be made of, the usual first; nothing for an exercise without tensors."""
        return EXECUTORS[self.needs]

    @property
    def runs_in_page(self) -> bool:
        return self.needs != "torch"

    @property
    def folder(self) -> Path:
        return FOLDER / self.id

    @property
    def is_bug(self) -> bool:
        """Whether it hands out a file that is whole and wrong: `broken.py`, with the right one in `fixed.py`."""
        return (self.folder / "broken.py").exists()

    @property
    def file(self) -> str:
        """The learner's file, as a path from the repository's root."""
        return f"practice/{self.module}.py"

    @property
    def task(self) -> str:
        """The task, in Markdown."""
        return (self.folder / "task.md").read_text("utf-8").strip()

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks, in the order in which they run."""
        return _load_checks(self.id)

    @property
    def promises(self) -> list[tuple[str, str]]:
        return [(check.name, check.promise) for check in self.checks]


@functools.cache
def load_exercises() -> tuple[Exercise, ...]:
    """Return every exercise, in course order."""
    found = [_load(path) for path in FOLDER.glob("*/exercise.toml")]
    return tuple(sorted(found, key=lambda exercise: (exercise.chapter, exercise.order)))


def find_exercise(exercise_id: str) -> Exercise:
    """Return one exercise; `KeyError` when there is none of that id."""
    path = FOLDER / exercise_id / "exercise.toml"
    if not path.is_file():
        raise KeyError(exercise_id)
    return _load(path)


def reference_path(module: str) -> Path:
    """Return the file of the right version: in `solutions/`, or a designed bug's `fixed.py`."""
    path = ROOT / "solutions" / f"{module}.py"
    if path.exists():
        return path
    return next(each.folder for each in load_exercises() if each.module == module and each.is_bug) / "fixed.py"


@functools.cache
def exercise_ids() -> frozenset[str]:
    """Return the ids of all exercises, without reading any."""
    return frozenset(path.parent.name for path in FOLDER.glob("*/exercise.toml"))


@functools.cache
def _load(path: Path) -> Exercise:
    data = tomllib.loads(path.read_text("utf-8"))
    return Exercise(
        id=path.parent.name,
        title=data["title"],
        chapter=data["chapter"],
        order=data["order"],
        difficulty=data["difficulty"],
        module=data["module"],
        symbols=tuple(data["symbols"]),
        uses=tuple(data.get("uses", ())),
        needs=data["needs"],
        time_limit=float(data["time_limit"]),
        hints=tuple(hint.strip() for hint in data["hints"]),
        leaves_out=tuple(data.get("leaves_out", ())),
    )


@functools.cache
def _load_checks(exercise_id: str) -> tuple[Check, ...]:
    path = FOLDER / exercise_id / "checks.py"
    spec = importlib.util.spec_from_file_location(f"course.exercises.{exercise_id}.checks", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    lines = path.read_text("utf-8").splitlines(keepends=True)
    return tuple(
        _check(name, function, lines)
        for name, function in vars(module).items()
        if isinstance(function, types.FunctionType) and function.__module__ == module.__name__ and name[0] != "_"
    )


def _check(name: str, function: types.FunctionType, lines: list[str]) -> Check:
    """Make a check of a function: its docstring's first paragraph is the promise, the rest is why it matters."""
    promise, _, why = (function.__doc__ or "").partition("\n\n")
    return Check(name, " ".join(promise.split()), " ".join(why.split()) or None, function, _source(function, lines))


def _source(function: types.FunctionType, lines: list[str]) -> str:
    """Return the text of a top-level function: its first line and all that is indented below it."""
    head, *rest = lines[function.__code__.co_firstlineno - 1 :]
    body = itertools.takewhile(lambda line: line[0].isspace(), rest)
    return head + "".join(body).rstrip() + "\n"
