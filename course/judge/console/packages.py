"""The packages that an engine needs beyond Python's own, and how to get them."""

from __future__ import annotations

import importlib.util
import os
import sys

from course.judge.console.invocation import interpreter
from course.judge.exercise import ROOT

ENGINE = ("torch", "safetensors")
PARITY = (*ENGINE, "transformers")


def missing(names: tuple[str, ...]) -> list[str]:
    """Return which of the packages are not installed, without importing any."""
    return [name for name in names if not is_installed(name)]


def is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def install_command() -> str:
    """Return the one command that installs what the engine needs, as it has to be typed here."""
    here = os.path.relpath(ROOT) if os.path.splitdrive(os.getcwd())[0] == ROOT.drive else str(ROOT)
    python = interpreter() if sys.orig_argv else "python"
    return f'{python} -m pip install --editable "{here}[engine]"'
