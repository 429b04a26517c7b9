"""Knows which of the reader's functions is running, and for which request, so that one that fails can be named."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple


class Place(NamedTuple):
    """A function of the reader's, by its symbol, and the request that it works for, where that is known."""

    symbol: str
    request: str | None


class Trail:
    """Follows the functions that were given to `follow`.

    `post` hears of every change: the innermost function of the reader's, or None outside of all. Whoever listens from
    another thread then knows where a call is that never comes back.
    """

    def __init__(self, post: Callable[[Place | None], object] = lambda place: None) -> None:
        self._post = post
        self._places: list[Place] = []  # of the reader's functions that are running
        self._request: str | None = None  # that is worked for
        self._requests: dict[int, str] = {}  # by the identity of what belongs to them
        self._raised: tuple[BaseException, Place] | None = None

    def belongs(self, thing: object, request: str) -> None:
        """Say that a table or sequence is a request's. It must live as long as the trail."""
        self._requests[id(thing)] = request

    def origin(self, error: BaseException) -> Place | None:
        """Return the innermost place that `error` came out of, or None when it came from none of the reader's."""
        return self._raised[1] if self._raised and self._raised[0] is error else None

    def follow(self, module: Any, symbol: str, yours: bool) -> None:
        """Follow `symbol` (`function`, `Class.method` or a property) of a module from now on.

        A function that is not the reader's only tells which request is worked for in the reader's functions that it
        calls.
        """
        owner_name, _, name = symbol.rpartition(".")
        owner = getattr(module, owner_name) if owner_name else module
        value = vars(owner).get(name)
        wrap = functools.partial(self._placed if yours else self._worked_for, symbol)
        if isinstance(value, property):
            setattr(owner, name, property(value.fget and wrap(value.fget), value.fset and wrap(value.fset)))
        elif isinstance(value, staticmethod | classmethod):
            setattr(owner, name, type(value)(wrap(value.__func__)))
        elif callable(value):
            setattr(owner, name, wrap(value))

    def _placed(self, symbol: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def placed(*args: Any, **kwargs: Any) -> Any:
            place = Place(symbol, self._request)
            self._places.append(place)
            self._post(place)
            try:
                return function(*args, **kwargs)
            except BaseException as error:
                if self.origin(error) is None:
                    self._raised = error, place
                raise
            finally:
                self._places.pop()
                self._post(self._places[-1] if self._places else None)

        return functools.wraps(function)(self._worked_for(symbol, placed))

    def _worked_for(self, symbol: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def worked_for(*args: Any, **kwargs: Any) -> Any:
            before = self._request
            self._request = self._requests.get(id(args[0]), before) if args else before
            try:
                return function(*args, **kwargs)
            finally:
                self._request = before

        return worked_for
