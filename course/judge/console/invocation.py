"""How the judge was called, so that a command it shows can be typed as it stands."""

from __future__ import annotations

import os
import sys


def command(*words: str) -> str:
    """Return the command line that runs the judge with `words`."""
    return " ".join([interpreter(), _script(), *words])


def interpreter() -> str:
    typed = sys.orig_argv[0] if sys.orig_argv else ""
    name = os.path.basename(typed) if os.path.isabs(typed) else typed
    name = name.removesuffix(".exe")
    return name if os.path.basename(name).startswith("py") and " " not in name else "python"


def _script() -> str:
    typed = sys.argv[0]
    if os.path.basename(typed) != "judge.py":
        return "practice/judge.py"
    if os.path.isabs(typed):
        try:
            near = os.path.relpath(typed)
        except ValueError:  # another drive
            near = typed
        typed = typed if near.startswith("..") else near
    return f'"{typed}"' if " " in typed else typed
