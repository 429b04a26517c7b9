"""What the terminal can show: colours, characters beyond ASCII, a width. Whoever prints asks here, once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TextIO

STYLES = {"good": "32", "bad": "31", "note": "33", "code": "36", "dim": "2", "bold": "1"}
SYMBOLS = {
    "passed": ("✓", "ok"),
    "red": ("✗", "x"),
    "unwritten": ("·", "-"),
    "unjudged": ("?", "?"),
    "here": ("▸", ">"),
    "gave": ("→", "->"),
    "full": ("█", "#"),
    "empty": ("░", "."),
    "bullet": ("•", "-"),
}
# What the course's own texts use beyond ASCII.
ASCII = {
    ord(char): ascii_text
    for chars, ascii_text in (("–—−·", "-"), ("“”", '"'), ("‘’", "'"), ("…", "..."), ("→", "->"), ("×", "x"))
    for char in chars
} | {ord("≤"): "<=", ord("≥"): ">=", ord("≠"): "!=", ord("✓"): "ok", ord("✗"): "x"}
PIPED_WIDTH = 96
MIN_WIDTH, MAX_WIDTH = 40, 100


class Terminal:
    """One output stream. Text from outside goes through `clean` before it is laid out, lines through `write`."""

    def __init__(self, stream: TextIO, *, color: bool, unicode: bool, width: int) -> None:
        self.color = color
        self.unicode = unicode
        self.width = width
        self._stream = stream

    @classmethod
    def of(cls, stream: TextIO, *, color: bool = True) -> Terminal:
        """Return what `stream` can do; `color=False` is the user's wish for none."""
        is_screen = stream.isatty()
        return cls(
            stream,
            color=color and _wants_color(is_screen) and _enable_color(is_screen),
            unicode=_can_encode(stream, "".join(symbol for symbol, _ in SYMBOLS.values())),
            width=_width(stream),
        )

    @property
    def is_screen(self) -> bool:
        return self._stream.isatty()

    def symbol(self, name: str) -> str:
        return SYMBOLS[name][0 if self.unicode else 1]

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{text}\x1b[0m" if self.color and text else text

    def clean(self, text: str) -> str:
        """Return `text` as this terminal can show it: no control characters, nothing that it cannot encode."""
        if not text.isprintable():
            text = "".join(char if char.isprintable() or char == "\n" else _escape(char) for char in text)
        if self.unicode:
            return text
        return text.translate(ASCII).encode("ascii", "backslashreplace").decode()

    def write(self, lines: Iterable[str]) -> None:
        text = "".join(f"{line.rstrip()}\n" for line in lines)
        encoding = self._stream.encoding or "utf-8"
        self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self._stream.flush()

    @property
    def can_rewrite(self) -> bool:
        """Whether lines that are on the screen can be written over."""
        return self.is_screen and self.color

    def rewrite(self, lines: Iterable[str], height: int) -> None:
        """Write lines in the place of the last `height` ones. Each has to fit into the width."""
        self._stream.write(f"\x1b[{height}A\x1b[J" if height else "")
        self.write(lines)

    def clear(self) -> None:
        """Empty the screen, where there is one."""
        if self.is_screen and self.color:
            self._stream.write("\x1b[2J\x1b[H")


def _escape(char: str) -> str:
    return "    " if char == "\t" else ascii(char)[1:-1]


def _wants_color(is_screen: bool) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return is_screen and os.environ.get("TERM") != "dumb"


def _enable_color(is_screen: bool) -> bool:
    """Have the Windows console understand colours; elsewhere nothing needs to be done."""
    if sys.platform != "win32" or not is_screen:
        return True
    import ctypes

    kernel = ctypes.windll.kernel32
    handle, mode = kernel.GetStdHandle(-11), ctypes.c_ulong()
    return bool(kernel.GetConsoleMode(handle, ctypes.byref(mode)) and kernel.SetConsoleMode(handle, mode.value | 4))


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _width(stream: TextIO) -> int:
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        width = int(columns)
    else:
        try:
            width = os.get_terminal_size(stream.fileno()).columns or PIPED_WIDTH
        except (OSError, ValueError):
            width = PIPED_WIDTH
    return min(max(width, MIN_WIDTH), MAX_WIDTH)
