"""`diff`: the reference against the learner's answer, for the symbols of one exercise."""

from __future__ import annotations

import difflib

from course.judge.console.answers import read_answer
from course.judge.console.invocation import command
from course.judge.console.progress import Progress
from course.judge.console.prose import heading, sentence
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import next_row
from course.judge.exercise import Exercise
from course.judge.stub import reference_source, symbol_sources


def show_difference(terminal: Terminal, progress: Progress, exercise: Exercise, *, give_up: bool) -> int:
    """Print the difference, once the exercise has passed or the learner has given up on it."""
    if not give_up and not progress.has_passed(exercise):
        refusal = f"The reference of {exercise.id} is shown once your answer has passed, or with --give-up."
        terminal.write(["", *sentence(terminal, refusal), "", *next_row(terminal, command("check", exercise.id)), ""])
        return 1
    reference = symbol_sources(reference_source(exercise.module))
    mine = _my_symbols(exercise)
    lines = ["", *heading(terminal, f"{exercise.id}: - is yours, + is the reference")]
    for symbol in exercise.symbols:
        lines += ["", terminal.paint(symbol, "bold")]
        lines += _difference(terminal, mine.get(symbol, ""), reference[symbol])
    action = command("next") if progress.has_passed(exercise) else command("check", exercise.id)
    terminal.write([*lines, "", *next_row(terminal, action), ""])
    return 0


def _my_symbols(exercise: Exercise) -> dict[str, str]:
    """Return the answer's symbols; none when it cannot be read as Python."""
    text = read_answer(exercise.module).text
    try:
        return symbol_sources(text) if text is not None else {}
    except (SyntaxError, ValueError, RecursionError):
        return {}


def _difference(terminal: Terminal, mine: str, reference: str) -> list[str]:
    """Return all lines of both texts, each marked with whose it is."""
    if mine == reference:
        return ["  the same"]
    styles = {"-": "bad", "+": "good"}
    lines = difflib.ndiff(mine.splitlines(), reference.splitlines())
    return [
        terminal.paint(terminal.clean(line), styles[line[0]]) if line[0] in styles else terminal.clean(line)
        for line in lines
        if line[0] != "?"
    ]
