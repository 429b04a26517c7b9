"""Packs the Python that the page runs into zips for Pyodide, each of which the page fetches when it is first needed.

- `judge`: what every check needs;
- one for each file in `practice/` that a page can judge: its exercises, and its reference;
- `emulator`: Triton's language, and what the checks of kernels share;
- `page_engine`: the engine in the page, which needs the files that it is made of too.

All of it is bytecode. Sources come along where a page shows their text: checks, and the reference in a traceback.
"""

import json
import zipfile
from pathlib import Path

from course.browser.bytecode import PYODIDE, compile_sources, pack
from course.browser.output import ROOT
from course.judge.exercise import Exercise, load_exercises
from course.page_engine.parts import MODULES as ENGINE_MODULES

PLACE = "/course"  # where the worker unpacks all of them
# What no page shows, by archive. What only the command line, the build or the tests need is in none.
BARE = {
    "judge": (
        *(
            "course/__init__.py",
            "solutions/__init__.py",
            "course/judge/__init__.py",
            "course/judge/executors/__init__.py",
        ),
        *(
            f"course/judge/{name}.py"
            for name in ("agent", "exercise", "expect", "graft", "page", "remote", "report", "run", "views", "wire")
        ),
    ),
    "emulator": ("course/emulator/*.py", "course/judge/executors/emulator.py", "course/judge/paged.py"),
    "page_engine": ("course/page_engine/*.py", *(f"course/judge/{name}.py" for name in ("merge", "parts", "stub"))),
}
ENGINE = ("page_engine", *ENGINE_MODULES)  # what the engine in the page needs beside `judge`


def exercise_archives(exercise: Exercise) -> list[str]:
    """Return the names of the archives that a check of the exercise needs beside `judge`."""
    if not exercise.runs_in_page:
        return []
    return [exercise.module, *exercise.uses, *(each for each in exercise.executors if each in BARE)]


def archive_paths() -> dict[str, list[Path]]:
    """Return the files of the repository that go into each archive, in a fixed order."""
    patterns = {name: [*bare] for name, bare in BARE.items()}
    exercises = [each for each in load_exercises() if each.runs_in_page]
    needed = {*ENGINE, *(name for each in exercises for name in exercise_archives(each))}
    for module in sorted(needed - BARE.keys()):
        folders = [f"course/exercises/{each.id}" for each in exercises if each.module == module]
        parts = ("exercise.toml", "checks.py", "beside.py", "broken.py", "fixed.py")
        patterns[module] = [f"solutions/{module}.py", *(f"{folder}/{part}" for folder in folders for part in parts)]
    return {
        name: [path for pattern in listed for path in sorted(ROOT.glob(pattern))] for name, listed in patterns.items()
    }


def build_archives() -> dict[str, bytes]:
    """Return the zip of each archive; the same files give the same bytes."""
    archives = {
        name: {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in paths}
        for name, paths in archive_paths().items()
    }
    sources = {name: text for files in archives.values() for name, text in files.items() if name.endswith(".py")}
    compiled = compile_sources(sources, PLACE)
    return {
        archive: pack(_with_bytecode(files, compiled, is_bare=archive in BARE), zipfile.ZIP_DEFLATED)
        for archive, files in archives.items()
    }


def _with_bytecode(files: dict[str, bytes], compiled: dict[str, bytes], *, is_bare: bool) -> dict[str, bytes]:
    """Return what is packed for `files`: the bytecode in place of a source (`is_bare`), or beside it."""
    if is_bare:
        return {f"{name}c": compiled[name] for name in files}
    return files | {_beside_source(name): compiled[name] for name in files if name in compiled}


def _beside_source(name: str) -> str:
    """Return where Pyodide's Python looks for the bytecode of a source file."""
    version = json.loads((PYODIDE / "pyodide-lock.json").read_text("utf-8"))["info"]["python"]
    major, minor, _ = version.split(".")
    path = Path(name)
    return (path.parent / "__pycache__" / f"{path.stem}.cpython-{major}{minor}.pyc").as_posix()
