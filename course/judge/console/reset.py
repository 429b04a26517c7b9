"""`reset`: puts the stub of one exercise back, and leaves everything else in the file as it is."""

from __future__ import annotations

import ast
import time
from pathlib import Path

from course.judge.console.answers import answer_path, read_answer
from course.judge.console.invocation import command
from course.judge.console.progress import FOLDER
from course.judge.console.prose import sentence
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import next_row
from course.judge.exercise import ROOT, Exercise
from course.judge.stub import replace_symbols, stub_source, symbol_sources

BACKUPS = FOLDER / "backups"


class ResetError(Exception):
    """The file could not be reset; it is as it was."""


def reset(terminal: Terminal, exercise: Exercise, *, whole_file: bool) -> int:
    """Reset one exercise (or its whole file) after keeping a dated copy."""
    answer = read_answer(exercise.module)
    text = None if whole_file or answer.text is None else _with_stub(exercise, answer.text)
    if text is not None and text == answer.text:
        terminal.write(["", *sentence(terminal, f"{exercise.id} in {exercise.file} is the stub already."), ""])
        terminal.write([*next_row(terminal, command("check", exercise.id)), ""])
        return 0
    what = f"{exercise.id} in {exercise.file}" if text is not None else f"the whole of {exercise.file}"
    try:
        backup = keep_copy(exercise.module)
        write_answer(exercise.module, stub_source(exercise.module) if text is None else text)
    except (OSError, ResetError) as error:
        raise ResetError(f"{exercise.file} was not reset: {error}") from error
    said = [f"The stub is back for {what}."]
    if text is None and not whole_file and backup is not None:
        said.append("With one stub in it the file is no valid Python, so the exercises beside it went too.")
    if backup is not None:
        said.append(f"What was there is kept in {backup.relative_to(ROOT).as_posix()}.")
    lines = [line for each in said for line in sentence(terminal, each)]
    terminal.write(["", *lines, "", *next_row(terminal, command("check", exercise.id)), ""])
    return 0


def _with_stub(exercise: Exercise, text: str) -> str | None:
    """Return `text` with the exercise's symbols as in the stub; None when no valid Python comes out."""
    stub = stub_source(exercise.module)
    stubs = symbol_sources(stub)
    try:
        there = symbol_sources(text)
        text = replace_symbols(text, {symbol: stubs[symbol] for symbol in exercise.symbols if symbol in there})
        for symbol in exercise.symbols:
            if symbol not in symbol_sources(text):
                text = _with_missing(text, symbol, stub)
        text = _with_imports(text, stub)
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    return text


def _with_missing(text: str, symbol: str, stub: str) -> str:
    """Return `text` with a symbol that it lacks: at the end of its class, or of the file, with a class that is gone."""
    owner, dot, _ = symbol.rpartition(".")
    classes = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    lines = text.rstrip("\n").split("\n")
    if not dot:
        return "\n".join([*lines, "", "", symbol_sources(stub)[symbol]])
    if owner in classes:
        end = classes[owner].end_lineno
        return "\n".join([*lines[:end], "", symbol_sources(stub)[symbol].rstrip("\n"), *lines[end:], ""])
    source = next(node for node in ast.parse(stub).body if isinstance(node, ast.ClassDef) and node.name == owner)
    return "\n".join([*lines, "", "", *stub.split("\n")[source.lineno - 1 : source.end_lineno], ""])


def _with_imports(text: str, stub: str) -> str:
    """Return `text` with the imports of the stub that it lacks, behind its docstring and `__future__` imports."""
    there = _imports(text)
    missing = [line for name, line in _imports(stub).items() if name not in there]
    if not missing:
        return text
    top = 0
    for node in ast.parse(text).body:
        is_docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not is_docstring and not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
            break
        top = node.end_lineno or top
    lines = text.split("\n")
    return "\n".join([*lines[:top], *([""] if top else []), *dict.fromkeys(missing), "", *lines[top:]])


def _imports(text: str) -> dict[str, str]:
    """Return the lines of the imports at the top level, by each name that they bring in."""
    nodes = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.asname or alias.name: ast.unparse(node) for node in nodes for alias in node.names}


def keep_copy(module: str) -> Path | None:
    """Copy the file as it is, byte for byte; None when there is none. Nothing that was kept is written over."""
    path = answer_path(module)
    if path.is_dir():
        raise ResetError("it is a directory, move it away first")
    if not path.exists():
        return None
    BACKUPS.mkdir(parents=True, exist_ok=True)
    stamp = f"{module}-{time.strftime('%Y-%m-%d-%H%M%S')}"
    names = (f"{stamp}{f'-{number}' if number else ''}.py" for number in range(1000))
    backup = next(BACKUPS / name for name in names if not (BACKUPS / name).exists())
    backup.write_bytes(path.read_bytes())
    return backup


def write_answer(module: str, text: str) -> None:
    """Write the file with the line ends that it had."""
    path = answer_path(module)
    ends = "\r\n" if path.exists() and b"\r\n" in path.read_bytes() else "\n"
    path.write_text(text, "utf-8", newline=ends)
