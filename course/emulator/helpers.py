"""What a rewritten kernel calls where Triton's meaning differs from Python's (see `rewriting`)."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from typing import Any

from course.emulator import language, logic
from course.emulator.blocks import Block
from course.emulator.constants import unwrap
from course.emulator.dtypes import int1
from course.emulator.errors import WouldNotCompile, not_offered
from course.emulator.operands import Number, cast, to_block

builtin_range = language.dynamic_range


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
    frame = sys._getframe(1)
    before = {name: _type(value) for name, value in frame.f_locals.items()}
    for value in iterable:
        yield value
        for name, now in frame.f_locals.items():
            if name in before and isinstance(now, Block) and before[name] != _type(now):
                raise WouldNotCompile(
                    f"`{name}` is {before[name]} before the loop and {_type(now)} after a round of it",
                    "what a loop carries from round to round must keep its type: cast it, or start with the right one",
                )


def _type(value: Any) -> str:
    value = unwrap(value)
    if isinstance(value, Block):
        return str(value.type)
    return str(to_block(value).type) if isinstance(value, Number) else type(value).__name__


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
