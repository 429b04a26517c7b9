"""The tables, the chart and the fragments that a results file makes."""

from __future__ import annotations

import itertools
import json
import re
import xml.etree.ElementTree as ElementTree
from html import escape
from pathlib import Path
from typing import Any

import pytest

from course.bench.chart import HEIGHT, LINE, draw, series_of
from course.bench.memory import figures, lines_of
from course.bench.report import TABLES, Grid, as_html, as_text, grids
from course.bench.results import origin
from course.bench.systems import SYSTEMS
from course.browser.speed import EARLIER, NOT_MEASURED, NOT_SHOWN, PARTS, RESULTS, speed_fragments
from tests.bench.sample import MACHINE, WRONG, sample


@pytest.fixture
def results() -> dict[str, Any]:
    return sample()


def everything() -> dict[str, Any]:
    """Return results of every system that there is, all as fast as Hugging Face's one by one."""
    results = sample()
    figures = results["runs"][0]["systems"]["hf-cache"]
    for spec in SYSTEMS:
        results["systems"].setdefault(
            spec.name, {**results["systems"]["fast"], "title": spec.title, "group": spec.group}
        )
        results["runs"][0]["systems"].setdefault(spec.name, figures)
    return results


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
    results["runs"][0]["compared"]["vllm"]["like_for_like"] = False
    times = cells(results, "How many times as fast the fast engine is")
    assert times["Hugging Face, KV cache, padded batch"] == ["—"] * 4
    assert [each.endswith(" †") for each in times["vLLM"]] == [True, False, False, False]
    assert {"fast engine", "plain engine, fp32 weights"}.isdisjoint(times)  # ablations have a table of their own


def test_our_engine_stands_beside_the_fastest_whose_tokens_hold(results: dict[str, Any]) -> None:
    for run in results["runs"]:  # wrong tokens are no win, however fast they come
        run["systems"][WRONG]["tokens_per_second"]["median"] = 1e9
    rows = cells(results, "The fast engine against the fastest")
    assert list(rows) == ["1", "8", "64", "256"]
    times = ["14.00 (12.60 to 15.40)", "19.44 (17.50 to 21.39)"]
    assert rows["1"] == ["7,000", "vLLM", "500", times[0], "CTranslate2", "360", times[1]]
    assert rows["256"][4:] == ["none", "", ""]  # CTranslate2 failed there
    for run in results["runs"]:
        del run["systems"]["vllm"], run["compared"]["vllm"]
    assert cells(results, "The fast engine against the fastest")["8"][1:4] == ["none", "", ""]


def test_the_faster_form_of_vllm_is_taken(results: dict[str, Any]) -> None:
    results["systems"]["vllm-in-process"] = {**results["systems"]["vllm"], "title": "vLLM, in the process"}
    for run, faster in zip(results["runs"], (1.5, 0.5, 1.5, 0.5), strict=True):
        figures = run["systems"]["vllm"]
        rates = {name: rate * faster for name, rate in figures["tokens_per_second"].items()}
        run["systems"]["vllm-in-process"] = {**figures, "tokens_per_second": rates}
        run["compared"]["vllm-in-process"] = run["compared"]["vllm"]
    taken = [row[1] for row in cells(results, "The fast engine against the fastest").values()]
    assert taken == ["vLLM, in the process", "vLLM", "vLLM, in the process", "vLLM"]


def test_a_decode_step_is_held_against_the_floor(results: dict[str, Any]) -> None:
    rows = cells(results, "Microseconds a decode step; how many times the floor")
    # 247.3 MB of weights, and 36,864 bytes for each of 64 tokens, at 4.26 TB/s.
    assert rows["the floor"] == ["58.6", "62.5", "93.5", "199.8"]
    assert rows["fast engine"][0] == "82; 1.39 × (67 to 96)"  # (64 / 7,000 - 0.004) / 63 s
    assert "2.45 × (" not in rows["plain engine, fp32 weights"][0]
    assert {"vLLM", "CTranslate2"}.isdisjoint(rows)  # they show no first tokens in a timed round
    del results["copy_bandwidth"]
    bare = cells(results, "Microseconds a decode step")
    assert "the floor" not in bare
    assert bare["fast engine"][0] == "82 (67 to 96)"


def test_wider_weights_have_a_higher_floor(results: dict[str, Any]) -> None:
    rows = cells(results, "Microseconds a decode step; how many times the floor")
    took, times = (
        float(each)
        for each in re.findall(r"^([\d.,]+); ([\d.]+)", rows["plain engine, fp32 weights"][3].replace(",", ""))[0]
    )
    assert took / times == pytest.approx(2 * 199.8, rel=0.01)


