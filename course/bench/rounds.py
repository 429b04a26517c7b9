"""Measures systems in turn, and refuses to compare systems that do not compute the same.

A round is the whole workload once. The first round of each system is its warm-up: same shapes, so that whatever is
compiled or tuned is done before the clock counts. It is timed apart, and its tokens must be those of the first system.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from course.bench.workload import Workload


class Round(NamedTuple):
    """One run of the workload: the tokens of each request, and times in seconds by a clock that is never set back.

    `first_token_seconds` counts from the arrival of the requests, the time in the queue included. A system that does
    not show its steps says how many there were (`steps`); one that hands out all tokens at its end has no first ones.
    """

    tokens: list[list[int]]
    seconds: float
    step_seconds: list[float]
    first_token_seconds: list[float]
    preemptions: int = 0
    steps: int | None = None


class System(Protocol):
    """Something that can run a round. It is in a process of its own, alone on the machine while it runs."""

    @property
    def name(self) -> str: ...

    def run(self, workload: Workload) -> Round: ...


class Disagreement(Exception):
    """Two systems, or two rounds of one, do not produce the same tokens: there is nothing to compare."""


class SystemFailed(Exception):
    """A system crashed, hung, or gave up: `words` is the end of what it wrote to stderr."""

    def __init__(self, system: str, when: str, why: str, words: str = "") -> None:
        super().__init__(f"{system} failed {when}: {why}")
        self.system, self.when, self.why, self.words = system, when, why, words


class Measured(NamedTuple):
    """One system's warm-up and its rounds."""

    name: str
    warm_up: Round
    rounds: list[Round]

    def rates(self) -> list[float]:
        """Return the tokens a second of every round: tokens that were produced, over the time of the whole round."""
        return [sum(map(len, each.tokens)) / each.seconds for each in self.rounds]

    def first_token_seconds(self) -> list[float]:
        """Return the median time to the first token of every round."""
        return [statistics.median(each.first_token_seconds) for each in self.rounds if each.first_token_seconds]

    def step_seconds(self) -> list[float]:
        """Return the time of a step of every round: the median, or the mean where only their number is known."""
        return [
            each.seconds / each.steps if each.steps else statistics.median(each.step_seconds) for each in self.rounds
        ]


class Spread(NamedTuple):
    """A median, and the least and the most that it is the median of."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        return cls(statistics.median(numbers), min(numbers), max(numbers))


Failure = SystemFailed | Disagreement


def measure(
    systems: Sequence[System],
    workload: Workload,
    num_rounds: int,
    progress: Callable[[str], None] = lambda what: None,
    drop: Callable[[str, str, Failure], None] | None = None,
) -> list[Measured]:
    """Warm every system up, hold its tokens against the first one's, then measure `num_rounds` rounds in turn.

    Every second round goes through the systems backwards, so that none is always the one behind another.
    `Disagreement`, before anything is timed, when the tokens differ; and after it, when a later round's do.

    With `drop`, the systems differ in their numerics: only the counts of tokens are held, and what a token is worth is
    for `agreement` to say. A system that fails is dropped (`drop(name, when, error)` hears of it); the others go on.
    """
    measured: dict[str, Measured] = {}

    def run(system: System, when: str) -> Round | None:
        progress(f"{when}: {system.name}")
        try:
            result = system.run(workload)
            _hold_counts(system.name, result, workload)
            if drop is None:
                _hold_tokens(system.name, when, result, measured)
        except (SystemFailed, Disagreement) as error:
            if drop is None:
                raise
            measured.pop(system.name, None)
            drop(system.name, when, error)
            return None
        return result

    for system in systems:
        if warm_up := run(system, "warming up"):
            measured[system.name] = Measured(system.name, warm_up, [])
    for number in range(num_rounds):
        for system in systems if number % 2 == 0 else reversed(systems):
            if system.name in measured and (result := run(system, f"round {number + 1} of {num_rounds}")):
                measured[system.name].rounds.append(result)
    return list(measured.values())


def ratio(one: Measured, other: Measured) -> Spread:
    """Return how many times as fast `one` is as `other`, round by round: the two halves of a round ran side by side."""
    return Spread.of([mine / theirs for mine, theirs in zip(one.rates(), other.rates(), strict=True)])


def _hold_counts(name: str, result: Round, workload: Workload) -> None:
    for request, tokens in enumerate(result.tokens):
        if len(tokens) != workload.new_tokens:
            raise Disagreement(f"{name} gave request {request} {len(tokens)} tokens; asked for {workload.new_tokens}")


def _hold_tokens(name: str, when: str, result: Round, measured: dict[str, Measured]) -> None:
    """Hold a warm-up against the first system's, and a later round against the system's own warm-up."""
    if name in measured:
        _hold_equal(f"the warm-up of {name}", measured[name].warm_up, f"{when} of it", result)
    elif measured:
        first = next(iter(measured.values()))
        _hold_equal(first.name, first.warm_up, name, result)


def _hold_equal(one: str, ours: Round, other: str, theirs: Round) -> None:
    for request, (mine, others) in enumerate(zip(ours.tokens, theirs.tokens, strict=True)):
        if mine != others:
            place = next((i for i, (a, b) in enumerate(zip(mine, others, strict=False)) if a != b), None)
            what = f"new token {place} is {mine[place]} and {others[place]}" if place is not None else "one is longer"
            raise Disagreement(f"{one} and {other} do not compute the same: of request {request}, {what}")
