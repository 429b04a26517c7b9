"""Packs the Python that the page runs: the judge, the exercises and the reference, in one zip for Pyodide."""

import io
import zipfile
from pathlib import Path

from course.browser.output import ROOT

# What only the command line, the build or the tests need stays out; the page would download it for nothing.
PATTERNS = (
    "course/__init__.py",
    "course/judge/*.py",
    "course/exercises/*/exercise.toml",
    "course/exercises/*/checks.py",
    "solutions/*.py",
)


def archive_paths() -> list[Path]:
    """Return the files that go into the archive, in a fixed order."""
    return sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))


def build_archive() -> bytes:
    """Return the zip; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in archive_paths():
            entry = zipfile.ZipInfo(path.relative_to(ROOT).as_posix(), date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()
