"""The board: every exercise with its state, how far the course is done, and the one next action."""

from __future__ import annotations

import tomllib

from course.judge.console.guide import ALL_PASSED
from course.judge.console.invocation import command
from course.judge.console.progress import Progress
from course.judge.console.prose import heading, sentence
from course.judge.console.standing import Standing, next_standing, standings
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import next_row
from course.judge.exercise import FOLDER

STATES = {
    "passed": ("good", "passed"),
    "red": ("bad", "started, still red"),
    "unwritten": ("dim", "not written yet"),
    "unjudged": ("note", "not judged here"),
}
TITLE = "Build a paged LLM inference engine, and measure it honestly"
BAR_WIDTH = 24


def show_board(terminal: Terminal, progress: Progress, time_limit: float | None) -> int:
    """Print the board."""
    found = standings(progress, time_limit)
    terminal.write([*_board(terminal, found), "", *_advice(terminal, found), ""])
    return 0


def progress_line(terminal: Terminal, found: list[Standing]) -> str:
    """Return how much is passed, as a bar and in words."""
    passed = sum(standing.state == "passed" for standing in found)
    words = f"{passed} of {len(found)} exercises passed"
    width = min(BAR_WIDTH, terminal.width - len(words) - 2)
    full = width * passed // max(len(found), 1)
    bar = terminal.paint(terminal.symbol("full") * full, "good") + terminal.symbol("empty") * (width - full)
    return f"{bar}  {words}"


def _board(terminal: Terminal, found: list[Standing]) -> list[str]:
    titles = _chapter_titles()
    lines = ["", *heading(terminal, TITLE)]
    chapter = 0
    for standing in found:
        if standing.exercise.chapter != chapter:
            chapter = standing.exercise.chapter
            lines += ["", terminal.paint(f"{chapter}  {titles.get(str(chapter), 'Chapter')}", "bold")]
        lines.append(_line(terminal, standing, found))
    return [*lines, "", progress_line(terminal, found)]


def _line(terminal: Terminal, standing: Standing, found: list[Standing]) -> str:
    style, words = STATES[standing.state]
    id_width = max(len(each.exercise.id) for each in found)
    title_width = max(len(each.exercise.title) for each in found)
    mark = terminal.symbol(standing.state) + " " * (
        len(terminal.symbol("passed")) - len(terminal.symbol(standing.state))
    )
    line = f"   {terminal.paint(mark, style)} {standing.exercise.id:<{id_width}}  "
    if terminal.width >= 7 + len(mark) + id_width + title_width + max(len(words) for _, words in STATES.values()):
        line += f"{terminal.clean(standing.exercise.title):<{title_width}}  "
    elif terminal.width < 6 + len(mark) + id_width + len(words):
        return line.rstrip()  # the mark says it too
    return line + terminal.paint(words, style)


def _advice(terminal: Terminal, found: list[Standing]) -> list[str]:
    """Return what red means, and the next action."""
    standing = next_standing(found)
    if standing is None:
        unjudged = [each.message for each in found if each.state == "unjudged"]
        return sentence(terminal, unjudged[0] if unjudged else ALL_PASSED)
    lines = []
    if any(each.state == "unwritten" for each in found):
        lines += sentence(terminal, "What is not written yet is red on purpose: each part is yours to write.")
        lines.append("")
    exercise = standing.exercise
    if standing.state == "red":
        place = "" if exercise.file in standing.message else f" in {exercise.file}"
        lines += sentence(terminal, f"Going on with {exercise.id}{place}: {standing.message}")
        return [*lines, "", *next_row(terminal, command("check", exercise.id))]
    lines += sentence(terminal, f"Next is {exercise.id} in {exercise.file}: {exercise.title}.")
    return [*lines, "", *next_row(terminal, command("next"))]


def _chapter_titles() -> dict[str, str]:
    return tomllib.loads((FOLDER / "chapters.toml").read_text("utf-8"))
