"""Markdown, as far as tasks and hints use it, as lines for a terminal: paragraphs, items, tables, fences, code."""

from __future__ import annotations

import re

from course.judge.console.terminal import Terminal

ITEM = re.compile(r"(-|\d+\.) ")


def wrap(text: str, width: int) -> list[str]:
    """Break `text` at blanks into lines of at most `width`; a longer word is cut where it must be."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
        while len(line) > width:
            lines.append(line[:width])
            line = line[width:]
    return [*lines, line] if line or not lines else lines


def styled(terminal: Terminal, lines: list[str]) -> list[str]:
    """Return wrapped lines with `code` and **emphasis** in colour, or with their marks where there is none."""
    text = "\n".join(lines)
    if not terminal.color:
        return re.sub(r"\*\*(.+?)\*\*", r"*\1*", text, flags=re.DOTALL).split("\n")
    text = re.sub(r"\*\*(.+?)\*\*", lambda match: _paint(terminal, match[1], "bold"), text, flags=re.DOTALL)
    return re.sub(r"`(.+?)`", lambda match: _paint(terminal, match[1], "code"), text, flags=re.DOTALL).split("\n")


def sentence(terminal: Terminal, text: str) -> list[str]:
    """Return the lines of one paragraph."""
    return styled(terminal, wrap(terminal.clean(text), terminal.width))


def heading(terminal: Terminal, text: str) -> list[str]:
    """Return the lines of a heading."""
    return [terminal.paint(line, "bold") for line in wrap(terminal.clean(text), terminal.width)]


def markdown(terminal: Terminal, text: str, indent: int = 2) -> list[str]:
    """Return the lines of a Markdown text."""
    result: list[str] = []
    for block in _blocks(terminal.clean(text).split("\n")):
        first, rest = " " * indent, " " * indent
        if block[:1] == ["```"]:
            result += [f"{first}  {line}" for line in block[1:]]
            continue
        if block[0].startswith("|"):
            result += [first + line for line in _table(terminal, block, terminal.width - indent)]
            continue
        words = " ".join(block)
        if item := ITEM.match(words):
            mark = terminal.symbol("bullet") if item[1] == "-" else item[1]
            words, first, rest = words[item.end() :], f"{first}{mark} ", rest + " " * (len(mark) + 1)
        lines = styled(terminal, wrap(words, terminal.width - len(first)))
        result += [(rest if number else first) + line for number, line in enumerate(lines)]
    return result


def _table(terminal: Terminal, lines: list[str], width: int) -> list[str]:
    """Return a table with its columns one below the other; where that is too wide, each row is an item."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if not re.match(r"[|:\- ]+$", line)]
    cells = [[(styled(terminal, [cell])[0], _visible(terminal, cell)) for cell in row] for row in rows]
    widths = [max(size for _, size in column) for column in zip(*cells, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        return [
            "  ".join(text + " " * (room - size) for (text, size), room in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
    mark = terminal.symbol("bullet")
    items = [styled(terminal, wrap(": ".join(filter(None, row)), width - 2)) for row in rows[1:]]
    return [f"{' ' if number else mark} {line}" for item in items for number, line in enumerate(item)]


def _visible(terminal: Terminal, text: str) -> int:
    """Return how many places `styled` text takes."""
    return len(re.sub(r"[`*]" if terminal.color else r"\*(?=\*)", "", text))


def _blocks(lines: list[str]) -> list[list[str]]:
    """Return paragraphs and items, each a list of its lines; an empty line stays, a fence keeps its mark first."""
    blocks: list[list[str]] = [[]]
    fenced = False
    for line in lines:
        if line.strip().startswith("```"):
            fenced = not fenced
            blocks.append(["```"] if fenced else [])
        elif fenced:
            blocks[-1].append(line)
        elif not line.strip():
            blocks += [[""], []]
        elif ITEM.match(line):
            blocks.append([line])
        else:
            blocks[-1].append(line.strip())
    return [block for block in blocks if block]


def _paint(terminal: Terminal, text: str, style: str) -> str:
    """Colour a span that may run over several lines, line by line, so that indentation stays plain."""
    return "\n".join(terminal.paint(part, style) for part in text.split("\n"))
