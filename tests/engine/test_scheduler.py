"""The scheduler: its policy case by case, random histories, and planted bugs that must be seen."""

from __future__ import annotations

import signal
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from solutions import scheduler
from tests.engine.driver import Driver, random_history, solo
from tests.engine.planting import plant

PROMPT = [7, 3, 9, 4, 8, 2, 6, 5, 11, 12, 13, 14]


def names(sequences: Any, known: dict[str, Any]) -> list[str]:
    return [next(name for name, each in known.items() if each is sequence) for sequence in sequences]


def filled(module: Any, num_blocks: int, lengths: dict[str, int], **options: Any) -> tuple[Driver, dict[str, Any]]:
    """Return a driver in which requests of these lengths are running, all prefilled by one step."""
    driver = Driver(num_blocks, 4, module, **options)
    known = {name: driver.add((PROMPT * 20)[:length], 50 if num_blocks > 20 else 4) for name, length in lengths.items()}
    driver.step()
    assert names(driver.scheduler.running, known) == list(lengths)
    return driver, known


# Each case is one entry of the catalogue of real mistakes: what must come out, whoever implements it.


def counts_whole_blocks(module: Any) -> None:  # SC01
    driver = Driver(4, 4, module)
    for _ in range(3):
        driver.add(PROMPT[:5], 1)
    assert len(driver.step().batch) == 2


def admits_what_fits_whole(module: Any) -> None:  # SC01
    driver, _ = filled(module, 3, {"A": 2}, max_step_tokens=5)
    driver.add(PROMPT[:12], 1)
    assert len(driver.step().batch) == 1  # its first chunk would fit, its whole prompt does not


def preempts_the_newest(module: Any) -> None:  # SC03
    driver, known = filled(module, 3, {"A": 4, "B": 3, "C": 3})
    driver.step()  # A takes no block yet: it has 5 tokens to hold, and none is free
    assert names(driver.scheduler.waiting, known)[-1] == "C"


def preempted_waits_at_the_front(module: Any) -> None:  # SC04
    driver, known = filled(module, 3, {"A": 4, "B": 3, "C": 3})
    known["D"], known["E"] = driver.add(PROMPT[:9], 3), driver.add(PROMPT[:9], 3)
    driver.step()
    assert names(driver.scheduler.waiting, known) == ["C", "D", "E"]


def end_token_is_not_among_the_tokens(module: Any) -> None:  # SC09, SC10, SC30
    driver = Driver(40, 4, module)
    requests = [driver.add([first, second], 60) for first in range(1, 8) for second in range(1, 4)]
    for _ in range(200):
        driver.step()
    results = [request.tokens[2:] for request in requests]
    assert results == [solo(request.tokens[:2], 60) for request in requests]
    assert any(len(result) < 60 for result in results)


def refuses_what_can_never_fit(module: Any) -> None:  # SC13, SC23, SC26
    driver = Driver(4, 4, module)
    with pytest.raises(ValueError, match="17 tokens"):
        driver.add((PROMPT * 2)[:17], 1)
    small = driver.add(PROMPT[:2], 1)
    driver.step()
    assert small.is_finished


def serves_what_needs_the_whole_pool(module: Any) -> None:  # SC14
    driver = Driver(4, 4, module)
    request = driver.add((PROMPT * 2)[:13], 4)
    for _ in range(4):
        driver.step()
    assert request.is_finished


def looks_past_what_does_not_fit(module: Any) -> None:  # SC15
    driver = Driver(8, 4, module)
    known = {"first": driver.add(PROMPT * 2, 1), "big": driver.add(PROMPT * 2, 1), "small": driver.add(PROMPT[:3], 1)}
    step = driver.step()
    assert names([each.sequence for each in step.batch], known) == ["first", "small"]


def does_not_let_the_big_one_starve(module: Any) -> None:  # SC16
    driver = Driver(3, 1, module)
    for _ in range(2):
        driver.add([1], 2)
    driver.step()
    big = driver.add([1, 2, 3], 1)
    for step in range(12):
        driver.add([1], 2)
        driver.step()
        if big.is_finished:
            assert step <= 6
            return
    raise AssertionError("the big request starves")


