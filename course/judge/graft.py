"""Puts together the module under judgement: the learner's file, completed from the reference.

A file holds the answers to several exercises. While one is judged, the symbols of the others come from the reference,
so that a wrong `grow` cannot fail a right `fork`. The learner's own helpers, imports and extra methods stay.
"""

from __future__ import annotations

import ast
import importlib
import linecache
import sys
import types
from collections.abc import Iterable
from typing import Any


class Missing(Exception):
    """The learner's file lacks a symbol that the exercise asks for."""


class Borrowed(Exception):
    """The learner's file takes something from the reference instead of having its own."""


def refuse_borrowing(module: types.ModuleType) -> None:
    """Raise `Borrowed` when something in `module` is the reference's: an answer that imports the answer."""
    for name, value in vars(module).items():
        home = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
        if isinstance(home, str) and home.partition(".")[0] == "solutions":
            raise Borrowed(name)


def load_source(source: str, filename: str, module_name: str) -> types.ModuleType:
    """Run `source` as a fresh module and return it; tracebacks show its lines under `filename`."""
    _remember_lines(source, filename, filename.count("/") + 1)
    module = types.ModuleType(module_name)
    module.__file__ = filename
    sys.modules[module_name] = module  # dataclasses look their module up there
    exec(compile(source, filename, "exec", dont_inherit=True), module.__dict__)
    return module


def reference_module(name: str, path: str | None = None) -> types.ModuleType:
    """Return the reference's module: that of `solutions/`, or for a designed bug the file at `path`."""
    return importlib.import_module(f"solutions.{name}") if path is None else load_file(path, f"solutions.{name}")


def graft(module: types.ModuleType, reference: types.ModuleType, asked: Iterable[str]) -> None:
    """Replace in `module` what the reference defines by the reference's own, except the symbols in `asked`.

    Symbols are `function` or `Class.method`. A class stays the learner's class, with the reference's methods put into
    it, so that every name has one class. `Missing` when an asked symbol is not there.
    """
    asked = set(asked)
    for symbol in sorted(asked):
        _require(module, symbol)
    # The reference's functions keep the reference's private helpers and imports, but see the merged public names.
    scope = dict(reference.__dict__)
    for name, value in _own_members(reference).items():
        if isinstance(value, type):
            _graft_class(module, name, value, asked, scope)
        elif name not in asked and not (name.startswith("_") and hasattr(module, name)):
            setattr(module, name, _rebind(value, scope))
        if not name.startswith("_"):
            scope[name] = getattr(module, name)


def graft_source(module: types.ModuleType, reference: types.ModuleType, asked: Iterable[str]) -> None:
    """Do as `graft` for a module of Triton kernels, which are compiled from their source.

    The reference's functions are made anew in `module`, where they see the learner's; tracebacks and compilers find
    them in the reference's file. Constants and classes of the learner's stay.
    """
    asked = set(asked)
    for symbol in sorted(asked):
        _require(module, symbol)
    assert reference.__file__
    with open(reference.__file__, encoding="utf-8") as file:
        source = file.read()
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if _is_wanted(node, asked, vars(module))]
    filename = _remember_lines(source, reference.__file__, 2)
    exec(compile(tree, filename, "exec", dont_inherit=True), module.__dict__)


def load_file(path: str, module_name: str) -> types.ModuleType:
    """Run a file of an exercise's folder as a fresh module."""
    with open(path, encoding="utf-8") as file:
        source = file.read()
    module = load_source(source, _remember_lines(source, path, 4), module_name)
    module.__file__ = path
    return module


def _remember_lines(source: str, path: str, parts: int) -> str:
    """Return the last parts of a path, under which tracebacks and compilers find the source on any machine."""
    filename = "/".join(path.replace("\\", "/").split("/")[-parts:])
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    return filename


def _is_wanted(node: ast.stmt, asked: set[str], there: dict[str, Any]) -> bool:
    if isinstance(node, ast.FunctionDef):
        return node.name not in asked
    if isinstance(node, ast.ClassDef):
        return node.name not in there
    if isinstance(node, ast.Assign):
        return not all(isinstance(target, ast.Name) and target.id in there for target in node.targets)
    return isinstance(node, ast.Import | ast.ImportFrom)


def _own_members(module: types.ModuleType) -> dict[str, Any]:
    """Return the functions and classes that `module` itself defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, types.FunctionType | type) and value.__module__ == module.__name__
    }


def _graft_class(module: types.ModuleType, name: str, reference: type, asked: set[str], scope: dict[str, Any]) -> None:
    mine = getattr(module, name, None)
    if not isinstance(mine, type):
        # Nothing of this class is asked for, or `_require` would have said so.
        setattr(module, name, reference)
        return
    for member, value in vars(reference).items():
        replaceable = isinstance(value, types.FunctionType | property | staticmethod | classmethod)
        if replaceable and f"{name}.{member}" not in asked and not _is_protocol(reference):
            setattr(mine, member, _rebind(value, scope))


def _is_protocol(cls: type) -> bool:
    return bool(getattr(cls, "_is_protocol", False))


def _rebind(value: Any, scope: dict[str, Any]) -> Any:
    """Return the reference's `value` with `scope` for its globals."""
    if isinstance(value, property):
        return property(*(part and _rebind(part, scope) for part in (value.fget, value.fset, value.fdel)))
    if isinstance(value, staticmethod | classmethod):
        return type(value)(_rebind(value.__func__, scope))
    if value.__globals__.get("__name__") != scope["__name__"]:
        return value  # a named tuple's methods are made elsewhere, and see nothing of the module
    copy = types.FunctionType(value.__code__, scope, value.__name__, value.__defaults__, value.__closure__)
    copy.__kwdefaults__ = value.__kwdefaults__
    return copy


def _require(module: types.ModuleType, symbol: str) -> None:
    owner: Any = module
    for part in symbol.split("."):
        if part not in vars(owner) and not (isinstance(owner, type) and hasattr(owner, part) and part != "__init__"):
            raise Missing(symbol)
        owner = vars(owner).get(part) if part in vars(owner) else getattr(owner, part)
