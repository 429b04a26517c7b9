"""`tl.constexpr`: values that are known when a kernel is compiled."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any


class constexpr:
    """`tl.constexpr(5)`. In a kernel it acts as the value itself: what is computed with it is the plain result."""

    def __init__(self, value: Any) -> None:
        self.value = unwrap(value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __neg__(self) -> Any:
        return -self.value

    def __invert__(self) -> Any:
        return ~self.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.value(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["value"], name)

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"


def unwrap(value: Any) -> Any:
    """Return what a constexpr holds; anything else as it is."""
    return value.value if isinstance(value, constexpr) else value


def _direct(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: function(self.value, unwrap(other))


def _reflected(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: function(unwrap(other), self.value)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and_", "or_", "xor"):
    setattr(constexpr, f"__{_name.strip('_')}__", _direct(getattr(operator, _name)))
    setattr(constexpr, f"__r{_name.strip('_')}__", _reflected(getattr(operator, _name)))
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(constexpr, f"__{_name}__", _direct(getattr(operator, _name)))
