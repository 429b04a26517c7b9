"""`next` and `hint`: what to write, where, and as much help as was asked for."""

from __future__ import annotations

from course.judge.console.answers import place_to_write, read_answer
from course.judge.console.invocation import command
from course.judge.console.progress import Progress
from course.judge.console.prose import heading, markdown, sentence
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import next_row
from course.judge.exercise import Exercise

ALL_PASSED = "Every exercise is passed: the parts of the engine are yours."
KINDS = ("the idea", "the place", "nearly the code")


def show_task(terminal: Terminal, exercise: Exercise | None) -> int:
    """Print an exercise's task, where to write, and the command that judges it; None when all are passed."""
    if exercise is None:
        terminal.write(["", *sentence(terminal, ALL_PASSED), ""])
        return 0
    answer = read_answer(exercise.module)
    line, symbol = place_to_write(exercise, answer)
    title = heading(terminal, f"{exercise.id}: {exercise.title} ({exercise.difficulty})")
    lines = ["", *title, "", *markdown(terminal, exercise.task), ""]
    if answer.problem is not None:
        lines += [*markdown(terminal, f"But {answer.problem}."), ""]
        action = command("reset", exercise.id)
    else:
        place = f"Mend `{exercise.file}`" if exercise.is_bug else f"Write `{symbol}` at `{exercise.file}:{line}`"
        lines += [*markdown(terminal, f"{place}, then:"), ""]
        action = command("check", exercise.id)
    terminal.write([*lines, *next_row(terminal, action), ""])
    return 0


def show_hints(terminal: Terminal, progress: Progress, exercise: Exercise, number: int | None) -> int:
    """Print one hint more than last time, with those before it; or the hint of that number."""
    total = len(exercise.hints)
    last = number or min(progress.hints_seen(exercise) + 1, total)
    remembered = progress.remember_hints(exercise, last)
    lines = [""]
    for index in range(last) if number is None else [last - 1]:
        kind = KINDS[index] if index < len(KINDS) else "more"
        lines += [*heading(terminal, f"Hint {index + 1} of {total} for {exercise.id}: {kind}"), ""]
        lines += [*markdown(terminal, exercise.hints[index]), ""]
    if last == total:
        reference = command("diff", exercise.id, "--give-up")
        lines += [*sentence(terminal, f"That was the last hint. {reference} shows the reference."), ""]
    if not remembered:
        note = "(practice/.judge/ cannot be written, so the judge will not remember that you saw this.)"
        lines += [*sentence(terminal, note), ""]
    terminal.write([*lines, *next_row(terminal, command("check", exercise.id)), ""])
    return 0
