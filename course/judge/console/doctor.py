"""`doctor`: whether this machine can run the judge, and what it can do besides."""

from __future__ import annotations

import importlib.util
import platform
import sys
import time

from course.judge.console.answers import read_answer
from course.judge.console.invocation import command
from course.judge.console.packages import PARITY, install_command, is_installed, missing
from course.judge.console.progress import FOLDER
from course.judge.console.prose import wrap
from course.judge.console.terminal import Terminal
from course.judge.exercise import ROOT, Exercise, find_exercise, load_exercises
from course.judge.process import MEMORY_LIMIT, judge
from course.judge.spawn import StartError
from course.judge.stub import reference_source
from course.judge.stubs import stale_hashes
from course.judge.untouched import is_untouched

OPTIONAL = {"torch": "tensors and parity", "triton": "kernels on a GPU", "transformers": "the other side of parity"}
PROBE = "block-pool"


def examine(terminal: Terminal) -> int:
    """Print what was found; return 2 when an answer cannot be judged here."""
    exercises = load_exercises()
    rows = [
        ("ok", "Python", f"{platform.python_version()} at {sys.executable}"),
        ("ok", "system", f"{platform.system()} {platform.release()} on {platform.machine()}"),
        _files(exercises),
        _answers(exercises),
        _stubs(),
        *_child(),
        _memory(),
        _remembers(),
        *(_optional(name, use) for name, use in OPTIONAL.items()),
        *_engine(),
    ]
    width = max(len(name) for _, name, _ in rows)
    terminal.write(["", *(line for row in rows for line in _lines(terminal, *row, width))])
    broken = any(state == "bad" for state, _, _ in rows)
    verdict = "This machine cannot judge answers yet: see above." if broken else "This machine can judge answers."
    terminal.write(["", verdict, ""] + ([] if broken else [f"  next  {command()}", ""]))
    return 2 if broken else 0


def _lines(terminal: Terminal, state: str, name: str, text: str, width: int) -> list[str]:
    symbol, style = {"ok": ("passed", "good"), "bad": ("red", "bad"), "info": ("unwritten", "dim")}[state]
    mark = terminal.symbol(symbol).ljust(len(terminal.symbol("passed")))
    indent = len(mark) + width + 5
    first, *rest = wrap(terminal.clean(text), terminal.width - indent)
    return [f"  {terminal.paint(mark, style)} {name:<{width}}  {first}", *(" " * indent + line for line in rest)]


def _files(exercises: tuple[Exercise, ...]) -> tuple[str, str, str]:
    problems = [answer.problem for answer in map(read_answer, _modules(exercises)) if answer.problem]
    missing = [path for path in _references(exercises) if not (ROOT / path).is_file()]
    if missing:
        return "bad", "files", f"missing from the course: {', '.join(missing)} (git checkout brings them back)"
    return (
        ("bad", "files", "; ".join(problems))
        if problems
        else ("ok", "files", f"all {len(exercises)} exercises are there")
    )


def _references(exercises: tuple[Exercise, ...]) -> list[str]:
    bugs = [each.module for each in exercises if each.is_bug]
    return [f"solutions/{module}.py" for module in _modules(exercises) if module not in bugs]


def _modules(exercises: tuple[Exercise, ...]) -> list[str]:
    return sorted({exercise.module for exercise in exercises})


def _answers(exercises: tuple[Exercise, ...]) -> tuple[str, str, str]:
    modules = _modules(exercises)
    untouched = [module for module in modules if is_untouched(module, read_answer(module).text or "")]
    return "ok", "answers", f"{len(modules) - len(untouched)} of {len(modules)} files in practice/ have been worked on"


def _stubs() -> tuple[str, str, str]:
    stale = stale_hashes()
    if stale:
        return "info", "stubs", f"not those of this version: {', '.join(stale)} (python -m course.judge.stubs)"
    return "ok", "stubs", "those of this version of the course"


def _child() -> list[tuple[str, str, str]]:
    """Judge the reference, which has to pass."""
    exercise = find_exercise(PROBE)
    start = time.perf_counter()
    try:
        report = judge(exercise, reference_source(exercise.module)).as_dict()
    except StartError as error:
        return [("bad", "child", str(error))]
    took = f"{(time.perf_counter() - start) * 1000:.0f} ms"
    if report["status"] != "pass":
        reason = report["message"] or report["tests"][-1]["message"]
        return [("bad", "child", f"the reference of {exercise.id} does not pass here: {reason}")]
    return [("ok", "child", f"the reference of {exercise.id} passes in a child process, in {took}")]


def _memory() -> tuple[str, str, str]:
    if sys.platform == "linux" and importlib.util.find_spec("resource"):
        return "ok", "memory", f"an answer gets {MEMORY_LIMIT >> 20} MiB at most"
    return "info", "memory", "this system has no memory limit to set; the time limit alone stops a memory bomb"


def _remembers() -> tuple[str, str, str]:
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        probe = FOLDER / "probe"
        probe.write_text("", "utf-8")
        probe.unlink()
    except OSError as error:
        return "info", "progress", f"practice/.judge/ cannot be written ({error.strerror}): the judge will not remember"
    return "ok", "progress", "remembered in practice/.judge/ (it may be deleted)"


def _optional(name: str, use: str) -> tuple[str, str, str]:
    return "info", name, f"installed ({use})" if is_installed(name) else f"not installed; later chapters use it ({use})"


def _engine() -> list[tuple[str, str, str]]:
    """Say how to get what the engine needs, where something of it is not here."""
    absent = missing(PARITY)
    return (
        [("info", "engine", f"engine, parity and bench need {', '.join(absent)}: {install_command()}")]
        if absent
        else []
    )
