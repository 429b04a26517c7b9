"""`parity`: holds the engine that the learner's parts make against Hugging Face, layer by layer and head by head."""

from __future__ import annotations

from typing import Any

from course.judge.console.invocation import command
from course.judge.console.packages import PARITY
from course.judge.console.progress import Progress
from course.judge.console.prose import wrap
from course.judge.console.session import open_session, print_json
from course.judge.console.settings import Settings
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import next_row
from course.parity.text import HEADING, row_text

TITLE = "The engine against Hugging Face, and whose its parts are"


def run_parity(screen: Terminal, out: Terminal | None, progress: Progress, settings: Settings) -> int:
    """Compare; return 0 when they agree, else 1."""
    with open_session(screen, progress, settings, TITLE, PARITY) as session:
        session.worker.result("assemble", **session.job)
        rows: list[dict[str, Any]] = []
        said: set[str] = set()
        for kind, data in session.worker.ask("parity", dtype=settings.dtype):
            if kind == "started":
                screen.write([data["cache"], "", f"  {HEADING}"])
            elif kind == "compared":
                rows.append(data)
                what = _place_and_cause(data)
                screen.write(_row(screen, data, say_why=what not in said))
                said.add(what)
        agrees = bool(rows) and all(row["agrees"] for row in rows)
        screen.write(["", _verdict(screen, agrees=agrees), ""])
        if agrees:
            screen.write([*next_row(screen, command("bench" if session.uses_mine else "next")), ""])
        if out is not None:
            parts = [origin.as_dict() for origin in session.found]
            print_json(out, {"status": "pass" if agrees else "fail", "parts": parts, "comparisons": rows})
    return 0 if agrees else 1


def _place_and_cause(row: dict[str, Any]) -> str:
    """Return what the divergences of one bug have in common: not the positions, nor the error."""
    place, _, rest = (row["divergence"] or "").partition(", at position")
    return place + rest.partition("). ")[2]


def _row(terminal: Terminal, row: dict[str, Any], *, say_why: bool) -> list[str]:
    mark = terminal.symbol("passed" if row["agrees"] else "red")
    line = f"  {row_text(row)}  {terminal.paint(mark, 'good' if row['agrees'] else 'bad')}"
    why = wrap(terminal.clean(row["divergence"]), terminal.width - 10) if row["divergence"] and say_why else []
    return [line, *(f"          {each}" for each in why)]


def _verdict(terminal: Terminal, *, agrees: bool) -> str:
    symbol = terminal.paint(terminal.symbol("passed" if agrees else "red"), "good" if agrees else "bad")
    return f"{symbol} {'they agree' if agrees else 'they differ: the first difference is the one to look at'}"
