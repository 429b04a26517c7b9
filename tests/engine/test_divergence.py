"""The divergences of chapter 6 are those that the planted bugs have: in the picture, on the page and in the checks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from course.judge.exercise import ROOT, find_exercise
from course.parity.divergence import measure

RESULTS: dict[str, Any] = json.loads((ROOT / "docs" / "results" / "divergence.json").read_text("utf-8"))
NOISE = 2e-6  # of fp32 on this model; another machine has another


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return measure()


def test_the_results_are_reproduced(measured: dict[str, Any]) -> None:
    for name in ("model", "prompt", "passes", "block_size", "bound", "stages"):
        assert measured[name] == RESULTS[name]
    for now, then in zip(measured["bugs"], RESULTS["bugs"], strict=True):
        for name in ("id", "name", "what", "layer", "first_heads", "positions", "cause"):
            assert now[name] == then[name], (now["id"], name)
        for name in ("errors", "heads"):
            for mine, theirs in zip(_flat(now[name]), _flat(then[name]), strict=True):
                assert mine == pytest.approx(theirs, rel=0.05, abs=NOISE), (now["id"], name)


def test_the_checks_know_the_same_reports() -> None:
    run = find_exercise("parity-diagnosis").checks[0].run
    shipped = run.__globals__["SHIPPED"]
    assert list(shipped) == [bug["id"] for bug in RESULTS["bugs"]]
    for bug in RESULTS["bugs"]:
        hidden, heads, logits, place, first, cause = shipped[bug["id"]]
        assert hidden == [_two_digits(error) for error in (bug["errors"][0], *bug["errors"][2:-1:2])]
        assert heads == [[_two_digits(error) for error in layer] for layer in bug["heads"]]
        assert logits == _two_digits(bug["errors"][-1])
        assert place == ((bug["layer"], bug["first_heads"]) if bug["report"] else None)
        assert bug["positions"] == ([] if first is None else list(range(first, 48)))
        assert cause == bug["cause"]


def test_the_page_s_table_is_the_results() -> None:
    text = (ROOT / "docs" / "gpt2-parity.md").read_text("utf-8")
    inside = text.split("/// html | course-divergence")[1].split("\n///")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in inside.splitlines() if line[:2] == "| "]
    assert rows[1:] == [_row(bug) for bug in RESULTS["bugs"]]


def _row(bug: dict[str, Any]) -> list[str]:
    """What the table says of a bug: where it starts, its error there and in the logits, the gap, the right choices."""
    place, error = "—", ""
    if bug["report"]:
        layer, heads, last = bug["layer"], bug["first_heads"], len(bug["heads"])
        place = "embedding" if layer is None else "logits" if layer == last else f"layer {layer}, after its heads"
        stage = 0 if layer is None else -1 if layer == last else 2 * layer + 2
        if heads:
            place, stage = f"layer {layer}, heads {heads[0]}–{heads[-1]}", 2 * layer + 1
        error = _short(bug["errors"][stage])
    return [bug["name"], place, error, *map(_short, (bug["errors"][-1], bug["log_prob_gap"])), str(bug["same_choice"])]


def _short(error: float) -> str:
    return f"{error:.2g}" if error >= 0.1 else f"{error:.1e}".replace("e-0", "e-")


def _two_digits(error: float) -> float:
    return float(f"{error:.1e}")


def _flat(values: Any) -> list[float]:
    return [values] if isinstance(values, float) else [number for each in values for number in _flat(each)]
