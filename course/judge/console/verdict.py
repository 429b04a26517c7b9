"""A report, written for a terminal: what was promised, what was called, what came back, what to do."""

from __future__ import annotations

from typing import Any

from course.judge.console.invocation import command
from course.judge.console.prose import styled, wrap
from course.judge.console.terminal import Terminal
from course.judge.exercise import Exercise
from course.judge.report import COMPILES

CALLS_SHOWN = 12
OUTPUT_SHOWN = 12  # lines; the last ones, because they stand closest to the failure
LABEL_WIDTH = 10


def full_verdict(
    terminal: Terminal, exercise: Exercise, report: dict[str, Any], seconds: float, place: str
) -> list[str]:
    """Return the lines that tell everything about one run. `place` is where to go on writing."""
    lines = [*headline(terminal, exercise, report, seconds), ""]
    if report["status"] == "pass":
        return lines + _compiled(terminal, report.get("compiled"))
    failed = report["tests"][-1] if report["tests"] and report["message"] is None else None
    if failed is None or report["unfinished"]:
        message = report["message"] if failed is None else failed["message"]
        lines += row(terminal, "problem" if failed is None else "missing", message)
        lines += row(terminal, "where", place if report["unfinished"] else None)
    else:
        lines += [*_prose(terminal, failed["promise"]), "", *_calls(terminal, failed["calls"]), ""]
        lines += row(terminal, "happened", failed["message"])
        lines += row(terminal, "expected", failed["expected"])
        came_back = failed["calls"] and failed["calls"][-1]["returned"] is not None
        # Why the promise matters is no answer to a call that broke off.
        lines += row(terminal, "why", failed["why"] if came_back or failed["expected"] else None)
    source = failed or report
    lines += block(terminal, "printed", _last_lines(source["output"] or report["output"]))
    speaker = "compiler" if failed is not None and failed["name"] == COMPILES else "Python"
    lines += block(terminal, speaker, (source["interpreter"] or "").split("\n"))
    return [*lines, *next_row(terminal, command_of(report)), ""]


def headline(terminal: Terminal, exercise: Exercise, report: dict[str, Any], seconds: float) -> list[str]:
    """Return the verdict in a sentence, which is one line where there is room."""
    kept = sum(test["status"] == "pass" for test in report["tests"])
    total = len(exercise.checks)
    if report["status"] == "pass":
        mark, style, text = "passed", "good", f"all {total} promises kept ({seconds:.2f} s)"
    elif report["message"] is not None:
        mark, style, text = "red", "bad", "cannot be judged yet"
    elif report["unfinished"]:
        mark, style, text = "unwritten", "note", f"not finished, {kept} of {total} promises kept"
        if not kept:
            text = "not written yet"
    else:
        mark, style, text = "red", "bad", f"{kept} of {total} promises kept, the next is not"
    symbol = terminal.symbol(mark)
    first, *rest = wrap(f"{exercise.id}: {text}", terminal.width - len(symbol) - 3)
    first = first.replace(exercise.id, terminal.paint(exercise.id, "bold"), 1)
    return [f"{terminal.paint(symbol, style)} {first}", *(f"  {line}" for line in rest)]


def _compiled(terminal: Terminal, compiled: dict[str, Any] | None) -> list[str]:
    """Return what the kernels cost on a GPU, where they were compiled."""
    if compiled is None:
        return []
    from course.judge.console.compiled import lines_of

    return [*row(terminal, "compiled", "\n".join(lines_of(compiled))), ""]


def next_row(terminal: Terminal, action: str) -> list[str]:
    """Return the one next action."""
    return row(terminal, "next", terminal.paint(action, "code"), wrapped=False)


def command_of(report: dict[str, Any]) -> str:
    """Return the report's next command as it has to be typed here."""
    return command(*str(report["next"]).split()[2:])


def _prose(terminal: Terminal, text: str) -> list[str]:
    return [f"  {line}" for line in styled(terminal, wrap(terminal.clean(text), terminal.width - 2))]


def _calls(terminal: Terminal, calls: list[dict[str, Any]]) -> list[str]:
    """Return the calls, one a line with what each gave below one another, the last one marked."""
    shown = calls[-CALLS_SHOWN:]
    lines = []
    if len(calls) > len(shown):
        count = len(calls) - len(shown)
        lines.append(terminal.paint(f"    ({count} earlier call{'s' if count > 1 else ''} left out)", "dim"))
    texts = [terminal.clean(call["call"]) for call in shown]
    room = terminal.width - 4
    column = max((len(text) for text in texts if len(text) <= room // 2), default=0)
    for text, call in zip(texts, shown, strict=True):
        is_last = call is shown[-1]
        mark = terminal.paint(terminal.symbol("here"), "bad") if is_last else " " * len(terminal.symbol("here"))
        result = _result(terminal, call)
        if not result:
            parts = wrap(text, room)
        elif len(text) <= column and column + 2 + len(result) <= room:
            parts = [f"{text:<{column}}  {result}"]
        else:
            parts = wrap(text, room) + [f"  {line}" for line in wrap(result, room - 2)]
        lines.append(f"  {mark} {parts[0]}")
        lines += [f"    {part}" for part in parts[1:]]
    return lines


def _result(terminal: Terminal, call: dict[str, Any]) -> str:
    """Return what a call gave; nothing for one that made the object which it names."""
    if call["raised"] is not None:
        return f"raised {terminal.clean(call['raised'])}"
    if call["returned"] is None:
        return "did not come back"
    if call["call"].startswith(f"{call['returned']} = "):
        return ""
    return f"{terminal.symbol('gave')} {terminal.clean(call['returned'])}"


def row(terminal: Terminal, label: str, text: str | None, *, wrapped: bool = True) -> list[str]:
    if not text:
        return []
    lines = [text]
    if wrapped:
        paragraphs = terminal.clean(text).split("\n")
        width = terminal.width - LABEL_WIDTH - 2
        lines = styled(terminal, [line for paragraph in paragraphs for line in wrap(paragraph, width)])
    return _labelled(terminal, label, lines)


def block(terminal: Terminal, label: str, lines: list[str]) -> list[str]:
    """Return text whose lines stay as they are, cut where they are too long."""
    width = terminal.width - LABEL_WIDTH - 2
    cleaned = [terminal.clean(line) for line in lines]
    if not any(cleaned):
        return []
    return _labelled(terminal, label, [line if len(line) <= width else f"{line[: width - 3]}..." for line in cleaned])


def _labelled(terminal: Terminal, label: str, lines: list[str]) -> list[str]:
    first = terminal.paint(f"  {label:<{LABEL_WIDTH}}", "dim") + lines[0]
    return [first, *(" " * (LABEL_WIDTH + 2) + line for line in lines[1:])]


def _last_lines(output: str) -> list[str]:
    lines = output.rstrip("\n").split("\n")
    if len(lines) <= OUTPUT_SHOWN:
        return lines
    return [f"({len(lines) - OUTPUT_SHOWN} earlier lines left out)", *lines[-OUTPUT_SHOWN:]]