def test_an_idea_is_worth_what_a_round_without_it_takes(results: dict[str, Any]) -> None:
    rows = cells(results, "How many times as long a round takes without an idea")
    assert rows["plain engine (fusions and graphs off)"][0] == "28.00 (28.00 to 28.00)"
    assert rows["plain engine, fp32 weights"][0] == "1.25 (1.25 to 1.25)"  # against the plain engine, not the fast one
    assert len(rows) == 2


def test_losses_are_told(results: dict[str, Any]) -> None:
    title = "Where another is faster than the fast engine"
    assert cells(results, title) == {"none in this run": ["", ""]}
    run = results["runs"][1]
    run["compared"]["ctranslate2"]["times"] = {"median": 0.8, "least": 0.7, "most": 1.3}
    run["systems"]["vllm"]["observed"] = [{"first_token_seconds": [0.001]}]
    run["systems"][WRONG]["observed"] = [{"first_token_seconds": [0.001]}]  # wrong tokens, so nothing is said
    assert cells(results, title) == {
        "CTranslate2": ["8", "tokens a second: 1.25 × as many"],
        "vLLM": ["8", "first token: 0.25 × the time"],
    }


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
    assert [grid.name for grid in grids(results)] == list(TABLES)
    for grid in grids(results):
        html = as_html(grid, "run")
        box = ElementTree.fromstring(f"<article>{html}</article>".replace("<br>", "\n"))
        [region], [caption] = box.findall("div"), list(box.iter("caption"))
        assert (region.get("role"), region.get("tabindex")) == ("region", "0")  # so that a keyboard can scroll it
        assert region.get("aria-labelledby") == caption.get("id") == f"run-{grid.name}"
        assert caption.text == grid.title
        [head, *rows] = list(box.iter("tr"))
        assert ["".join(cell.itertext()) for cell in head] == grid.head
        assert [row[0].text for row in rows] == [row[0] for row in grid.rows]
        assert all(row[0].get("scope") == "row" for row in rows)
        for row, cells_of in zip(rows, grid.rows, strict=True):
            assert len(row) == len(cells_of)
            for cell, text in zip(row, cells_of, strict=True):
                shown = "".join(cell.itertext())
                assert sorted(re.findall(r"[^\s;()]+", shown.replace("(", " "))) == sorted(
                    re.findall(r"[^\s;()]+", text)
                )
        assert not re.search(r"\n\s*\n", html)  # an empty line would end the HTML in a page of Markdown
        assert all(cell in as_text(grid) for row in grid.rows for cell in row)


def test_a_table_of_facts_has_no_head_and_text_is_escaped() -> None:
    html = as_html(Grid("facts", "A & B", ["", ""], [["<x>", "1 < 2"]], ["a <note>"]), "p")
    assert "<thead>" not in html
    assert 'class="figures facts"' in html
    assert "A &amp; B" in html
    assert "&lt;x&gt;" in html
    assert "1 &lt; 2" in html
    assert "a &lt;note&gt;" in html


def test_notes_stand_only_under_what_they_explain(results: dict[str, Any]) -> None:
    [grid] = [each for each in grids(results) if each.name == "times"]
    assert [note[0] for note in grid.notes] == ["—"]


def test_the_chart_is_one_figure_that_says_what_it_shows(results: dict[str, Any]) -> None:
    figure = ElementTree.fromstring(draw(results, "speed"))
    svg = figure.find("div/svg")
    assert svg is not None
    assert svg.get("role") == "img"
    ids = (svg.get("aria-labelledby") or "").split()
    named = [each for each in svg.iter() if each.get("id") in ids]
    assert [each.tag for each in named] == ["title", "desc"]
    assert "fast engine: 7,000 at 1" in (named[1].text or "")
    assert "NVIDIA H200" in (named[0].text or "")
    assert not re.search(r"<script|\n\s*\n", draw(results, "speed"))


def test_the_chart_draws_what_holds_and_no_ablation(results: dict[str, Any]) -> None:
    lines = series_of(results)
    names = ("fast", "vllm", "plain", "ctranslate2", "hf-cache")  # by where they end
    assert [each.title for each in lines] == [results["systems"][name]["title"] for name in names]
    assert [each.family for each in lines] == ["ours", "vllm", "ours", "ctranslate2", "hf"]
    assert [len(each.points) for each in lines] == [4, 4, 4, 3, 1]


