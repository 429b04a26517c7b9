"""Packs the Python that the page runs: the judge, the exercises and the reference, in one zip for Pyodide.

All of it is bytecode. Sources come along where a page shows their text: checks, and the reference in a traceback.
"""

import json
import zipfile
from pathlib import Path

from course.browser.bytecode import PYODIDE, compile_sources, pack
from course.browser.output import ROOT
from course.judge.exercise import load_exercises
from course.page_engine.parts import MODULES as ENGINE

# What only the command line, the build or the tests need stays out; the page would download it for nothing.
PACKAGES = ("course/judge", "course/judge/executors", "course/emulator", "course/page_engine")
BARE = ("course/__init__.py", *(f"{package}/*.py" for package in PACKAGES))
# What needs PyTorch has no place in a page: of the reference, what the other exercises and the page's engine are about.
EXERCISES = [exercise for exercise in load_exercises() if exercise.runs_in_page]
MODULES = {module for exercise in EXERCISES for module in (exercise.module, *exercise.uses)} | {*ENGINE}
WITH_SOURCE = (
    *(f"course/exercises/{exercise.id}/checks.py" for exercise in EXERCISES),
    *(f"course/exercises/{exercise.id}/{name}.py" for exercise in EXERCISES for name in ("beside", "broken", "fixed")),
    "solutions/__init__.py",
    *(f"solutions/{module}.py" for module in sorted(MODULES)),
)
DATA = ("course/exercises/*/exercise.toml",)
COMMAND_LINE = {
    f"course/judge/{name}.py"
    for name in ("child", "cli", "pipe", "process", "spawn", "stubs", "untouched", "executors/pytorch")
}
PLACE = "/course"  # where the worker unpacks it


def archive_paths() -> list[Path]:
    """Return the files of the repository that go into the archive, in a fixed order."""
    return [ROOT / name for pattern in (BARE, WITH_SOURCE, DATA) for name in sorted(_files(pattern))]


def build_archive() -> bytes:
    """Return the zip; the same files give the same bytes."""
    bare, with_source, data = _files(BARE), _files(WITH_SOURCE), _files(DATA)
    files = data | with_source
    for name, bytecode in compile_sources(bare | with_source, PLACE).items():
        files[f"{name}c" if name in bare else _beside_source(name)] = bytecode
    return pack(files, zipfile.ZIP_DEFLATED)


def _files(patterns: tuple[str, ...]) -> dict[str, bytes]:
    found = {path.relative_to(ROOT).as_posix(): path for pattern in patterns for path in ROOT.glob(pattern)}
    return {name: path.read_bytes() for name, path in found.items() if name not in COMMAND_LINE}


def _beside_source(name: str) -> str:
    """Return where Pyodide's Python looks for the bytecode of a source file."""
    version = json.loads((PYODIDE / "pyodide-lock.json").read_text("utf-8"))["info"]["python"]
    major, minor, _ = version.split(".")
    path = Path(name)
    return (path.parent / "__pycache__" / f"{path.stem}.cpython-{major}{minor}.pyc").as_posix()
