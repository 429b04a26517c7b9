"""Writes the stubs to `practice/`, and the list of their hashes: `python -m course.judge.stubs [--check]`.

A file that holds somebody's work is never written over.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from course.judge.exercise import ROOT, load_exercises
from course.judge.stub import stub_source
from course.judge.untouched import LIST, listed_hashes, stub_hash


def stub_texts() -> dict[str, str]:
    """Return the text of every module's stub, by module."""
    return {module: stub_source(module) for module in sorted({exercise.module for exercise in load_exercises()})}


def stale_hashes() -> list[str]:
    """Return the modules for which the list does not hold their stub's hash."""
    listed, fresh = listed_hashes(), {module: stub_hash(text) for module, text in stub_texts().items()}
    return [module for module in sorted({*listed, *fresh}) if listed.get(module) != fresh.get(module)]


def stale_files() -> list[str]:
    """Return the modules whose file in `practice/` is not their stub."""
    return [module for module, text in stub_texts().items() if _read(practice_path(module)) != text]


def write_stubs() -> list[str]:
    """Bring `practice/` and the list up to date; return the modules left alone, because their file holds work."""
    listed, left = listed_hashes(), []
    for module, text in stub_texts().items():
        now = _read(practice_path(module))
        if now is None or stub_hash(now) == listed.get(module):
            practice_path(module).write_text(text, "utf-8", newline="\n")
        elif now != text:
            left.append(module)
    hashes = {module: stub_hash(text) for module, text in stub_texts().items()}
    LIST.write_text(json.dumps(hashes, indent=2) + "\n", "utf-8", newline="\n")
    return left


def practice_path(module: str) -> Path:
    return ROOT / "practice" / f"{module}.py"


def _read(path: Path) -> str | None:
    return path.read_text("utf-8", "replace") if path.exists() else None


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(f"unknown argument {arguments[0]}; use: python -m course.judge.stubs [--check]", file=sys.stderr)
        return 2
    if arguments:
        stale = [f"course/exercises/stubs.json is out of date for {module}" for module in stale_hashes()]
        stale += [f"practice/{module}.py is not the stub of solutions/{module}.py" for module in stale_files()]
        print(
            "\n".join([*stale, "python -m course.judge.stubs writes them anew"] if stale else ["all stubs are fresh"])
        )
        return 1 if stale else 0
    left = write_stubs()
    for module in left:
        print(f"practice/{module}.py holds work of yours and is left as it is: move it away to have the stub back")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
