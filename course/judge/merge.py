"""Takes one exercise's answer out of a module, and puts one into it.

The page holds a short file for each exercise, `practice/` one module for several. Both hold more than the answer: the
learner's helpers, imports, constants, methods. Whatever is not the stub's own comes along. Where both sides have
changed the same thing differently, nothing is guessed: the answer is refused, with the names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from course.judge.exercise import Exercise
from course.judge.parts import (
    DOCSTRING,
    UNREADABLE,
    Function,
    Part,
    bound_names,
    by_key,
    join,
    names_used,
    split,
)
from course.judge.stub import exercise_stub, other_symbols, stub_source


class MergeError(Exception):
    """The answer cannot be put in, and nothing was changed; the text says why."""


class Merged(NamedTuple):
    """The module's new text, and the names of other exercises' parts that were left out."""

    text: str
    left_out: list[str]


def take_out(exercise: Exercise, text: str) -> str:
    """Return the learner's module without the answers to other exercises. What runs while it is loaded stays whole."""
    parts = split(text)
    others = set(other_symbols(exercise))
    kept = [part for part in parts if part.key not in others]
    while True:
        needed = {name for part in kept if part.node for name in _names_at_load(part.node)}
        more = [part for part in parts if part in kept or part.key.rpartition(".")[2] in needed]
        if len(more) == len(kept):
            break
        kept = more
    heads = {part.owner for part in parts} - {part.owner for part in kept}
    return join(
        part._replace(text=f"{part.text.rstrip()}\n    pass\n") if part.key in heads and not _has_text(part) else part
        for part in kept
    )


def put_in(exercise: Exercise, target: str, source: str, last: str = "") -> Merged:
    """Return `target` with the answer in `source`; `MergeError` when it does not go in.

    `last` is the text of this exercise that was exchanged before: what equals it has not changed since on that side.
    """
    try:
        return _Merge(exercise, split(target), split(source), last).run()
    except UNREADABLE as error:
        raise MergeError(f"the source {_describe(error)}") from error


def _describe(error: BaseException) -> str:
    line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    return f"is not valid Python{line}"


