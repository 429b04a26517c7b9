"""Starts child processes and gets rid of them. One can be started ahead, so that it comes up while the judge does."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

CHILD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "child.py")


class StartError(Exception):
    """The child's interpreter did not come up. The machine is at fault, not the answer."""


_ahead: list[subprocess.Popen[bytes]] = []


def start_ahead() -> None:
    """Start the next child now. When it cannot be started, whoever needs it finds out."""
    with contextlib.suppress(StartError):
        _ahead.append(_start())


@contextlib.contextmanager
def child(script: str = CHILD) -> Iterator[subprocess.Popen[bytes]]:
    """Lend a child process; afterwards it is gone, with whatever it started. `StartError` when there can be none."""
    process = _ahead.pop(0) if _ahead and script == CHILD else _start(script)
    try:
        yield process
    finally:
        kill(process)


def _start(script: str = CHILD) -> subprocess.Popen[bytes]:
    # -P: the script stands in no place to import from. The UTF-8 mode makes every system read files alike. -S: what
    # `site` runs (every `.pth` file) can take longer than everything else.
    options = ["-P", "-S", "-X", "utf8", *(["-B"] if sys.dont_write_bytecode else [])]
    packages = [path for path in sys.path if path.endswith("-packages")]
    try:
        return subprocess.Popen(
            [sys.executable, *options, script, *packages],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # only what the interpreter says when it cannot come up
            env=_environment(),
            # A group of its own: it can be killed whole, and Ctrl-C in the terminal is the judge's to handle.
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    except (OSError, ValueError) as error:
        raise StartError(f"{sys.executable or 'Python'} cannot be started: {error}") from error


def _environment() -> dict[str, str]:
    """Return the environment without settings for Python, so that a verdict depends on the answer alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") or name == "PYTHONHOME"}
    return {**kept, "PYTHONHASHSEED": "0"}


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a child, the first of its group, and whatever it started. Its pipes are left to whoever reads them."""
    if sys.platform == "win32":
        if process.poll() is None:
            with contextlib.suppress(OSError):
                quiet = subprocess.DEVNULL
                # `kill` ends one process, this the processes that it started too.
                subprocess.call(["taskkill", "/F", "/T", "/PID", str(process.pid)], stdout=quiet, stderr=quiet)
        process.kill()
    else:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
