"""The benchmark's harness, with systems whose times are known. Entries BM… are known mistakes of benchmarks.

Here: BM01, BM02, BM05, BM06, BM09, BM16, BM23, BM25. `test_peers` has BM14 (and BM09 for a peer), `test_memory` BM10,
BM17, BM18 and BM19, `test_table` BM25 for many systems, `tests/judge/test_engine_parts.py` BM13 and BM15. Not tested,
with the reason:

- BM20, a closed loop's burst of first requests inside the measured window: there is no closed loop. All requests arrive
  at once, the whole of it is what is measured, and the workload says so.
- BM21, a timing helper that warms up for a fixed 25 ms: no such helper is used. The warm-up is a whole round of the
  very workload (BM05, BM06); how long a GPU's clock takes to settle shows in the spread of the rounds, on a GPU alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from course.bench.results import record
from course.bench.rounds import Disagreement, Measured, Round, Spread, SystemFailed, measure, ratio
from course.bench.workload import Workload, make_workload

NEW_TOKENS = 4
WORKLOAD = Workload([[1, 2, 3], [4]], NEW_TOKENS)
MACHINE = {"device": "cpu", "gpu": None, "versions": {"python": "3.11"}}
DETAILS = {"dtype": "float32", "kv_dtype": "float32"}


class Scripted:
    """A system whose rounds take the given seconds; it writes its name into `log` when it runs."""

    def __init__(self, name: str, seconds: Sequence[float], log: list[str] | None = None, first: int = 7) -> None:
        self.name = name
        self._seconds = list(seconds)
        self._log = log if log is not None else []
        self._first = first
        self.seen: list[Workload] = []

    def run(self, workload: Workload) -> Round:
        self._log.append(self.name)
        self.seen.append(workload)
        seconds = self._seconds.pop(0)
        tokens = [[self._first, *range(workload.new_tokens - 1)] for _ in workload.prompts]
        return Round(tokens, seconds, [seconds / 4] * 4, [seconds / 4, seconds / 2])


def both(mine: Scripted | None = None) -> list[Scripted]:
    return [Scripted("reference", [9.0, 2.0, 4.0, 1.0]), mine or Scripted("yours", [9.0, 1.0, 4.0, 2.0])]


def test_the_same_arguments_give_the_same_prompts() -> None:
    one, two = make_workload(8, 64, 256), make_workload(8, 64, 256)
    assert one == two
    assert {5 <= len(prompt) <= 60 for prompt in one.prompts} == {True}
    assert all(0 <= token < 256 for prompt in one.prompts for token in prompt)
    assert make_workload(4, 64, 256).prompts == one.prompts[:4]


def test_tokens_a_second_are_the_new_ones_over_the_whole_round() -> None:
    """BM01: not the prompt's. BM02: those that were produced."""
    measured = measure(both(), WORKLOAD, 3)
    assert measured[0].rates() == [8 / 2, 8 / 4, 8 / 1]
    assert Spread.of(measured[0].rates()) == (4.0, 2.0, 8.0)


def test_the_warm_up_is_apart_and_has_the_shapes_of_the_rounds() -> None:
    """BM05, BM06 and BM23: neither its time nor its tokens are in a figure, and it runs the same workload."""
    systems = both()
    measured = measure(systems, WORKLOAD, 3)
    assert [each.warm_up.seconds for each in measured] == [9.0, 9.0]
    assert all(len(each.rounds) == 3 for each in measured)
    assert 9.0 not in [each.seconds for result in measured for each in result.rounds]
    assert all(seen is WORKLOAD for system in systems for seen in system.seen)


def test_rounds_are_interleaved_and_change_their_order() -> None:
    log: list[str] = []
    measure([Scripted("a", [1.0] * 5, log), Scripted("b", [1.0] * 5, log)], WORKLOAD, 4)
    assert log == ["a", "b", "a", "b", "b", "a", "a", "b", "b", "a"]


def test_the_ratio_is_taken_round_by_round() -> None:
    measured = measure(both(), WORKLOAD, 3)
    assert ratio(measured[1], measured[0]) == (1.0, 0.5, 2.0)


def test_other_tokens_are_not_timed() -> None:
    log: list[str] = []
    systems = [Scripted("reference", [1.0] * 4, log), Scripted("yours", [1.0] * 4, log, first=8)]
    with pytest.raises(
        Disagreement, match="reference and yours do not compute the same: of request 0, new token 0 is 7"
    ):
        measure(systems, WORKLOAD, 3)
    assert log == ["reference", "yours"]


def test_a_later_round_has_to_repeat_the_first() -> None:
    class Drifting(Scripted):
        def run(self, workload: Workload) -> Round:
            result = super().run(workload)
            return result._replace(tokens=[[len(self.seen), 0, 0, 0]] * 2) if len(self.seen) > 2 else result

    with pytest.raises(Disagreement, match="the warm-up of yours and round 2 of 3 of it"):
        measure(both(Drifting("yours", [1.0] * 4)), WORKLOAD, 3)


