"""Cuts stubs from the reference: the same module, with the bodies that a learner writes taken out.

Cutting works on source lines that the syntax tree names, so comments, types and docstrings of what stays are the
reference's own. Imports and private helpers that only removed bodies used go too. A designed bug is not cut: what is
handed out is written by hand.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable

from course.judge.exercise import Exercise, find_exercise, load_exercises, reference_path

Function = ast.FunctionDef | ast.AsyncFunctionDef


def stub_source(module: str) -> str:
    """Return the text of `practice/<module>.py` as it is handed out: all its exercises unwritten."""
    exercises = _exercises_of(module)
    for exercise in exercises:
        if exercise.is_bug:
            return exercise_stub(exercise.id)
    owners = {symbol: exercise.id for exercise in exercises for symbol in exercise.symbols}
    return _cut(module, owners, leave_out=())


def exercise_stub(exercise_id: str) -> str:
    """Return the module with one exercise unwritten, and what other exercises ask for left out."""
    exercise = find_exercise(exercise_id)
    if exercise.is_bug:
        return (exercise.folder / "broken.py").read_text("utf-8")
    return _cut(exercise.module, dict.fromkeys(exercise.symbols, exercise.id), other_symbols(exercise))


def exercise_solution(exercise_id: str) -> str:
    """Return the same with the reference's bodies."""
    exercise = find_exercise(exercise_id)
    return reference_source(exercise.module) if exercise.is_bug else _cut(exercise.module, {}, other_symbols(exercise))


def reference_source(module: str) -> str:
    return reference_path(module).read_text("utf-8")


def symbol_sources(source: str) -> dict[str, str]:
    """Return the source text of every function and method in `source`, by symbol, decorators included."""
    lines = source.splitlines(keepends=True)
    return {
        symbol: "".join(lines[_first_line(node) - 1 : node.end_lineno])
        for symbol, node in _functions(ast.parse(source))
    }


def replace_symbols(source: str, replacements: dict[str, str]) -> str:
    """Return `source` with the named symbols' text replaced. `KeyError` when one is not there."""
    nodes = dict(_functions(ast.parse(source)))
    lines = source.splitlines(keepends=True)
    for symbol in sorted(replacements, key=lambda name: -nodes[name].lineno):
        node = nodes[symbol]
        lines[_first_line(node) - 1 : node.end_lineno] = [replacements[symbol]]
    return "".join(lines)


def _exercises_of(module: str) -> list[Exercise]:
    return [exercise for exercise in load_exercises() if exercise.module == module]


def other_symbols(exercise: Exercise) -> tuple[str, ...]:
    """Return what of the module the exercise's short file does without: what others ask for, and what it leaves out."""
    others = (other for other in _exercises_of(exercise.module) if other.id != exercise.id)
    return (*(symbol for other in others for symbol in other.symbols), *exercise.leaves_out)


@functools.cache
def _cut_cached(module: str, stubbed: tuple[tuple[str, str], ...], leave_out: tuple[str, ...]) -> str:
    source = reference_source(module)
    tree = ast.parse(source)
    nodes = dict(_functions(tree))
    lines: list[str | None] = list(source.splitlines(keepends=True))
    before = _names_used(tree)
    for symbol, exercise_id in stubbed:
        node = nodes[symbol]
        body = node.body[1] if ast.get_docstring(node) is not None else node.body[0]
        assert body.end_lineno and node.end_lineno
        lines[_start_of(body, lines) - 1 : node.end_lineno] = [None] * (node.end_lineno - _start_of(body, lines) + 1)
        lines[node.end_lineno - 1] = (
            f'{" " * (node.col_offset + 4)}raise NotImplementedError("{exercise_id}: {symbol} is not written yet")\n'
        )
    for symbol in leave_out:
        _remove(lines, nodes[symbol])
    text = "".join(line for line in lines if line is not None)
    return _tidy(_without_unused(text, before))


def _cut(module: str, stubbed: dict[str, str], leave_out: Iterable[str]) -> str:
    return _cut_cached(module, tuple(stubbed.items()), tuple(leave_out))


def _without_unused(text: str, before: set[str]) -> str:
    """Drop imports and private helpers that were used before the cut and are no longer."""
    while True:
        tree = ast.parse(text)
        gone = before - _names_used(tree)
        lines: list[str | None] = list(text.splitlines(keepends=True))
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                kept = [alias for alias in node.names if (alias.asname or alias.name) not in gone]
                if len(kept) < len(node.names):
                    _remove(lines, node)
                    if kept:
                        lines[node.lineno - 1] = ast.unparse(_import_of(node, kept)) + "\n"
            elif isinstance(node, Function | ast.ClassDef) and node.name.startswith("_") and node.name in gone:
                _remove(lines, node)
        shorter = "".join(line for line in lines if line is not None)
        if shorter == text:
            return text
        text = shorter


def _import_of(node: ast.Import | ast.ImportFrom, names: list[ast.alias]) -> ast.stmt:
    if isinstance(node, ast.ImportFrom):
        return ast.ImportFrom(node.module, names, node.level)
    return ast.Import(names)


def _functions(tree: ast.Module) -> list[tuple[str, Function]]:
    found: list[tuple[str, Function]] = []
    for node in tree.body:
        if isinstance(node, Function):
            found.append((node.name, node))
        elif isinstance(node, ast.ClassDef):
            found += [(f"{node.name}.{each.name}", each) for each in node.body if isinstance(each, Function)]
    return found


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _start_of(body: ast.stmt, lines: list[str | None]) -> int:
    """Return the first line of a body, comments that stand directly above it included."""
    line = body.lineno
    while (above := lines[line - 2]) is not None and above.lstrip().startswith("#"):
        line -= 1
    return line


def _remove(lines: list[str | None], node: ast.stmt) -> None:
    assert node.end_lineno
    for line in range(_first_line(node) - 1, node.end_lineno):
        lines[line] = None


def _names_used(tree: ast.AST) -> set[str]:
    """Return the names that are read anywhere, annotations included (also those written as strings)."""
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _tidy(text: str) -> str:
    """Bring the blank lines that a removal leaves back to what a formatter keeps: two at most, one inside a class."""
    result: list[str] = []
    blank = 0
    for line in text.splitlines(keepends=True):
        if line.strip():
            indented = line[0] in " \t"
            result += ["\n"] * min(blank, 1 if indented else 2)
            result.append(line)
            blank = 0
        elif result:
            blank += 1
    return "".join(result)
