"""What a rewritten kernel calls where Triton's meaning differs from Python's (see `rewriting`)."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from course.emulator import language, logic, program
from course.emulator.blocks import Block
from course.emulator.constants import unwrap
from course.emulator.dtypes import int1
from course.emulator.errors import WouldNotCompile, not_offered
from course.emulator.operands import Number, cast, to_block

builtin_range, builtin_print = language.dynamic_range, language.device_print


def assigned(value: Any) -> Any:
    """A number that is assigned becomes a scalar: only `name: tl.constexpr = …` stays a constant."""
    value = unwrap(value)
    if isinstance(value, Number):
        return to_block(value)
    if isinstance(value, tuple):
        return tuple(map(assigned, value))
    return value


def constant(value: Any) -> Any:
    value = unwrap(value)
    if isinstance(value, Block):
        raise WouldNotCompile("a constexpr is given a value that is known only when the kernel runs")
    return value


def loop(iterable: Any) -> Iterator[Any]:
    """Run a loop; what it carries from round to round must keep its type."""
    if not isinstance(iterable, language.Loop):
        raise WouldNotCompile("a kernel loops over range, tl.range or tl.static_range only")
    if iterable.static:
        yield from iterable
        return
    frame, ended = sys._getframe(1), program.current().scopes[-1].ended
    before = {name: value for name, value in frame.f_locals.items() if name not in ended}
    for value in iterable:
        yield value
        _check_carried(before, frame.f_locals)
    ended.update(frame.f_locals.keys() - before.keys())  # what a loop defines first ends with it


def again(number: int, test: Any) -> bool:
    """Decide whether a `while` has another round."""
    values, scope = sys._getframe(1).f_locals, program.current().scopes[-1]
    if number in scope.whiles:
        _check_carried(scope.whiles[number], values)
    else:
        scope.whiles[number] = {name: value for name, value in values.items() if name not in scope.ended}
    goes_on = bool(unwrap(test))
    if not goes_on:
        scope.ended.update(values.keys() - scope.whiles.pop(number).keys())
    return goes_on


def _check_carried(before: dict[str, Any], values: Mapping[str, Any]) -> None:
    for name, now in values.items():
        if name in before and _type_changed(before[name], now):
            raise WouldNotCompile(
                f"`{name}` is {type_text(before[name])} before the loop and {type_text(now)} after a round of it",
                "what a loop carries from round to round must keep its type: cast it, or start with the right one",
            )


def branch(test: Any) -> bool:
    """Decide an `if`; `joined` follows it."""
    test, scope = unwrap(test), program.current().scopes[-1]
    values = sys._getframe(1).f_locals
    before = {name: value for name, value in values.items() if name not in scope.ended}
    scope.branches.append(before if isinstance(test, Block) else None)
    return bool(test)


def joined(either: tuple[str, ...], both: tuple[str, ...]) -> None:
    """End an `if` that gives values to the names of `either`, in both of its branches to those of `both`.

    What was there before must have kept its type; what only one branch defines ends with it.
    """
    scope = program.current().scopes[-1]
    before = scope.branches.pop()
    if before is None:
        return
    values = sys._getframe(1).f_locals
    for name in either:
        if name in before and _type_changed(before[name], values[name]):
            raise WouldNotCompile(
                f"`{name}` is {type_text(before[name])} before a branch and {type_text(values[name])} after it",
                "the branch is decided when the kernel runs, and the type cannot wait for that: cast it",
            )
    scope.ended.update(name for name in either if name not in before and name not in both)


def _type_changed(was: Any, now: Any) -> bool:
    if now is was or not isinstance(now, Block):
        return False
    return not (isinstance(was, Block) and was.dtype == now.dtype and was.shape == now.shape)


def type_text(value: Any) -> str:
    """Return a value's type for a message; a number has the type that Triton would give it."""
    value = unwrap(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(type_text, value))})"
    if isinstance(value, Block | Number):
        return str(to_block(value).type)
    return "None" if value is None else type(value).__name__


def both(*parts: Callable[[], Any]) -> Any:
    """`and`: stops early at a constant that is false; of run-time values all are computed."""
    return _logical(parts, False, logic.bit_and, "and", "&")


def either(*parts: Callable[[], Any]) -> Any:
    return _logical(parts, True, logic.bit_or, "or", "|")


def _logical(
    parts: tuple[Callable[[], Any], ...], stop: bool, join: Callable[[Any, Any], Block], word: str, sign: str
) -> Any:
    result: Any = None
    value: Any = None
    for part in parts:
        value = unwrap(part())
        if not isinstance(value, Block):
            if bool(value) is stop:
                return value
            continue
        if value.shape:
            raise not_offered(f"`{word}` between blocks", f"write {sign}, with each comparison in parentheses")
        value = cast(value, int1)
        result = value if result is None else join(result, value)
    return value if result is None else result


def negated(value: Any) -> Any:
    value = unwrap(value)
    if not isinstance(value, Block):
        return not value
    if value.shape:
        raise not_offered("`not` of a block", "write ~, with the comparison in parentheses")
    return logic.invert(cast(value, int1))


def asserted(condition: Any, message: Any = "") -> None:
    language.device_assert(condition, message)


def builtin_min(*values: Any) -> Any:
    return _choose(builtins.min, logic.minimum, values)


def builtin_max(*values: Any) -> Any:
    return _choose(builtins.max, logic.maximum, values)


def _choose(of_numbers: Callable[..., Any], of_blocks: Callable[[Any, Any], Block], values: tuple[Any, ...]) -> Any:
    if len(values) == 2 and any(isinstance(each, Block) for each in values):
        return of_blocks(*values)
    return of_numbers(*map(unwrap, values))