class _Merge:
    """One merge of three: the stub, what the learner has here (`target`), what comes in (`source`)."""

    def __init__(self, exercise: Exercise, target: list[Part], source: list[Part], last: str) -> None:
        self.exercise = exercise
        self.parts = target
        self.source = source
        self.mine = by_key(target)
        self.theirs = by_key(source)
        base = split(exercise_stub(exercise.id))
        self.base = by_key(base)
        self.stub = by_key(split(stub_source(exercise.module)))
        self.base_imports = _imports(base)
        try:
            self.last = by_key(split(last))
        except UNREADABLE:
            self.last = {}
        owners = {symbol.rpartition(".")[0] for symbol in exercise.symbols} - {""}
        self.new_classes = {owner for owner in owners if owner not in self.mine}
        self.conflicts: list[str] = []
        self.left_out: list[str] = []

    def run(self) -> Merged:
        missing = [symbol for symbol in self.exercise.symbols if symbol not in self.theirs]
        if missing:
            raise MergeError(f"the source has no {' and no '.join(missing)}: was it renamed or deleted?")
        before = dict(self.mine)
        wanted = self._with_what_they_use([key for key in self.theirs if self._wants(key)])
        imports = self._wanted_imports(wanted)
        if self.conflicts:
            names = ", ".join(dict.fromkeys(self.conflicts))
            raise MergeError(
                f"{names}: {self.exercise.file} and the source have each their own; make them equal, or rename one"
            )
        for key in wanted:
            self._put(key)
        for part in imports:
            self._put_import(part)
        text = join(self.parts)
        self._verify(text, before, wanted)
        return Merged(text, self.left_out)

    def _wants(self, key: str) -> bool:
        """Whether the source's part of this key goes in."""
        part = self._source_part(key)
        theirs, mine = self.theirs[key], self.mine.get(key)
        if part.is_import:
            return False
        if key in self.exercise.symbols:
            return theirs != mine
        if part.node is None:  # comments at the end
            return theirs != "" and theirs not in join(self.parts)
        if mine is None:
            return theirs != self.base.get(key) or bool({key, part.owner} & self.new_classes)
        if theirs in (mine, self.base.get(key), self.last.get(key)):
            return False
        if mine in (self.stub.get(key), self.last.get(key)):
            return True
        (self.left_out if key in other_symbols(self.exercise) else self.conflicts).append(key)
        return False

    def _with_what_they_use(self, wanted: list[str]) -> list[str]:
        """Return `wanted` and what of the stub it uses and the target lacks, in the source's order."""
        while True:
            used = {name for key in wanted if (node := self._source_part(key).node) for name in names_used(node)}
            more = [key for key in self.theirs if key in wanted or (key in used and key not in self.mine)]
            if len(more) == len(wanted):
                return wanted
            wanted = more

    def _wanted_imports(self, wanted: Iterable[str]) -> list[Part]:
        """Return the imports that the target lacks and that are the learner's own, or that what goes in uses."""
        nodes = [part.node for part in self.source if part.key in set(wanted) and part.node]
        used = {name for node in nodes for name in names_used(node)}
        there = _imports(self.parts)
        found = []
        for part in self.source:
            if not part.is_import:
                continue
            assert isinstance(part.node, ast.Import | ast.ImportFrom)
            names = bound_names(part.node)
            lacking = []
            for name, line in names.items():
                if there.get(name) == line:
                    continue
                own = self.base_imports.get(name) != line
                if name in there or name in self.mine:
                    self.conflicts += [line] if own else []
                elif own or name.partition(".")[0] in used or _is_future(part):
                    lacking.append(name)
            if len(lacking) == len(names):
                found.append(part)
            elif lacking:
                found.append(part._replace(text="".join(f"{names[name]}\n" for name in lacking)))
        return found

    def _put(self, key: str) -> None:
        part = self._source_part(key)
        text = self.theirs[key]
        places = [place for place, each in enumerate(self.parts) if each.key == key]
        if places:
            first, *others = places
            blank = len(self.parts[first].text) - len(self.parts[first].text.lstrip("\n"))
            self.parts[first] = part._replace(text="\n" * blank + text + "\n")
            for place in reversed(others):
                del self.parts[place]
            return
        blank = len(part.text) - len(part.text.lstrip("\n"))
        blank = max(blank, 1 if part.owner else 2) if isinstance(part.node, Function | ast.ClassDef) else blank
        self.parts.insert(self._place_for(part), part._replace(text="\n" * blank + text + "\n"))

    def _place_for(self, part: Part) -> int:
        """Return where a new part goes: behind what it stands behind in the source, as far as that is here."""
        if part.node is None:
            return len(self.parts)
        keys = [each.key for each in self.source]
        for before in reversed(self.source[: keys.index(part.key)]):
            if part.owner and part.owner not in (before.owner, before.key):
                continue
            if before.is_import or before.key == DOCSTRING:
                break
            if part.owner:
                found = [place for place, each in enumerate(self.parts) if each.key == before.key]
            else:
                whole = before.owner or before.key
                found = [place for place, each in enumerate(self.parts) if whole in (each.owner, each.key)]
            if found:
                return found[-1] + 1
        if part.owner:
            return 1 + next(place for place, each in enumerate(self.parts) if each.key == part.owner)
        is_answer = part.key in self.new_classes or part.key in self.exercise.symbols
        return len(self.parts) if is_answer else self._end_of_imports()

    def _put_import(self, part: Part) -> None:
        is_future = _is_future(part)
        place = self._end_of_docstring() if is_future else self._end_of_imports()
        is_first = not any(each.is_import for each in self.parts)
        text = part.text.lstrip("\n")
        self.parts.insert(place, part._replace(text=f"\n{text}" if place and (is_first or is_future) else text))

    def _end_of_docstring(self) -> int:
        return 1 if self.parts and self.parts[0].key == DOCSTRING else 0

    def _end_of_imports(self) -> int:
        places = [place for place, each in enumerate(self.parts) if each.is_import]
        return places[-1] + 1 if places else self._end_of_docstring()

    def _verify(self, text: str, before: dict[str, str], wanted: list[str]) -> None:
        """Hold the result to what was promised: what came in is there, everything else is as it was."""
        try:
            after = by_key(split(text))
        except UNREADABLE as error:
            raise MergeError(
                f"with it, {self.exercise.file} would not be valid Python any more (another indentation?)"
            ) from error
        wrong = [key for key in wanted if key and after.get(key) != self.theirs[key]]
        wrong += [key for key, code in before.items() if key not in wanted and code and after.get(key) != code]
        if wrong:
            raise MergeError(f"{', '.join(wrong)} would not come through whole: put it in by hand")

    def _source_part(self, key: str) -> Part:
        return next(part for part in self.source if part.key == key)


def _imports(parts: Iterable[Part]) -> dict[str, str]:
    nodes = [part.node for part in parts if part.is_import]
    return {
        name: line
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name, line in bound_names(node).items()
    }


def _is_future(part: Part) -> bool:
    return isinstance(part.node, ast.ImportFrom) and part.node.module == "__future__"


def _names_at_load(node: ast.stmt) -> set[str]:
    """Return the names that a statement reads while its module is loaded: not those inside of functions."""
    if isinstance(node, Function):
        defaults = [each for each in [*node.args.defaults, *node.args.kw_defaults] if each]
        return {name for each in [*node.decorator_list, *defaults] for name in names_used(each)}
    if isinstance(node, ast.ClassDef):
        heads = [*node.bases, *node.decorator_list, *(each.value for each in node.keywords)]
        return {name for each in heads for name in names_used(each)}
    read = [each for each in ast.walk(node) if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Store)]
    return {each.id for each in read}


def _has_text(part: Part) -> bool:
    """Whether a class's head has a docstring, which is body enough."""
    return isinstance(part.node, ast.ClassDef) and ast.get_docstring(part.node) is not None
