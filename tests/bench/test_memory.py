"""The memory of one engine alone. Entries BM… are known mistakes of benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from course.bench.memory import Card, Refused, ask_driver, figures, hold_plausible, measure, text_of
from course.bench.workers.ours import System

GIB = 1 << 30
SETTINGS = {"model": "course/model", "device": "cpu", "dtype": "float32", "engine": "plain", "requests": None}
FILLED = {
    "alive": 16,
    "repeated": 16,
    "used_blocks": 96,
    "blocks": 100,
    "block_size": 16,
    "pool_bytes": 100 * 4096,
    "positions": 256,
}


class Engine:
    """Answers as an engine does, and notes that it was loaded."""

    def __init__(self, **changes: int) -> None:
        self.about = {"dtype": "float16"}
        self._filled = {**FILLED, **changes}
        self.loaded = False

    def begin_load(self, **settings: Any) -> None:
        self.loaded = True

    def end_load(self) -> None: ...

    def ask(self, task: str, **job: Any) -> dict[str, Any]:
        return self._filled


def asked(*cards: Card | None) -> Any:
    left = list(cards)
    return lambda: left.pop(0)


def test_the_drivers_figure_stands_beside_the_pools() -> None:
    found = measure(Engine(), {}, 90, asked(Card(0, 16 * GIB), Card(3 * GIB, 16 * GIB)))
    assert (found["driver_used_bytes"], found["driver_used_before_bytes"]) == (3 * GIB, 0)
    assert f"{3 * GIB:,} of {16 * GIB:,} bytes" in text_of(found)


def test_more_than_the_card_has_is_refused() -> None:
    """BM17: 32 GB on a card of 16."""
    with pytest.raises(Refused, match="on a card of"):
        measure(Engine(), {}, 90, asked(Card(0, 16 * GIB), Card(32 * GIB, 16 * GIB)))
    hold_plausible(Card(16 * GIB, 16 * GIB))


def test_nothing_is_measured_beside_another() -> None:
    """BM18: what another system holds would be counted too, so nothing is even loaded."""
    engine = Engine()
    with pytest.raises(Refused, match="something else holds"):
        measure(engine, {}, 90, asked(Card(2 * GIB, 16 * GIB)))
    assert not engine.loaded


def test_what_is_reserved_is_not_what_is_used() -> None:
    """BM19: GPT-2 small, a pool of 10,000 blocks of 64 in 16 bits, one request of 20 tokens."""
    block_bytes = 2 * 12 * 768 * 64 * 2
    pool = {"blocks": 10_000, "block_size": 64, "pool_bytes": 10_000 * block_bytes}
    found = figures({**FILLED, **pool, "used_blocks": 1, "positions": 1024})
    assert found["pool_bytes"] / GIB == pytest.approx(21.97, abs=0.01)
    # The block that holds the 20 tokens; of its 2.25 MiB, 0.703 are theirs.
    assert found["used_bytes"] / (1 << 20) == 2.25
    assert found["used_bytes"] * 20 / 64 / (1 << 20) == pytest.approx(0.703, abs=0.001)
    assert found["alive_if_reserved"] == 625


def test_sequences_that_lost_their_keys_are_not_alive() -> None:
    with pytest.raises(Refused, match="only 1 of 16 sequences still have"):
        measure(Engine(repeated=1), {}, 90, asked(None, None))


@pytest.fixture(scope="module")
def engine() -> System:
    return System(**SETTINGS, most_tokens=0, block_size=16, modules={}, kernels="", blocks=50)  # type: ignore[arg-type]


def test_the_sequences_that_are_counted_are_alive_at_the_same_time(engine: System) -> None:
    """BM10: 50 blocks hold 16 sequences of 3 blocks, together; each is still whole when all are there."""
    found = engine.fill(40)
    assert (found["alive"], found["used_blocks"], found["repeated"]) == (16, 48, 16)
    assert found["pool_bytes"] == engine.engine.cache.num_bytes


def test_one_after_another_is_not_at_once(engine: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """BM10, planted: tables that all have the same blocks, as if each request had come when the one before was gone."""
    table = engine.engine.new_table()
    table.append(40)
    made = []

    class Same:
        blocks = table.blocks

        def append(self, tokens: int) -> list[Any] | None:
            made.append(tokens)
            return [] if len(made) <= 16 else None

        def free(self) -> None: ...

    monkeypatch.setattr(engine.engine, "new_table", Same)
    found = engine.fill(40)
    table.free()
    assert (found["alive"], found["used_blocks"]) == (16, 3)
    with pytest.raises(Refused, match="3 blocks are used; 16 sequences at once need 48"):
        measure(Engine(**found), {}, 40, asked(None, None))


def test_the_driver_is_asked_for_mebibytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = tmp_path / "nvidia-smi"
    asked_for.write_text("#!/bin/sh\necho \"$*\" > $0.asked\necho '1024, 143771'\n", "utf-8")
    asked_for.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert ask_driver() == Card(GIB, 143_771 << 20)
    assert "--query-gpu=memory.used,memory.total" in (tmp_path / "nvidia-smi.asked").read_text("utf-8")


def test_no_driver_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ask_driver() is None
    found = measure(Engine(), {}, 90, asked(None, None))
    assert found["driver_used_bytes"] is None
    assert "no card here" in text_of(found)
