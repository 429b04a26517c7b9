"""`export` and `import`: a learner's work as one file, the same that the course's page writes and reads.

The file is JSON: a format, its version, and for each exercise the text of its short file and whether it has passed.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from course.judge.console.answers import is_started, read_answer
from course.judge.console.invocation import command
from course.judge.console.progress import Progress
from course.judge.console.prose import sentence, wrap
from course.judge.console.reset import ResetError, keep_copy, write_answer
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import next_row
from course.judge.exercise import ROOT, Exercise, exercise_ids, load_exercises
from course.judge.merge import Merged, MergeError, put_in, take_out
from course.judge.parts import UNREADABLE, split
from course.judge.stub import stub_source

FORMAT, VERSION = "paged-inference-course/work", 1
NAME = "paged-inference-work"
LARGEST = 8 * 1024 * 1024
OTHER_PLACE = "Choose “Import” on the start page of the course to go on there."


class ExchangeError(Exception):
    """There is nothing to read, or nowhere to write; nothing was changed."""


def export_work(terminal: Terminal, progress: Progress, typed: str | None) -> int:
    """Write what the learner has begun or passed. A file that is there already is never written over."""
    sources, problems = _sources()
    exercises = {
        each.id: {"source": sources.get(each.id), "passed": progress.has_passed(each)}
        for each in load_exercises()
        if each.id in sources or progress.has_passed(each)
    }
    lines = [line for problem in problems for line in _row(terminal, "red", *problem)]
    if not exercises:
        said = "Nothing was exported: no exercise is started." if not problems else "Nothing was exported."
        terminal.write(["", *lines, *sentence(terminal, said), ""])
        return 1
    data = {"format": FORMAT, "version": VERSION, "course": _course_version(), "exercises": exercises}
    path = Path(typed) if typed is not None else _free_name()
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(json.dumps(data, indent=2) + "\n")
    except FileExistsError as error:
        raise ExchangeError(f"{path} is there already: name another file, or move that one away.") from error
    except (OSError, ValueError) as error:
        raise ExchangeError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error
    progress.remember_exchanged(sources)
    count = f"{len(exercises)} {'exercise' if len(exercises) == 1 else 'exercises'}"
    lines += sentence(terminal, f"Your work on {count} is in {path}. {OTHER_PLACE}")
    terminal.write(["", *lines, ""])
    return 1 if problems else 0


def import_work(terminal: Terminal, progress: Progress, typed: str) -> int:
    """Put every answer of a file into `practice/`, after keeping a dated copy of each module that changes."""
    incoming = read_work(typed)
    known = [exercise for exercise in load_exercises() if exercise.id in incoming]
    texts: dict[str, str] = {}
    rows: dict[str, tuple[str, str]] = {}
    taken: dict[str, str] = {}
    for exercise in known:
        source, passed = incoming[exercise.id]
        if passed:
            progress.remember_passed(exercise)
        if source is None:
            continue
        try:
            before = texts[exercise.module] if exercise.module in texts else _target(exercise)
            merged = put_in(exercise, before, source, progress.exchanged(exercise))
        except MergeError as error:
            rows[exercise.id] = "red", f"refused: {error}"
            continue
        texts[exercise.module] = merged.text
        taken[exercise.id] = source
        rows[exercise.id] = _said(exercise, merged, is_new=merged.text != before)
    backups, failed = _write_all(texts)
    for exercise in known:
        if exercise.module in failed and exercise.id in taken:
            del taken[exercise.id]
            rows[exercise.id] = "red", f"refused: {exercise.file} was not written: {failed[exercise.module]}"
    progress.remember_exchanged(taken)
    for exercise_id in sorted(set(incoming) - exercise_ids()):
        rows[terminal.clean(exercise_id)] = "red", "refused: this version of the course has no such exercise"
    lines = [line for name, row in rows.items() for line in _row(terminal, row[0], name, row[1])]
    if backups:
        lines += ["", *sentence(terminal, f"What was there is kept in {' and '.join(backups)}.")]
    terminal.write(["", *lines, "", *next_row(terminal, command("check")), ""])
    return 1 if any(mark == "red" for mark, _ in rows.values()) else 0


def read_work(typed: str) -> dict[str, tuple[str | None, bool]]:
    """Return each exercise's source (None where there is none) and whether it has passed; `ExchangeError`."""
    try:
        if Path(typed).stat().st_size > LARGEST:
            raise ExchangeError(f"{typed} is too large to be an export of this course.")
        data: Any = json.loads(Path(typed).read_text("utf-8-sig"))
    except OSError as error:
        raise ExchangeError(f"{typed} cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise ExchangeError(f"{typed} is no export of this course: it is not JSON.") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("version"), int):
        raise ExchangeError(f"{typed} is no export of this course: it does not say {FORMAT}.")
    if data["version"] > VERSION:
        raise ExchangeError(
            f"{typed} was made by a newer version of the course (format {data['version']}, and this one reads "
            f"{VERSION}): update your clone (git pull), then import again."
        )
    exercises = data.get("exercises")
    if not isinstance(exercises, dict) or not all(map(_is_entry, exercises.values())):
        raise ExchangeError(f"{typed} is damaged: an exercise in it has no source that is a text.")
    return {name: (_plain(entry["source"]), entry.get("passed") is True) for name, entry in exercises.items()}


def _is_entry(entry: object) -> bool:
    return isinstance(entry, dict) and isinstance(entry.get("source", 0), str | None)


def _plain(source: str | None) -> str | None:
    """Return a text with plain line ends, and one at its end."""
    if source is None:
        return None
    return source.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").rstrip("\n") + "\n"


def _sources() -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the short file of every exercise that is started, and those that could not be taken out, with why."""
    sources: dict[str, str] = {}
    problems: list[tuple[str, str]] = []
    for exercise in load_exercises():
        answer = read_answer(exercise.module)
        if not is_started(exercise, answer):
            continue
        if answer.text is None:
            problems.append((exercise.id, f"left out: {answer.problem}"))
            continue
        try:
            sources[exercise.id] = take_out(exercise, answer.text)
        except UNREADABLE as error:
            problems.append((exercise.id, f"left out: {_place(exercise, error)} is not valid Python"))
    return sources, problems


def _target(exercise: Exercise) -> str:
    """Return the text that an answer goes into; `MergeError` when nothing can."""
    answer = read_answer(exercise.module)
    if answer.text is None:
        if (answer.problem or "").endswith(("is not there", "is empty")):
            return stub_source(exercise.module)
        raise MergeError(str(answer.problem))
    try:
        split(answer.text)
    except UNREADABLE as error:
        raise MergeError(f"{_place(exercise, error)} is not valid Python: mend that first") from error
    return answer.text


def _place(exercise: Exercise, error: BaseException) -> str:
    return f"{exercise.file}, line {error.lineno}," if isinstance(error, SyntaxError) else exercise.file


def _said(exercise: Exercise, merged: Merged, *, is_new: bool) -> tuple[str, str]:
    if not is_new:
        return "unwritten", f"is in {exercise.file} already"
    left = f", without {', '.join(merged.left_out)}, which other exercises ask for" if merged.left_out else ""
    return "passed", f"is in {exercise.file} now{left}"


def _write_all(texts: dict[str, str]) -> tuple[list[str], dict[str, str]]:
    """Write the modules that change; return the copies of what was there, and what could not be written, with why."""
    backups: list[str] = []
    failed: dict[str, str] = {}
    for module, text in texts.items():
        if text == read_answer(module).text:
            continue
        try:
            text.encode("utf-8")
            backup = keep_copy(module)
            write_answer(module, text)
        except (OSError, ValueError, ResetError) as error:
            failed[module] = str(error)
            continue
        if backup is not None:
            backups.append(backup.relative_to(ROOT).as_posix())
    return backups, failed


def _row(terminal: Terminal, mark: str, name: str, text: str) -> list[str]:
    style = {"red": "bad", "passed": "good"}.get(mark, "dim")
    symbol = terminal.symbol(mark)
    first, *rest = wrap(terminal.clean(f"{name} {text}"), terminal.width - len(symbol) - 3)
    return [f"{terminal.paint(symbol, style)} {first}", *(f"  {line}" for line in rest)]


def _free_name() -> Path:
    names = (f"{NAME}{f'-{number}' if number > 1 else ''}.json" for number in range(1, 1000))
    return next(path for path in map(Path, names) if not path.exists())


def _course_version() -> str | None:
    try:
        return str(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"])
    except (OSError, ValueError, KeyError):
        return None
