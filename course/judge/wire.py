"""Values as JSON, between the checks and the learner's code.

Plain data travels by value; an object travels as a reference to where it lives. Lists are JSON arrays and numbers,
strings, booleans and None are themselves; everything else is an object with a one-letter tag.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 16
MAX_ITEMS = 100_000
MAX_TEXT = 1_000_000
LARGEST = 1 << 2047  # longer numbers do not survive the trip through decimal digits (and are no answer to any check)
VERY_LARGE = {"x": "a very large int"}
PLAIN = {int, float, bool, str, type(None)}


class Opaque:
    """A value that cannot travel: only what it is called is known, and it equals nothing."""

    def __init__(self, description: str) -> None:
        self.description = description

    def __repr__(self) -> str:
        return self.description


def encode(value: object, reference: Callable[[object], Any], depth: int = 0) -> Any:
    """Return `value` as JSON data.

    `reference(obj)` returns the JSON for an object that stays where it is, or None when it is not one of ours.
    Sub-classes of the built-in types travel as the built-in, and integers of other libraries (anything with
    `__index__`) as int, so that nothing a learner's class overrides reaches the checks.
    """
    kind = type(value)
    if value is None or kind is bool or kind is float:
        return value
    if kind is int:
        return value if -LARGEST < value < LARGEST else VERY_LARGE  # type: ignore[operator]
    if kind is str:
        return value if len(value) <= MAX_TEXT else {"x": f"a str of {len(value)} characters"}  # type: ignore[arg-type]
    if kind is list:  # most of what travels
        kinds = {*map(type, value)}  # type: ignore[call-overload]
        if kinds == {int}:
            return _encode_ints(value)  # type: ignore[arg-type]
        if kinds <= {float, type(None)} and len(value) <= MAX_ITEMS:  # type: ignore[arg-type]
            return list(value)  # type: ignore[call-overload]
    if depth > MAX_DEPTH:
        return {"x": f"a {kind.__name__} nested too deeply"}
    if isinstance(value, list | tuple | set | frozenset | deque):
        if len(value) > MAX_ITEMS:
            return {"x": f"a {kind.__name__} of {len(value)} items"}
        items = [encode(item, reference, depth + 1) for item in value]
        if isinstance(value, list):
            return items
        return {"t" if isinstance(value, tuple) else "q" if isinstance(value, deque) else "s": items}
    if isinstance(value, dict):
        if len(value) > MAX_ITEMS:
            return {"x": f"a {kind.__name__} of {len(value)} items"}
        return {"d": [[encode(k, reference, depth + 1), encode(v, reference, depth + 1)] for k, v in value.items()]}
    found = reference(value)
    if found is not None:
        return found
    return _as_plain(value, reference, depth)


def decode(data: Any, resolve: Callable[[dict[str, Any]], object]) -> Any:
    """Return the value that `encode` wrote; `resolve` turns a reference into the object or a handle on it."""
    if isinstance(data, list):
        if {*map(type, data)} <= PLAIN:
            return list(data)
        return [decode(item, resolve) for item in data]
    if not isinstance(data, dict):
        return data
    if "t" in data:
        return tuple(decode(item, resolve) for item in data["t"])
    if "q" in data:
        return deque(decode(item, resolve) for item in data["q"])
    if "s" in data:
        return {_hashable(decode(item, resolve)) for item in data["s"]}
    if "d" in data:
        return {_hashable(decode(k, resolve)): decode(v, resolve) for k, v in data["d"]}
    if "x" in data:
        return Opaque(data["x"])
    return resolve(data)


def _encode_ints(values: list[int]) -> Any:
    """Encode a list that holds nothing but integers, without looking at each by itself."""
    if len(values) > MAX_ITEMS:
        return {"x": f"a list of {len(values)} items"}
    if min(values) > -LARGEST and max(values) < LARGEST:
        return list(values)
    return [value if -LARGEST < value < LARGEST else VERY_LARGE for value in values]


def _as_plain(value: object, reference: Callable[[object], Any], depth: int) -> Any:
    """Encode sub-classes of the built-ins and the scalars and arrays of other libraries by their plain value."""
    plain: object = None
    try:
        if isinstance(value, str):
            plain = str.__str__(value)
        elif isinstance(value, int):
            plain = int.__int__(value)
        elif isinstance(value, float):
            plain = float.__float__(value)
        elif hasattr(value, "tolist"):
            plain = value.tolist()
        elif hasattr(value, "__index__"):
            plain = value.__index__()
    except Exception:
        plain = None
    return {"x": _describe(value)} if plain is None else encode(plain, reference, depth + 1)


def _describe(value: object) -> str:
    name = type(value).__name__
    article = "an" if name[:1].lower() in "aeiou" else "a"
    return f"{article} {name} object"


def _hashable(value: object) -> object:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value
