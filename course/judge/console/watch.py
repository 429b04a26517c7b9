"""`watch`: judges again whatever was just saved, until Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from course.judge.console.answers import answer_path, is_started, read_answer
from course.judge.console.check import check_one, check_started
from course.judge.console.progress import Progress
from course.judge.console.terminal import Terminal
from course.judge.exercise import Exercise

INTERVAL = 0.2  # seconds between two looks
SETTLE = 0.05  # an editor may empty a file before it writes it

Stamp = tuple[int, int] | None


def watch(
    terminal: Terminal,
    progress: Progress,
    exercises: Sequence[Exercise],
    executor: str | None = None,
    *,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Judge `exercises`, then again each time that one of their files changes."""
    modules = sorted({exercise.module for exercise in exercises})
    try:
        seen = {module: _stamp(module) for module in modules}
        _judge(terminal, progress, exercises, modules, executor)
        while True:
            sleep(INTERVAL)
            changed = [module for module in modules if _stamp(module) != seen[module]]
            if changed:
                sleep(SETTLE)
                seen |= {module: _stamp(module) for module in changed}
                _judge(terminal, progress, exercises, changed, executor)
    except KeyboardInterrupt:
        terminal.write(["", "Stopped watching."])
        return 0


def _judge(
    terminal: Terminal,
    progress: Progress,
    exercises: Sequence[Exercise],
    modules: list[str],
    executor: str | None,
) -> None:
    """Judge what lies in `modules`: one exercise as such, of several the ones that are started."""
    terminal.clear()
    touched = [exercise for exercise in exercises if exercise.module in modules]
    started = [exercise for exercise in touched if is_started(exercise, read_answer(exercise.module))]
    if len(exercises) == 1 or len(started) == 1:
        check_one(terminal, progress, (started or touched)[0], executor)
    else:
        check_started(terminal, progress, touched, executor)
    files = ", ".join(sorted({exercise.file for exercise in exercises}))
    terminal.write([terminal.paint(f"{time.strftime('%H:%M:%S')}  watching {files} (Ctrl-C ends)", "dim")])


def _stamp(module: str) -> Stamp:
    try:
        status = answer_path(module).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
