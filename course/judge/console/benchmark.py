"""Times the judge as a learner meets it, from start to verdict: `python -m course.judge.console.benchmark [runs]`.

It works in a copy, whose answers are the reference: every check runs, and that takes longest. Each run is a process of
its own; the first is left out, because it compiles. The budget is for a quiet machine, so this is no test.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from course.judge.exercise import ROOT, load_exercises, reference_path

RUNS = 15
ONE, ALL = 0.150, 1.5  # seconds: the budget for one exercise, and for all of chapters 1 and 2


def copy_course(target: Path, *, solved: bool) -> None:
    """Copy what the judge needs to `target`; `solved` puts the reference in the place of the answers."""
    unwanted = shutil.ignore_patterns("__pycache__", ".judge", "browser", "node_modules")
    for name in ("course", "solutions", "practice"):
        shutil.copytree(ROOT / name, target / name, ignore=unwanted)
    if solved:
        for module in {exercise.module for exercise in load_exercises()}:
            shutil.copy(reference_path(module), target / "practice" / f"{module}.py")


def seconds_of(folder: Path, command: list[str], runs: int) -> list[float]:
    """Return how long each run took; `RuntimeError` when one fails."""
    # Without this variable, as on a learner's machine, the judge's modules are compiled once and not each time.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    took = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, *command], cwd=folder, env=environment, capture_output=True, check=False)
        took.append(time.perf_counter() - start)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout.decode()}")
    return took[1:]


def main(runs: int) -> None:
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.system()}; {runs} runs each")
    if hasattr(os, "getloadavg") and os.getloadavg()[0] > 0.5:
        print(f"This machine is not quiet (load {os.getloadavg()[0]:.1f}): these times say little about the budget.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy_course(folder, solved=True)
        _report("python -c pass", seconds_of(folder, ["-c", "pass"], runs))
        for exercise in load_exercises():
            _report(f"check {exercise.id}", seconds_of(folder, ["practice/judge.py", "check", exercise.id], runs), ONE)
        _report("check (all)", seconds_of(folder, ["practice/judge.py", "check"], runs), ALL)
        _report("the board", seconds_of(folder, ["practice/judge.py"], runs))


def _report(name: str, took: list[float], budget: float | None = None) -> None:
    median = statistics.median(took)
    verdict = "" if budget is None else f"  budget {budget * 1000:5.0f} ms: {'kept' if median <= budget else 'MISSED'}"
    print(f"{name:24} median {median * 1000:6.1f} ms, {min(took) * 1000:6.1f} to {max(took) * 1000:6.1f}{verdict}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
