"""A module's text as parts to compare and to move: its docstring, imports, functions, classes and their methods.

The parts of a text, put together again, are the text. What stands above a statement (comments, blank lines) belongs to
the statement.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef
DOCSTRING = '"""'
# What reading a text as Python may raise: it is no Python, holds a NUL, or is nested too deep.
UNREADABLE = (SyntaxError, ValueError, RecursionError, MemoryError)


class Part(NamedTuple):
    """Consecutive lines. `key` names what they define: the same key in two texts is the same thing.

    `Class` is a class's head, down to its docstring; `Class.method` is one of its members, and `owner` the class.
    """

    key: str
    text: str
    node: ast.stmt | None
    owner: str = ""

    @property
    def code(self) -> str:
        """The text without the blank lines around it, for comparing."""
        lines = [line.rstrip() for line in self.text.split("\n")]
        return "\n".join(lines).strip("\n")

    @property
    def is_import(self) -> bool:
        return isinstance(self.node, ast.Import | ast.ImportFrom) and not self.owner


def split(source: str) -> list[Part]:
    """Return the parts of `source`, in order; `UNREADABLE` when it is no Python. Lines end in a plain newline."""
    tree = ast.parse(source)
    # Not `splitlines`: a form feed ends no line of Python's.
    lines = [f"{line}\n" for line in source.removesuffix("\n").split("\n")] if source else []
    parts: list[Part] = []
    done = 0
    for node, owner, key, end in _statements(tree, lines):
        if end <= done and parts:  # `a = 1; b = 2`: two statements, one line, one part
            parts[-1] = parts[-1]._replace(key=f"{parts[-1].key} {key}")
            continue
        parts.append(Part(key, "".join(lines[done:end]), node, owner))
        done = end
    if done < len(lines):
        parts.append(Part("the end", "".join(lines[done:]), None))
    return parts


def join(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts)


def by_key(parts: Iterable[Part]) -> dict[str, str]:
    """Return the code of every part; several of one key (a property and its setter) are one text."""
    found: dict[str, str] = {}
    for part in parts:
        found[part.key] = f"{found[part.key]}\n\n{part.code}" if part.key in found else part.code
    return found


def names_used(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def bound_names(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return what an import brings in: each name, and the import of it alone."""
    single = (
        (lambda alias: ast.ImportFrom(node.module, [alias], node.level))
        if isinstance(node, ast.ImportFrom)
        else (lambda alias: ast.Import([alias]))
    )
    return {alias.asname or alias.name: ast.unparse(single(alias)) for alias in node.names}


def _statements(tree: ast.Module, lines: list[str]) -> Iterator[tuple[ast.stmt, str, str, int]]:
    """Yield every part's statement, its class, its key and its last line."""
    for place, node in enumerate(tree.body):
        assert node.end_lineno
        if place == 0 and _is_text(node):
            yield node, "", DOCSTRING, node.end_lineno
        elif isinstance(node, ast.ClassDef) and node.body[0].lineno > node.lineno:
            body: Sequence[ast.stmt] = node.body
            if _is_text(body[0]):
                yield node, "", node.name, body[0].end_lineno or 0
                body = body[1:]
            else:
                yield node, "", node.name, _end_of_head(node, lines)
            for member in body:
                assert member.end_lineno
                yield member, node.name, f"{node.name}.{_key(member)}", member.end_lineno
        else:
            yield node, "", _key(node), node.end_lineno


def _end_of_head(node: ast.ClassDef, lines: list[str]) -> int:
    """Return the line that ends `class …:`: the first from its last base on that ends in a colon."""
    line = max([node.lineno, *(each.end_lineno or 0 for each in [*node.bases, *(k.value for k in node.keywords)])])
    while line < node.body[0].lineno - 1 and not re.search(r":\s*(#.*)?$", lines[line - 1]):
        line += 1
    return line


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _key(node: ast.stmt) -> str:
    if isinstance(node, Function | ast.ClassDef):
        return node.name
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    if targets and all(isinstance(each, ast.Name) for each in targets):
        return " ".join(ast.unparse(each) for each in targets)
    return ast.unparse(node)
