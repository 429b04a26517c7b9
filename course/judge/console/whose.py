"""The table of an engine's parts: which are the learner's, which the reference's, and why."""

from __future__ import annotations

from course.assembly.parts import Origin, Piece, origins
from course.judge.console.answers import Answer, read_answer
from course.judge.console.progress import Progress
from course.judge.console.prose import wrap
from course.judge.console.standing import Standing, standing_of
from course.judge.console.terminal import Terminal
from course.judge.exercise import Exercise


def judge_parts(progress: Progress, kernels: str, *, unproven: bool) -> tuple[list[Origin], dict[str, str]]:
    """Return whose each part is, and the text of every file that was judged for it.

    The verdicts are of these very texts: what is run later is what was judged.
    """
    answers: dict[str, Answer] = {}

    def judge(exercise: Exercise) -> Piece:
        if exercise.module not in answers:
            answers[exercise.module] = read_answer(exercise.module)
        answer = answers[exercise.module]
        standing = standing_of(exercise, answer, progress)
        if standing.state == "passed":
            return Piece(exercise, "passed", used=True)
        can_run = bool(standing.check) and not standing.unfinished  # a check ran it, and all of it is written
        return Piece(exercise, standing.state, unproven and can_run, _reason(standing))

    found = origins(kernels, judge)
    return found, {module: answer.text for module, answer in answers.items() if answer.text is not None}


def table(terminal: Terminal, found: list[Origin]) -> list[str]:
    """Return the lines of the table and of the count below it."""
    names = max(len(origin.part.name) for origin in found)
    ids = max([len(piece.exercise.id) for origin in found for piece in origin.pieces], default=0)
    lines = []
    for origin in found:
        name = f"{origin.part.name:<{names}}"
        if not origin.pieces:
            lines += _row(
                terminal, name, " " * ids, "unwritten", "dim", "reference (the course has no exercise for it)"
            )
        for piece in origin.pieces:
            lines += _row(terminal, name, f"{piece.exercise.id:<{ids}}", *_words(piece))
            name = " " * names
    return [*lines, "", *_count(terminal, found)]


def _reason(standing: Standing) -> str:
    if standing.state == "unwritten":
        return "not written yet"
    if standing.state == "unjudged":
        return f"yours cannot be judged here, {standing.message}"
    return f"yours fails {standing.check}: {standing.message}" if standing.check else standing.message


def _words(piece: Piece) -> tuple[str, str, str]:
    """Return the mark of a piece, its style, and whose it is."""
    if piece.passed:
        return "passed", "good", "yours"
    if piece.used:
        return "red", "note", f"unproven: {piece.reason}"
    mark, style = ("red", "bad") if piece.state == "red" else ("unwritten", "dim")
    return mark, style, f"reference: {piece.reason}"


def _row(terminal: Terminal, name: str, exercise: str, mark: str, style: str, words: str) -> list[str]:
    symbol = terminal.symbol(mark).ljust(len(terminal.symbol("passed")))
    head = f"  {name}  {exercise}  "
    indent = len(head) + len(symbol) + 1
    first, *rest = wrap(terminal.clean(words), max(terminal.width - indent, 20))
    return [f"{head}{terminal.paint(symbol, style)} {first}", *(" " * indent + line for line in rest)]


def _count(terminal: Terminal, found: list[Origin]) -> list[str]:
    whole = sum(origin.whose == "yours" for origin in found)
    in_part = sum(origin.whose == "yours in part" for origin in found)
    words = f"{whole} of {len(found)} parts are yours"
    words += f", {in_part} in part." if in_part else "."
    if whole < len(found):
        words += " The reference stands in for what is not; that does not count as yours."
    return wrap(words, terminal.width)
