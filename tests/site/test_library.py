"""The Python that the build makes for the page: as bytecode, all that is needed, and nothing of the command line."""

import gzip
import io
import subprocess
import sys
import zipfile

import pytest

from course.browser import archive, bytecode, library


@pytest.fixture(scope="module")
def kept() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(gzip.decompress(library.build_library())))


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


def test_the_archive_leaves_out_what_only_the_command_line_needs():
    names = zipfile.ZipFile(io.BytesIO(archive.build_archive())).namelist()
    assert "course/judge/page.pyc" in names
    assert "course/judge/page.py" not in names, "no page shows the judge's source"
    assert {"course/exercises/fork/checks.py", "solutions/block_pool.py"} <= set(names), "a page shows these"
    assert not [name for name in names if "console" in name or name.startswith("course/judge/cli")]


def test_the_archive_has_all_that_the_page_imports():
    ask = (
        "import sys; from course.judge import page; from course.judge.exercise import load_exercises\n"
        "from course.page_engine import page, parts, trail; parts.assemble({}, trail.Trail())\n"
        "[exercise.checks for exercise in load_exercises()]\n"
        "print(*(name for name in sys.modules if name.startswith('course.judge')))"
    )
    imported = subprocess.run([sys.executable, "-c", ask], cwd=archive.ROOT, capture_output=True, text=True, check=True)
    names = {path.relative_to(archive.ROOT).as_posix() for path in archive.archive_paths()}
    needed = {name.replace(".", "/") for name in imported.stdout.split()}
    missing = {name for name in needed if not {f"{name}.py", f"{name}/__init__.py"} & names}
    assert not missing


def test_a_source_that_is_not_python_is_refused():
    with pytest.raises(subprocess.CalledProcessError):
        bytecode.compile_sources({"broken.py": b"def f(:\n"}, "/test")
