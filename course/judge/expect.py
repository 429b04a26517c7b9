"""What a check says it expects. A failure carries what came back, what was expected and why it matters."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from course.judge.remote import Handle, Raised, shorten


class Failure(Exception):
    """A promise that was not kept. `message` is a sentence, or what the last call did ("gave None")."""

    def __init__(
        self, message: str, expected: str | None = None, why: str | None = None, *, about_call: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.expected = expected
        self.why = why
        self.about_call = about_call


def expect(actual: Any, expected: Any, *, what: str = "", why: str | None = None, within: float = 1e-9) -> None:
    """Fail unless `actual` is what was expected.

    Numbers that are not whole are compared to `within` (relative to 1 or to the expected size, whichever is larger);
    NaN is never right. A tuple is as good as a list. `what` names the value; without it, it is what the last call gave.
    """
    if not same(actual, expected, within):
        subject = f"{what}:" if what else "gave"
        raise Failure(f"{subject} {shorten(actual)}", shorten(expected), why, about_call=not what)


def expect_true(condition: object, message: str, *, expected: str | None = None, why: str | None = None) -> None:
    """Fail with `message` unless `condition` holds."""
    if not condition:
        raise Failure(message, expected, why)


def expect_object(value: Any, class_name: str) -> None:
    """Fail unless the last call gave an object of the class."""
    if not isinstance(value, Handle) or value.class_ != class_name:
        raise Failure(f"gave {shorten(value)}", f"a {class_name}", about_call=True)


def expect_error(
    kind: type[BaseException], call: Callable[..., Any], *args: Any, names: object = None, why: str | None = None
) -> None:
    """Fail unless `call(*args)` raises `kind` (or a sub-class), with a message that names `names` when it is given."""
    try:
        value = call(*args)
    except Raised as raised:
        error = raised.error
        if kind.__name__ not in error["bases"]:
            if error["type"] == "NotImplementedError":
                raise
            raise Failure(f"raised {error['type']}", kind.__name__, why, about_call=True) from raised
        if names is not None and not _mentions(error["message"], str(names)):
            text = f"raised {kind.__name__}, with a message that does not name {names}: {shorten(error['message'])}"
            raise Failure(text, f"a message that names {names}", why, about_call=True) from raised
        return
    raise Failure(f"gave {shorten(value)}", kind.__name__, why, about_call=True)


def same(actual: Any, expected: Any, within: float = 1e-9) -> bool:
    """Whether `actual` is `expected`, in the sense that `expect` explains."""
    if isinstance(expected, list | tuple):
        return (
            isinstance(actual, list | tuple | deque)
            and len(actual) == len(expected)
            and all(same(a, e, within) for a, e in zip(actual, expected, strict=True))
        )
    if isinstance(expected, bool):
        return isinstance(actual, int) and actual == expected
    if isinstance(expected, int):
        return isinstance(actual, int) and actual == expected
    if isinstance(expected, float):
        if math.isinf(expected):
            return isinstance(actual, float) and actual == expected
        return isinstance(actual, int | float) and abs(actual - expected) <= within * max(1.0, abs(expected))
    return bool(actual == expected) if expected is not None else actual is None


def _mentions(message: str, word: str) -> bool:
    """Whether `word` stands in `message` by itself: 7 is not named by "17"."""
    start = message.find(word)
    while start >= 0:
        around = message[start - 1 : start] + message[start + len(word) : start + len(word) + 1]
        if not any(char.isalnum() for char in around):
            return True
        start = message.find(word, start + 1)
    return False
