"""The Python that the build makes for the page: as bytecode, all that is needed, and nothing of the command line."""

import gzip
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from course.browser import archive, bytecode, library
from course.browser.archive import exercise_archives
from course.judge.exercise import load_exercises
from course.judge.stub import exercise_solution


@pytest.fixture(scope="module")
def kept() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(gzip.decompress(library.build_library())))


@pytest.fixture(scope="module")
def archives() -> dict[str, bytes]:
    return archive.build_archives()


def test_what_is_left_out_or_kept_by_name_is_in_the_stock_library():
    with zipfile.ZipFile(bytecode.PYODIDE / "python_stdlib.zip") as stock:
        paths = {name.removesuffix(".py").rstrip("/") for name in stock.namelist()}
    assert paths >= library.LEFT_OUT
    assert paths >= {f"encodings/{name}" for name in library.ENCODINGS}


def test_the_library_is_bytecode_that_is_taken_as_it_is(kept):
    assert all(name.endswith(".pyc") for name in kept.namelist())
    for name in kept.namelist():
        assert kept.read(name)[4:8] == b"\x01\0\0\0", "the flags of PEP 552: by hash, unchecked"
    assert len({kept.read(name)[:4] for name in kept.namelist()}) == 1


def test_the_library_is_the_same_twice():
    assert library.build_library() == library.build_library()


def test_the_archives_are_bytecode_with_the_sources_that_a_page_shows(archives):
    names = {name: zipfile.ZipFile(io.BytesIO(content)).namelist() for name, content in archives.items()}
    assert "course/judge/page.pyc" in names["judge"]
    assert not [each for name in archive.BARE for each in names[name] if not each.endswith(".pyc")]
    shown = {"course/exercises/fork/checks.py", "course/exercises/slot-mapping/checks.py", "solutions/block_table.py"}
    assert shown <= set(names["block_table"])
    assert not [each for listed in names.values() for each in listed if "console" in each or "/cli." in each]


def test_the_archives_are_the_same_twice(archives):
    assert archive.build_archives() == archives


def test_no_file_is_in_two_archives():
    paths = [path for listed in archive.archive_paths().values() for path in listed]
    assert len(paths) == len(set(paths))
    assert all(archive.archive_paths().values())


# What a process that has only some archives' files reports: the verdict, and what it imported of them.
CHECK = """
import json, sys
from course.judge import page
exercise, source = sys.argv[1:]
page.prepare(exercise)
before = set(sys.modules)
report = json.loads(page.check(exercise, source, lambda events: None))
late = sorted(name for name in set(sys.modules) - before if name.partition(".")[0] in ("course", "solutions"))
files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
print(json.dumps([report["status"], late, files]))
"""
ENGINE = """
from course.page_engine import page, parts, trail
parts.assemble({}, trail.Trail(lambda place: None))
"""


def run_with(archives: list[str], folder: Path, script: str, *arguments: str) -> str:
    """Run `script` with the sources of these archives and of `judge`, and with nothing else of the course."""
    for name in ("judge", *archives):
        for path in archive.archive_paths()[name]:
            target = folder / path.relative_to(archive.ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{script}"
    command = [sys.executable, "-I", "-B", "-c", code, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("exercise", [each for each in load_exercises() if each.runs_in_page], ids=lambda each: each.id)
def test_a_check_has_all_that_it_needs_in_the_archives_that_it_names(exercise, tmp_path):
    answer = exercise_solution(exercise.id)
    status, late, files = json.loads(run_with(exercise_archives(exercise), tmp_path, CHECK, exercise.id, answer))
    assert status == "pass"
    assert late == [], "imported in the run, which pays for it"
    # What no check imports would be fetched for nothing.
    judge = {tmp_path / path.relative_to(archive.ROOT) for path in archive.archive_paths()["judge"]}
    assert judge - {Path(file) for file in files} <= {tmp_path / "solutions" / "__init__.py"}


def test_the_engine_has_all_that_it_needs_in_its_archives(tmp_path):
    run_with([*archive.ENGINE], tmp_path, ENGINE)


def test_an_exercise_that_needs_pytorch_is_in_no_archive():
    torch = [each for each in load_exercises() if not each.runs_in_page]
    assert torch
    for exercise in torch:
        assert exercise_archives(exercise) == []
        assert not [
            path for listed in archive.archive_paths().values() for path in listed if exercise.folder in path.parents
        ]


def test_a_source_that_is_not_python_is_refused():
    with pytest.raises(subprocess.CalledProcessError):
        bytecode.compile_sources({"broken.py": b"def f(:\n"}, "/test")