def test_no_two_lines_look_the_same_without_colours() -> None:
    lines = series_of(everything())
    assert len(lines) >= 11
    assert len({(each.family, each.mark) for each in lines}) == len(lines)


def test_every_line_has_its_mark_in_the_key_and_its_spread(results: dict[str, Any]) -> None:
    figure = ElementTree.fromstring(draw(results, "speed"))
    key = {"".join(each.itertext()): each.find("svg/path") for each in figure.iter("li")}
    lines = series_of(results)
    assert list(key) == [each.title for each in lines]
    for each in lines:
        mark = key[each.title]
        assert mark is not None
        assert mark.get("d") == each.mark
    spreads = [each for each in figure.iter("path") if each.get("class") == "spread"]
    assert len(spreads) == sum(len(each.points) for each in lines)
    for drawn in spreads:
        low, high = re.findall(r"^M\S+ (\S+?)h.*V([\d.]+)m", drawn.get("d") or "")[0]
        assert float(low) > float(high)


@pytest.mark.parametrize("rate", [1e9, 1000.0, 1.0])
def test_names_do_not_stand_on_each_other(rate: float) -> None:
    results = everything()
    for run in results["runs"]:
        for name, system in run["systems"].items():
            if name != "fast":
                system["tokens_per_second"] = {"median": rate, "least": rate, "most": rate}  # they end at one place
    svg = ElementTree.fromstring(draw(results, "speed")).find("div/svg")
    assert svg is not None
    places = [each.get("transform") or "" for each in svg.iter("g") if each.get("class") == "name"]
    heights = sorted(float(re.findall(r"[\d.]+", each)[1]) for each in places)
    assert len(heights) == len(series_of(results))
    assert all(lower - upper >= LINE - 0.01 for upper, lower in itertools.pairwise(heights))
    assert heights[0] > 0
    assert heights[-1] < HEIGHT


def test_lines_rise_with_the_rates(results: dict[str, Any]) -> None:
    svg = ElementTree.fromstring(draw(results, "speed")).find("div/svg")
    assert svg is not None
    lines = [each.get("points") or "" for group in svg.iter("g") for each in group.findall("polyline")]
    fast, plain = ([tuple(map(float, place.split(","))) for place in line.split()] for line in (lines[-1], lines[-3]))
    assert [place[0] for place in fast] == sorted({place[0] for place in fast})
    assert all(one[1] < other[1] for one, other in zip(fast, plain, strict=True))  # higher is faster
    assert fast[-1][1] < fast[0][1]


def test_nothing_to_draw_is_no_figure(results: dict[str, Any]) -> None:
    results["runs"] = []
    assert draw(results, "speed") == ""


def test_a_results_file_makes_the_fragments(tmp_path: Path, results: dict[str, Any]) -> None:
    (tmp_path / "benchmark-h200.json").write_text(json.dumps(results), "utf-8")
    fragments = speed_fragments(tmp_path)
    assert fragments.pop("memory-h200.md").strip() == NOT_MEASURED
    earlier = [fragments.pop(f"{EARLIER}-{part}.md") for part in PARTS[EARLIER]]
    assert {text.strip() for text in earlier} == {NOT_MEASURED}
    assert fragments["benchmark-h200-chart.md"].startswith("<figure")
    for grid in grids(results):
        assert as_html(grid, "benchmark-h200") in fragments[f"benchmark-h200-{grid.name}.md"]
    origin = fragments["benchmark-h200-origin.md"]
    for fact in (
        "NVIDIA H200",
        "torch 2.11.0",
        "gpt2, in float16",
        "1, 8, 64, 256",
        "32 to 32 tokens",
        "benchmark-h200.json",
    ):
        assert fact in origin
    assert not [name for name, text in fragments.items() if NOT_MEASURED in text or NOT_SHOWN in text]


def test_an_earlier_run_has_fragments_of_its_own(tmp_path: Path, results: dict[str, Any]) -> None:
    (tmp_path / f"{EARLIER}.json").write_text(json.dumps(results), "utf-8")
    found = {name: text for name, text in speed_fragments(tmp_path).items() if NOT_MEASURED not in text}
    assert sorted(found) == sorted(f"{EARLIER}-{part}.md" for part in PARTS[EARLIER])
    for grid in grids(results):
        if grid.name in PARTS[EARLIER]:
            assert as_html(grid, EARLIER) in found[f"{EARLIER}-{grid.name}.md"]
    assert f"{EARLIER}.json" in found[f"{EARLIER}-origin.md"]


