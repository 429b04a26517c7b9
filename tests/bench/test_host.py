"""The host's share of a step: counted at the engine's seams, which are as before afterwards."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import solutions.engine as engine_module
from course.bench.host import HOST, KINDS, Shares, watched
from course.bench.workers.ours import System
from solutions.fast_engine import FastEngine
from solutions.weights import GPT2Config, random_weights

SETTINGS = {"model": "course/model", "device": "cpu", "dtype": "float32", "engine": "plain", "requests": 4}


def test_a_call_inside_another_is_counted_once() -> None:
    times = iter([0.0, 1.0, 4.0, 10.0])  # outer begins, inner begins, inner ends, outer ends
    shares = Shares(lambda: next(times))
    inner = shares.wrap(lambda: None, "waiting")
    shares.wrap(lambda: inner(), "reading")()
    assert (shares.seconds["waiting"], shares.seconds["reading"]) == (3.0, 7.0)
    found = shares.of(20.0)
    assert found["reading"] == 0.35
    assert found["host"] == 0.35


def test_what_raises_is_counted_too() -> None:
    times = iter([0.0, 2.0])
    shares = Shares(lambda: next(times))

    def fail() -> None:
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        shares.wrap(fail, "assembly")()
    assert shares.seconds["assembly"] == 2.0


@pytest.fixture(scope="module")
def system() -> System:
    return System(**SETTINGS, most_tokens=40, block_size=16, modules={}, kernels="")  # type: ignore[arg-type]


def test_every_kind_of_work_is_seen_and_nothing_stays_wrapped(system: System) -> None:
    engine = system.engine

    def seams() -> list[Any]:
        return [engine_module.build_batch, *(sorted(vars(each)) for each in (engine, engine.scheduler, engine.model))]

    before = seams()
    expected = system.round([[1, 2, 3], [4]], 5)["tokens"]
    found = system.observe([[1, 2, 3], [4]], 5)["host"]
    assert set(found) == {*KINDS, "host"}
    for kind in (*HOST, "launching"):
        assert found[kind] > 0, kind
    assert found["waiting"] == 0.0  # on a CPU nobody waits for a device
    assert sum(found[kind] for kind in KINDS) <= 1.0
    assert seams() == before
    assert system.round([[1, 2, 3], [4]], 5)["tokens"] == expected


def test_a_step_is_shared_out_by_the_clock(system: System) -> None:
    """Every look at this clock is a second later, so each call costs one for each look inside it."""
    ticks = itertools.count()
    engine = system.engine
    with watched(engine, lambda: float(next(ticks))) as shares:
        engine.generate([[1, 2, 3]], 3)
    # Three steps, each with one call of next_tokens, one of tolist and one of take.
    assert shares.seconds["launching"] == 3.0
    assert shares.seconds["reading"] == 6.0
    assert shares.seconds["scheduling"] > 3.0


def test_the_fast_engine_has_the_seams_that_are_watched() -> None:
    config = GPT2Config(vocab_size=300, n_positions=64, n_embd=256, n_layer=1, n_head=4)
    engine = FastEngine(config, random_weights(config, 0, torch.float16, "cpu"), num_blocks=4, max_running=1)
    before = [sorted(vars(each)) for each in (engine, engine.scheduler, engine.decoder, engine.prompts)]
    with watched(engine) as shares:
        engine.generate([[1, 2, 3]], 3)
    for kind in (*HOST, "launching"):
        assert shares.seconds[kind] > 0, kind
    assert [sorted(vars(each)) for each in (engine, engine.scheduler, engine.decoder, engine.prompts)] == before


def test_a_seam_that_is_gone_is_named() -> None:
    class Renamed:
        pass

    with pytest.raises(AttributeError, match="schedule"), watched(SimpleNamespace(scheduler=Renamed())):
        pass
