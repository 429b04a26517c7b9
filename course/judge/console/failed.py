"""Says what went wrong in an engine: the part, the step, the request, and only then what Python said."""

from __future__ import annotations

from typing import Any

from course.assembly.parts import Origin
from course.judge.console.prose import wrap
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import block, row


def failure_lines(terminal: Terminal, failure: dict[str, Any], found: list[Origin]) -> list[str]:
    """Return the lines about a `blame.Failure`."""
    symbol = terminal.symbol("red")
    headline = f"{failure['part']}: {failure_text(failure)}" if failure["part"] else failure_text(failure)
    first, *rest = wrap(terminal.clean(headline), terminal.width - len(symbol) - 3)
    lines = [f"{terminal.paint(symbol, 'bad')} {first}", *(f"  {line}" for line in rest), ""]
    if failure["place"]:
        lines += row(terminal, "where", failure["place"])
    else:
        mine = [origin.part.name for origin in found if any(piece.used for piece in origin.pieces)]
        lines += row(terminal, "yours", f"{', '.join(mine) or 'nothing'} (none of your lines was running)")
    return [*lines, *block(terminal, "Python", (failure["interpreter"] or "").split("\n"))]


def failure_text(failure: dict[str, Any]) -> str:
    """Return what happened, when and for whom, as one sentence without a full stop."""
    requests = failure["requests"]
    whom = f", for request{'s' if len(requests) > 1 else ''} {', '.join(map(str, requests))}" if requests else ""
    return f"{failure['what']} {failure['when']}{whom}"
