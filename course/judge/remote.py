"""What a check holds instead of the learner's objects: handles whose every call is sent, recorded and returned.

A check reads like ordinary code: `pool = solution.BlockPool(8)`, `pool.allocate(3)`, `pool.num_free`. Plain results come
back as plain Python values, objects as further handles. Whether a name is a method or an attribute is taken from the
reference, which is the interface that the stub promised.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from course.judge import wire

WATCHED_BLOCKS = 16  # pools up to this size are shown block by block


class Channel(Protocol):
    """Carries one request to the agent and its reply back. Raises `Lost` when there is no reply.

    What the learner's code prints meanwhile goes to `on_output`.
    """

    on_output: Callable[[str], None]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]: ...


class Lost(Exception):
    """The learner's code did not come back: `reason` is "timeout", "stopped" or "exit", `detail` more about it."""

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
    """The learner's code replaced a builtin."""


class Session:
    """One conversation with an agent: sends requests and records them as events."""

    def __init__(self, channel: Channel, modules: Sequence[str], emit: Callable[[list[Any]], None]) -> None:
        self._channel = channel
        self._emit = emit
        self._interface: dict[str, Any] = {}
        for module in modules:
            self._interface.update(vars(importlib.import_module(f"solutions.{module}")))
        self._handles: dict[int, Handle] = {}
        self._names: set[str] = set()

    def start_check(self) -> None:
        """Forget the objects of earlier checks, so that names begin anew and only this check's objects are watched."""
        self._handles.clear()
        self._names.clear()

    def is_method(self, owner: str, name: str) -> bool:
        return callable(getattr(self._interface.get(owner), name, None))

    def send(self, do: str, on: Handle | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Have the agent make one call (or read one attribute) and return what came back.

        `as_` among the keyword arguments names the object that comes back. Raises `Raised`, `Rebound` and `Lost`.
        """
        wanted = kwargs.pop("as_", None)
        self._emit(["call", _call_text(do, on, name, args, kwargs)])
        watched = self._watched()
        reply = self._ask(
            {
                "do": do,
                "on": None if on is None else on.number_,
                "name": name,
                "args": [wire.encode(arg, _reference) for arg in args],
                "kwargs": {key: wire.encode(arg, _reference) for key, arg in kwargs.items()},
            },
            watched,
        )
        state = _state(watched, reply["observed"])
        if "raised" in reply:
            self._emit(["raise", reply["raised"]["type"], state])
            raise Raised(reply["raised"])
        known = len(self._handles)
        value = wire.decode(reply["value"], lambda data: self._handle(data, wanted, args))
        new_name = None
        if len(self._handles) > known and isinstance(value, Handle):
            new_name = value.name_
            if _parts(value):
                watched = self._watched()
                state = _state(watched, self._ask({"do": "look"}, watched)["observed"])
        self._emit(["return", new_name, shorten(value), state])
        return value

    def _ask(self, request: dict[str, Any], watched: list[Watched]) -> dict[str, Any]:
        reply = self._channel.ask({**request, "observe": [{"on": each.number, **each.request} for each in watched]})
        if "rebound" in reply:
            raise Rebound(reply["rebound"])
        return reply

    def _watched(self) -> list[Watched]:
        return [part for handle in self._handles.values() for part in _parts(handle)]

    def _handle(self, data: dict[str, Any], wanted: str | None, args: tuple[Any, ...]) -> Handle:
        number = data["o"]
        if number not in self._handles:
            name = self._name(wanted or _lower_last_word(data["class"]))
            self._handles[number] = Handle(self, number, data["class"], name, args)
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

    def __init__(self, session: Session, number: int, owner: str, name: str, args: tuple[Any, ...]) -> None:
        self.session_ = session
        self.number_ = number
        self.class_ = owner
        self.name_ = name
        self.args_ = args

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

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._session.send("call", None, name, args, kwargs)


def shorten(value: object, limit: int = 160) -> str:
    """Return `repr(value)`, with the middle left out where it is long."""
    text = repr(value)
    if len(text) <= limit:
        return text
    return f"{text[: limit - 40]} … {text[-30:]}"


def _call_text(do: str, on: Handle | None, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    target = name if on is None else f"{on.name_}.{name}"
    if do == "get":
        return target
    shown = [shorten(arg, 60) for arg in args] + [f"{key}={shorten(arg, 60)}" for key, arg in kwargs.items()]
    return f"{target}({', '.join(shown)})"


class Watched(NamedTuple):
    """One thing to look at after each call, so that a page can draw the state."""

    owner: str
    kind: str
    number: int
    label: str
    request: dict[str, Any]


def _parts(handle: Handle) -> list[Watched]:
    def part(label: str, request: dict[str, Any]) -> Watched:
        return Watched(handle.name_, handle.class_, handle.number_, label, request)

    if handle.class_ == "BlockPool" and handle.args_ and 0 <= handle.args_[0] <= WATCHED_BLOCKS:
        counts = ({"do": "call", "name": "ref_count", "args": [block], "kwargs": {}} for block in range(handle.args_[0]))
        return [part("num_free", {"do": "get", "name": "num_free"}), *(part("ref_counts", each) for each in counts)]
    if handle.class_ == "BlockTable":
        return [part(name, {"do": "get", "name": name}) for name in ("block_size", "blocks", "num_tokens")]
    return []


def _state(watched: list[Watched], values: list[Any]) -> dict[str, Any] | None:
    """Gather what was observed: `{object's name: {"kind": its class, label: value}}`; a pool's counts are a list."""
    state: dict[str, Any] = {}
    for part, value in zip(watched, values, strict=True):
        entry = state.setdefault(part.owner, {"kind": part.kind})
        if part.label == "ref_counts":
            entry.setdefault("ref_counts", []).append(value)
        else:
            entry[part.label] = value
    return state or None


def _reference(value: object) -> dict[str, Any] | None:
    return {"o": value.number_} if isinstance(value, Handle) else None


def _lower_last_word(name: str) -> str:
    """`BlockPool` → `pool`."""
    start = max(index for index, char in enumerate(name) if char.isupper() or index == 0)
    return name[start:].lower()