def window_is_bounded(module: Any) -> None:
    driver = Driver(2, 4, module, look_ahead=2, skip_limit=99)
    driver.add(PROMPT[:1], 4)
    driver.step()
    for _ in range(3):
        driver.add(PROMPT[:8], 1)
    small = driver.add(PROMPT[:1], 1)
    step = driver.step()
    assert small not in [each.sequence for each in step.batch]


def frees_neighbours(module: Any) -> None:  # SC17
    driver, known = filled(module, 30, {"A": 4, "B": 4, "C": 4})
    known["A"].ended = known["B"].ended = True
    driver.scheduler.free_finished()
    assert names(driver.scheduler.running, known) == ["C"]
    assert driver.pool.num_free == 29


def limit_counts_those_running(module: Any) -> None:  # SC18
    driver, _ = filled(module, 30, {"A": 4, "B": 4}, max_running=2)
    driver.add(PROMPT[:4], 4)
    assert len(driver.step().batch) == 2


def takes_no_blocks_beyond_the_budget(module: Any) -> None:  # SC21
    driver = Driver(6, 4, module, max_step_tokens=8)
    driver.add(PROMPT[:8], 2)
    driver.add(PROMPT[:8], 2)
    driver.step()
    assert driver.pool.num_free == 4


def aborts_a_preempted_request_once(module: Any) -> None:  # SC22
    driver, known = filled(module, 3, {"A": 4, "B": 3, "C": 3})
    driver.step()
    free = driver.pool.num_free
    driver.abort(known["C"])
    assert driver.pool.num_free == free


def an_idle_step_is_empty(module: Any) -> None:  # SC23
    assert Driver(2, 4, module).step().batch == []


def decodes_go_first(module: Any) -> None:  # SC24
    driver, known = filled(module, 60, {"A": 2, "B": 2}, max_step_tokens=4)
    known["long"] = driver.add((PROMPT * 9)[:100], 2)
    for _ in range(3):
        step = driver.step()
        assert [(name, each.num_new) for name, each in zip("AB", step.batch, strict=False)] == [("A", 1), ("B", 1)]
        assert step.batch[2].num_new == 2


def chunks_a_prompt_beyond_the_budget(module: Any) -> None:  # SC26, SC29
    driver = Driver(8, 4, module, max_step_tokens=4)
    request = driver.add(PROMPT[:10], 1)
    assert driver.step().num_tokens == 4
    assert driver.scheduler.has_work  # nothing waits and nothing decodes, and it is not done
    assert [driver.step().num_tokens for _ in range(2)] == [4, 2]
    assert request.is_finished


def tries_again_after_preempting(module: Any) -> None:  # SC27
    driver, known = filled(module, 3, {"A": 4, "B": 4, "C": 4})
    step = driver.step()
    assert names([each.sequence for each in step.batch], known) == ["A"]
    assert names(driver.scheduler.waiting, known) == ["B", "C"]


def keeps_those_beyond_the_budget(module: Any) -> None:  # SC28
    driver, known = filled(module, 30, {"A": 1, "B": 1, "C": 1}, max_step_tokens=3)
    driver.scheduler.max_step_tokens = 2
    driver.step()
    assert names(driver.scheduler.running, known) == ["A", "B", "C"]


def forgets_skips_on_admission(module: Any) -> None:  # SC32
    driver = Driver(3, 1, module)
    driver.add([1], 2)
    driver.step()
    big = driver.add([1, 2, 3], 1)
    for _ in range(3):
        driver.add([1], 1)
        driver.step()
    assert big.num_skips == 0


def counts_go_with_the_tokens(module: Any) -> None:  # SC33
    driver = Driver(8, 4, module)
    request = driver.add(PROMPT[:3], 3)
    contexts = [driver.step().batch[0].context_len for _ in range(3)]
    assert contexts == [3, 4, 5]
    assert request.is_finished


def one_step_late_is_planned_right(module: Any) -> None:
    """The next step is planned before the last one's tokens are read."""
    driver = Driver(8, 4, module)
    request = driver.add(PROMPT[:3], 3)
    plans = [driver.scheduler.schedule().batch for _ in range(4)]
    assert [[(each.num_new, each.context_len) for each in plan] for plan in plans] == [[(3, 3)], [(1, 4)], [(1, 5)], []]
    assert (request.num_unread, request.is_complete, request.is_finished) == (3, True, False)


