"""Makes small changes of every kind to the reference: each comparison, constant, operator, order and statement."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

from course.judge.exercise import Exercise
from course.judge.stub import reference_source, replace_symbols

COMPARISONS: dict[type[ast.cmpop], list[type[ast.cmpop]]] = {
    ast.Lt: [ast.LtE, ast.Gt],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.Lt],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
}
OPERATORS: dict[type[ast.operator], list[type[ast.operator]]] = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.FloorDiv, ast.Add],
    ast.FloorDiv: [ast.Mult, ast.Mod],
    ast.Mod: [ast.FloorDiv, ast.Mult],
    ast.Div: [ast.Mult],
}
METHODS = {"append": "appendleft", "popleft": "pop", "share": "free"}

# A change is made in place on a deep copy, at the same place of the tree as in the original.
Edit = Callable[[ast.AST], None]


def mechanical(exercise: Exercise) -> Iterator[tuple[str, str]]:
    """Yield (change, module source) for every small change to the exercise's symbols.

    A change is named "symbol: old statement → new statement", which does not move with line numbers. A designed bug has
    none: it is about its bug, and the exercises of the module that it is taken from have them.
    """
    if exercise.is_bug:
        return
    reference = reference_source(exercise.module)
    tree = ast.parse(reference)
    seen = set()
    for symbol in exercise.symbols:
        function = _find(tree, symbol)
        for path, edit in _edits(function):
            changed = copy.deepcopy(function)
            edit(_follow(changed, path))
            ast.fix_missing_locations(changed)
            name = f"{symbol}: {_difference(function, changed)}"
            if name in seen or ast.dump(changed) == ast.dump(function):
                continue
            seen.add(name)
            indent = " " * function.col_offset
            text = "".join(f"{indent}{line}\n" for line in ast.unparse(changed).splitlines())
            yield name, replace_symbols(reference, {symbol: text})


def _edits(function: ast.FunctionDef) -> Iterator[tuple[list[str | int], Edit]]:
    """Yield (path to a node, edit of that node) for every change to a function's body."""
    for path, node in _walk(function, []):
        match node:
            case ast.Compare():
                for index, op in enumerate(node.ops):
                    for other in COMPARISONS[type(op)]:
                        yield path, _set("ops", index, other())
            case ast.BinOp() | ast.AugAssign():
                for operator in OPERATORS.get(type(node.op), []):
                    yield path, _set("op", None, operator())
            case ast.BoolOp():
                yield path, _set("op", None, ast.Or() if isinstance(node.op, ast.And) else ast.And())
                for index in range(len(node.values)):
                    yield path, _drop("values", index)
            case ast.Constant(value=bool(value)):
                yield path, _set("value", None, not value)
            case ast.Constant(value=int(value)):
                yield path, _set("value", None, value + 1)
                yield path, _set("value", None, value - 1)
            case ast.If() | ast.IfExp():
                yield path, _set("test", None, ast.UnaryOp(ast.Not(), node.test))
                yield path, _set("test", None, ast.Constant(False))
            case ast.Return(value=ast.expr()):
                yield path, _set("value", None, ast.Constant(None))
            case ast.Return(value=ast.Constant(value=None)):
                yield path, _set("value", None, ast.List([], ast.Load()))
            case ast.For() | ast.comprehension():
                listed = ast.Call(ast.Name("list", ast.Load()), [node.iter], [])
                yield path, _set("iter", None, ast.Call(ast.Name("reversed", ast.Load()), [listed], []))
            case ast.Call(func=ast.Name(id="list" | "max" | "sorted"), args=[_]):
                yield path, _replace_call_by_argument
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in METHODS:
                yield path, _rename(METHODS[attr])
        for field in ("body", "orelse"):
            statements = getattr(node, field, None)
            if isinstance(statements, list):
                start = 1 if node is function and ast.get_docstring(function) is not None else 0
                for index in range(start, len(statements)):
                    if not isinstance(statements[index], ast.Pass):
                        yield path, _set(field, index, ast.Pass())
                    if index + 1 < len(statements):
                        yield path, _swap(field, index)


def _walk(node: ast.AST, path: list[str | int]) -> Iterator[tuple[list[str | int], ast.AST]]:
    """Yield every node below `node` that is code: no annotation, no docstring, nothing inside an error's text."""
    yield path, node
    for field, value in ast.iter_fields(node):
        if field in ("returns", "annotation", "args") and isinstance(node, ast.FunctionDef | ast.AnnAssign):
            continue
        if field == "decorator_list" or isinstance(value, ast.JoinedStr):
            continue
        children = enumerate(value) if isinstance(value, list) else [(None, value)]
        for index, child in children:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _walk(child, [*path, field] if index is None else [*path, field, index])


def _follow(node: ast.AST, path: list[str | int]) -> ast.AST:
    found: object = node
    for step in path:
        found = found[step] if isinstance(step, int) else getattr(found, step)  # type: ignore[index]
    assert isinstance(found, ast.AST)
    return found


def _set(field: str, index: int | None, value: object) -> Edit:
    def edit(node: ast.AST) -> None:
        if index is None:
            setattr(node, field, value)
        else:
            getattr(node, field)[index] = value

    return edit


def _drop(field: str, index: int) -> Edit:
    return lambda node: getattr(node, field).pop(index)


def _swap(field: str, index: int) -> Edit:
    def edit(node: ast.AST) -> None:
        items = getattr(node, field)
        items[index], items[index + 1] = items[index + 1], items[index]

    return edit


def _rename(name: str) -> Edit:
    return lambda node: setattr(node.func, "attr", name)  # type: ignore[attr-defined]


def _replace_call_by_argument(node: ast.AST) -> None:
    """`list(x)` → `(x)`: keep the node, since its parent points to it, and make it `x if True else x`."""
    assert isinstance(node, ast.Call)
    argument = node.args[0]
    node.func = ast.Lambda(ast.arguments([], [ast.arg("same")], None, [], [], None, []), ast.Name("same", ast.Load()))
    node.args = [argument]


def _find(tree: ast.Module, symbol: str) -> ast.FunctionDef:
    body: list[ast.stmt] = tree.body
    *classes, name = symbol.split(".")
    for each in classes:
        body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == each)
    return next(node for node in body if isinstance(node, ast.FunctionDef) and node.name == name)


def _difference(old: ast.FunctionDef, new: ast.FunctionDef) -> str:
    before, after = ast.unparse(old).splitlines(), ast.unparse(new).splitlines()
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    shown = (" ⏎ ".join(line.strip() for line in part[start : len(part) - end]) for part in (before, after))
    return " → ".join(shown)
