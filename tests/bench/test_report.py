"""The tables, the chart and the fragments that a results file makes."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from course.bench.chart import LINE, draw, series_of
from course.bench.report import as_markdown, as_text, grids
from course.browser.speed import RESULTS, speed_fragments
from tests.bench.sample import sample


@pytest.fixture
def results() -> dict[str, Any]:
    return sample()


def cells(results: dict[str, Any], title: str) -> dict[str, list[str]]:
    """Return the rows of the table whose title begins so, by their first cell."""
    [grid] = [each for each in grids(results) if each.title.startswith(title)]
    return {row[0]: row[1:] for row in grid.rows}


def test_every_table_has_every_system_once(results: dict[str, Any]) -> None:
    rates = cells(results, "Tokens a second")
    assert list(rates) == [each["title"] for each in results["systems"].values()]
    assert rates["fast engine"][0] == "7,000 (6,300 to 7,700)"
    assert rates["CTranslate2"][-1] == ""
    assert cells(results, "Milliseconds a step")["fast engine"][0].startswith("0.143 ")
    assert cells(results, "The host's share")["fast engine"] == ["12% / 88%"] * 4
    assert cells(results, "The host's share")["CTranslate2"][0] == "· / 88%"
    assert "vLLM" not in cells(results, "The host's share")  # neither is to be seen


def test_a_wrong_system_has_a_dash_and_another_dtype_a_mark(results: dict[str, Any]) -> None:
    times = cells(results, "How many times as fast the fast engine is")
    assert times["Hugging Face, KV cache, padded batch"] == ["—"] * 4
    assert times["plain engine, fp32 weights"][0].endswith(" †")
    assert not times["vLLM"][0].endswith("†")
    assert "fast engine" not in times


def test_times_from_a_round_apart_are_marked(results: dict[str, Any]) -> None:
    first = cells(results, "Milliseconds to the first token")
    assert first["fast engine"][0] == "4.0 (3.6 to 4.4)"
    assert first["vLLM"][0] == "30.0 (30.0 to 30.0) °"


def test_what_was_not_run_and_what_failed_is_said(results: dict[str, Any]) -> None:
    assert cells(results, "Not run") == {
        "vLLM, engine in the process": ["No module named 'vllm'"],
        "CTranslate2": ["failed round 2 of 5 with 256 requests: no answer"],
    }


def test_tables_are_tables_in_both_forms(results: dict[str, Any]) -> None:
    for grid in grids(results):
        rows = [line for line in as_markdown(grid).split("\n") if line.startswith("|")]
        assert len(rows) == len(grid.rows) + 2
        assert {row.count("|") for row in rows} == {len(grid.head) + 1}
        assert all(cell in as_text(grid) for row in grid.rows for cell in row)


def test_notes_stand_only_under_what_they_explain(results: dict[str, Any]) -> None:
    results["systems"]["plain-fp32"]["title"] = "plain"
    for run in results["runs"]:
        run["compared"]["plain-fp32"]["like_for_like"] = True
    [grid] = [each for each in grids(results) if each.title.startswith("How many times")]
    assert [note[0] for note in grid.notes] == ["—"]


def test_the_chart_is_one_figure_that_says_what_it_shows(results: dict[str, Any]) -> None:
    figure = ElementTree.fromstring(draw(results, "speed"))
    svg = figure.find("svg")
    assert svg is not None
    assert svg.get("role") == "img"
    ids = (svg.get("aria-labelledby") or "").split()
    named = [each for each in svg.iter() if each.get("id") in ids]
    assert [each.tag for each in named] == ["title", "desc"]
    assert "fast engine: 7,000 at 1" in (named[1].text or "")
    assert "NVIDIA H200" in (named[0].text or "")
    assert not re.search(r"<script|\n\s*\n", draw(results, "speed"))


def test_the_chart_draws_what_holds_and_no_ablation(results: dict[str, Any]) -> None:
    titles = [each.title for each in series_of(results)]
    assert titles == [
        results["systems"][name]["title"] for name in ("fast", "plain", "hf-cache", "vllm", "ctranslate2")
    ]
    assert [len(each.points) for each in series_of(results)] == [4, 4, 1, 4, 3]


def test_names_do_not_stand_on_each_other(results: dict[str, Any]) -> None:
    for run in results["runs"]:
        for figures in run["systems"].values():
            figures["tokens_per_second"]["median"] = 1000.0  # all lines end at one place
    svg = ElementTree.fromstring(draw(results, "speed")).find("svg")
    assert svg is not None
    places = [(float(each.get("x") or 0), float(each.get("y") or 0)) for each in svg.iter("text") if each.get("class")]
    for one, other in ((a, b) for i, a in enumerate(places) for b in places[:i] if a[0] == b[0]):
        assert abs(one[1] - other[1]) >= LINE


def test_lines_rise_with_the_rates(results: dict[str, Any]) -> None:
    svg = ElementTree.fromstring(draw(results, "speed")).find("svg")
    assert svg is not None
    lines = [each.get("points") or "" for each in svg.iter("polyline")]
    fast, plain = ([tuple(map(float, place.split(","))) for place in line.split()] for line in lines[:2])
    assert [place[0] for place in fast] == sorted({place[0] for place in fast})
    assert all(one[1] < other[1] for one, other in zip(fast, plain, strict=True))  # higher is faster
    assert fast[-1][1] < fast[0][1]


def test_nothing_to_draw_is_no_figure(results: dict[str, Any]) -> None:
    results["runs"] = []
    assert draw(results, "speed") == ""


def test_a_results_file_makes_a_fragment(tmp_path: Path, results: dict[str, Any]) -> None:
    (tmp_path / "benchmark-h200.json").write_text(json.dumps(results), "utf-8")
    fragments = speed_fragments(tmp_path)
    assert list(fragments) == ["benchmark-h200.md"]
    text = fragments["benchmark-h200.md"]
    assert text.startswith("<figure>")
    assert text.count("| requests at once |") == 7
    assert "`docs/results/benchmark-h200.json`" in text
    assert text == speed_fragments(tmp_path)["benchmark-h200.md"]


def test_no_results_file_no_fragment(tmp_path: Path) -> None:
    assert speed_fragments(tmp_path) == {}


def test_another_schema_is_refused(tmp_path: Path, results: dict[str, Any]) -> None:
    (tmp_path / "benchmark-h200.json").write_text(json.dumps({**results, "schema": 1}), "utf-8")
    with pytest.raises(ValueError, match=r"benchmark-h200\.json has schema 1; this version reads 2: measure again"):
        speed_fragments(tmp_path)


def test_the_repositorys_own_files_can_be_read() -> None:
    speed_fragments(RESULTS)