def survives_random_histories(module: Any) -> None:
    assert sum(random_history(seed, 60, module) for seed in range(30)) > 100


CASES: list[Callable[[Any], None]] = [
    value
    for value in dict(globals()).values()
    if isinstance(value, types.FunctionType) and value.__module__ == __name__ and value.__code__.co_argcount == 1
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_policy(case: Callable[[Any], None]) -> None:
    case(scheduler)


# (entry of the catalogue, what stands in the source, what to put there)
BUGS = [
    ("SC01", "sequence.table.missing_blocks(sequence.num_tokens) <= self.pool.num_free", "True or True"),
    ("SC03", "for each in reversed(self.running)", "for each in self.running"),
    ("SC04", "self.waiting.appendleft(sequence)", "self.waiting.append(sequence)"),
    ("SC13", "if needed > self.capacity:", "if False:"),
    ("SC14", "if needed > self.capacity:", "if needed >= self.capacity:"),
    ("SC15", "passed.append(sequence)\n                continue", "passed.append(sequence)\n                break"),
    ("SC16", "passed[0].num_skips >= self.skip_limit", "False"),
    ("window", "looked_ahead == self.look_ahead", "False"),
    (
        "SC17",
        "self.running = [sequence for sequence in self.running if not sequence.is_finished]",
        "[self.running.remove(sequence) for sequence in self.running if sequence.is_finished]",
    ),
    ("SC18", "len(self.running) < self.max_running", "sum(each.num_new > 1 for each in step.batch) < self.max_running"),
    ("SC21", "step.num_tokens < self.max_step_tokens:", "True:\n            self.waiting[0].table.append(1)"),
    (
        "SC22",
        "sequence.table.free()\n        self.running.remove",
        "sequence.table.pool.free(sequence.table.blocks)\n        self.running.remove",
    ),
    (
        "SC23",
        "        return step\n\n    def repeat",
        "        assert step.batch\n        return step\n\n    def repeat",
    ),
    (
        "SC29",
        "bool(self.waiting or self.running)",
        "bool(self.waiting or any(each.is_decoding for each in self.running))",
    ),
    ("SC24", "key=lambda sequence: not sequence.is_decoding", "key=lambda sequence: sequence.is_decoding"),
    ("SC26", "min(sequence.num_uncomputed, self.max_step_tokens - step.num_tokens)", "sequence.num_uncomputed"),
    (
        "SC27",
        "while sequence.num_computed and not self.put_into(step, sequence):  # preempted, it has none computed",
        "if not self.put_into(step, sequence):\n              for _ in range(1):",
    ),
    (
        "SC28",
        "                    return\n",
        "                    self.running.remove(sequence)\n                    return\n",
    ),
    ("SC32", "            sequence.num_skips = 0\n", ""),
    ("SC33", "return len(self.tokens) + self.num_unread", "return self.num_prompt + self.num_unread"),
    ("SC10", "sequence.num_unread += scheduled.samples", "sequence.num_unread += 1"),
]


@pytest.mark.parametrize(("entry", "find", "replace"), BUGS, ids=[entry for entry, _, _ in BUGS])
def test_planted_bugs_are_seen(entry: str, find: str, replace: str, tmp_path: Path) -> None:
    module = plant("scheduler", [(find, replace)], tmp_path)
    assert any(goes_red(case, module) for case in CASES), f"{entry}: no case goes red"


def goes_red(case: Callable[[Any], None], module: Any) -> bool:
    """Whether a case fails, or does not end: a planted bug may loop for ever."""

    def stop(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 5)
    try:
        case(module)
    except (Exception, pytest.fail.Exception):
        return True
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return False


@pytest.mark.parametrize("seed", range(100))
def test_random_histories_run_as_if_alone(seed: int) -> None:
    """1,000 steps each: 100,000 in all. `python -m tests.engine.histories` plays more."""
    assert random_history(1000 + seed, 1000) > 20
