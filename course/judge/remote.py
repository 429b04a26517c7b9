"""What a check holds instead of the learner's objects: handles whose every call is sent, recorded and returned.

A check reads like ordinary code: `pool = solution.BlockPool(8)`, `pool.allocate(3)`, `pool.num_free`. Plain results
come back as plain Python values, objects as further handles. Whether a name is a method or an attribute is what it is
in the reference, which is the interface that the stub promised; the agent says so when it has loaded the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from course.judge import wire


class Channel(Protocol):
    """Carries one request to the agent and its reply back. Raises `Lost` when there is no reply.

    What the learner's code prints meanwhile goes to `on_output`.
    """

    on_output: Callable[[str], None]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]: ...


class Lost(Exception):
    """The learner's code did not come back.

    `reason` is "timeout", "stopped", "exit" or "pipe" (see `Report`), `detail` says more about an exit.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


class Raised(Exception):
    """The learner's code raised; `error` is the agent's description of it."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["type"])
        self.error = error


class Rebound(Exception):
    """The learner's code replaced a builtin or a part of the judge: `args` is (module, name)."""


class Session:
    """One conversation with an agent: sends requests and records them as events."""

    def __init__(self, channel: Channel, methods: dict[str, list[str]], emit: Callable[[list[Any]], None]) -> None:
        self._channel = channel
        self._emit = emit
        self._methods = methods  # of each class, by its name
        self._handles: dict[int, Handle] = {}
        self._names: set[str] = set()

    def start(self) -> None:
        """Begin a new scenario: forget the objects and the calls of the one before."""
        self._handles.clear()
        self._names.clear()
        self._emit(["start"])
        self._ask({"do": "start"})

    def is_method(self, owner: str, name: str) -> bool:
        return name in self._methods.get(owner, ())

    def send(self, do: str, on: Handle | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Have the agent make one call (or read one attribute) and return what came back.

        `as_` among the keyword arguments names the object that comes back. Raises `Raised`, `Rebound` and `Lost`.
        """
        wanted = kwargs.pop("as_", None)
        self._emit(["call", _call_text(do, on, name, args, kwargs)])
        reply = self._ask(
            {
                "do": do,
                "on": None if on is None else on.number_,
                "name": name,
                "args": [wire.encode(arg, _reference) for arg in args],
                "kwargs": {key: wire.encode(arg, _reference) for key, arg in kwargs.items()},
            }
        )
        if "raised" in reply:
            self._emit(["raise", reply["raised"]["type"], self._state(reply)])
            raise Raised(reply["raised"])
        known = len(self._handles)
        value = wire.decode(reply["value"], lambda data: self._handle(data, wanted))
        is_new = isinstance(value, Handle) and len(self._handles) > known
        self._emit(["return", value.name_ if is_new else None, shorten(value), self._state(reply)])
        return value

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        reply = self._channel.ask(request)
        if "rebound" in reply:
            raise Rebound(*reply["rebound"])
        return reply

    def _state(self, reply: dict[str, Any]) -> dict[str, Any] | None:
        """Return what can be drawn: `{object's name: {"kind": its class, …}}`."""
        seen = [(self._handles[number], parts) for number, parts in reply["state"] if number in self._handles]
        return {handle.name_: {"kind": handle.class_, **parts} for handle, parts in seen} or None

    def _handle(self, data: dict[str, Any], wanted: str | None) -> Handle:
        number = data["o"]
        if number not in self._handles:
            name = self._name(wanted or _lower_last_word(data["class"]))
            self._handles[number] = Handle(self, number, data["class"], name)
        return self._handles[number]

    def _name(self, wanted: str) -> str:
        name, times = wanted, 1
        while name in self._names:
            times += 1
            name = f"{wanted}{times}"
        self._names.add(name)
        return name


class Handle:
    """A stand-in for one object that lives beside the learner's code."""

    def __init__(self, session: Session, number: int, owner: str, name: str) -> None:
        self.session_ = session
        self.number_ = number
        self.class_ = owner
        self.name_ = name

    def __getattr__(self, name: str) -> Any:
        if self.session_.is_method(self.class_, name):
            return lambda *args, **kwargs: self.session_.send("call", self, name, args, kwargs)
        return self.session_.send("get", self, name, (), {})

    def __repr__(self) -> str:
        return self.name_


class Solution:
    """The module under judgement, and the reference parts that it works with, as one namespace."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def start_over_(self) -> None:
        """Begin a new scenario within a check: a failure then shows only the calls from here on."""
        self._session.start()

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._session.send("call", None, name, args, kwargs)


def shorten(value: object, limit: int = 160) -> str:
    """Return `repr(value)`, with floats to ten digits and the middle left out where it is long.

    The last digits of a sum or an exponential are not the same on every Python, and nobody reads them.
    """
    text = repr(_both_ends(value, limit))
    if len(text) <= limit:
        return text
    return f"{text[: limit - 40]} … {text[-30:]}"


def _both_ends(value: object, limit: int) -> object:
    """Return `value` with floats to ten digits; of a long list only what fills `limit` characters at each end."""
    if type(value) is float:
        return float(f"{value:.10g}")
    if type(value) is not list and type(value) is not tuple:
        return value
    front = _filling(value, limit)
    rest = value[len(front) :]
    return type(value)([*front, *_filling(rest[::-1], limit)[::-1]])


def _filling(values: Sequence[object], limit: int) -> list[object]:
    """Return as many of the values as it takes to fill `limit` characters."""
    taken: list[object] = []
    size = 0
    for value in values:
        if size >= limit:
            break
        taken.append(_both_ends(value, limit))
        size += len(repr(taken[-1]))
    return taken


def _call_text(do: str, on: Handle | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    target = name if on is None else f"{on.name_}.{name}"
    if do == "get":
        return target
    shown = [shorten(arg, 60) for arg in args] + [f"{key}={shorten(arg, 60)}" for key, arg in kwargs.items()]
    return f"{target}({', '.join(shown)})"


def _reference(value: object) -> dict[str, Any] | None:
    return {"o": value.number_} if isinstance(value, Handle) else None


def _lower_last_word(name: str) -> str:
    """`BlockPool` → `pool`."""
    start = max(index for index, char in enumerate(name) if char.isupper() or index == 0)
    return name[start:].lower()
