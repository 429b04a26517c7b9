"""The learner's files in `practice/`, as they are right now."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from course.judge.exercise import ROOT, Exercise
from course.judge.untouched import is_untouched


class Answer(NamedTuple):
    """One file. `text` has plain line ends; it is None when `problem` says why there is none to judge."""

    module: str
    text: str | None
    problem: str | None = None


def answer_path(module: str) -> Path:
    return ROOT / "practice" / f"{module}.py"


def read_answer(module: str) -> Answer:
    """Read `practice/<module>.py`. Nothing that can be wrong with a file is an error here."""
    name = f"practice/{module}.py"
    path = answer_path(module)
    if path.is_dir():
        return Answer(module, None, f"{name} is a directory: move it away")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Answer(module, None, f"{name} is not there")
    except OSError as error:
        return Answer(module, None, f"{name} cannot be read: {error.strerror or error}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return Answer(
            module, None, f"{name}, line {line}: byte 0x{data[error.start]:02x} is not UTF-8, save it as UTF-8"
        )
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        return Answer(module, None, f"{name}, line {line}: a NUL character, so this is no Python text (UTF-16?)")
    if not text.strip():
        return Answer(module, None, f"{name} is empty")
    return Answer(module, text.replace("\r\n", "\n"))


def is_started(exercise: Exercise, answer: Answer) -> bool:
    """Whether anything of `exercise` differs from the stub. A file without readable text counts as started."""
    if answer.text is None:
        return True
    if is_untouched(answer.module, answer.text):
        return False
    stubs = stub_symbols(answer.module)
    return any(stubs[symbol] not in answer.text for symbol in exercise.symbols)


def stub_symbols(module: str) -> dict[str, str]:
    """Return the text of every symbol of the module's stub."""
    from course.judge.stub import stub_source, symbol_sources  # only here: reading syntax trees takes long to import

    return symbol_sources(stub_source(module))


def place_to_write(exercise: Exercise, answer: Answer) -> tuple[int, str]:
    """Return the line, and the symbol, where the first unwritten part stands; else those of the first part."""
    text = answer.text or ""
    for symbol in exercise.symbols:
        mark = text.find(f'NotImplementedError("{exercise.id}: {symbol} ')
        if mark >= 0:
            return text.count("\n", 0, mark) + 1, symbol
    symbol = exercise.symbols[0]
    found = re.search(rf"^\s*(async\s+)?def\s+{symbol.rsplit('.')[-1]}\b", text, re.MULTILINE)
    return (text.count("\n", 0, found.end()) + 1 if found else 1), symbol
