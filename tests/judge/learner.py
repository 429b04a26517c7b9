"""A learner with a fresh clone: the files that the judge needs, in a folder of its own, and a shell to type in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from course.judge.console.benchmark import copy_course
from course.judge.stub import reference_source, stub_source
from course.judge.stubs import stub_texts

LIMIT = ("--time-limit", "60")  # generous, for a machine that has other things to do


class Learner:
    """Types commands in `folder`, and edits files there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        copy_course(folder, solved=False)
        for module, text in stub_texts().items():
            self.write(module, text)

    def write(self, module: str, text: str | bytes) -> Path:
        path = self.path(module)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def read(self, module: str) -> str:
        return self.path(module).read_text("utf-8")

    def path(self, module: str) -> Path:
        return self.folder / "practice" / f"{module}.py"

    def solve(self, module: str, find: str = "", put: str = "") -> None:
        """Write the reference as the answer, with `find` replaced by `put` (which has to change something)."""
        text = reference_source(module)
        assert find in text, find
        self.write(module, text.replace(find, put) if find else text)

    def unsolve(self, module: str) -> None:
        self.write(module, stub_source(module))

    def run(
        self, *words: str, encoding: str = "utf-8", timeout: float = 60, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the judge and return its exit status and what it printed, stderr too."""
        return subprocess.run(
            [sys.executable, "practice/judge.py", *words],
            cwd=self.folder,
            env=self.environment(encoding, **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            encoding=encoding,
            timeout=timeout,
            check=False,
        )

    def environment(self, encoding: str = "utf-8", **more: str) -> dict[str, str]:
        unwanted = ("PYTHON", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        return {**kept, "PYTHONIOENCODING": encoding, **more}

    @property
    def python(self) -> str:
        """How the judge names the interpreter in the commands it shows."""
        return Path(sys.executable).name