def test_too_few_tokens_are_not_timed() -> None:
    """BM09 and BM16: a system that stops early is not faster."""

    class Short(Scripted):
        def run(self, workload: Workload) -> Round:
            result = super().run(workload)
            return result._replace(tokens=[result.tokens[0], result.tokens[1][:-1]])

    with pytest.raises(Disagreement, match="reference gave request 1 3 tokens; asked for 4"):
        measure([Short("reference", [1.0])], WORKLOAD, 1)


def test_the_record_holds_every_raw_time_and_where_they_come_from() -> None:
    measured = measure(both(), WORKLOAD, 3)
    results = record(measured, WORKLOAD, MACHINE, {"reference": DETAILS, "yours": DETAILS})
    assert json.loads(json.dumps(results)) == results
    assert results["schema"] == 2
    assert set(results) >= {"command", "commit", "modified", "date", "hardware", "versions", "workload"}
    assert [each["seconds"] for each in results["systems"][0]["rounds"]] == [2.0, 4.0, 1.0]
    assert [each["new_tokens"] for each in results["systems"][0]["rounds"]] == [8, 8, 8]
    assert results["systems"][0]["warm_up_seconds"] == 9.0
    assert results["systems"][0]["tokens_per_second"] == {"median": 4.0, "least": 2.0, "most": 8.0}
    assert results["systems"][0]["first_token_seconds"]["median"] == pytest.approx(0.75)  # of rounds' medians of 3/8
    assert results["ratios"] == {"yours": {"median": 1.0, "least": 0.5, "most": 2.0}}
    assert results["workload"] == {"seed": 0, "requests": 2, "prompt_tokens": [3, 1], "new_tokens": 4}


def test_other_types_are_said_to_be_no_fair_comparison() -> None:
    """BM25: each system names its types, and the record whether they are the same."""
    measured = measure(both(), WORKLOAD, 3)
    half = {"dtype": "float16", "kv_dtype": "float16"}
    assert record(measured, WORKLOAD, MACHINE, {"reference": DETAILS, "yours": DETAILS})["like_for_like"] is True
    results = record(measured, WORKLOAD, MACHINE, {"reference": DETAILS, "yours": half})
    assert results["like_for_like"] is False
    assert [system["dtype"] for system in results["systems"]] == ["float32", "float16"]


def test_a_single_round_has_no_spread() -> None:
    only = Measured("a", Round([], 0.0, [], []), [Round([[1] * 4], 2.0, [0.5] * 4, [0.5])])
    assert Spread.of(only.rates()) == (2.0, 2.0, 2.0)
    assert only.step_seconds() == [0.5]


class Failing(Scripted):
    """Falls at its `at`-th round, the warm-up counted as the first."""

    def __init__(self, at: int) -> None:
        super().__init__("failing", [1.0] * 9)
        self._at = at

    def run(self, workload: Workload) -> Round:
        result = super().run(workload)
        if len(self.seen) == self._at:
            raise SystemFailed(self.name, "in round", "the process ended")
        return result


@pytest.mark.parametrize(("at", "when"), [(1, "warming up"), (3, "round 2 of 3")])
def test_one_that_fails_is_dropped_and_the_others_go_on(at: int, when: str) -> None:
    dropped: list[tuple[str, str, str]] = []
    failing = Failing(at)
    measured = measure(
        [failing, *both()], WORKLOAD, 3, drop=lambda name, when, error: dropped.append((name, when, str(error)))
    )
    assert dropped == [("failing", when, "failing failed in round: the process ended")]
    assert [each.name for each in measured] == ["reference", "yours"]
    assert [len(each.rounds) for each in measured] == [3, 3]
    assert len(failing.seen) == at  # it has no further turns


def test_one_that_fails_ends_a_comparison_of_two() -> None:
    with pytest.raises(SystemFailed, match="failing failed in round"):
        measure([Failing(2), Scripted("yours", [1.0] * 9)], WORKLOAD, 3)


def test_other_numerics_are_not_dropped_but_other_counts_are() -> None:
    """With `drop`, tokens are for the agreement to judge; BM09: how many there are is held in every round."""

    class Short(Scripted):
        def run(self, workload: Workload) -> Round:
            result = super().run(workload)
            return result._replace(tokens=[result.tokens[0], result.tokens[1][: 4 - (len(self.seen) == 2)]])

    dropped: list[str] = []
    systems = [*both(Scripted("other", [1.0] * 9, first=8)), Short("short", [1.0] * 9)]
    measured = measure(systems, WORKLOAD, 3, drop=lambda name, when, error: dropped.append(f"{when}: {error}"))
    assert [each.name for each in measured] == ["reference", "other"]
    assert dropped == ["round 1 of 3: short gave request 1 3 tokens; asked for 4"]


def test_steps_that_are_only_counted_have_a_mean() -> None:
    """A system that hands out all at its end: its step is the round's time over the steps, its first tokens unknown."""
    counted = Measured("a", Round([], 0.0, [], []), [Round([[1] * 4], 2.0, [], [], steps=8)])
    assert counted.step_seconds() == [0.25]
    assert counted.first_token_seconds() == []