def test_what_a_run_has_no_figures_for_is_said(tmp_path: Path, results: dict[str, Any]) -> None:
    results["systems"] = {"hf-cache": results["systems"]["hf-cache"]}
    for run in results["runs"]:
        run["systems"] = {name: each for name, each in run["systems"].items() if name == "hf-cache"}
        run |= {"compared_with": None, "compared": {}}
    (tmp_path / "benchmark-h200.json").write_text(json.dumps(results), "utf-8")
    fragments = speed_fragments(tmp_path)
    assert fragments["benchmark-h200-against.md"].strip() == NOT_SHOWN
    assert fragments["benchmark-h200-ablations.md"].strip() == NOT_SHOWN
    assert fragments["benchmark-h200-goal.md"].strip() == NOT_SHOWN
    assert "Hugging Face" in fragments["benchmark-h200-rates.md"]


def test_a_run_that_was_cut_short_says_what_is_missing(tmp_path: Path, results: dict[str, Any]) -> None:
    results |= {"complete": False, "copy_bandwidth": None, "notes": ["Cut short before <all> was measured."]}
    for run in results["runs"]:
        for system in run["systems"].values():
            system["profile"] = {"why": "not asked for, or cut short"}
    (tmp_path / "benchmark-h200.json").write_text(json.dumps(results), "utf-8")
    fragments = speed_fragments(tmp_path)
    assert "no: see below" in fragments["benchmark-h200-origin.md"]
    assert "<li>Cut short before &lt;all&gt; was measured.</li>" in fragments["benchmark-h200-origin.md"]
    [shares] = [grid for grid in grids(results) if grid.name == "shares"]
    assert [row for row in shares.rows if row[0] == "fast engine"] == [["fast engine", *["12%"] * 4]]
    assert "busy share was not found in this run" in shares.notes[0]
    assert "the floor" not in [row[0] for grid in grids(results) if grid.name == "decode" for row in grid.rows]


def test_the_goal_is_held_against_the_medians(tmp_path: Path, results: dict[str, Any]) -> None:
    def said() -> str:
        (tmp_path / "benchmark-h200.json").write_text(json.dumps(results), "utf-8")
        return speed_fragments(tmp_path)["benchmark-h200-goal.md"].strip()

    begins = "We aimed at 8 times the fastest vLLM. By the medians this is "
    assert said() == begins + "reached with 1, 8, 64, 256 requests at once."
    for run in results["runs"][1:3]:
        run["compared"]["vllm"]["times"] = {"least": 7.0, "median": 7.99, "most": 9.0}
    assert said() == begins + "reached with 1, 256 and missed with 8, 64 requests at once."
    for run in results["runs"]:
        run["compared"]["vllm"]["times"] = None  # its tokens do not hold
    assert said() == NOT_SHOWN


def test_a_memory_file_makes_its_fragment(tmp_path: Path) -> None:
    filled = {
        "alive": 16,
        "repeated": 15,
        "used_blocks": 96,
        "blocks": 100,
        "block_size": 16,
        "pool_bytes": 409_600,
        "positions": 256,
    }
    found = {
        **origin("memory", MACHINE),
        **figures(filled),
        "tokens": 96,
        "engine": {"kv_dtype": "float16"},
        "driver_used_bytes": 3 << 30,
        "driver_total_bytes": 16 << 30,
    }
    (tmp_path / "memory-h200.json").write_text(json.dumps(found), "utf-8")
    text = speed_fragments(tmp_path)["memory-h200.md"]
    for what, figure in lines_of(found):
        assert escape(what) in text
        assert figure in text
    assert "float16" in text


def test_no_results_file_is_said_in_every_fragment(tmp_path: Path) -> None:
    fragments = speed_fragments(tmp_path)
    assert len(fragments) == len(TABLES) + 4 + 3  # the goal, the chart, where it was measured, memory; an earlier run
    assert {text.strip() for text in fragments.values()} == {NOT_MEASURED}


def test_another_schema_is_refused(tmp_path: Path, results: dict[str, Any]) -> None:
    (tmp_path / "benchmark-h200.json").write_text(json.dumps({**results, "schema": 1}), "utf-8")
    with pytest.raises(ValueError, match=r"benchmark-h200\.json has schema 1; this version reads 2: measure again"):
        speed_fragments(tmp_path)


def test_the_repositorys_own_files_can_be_read() -> None:
    speed_fragments(RESULTS)
