"""`list`: the exercises as they are defined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from course.judge.console.terminal import Terminal
from course.judge.exercise import Exercise


def show_list(terminal: Terminal, exercises: Sequence[Exercise], *, as_json: bool) -> int:
    if as_json:
        import json

        terminal.write([json.dumps([_as_dict(exercise) for exercise in exercises], indent=2)])
        return 0
    id_width = max(len(exercise.id) for exercise in exercises)
    file_width = max(len(exercise.file) for exercise in exercises)
    terminal.write(
        f"{each.chapter:>2}  {each.id:<{id_width}}  {each.difficulty:<6}  {each.file:<{file_width}}  "
        f"{terminal.clean(each.title)}"
        for each in exercises
    )
    return 0


def _as_dict(exercise: Exercise) -> dict[str, Any]:
    return {
        "id": exercise.id,
        "title": exercise.title,
        "chapter": exercise.chapter,
        "order": exercise.order,
        "difficulty": exercise.difficulty,
        "file": exercise.file,
        "symbols": list(exercise.symbols),
        "needs": exercise.needs,
        "time_limit": exercise.time_limit,
    }
