"""The page on the benchmark shows all that a results file has, and states no measured figure of its own."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from course.bench.systems import SYSTEMS
from course.browser.speed import EARLIER, MEMORY, NOT_MEASURED, NOT_SHOWN, RESULTS, TABLE, speed_fragments

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "benchmark.md"
MEASURED, EARLIER_MEASURED, MEMORY_MEASURED = (RESULTS / f"{name}.json" for name in (TABLE, EARLIER, MEMORY))
# A number with a unit of what is measured: of time, speed, memory or a ratio.
FIGURE = re.compile(r"\d[\d.,]*\s*(?:×|%|x\b|times\b|tokens/s|tokens a second|[µmn]s\b|seconds?\b|[KMGT]i?B\b|bytes\b)")


def prose() -> str:
    """Return the page without its blocks of code and what the build puts in."""
    return re.sub(r"^```.*?^```|^--8<--.*?$", "", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def test_the_page_shows_every_fragment_once() -> None:
    shown = re.findall(r'^--8<-- "(.+)"$', PAGE.read_text("utf-8"), flags=re.MULTILINE)
    assert sorted(shown) == sorted(speed_fragments())


def test_the_page_states_no_measured_figure() -> None:
    assert FIGURE.findall(prose()) == []
    assert FIGURE.findall("It is 8.5 times as fast, 128 tokens/s and 3 ms a step.") == [
        "8.5 times",
        "128 tokens/s",
        "3 ms",
    ]


def test_the_page_explains_every_system() -> None:
    """Every system's title begins with the name of a row of the page, or is an idea taken away, listed below."""
    rows = re.findall(r"^\| ([^|]+?) \|", prose(), flags=re.MULTILINE)
    ideas = re.findall(r"^- \*\*(.+?)\*\*:", prose(), flags=re.MULTILINE)
    for spec in SYSTEMS:
        if spec.group == "ablations":
            assert [idea for idea in ideas if idea.lower() in spec.title.lower()], spec.title
        else:
            assert [row for row in rows if spec.title.startswith(row.split(", ")[0]) and _is_of(row, spec.title)], (
                spec.title
            )


def _is_of(row: str, title: str) -> bool:
    return all(part in title for part in row.split(", "))


def test_the_page_has_the_commands_of_the_readme() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    commands = re.findall(r"^\$ (python -m course\.bench(?:\\\n|.)+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert command in readme


def test_the_tables_of_the_fast_path_are_those_of_their_file() -> None:
    found = json.loads((RESULTS / "fast-path-h200.json").read_text("utf-8"))
    page = (ROOT / "docs" / "gpu-runs.md").read_text("utf-8")
    section = page.partition("## The fast path")[2].partition("\n## ")[0]
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.MULTILINE)
    ]
    steps = [
        [
            f"{each['context']}",
            f"{each['requests']}",
            *(f"{us:,.1f}" for us in (each["before"]["us"], each["after"]["us"], each["floor_us"])),
            f"{each['after']['us'] / each['floor_us']:.2f}" + (f" ({each['goal']})" if each["goal"] else ""),
            f"{each['after']['us'] / each['floor_us'] * each['copy_gb_a_second'] / 4260:.2f}",
        ]
        for each in found["steps"]
    ]
    found_steps = [line for line in lines if len(line) == 7 and line[0] in ("64", "112", "512") and "(" not in line[1]]
    assert found_steps == steps
    [sizes] = [line[1:] for line in lines if line[0].startswith("context 64")]
    times = {(each["what"], f"{each['requests']}"): f"{each['us']:.1f}" for each in found["ideas"]}
    for what in dict.fromkeys(what for what, _ in times):
        assert [what, *(times.get((what, size), "") for size in sizes)] in lines
    for what, name in (("the engine's step", "engine"), ("replay alone", "replay")):
        assert [what, *(f"{each[name]['us']:.1f}" for each in found["gaps"])] in lines
    assert ["the gap", *(f"{each['engine']['us'] - each['replay']['us']:.1f}" for each in found["gaps"])] in lines
    kernels = [("fp16", "paged"), ("fp16", "split"), ("int8", "paged"), ("int8", "split"), ("fp16", "sdpa")]
    shown = {}
    for name, *cells in (line for line in lines if " × " in line[0]):
        shown |= {(name, kernel): cell for kernel, cell in zip(kernels, cells, strict=True) if cell}
    assert len(shown) == len(found["decode"])
    for each in found["decode"]:
        over = "" if each["num_heads"] == each["num_kv_heads"] else f" over {each['num_kv_heads']} KV heads"
        name = f"{each['num_seqs']} × {each['context_len']:,}, {each['num_heads']} heads{over} of {each['head_dim']}"
        parts = f" ({each['splits']})" if each["kind"] == "split" else ""
        kernel = (each["cache"], each["kind"])
        assert shown[name, kernel] == f"{each['us']:.1f}{parts}"


def test_the_table_of_the_step_as_it_is_now_is_that_of_its_file() -> None:
    found = json.loads((RESULTS / "fast-path-2-h200.json").read_text("utf-8"))["steps"]["rows"]
    page = (ROOT / "docs" / "gpu-runs.md").read_text("utf-8")
    table = page.partition("| requests at once | 64 tokens |")[2].partition("\n\n")[0]
    shown = [re.findall(r"[\d,.]+", line) for line in table.splitlines()[2:]]
    rows: dict[int, list[str]] = {}
    for each in found:
        ratio = each["us"] / each["floor_us"]
        rows.setdefault(each["requests"], [f"{each['requests']}"]).extend((f"{each['us']:,.1f}", f"{ratio:.2f}"))
    assert shown == list(rows.values())
    assert len(shown) == 8


@pytest.fixture
def results() -> dict[str, Any]:
    return read(MEASURED)


def read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        pytest.skip("nothing is measured yet: the page says so")
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


@pytest.mark.parametrize("path", [MEASURED, EARLIER_MEASURED], ids=["now", "earlier"])
def test_the_file_has_all_rounds_of_every_system(path: Path) -> None:
    results = read(path)
    assert results["hardware"]["gpu"]
    assert results["commit"]
    failed = {each["system"] for each in results["failures"]}
    assert set(results["systems"]) | set(results["not_run"]) >= {spec.name for spec in SYSTEMS}
    assert all(run["compared_with"] == "fast" for run in results["runs"])
    ran = {name for run in results["runs"] for name in run["systems"]}
    assert set(results["systems"]) - ran <= failed
    for run in results["runs"]:
        for name, figures in run["systems"].items():
            assert len(figures["rounds"]) == results["num_rounds"], name
            wanted = run["workload"]["requests"] * results["new_tokens"]
            assert {each["new_tokens"] for each in figures["rounds"]} == {wanted}, name


def test_what_did_not_run_stands_on_the_page_with_its_reason(results: dict[str, Any]) -> None:
    shown = built_text()
    for each in (*results["not_run"].values(), *results["failures"]):
        assert each["why"].strip()
        assert plain(each["why"]) in shown
    for each in results["failures"]:
        assert results["systems"][each["system"]]["title"] in shown


def test_what_a_run_that_was_cut_short_lacks_stands_on_the_page(results: dict[str, Any]) -> None:
    shown = built_text()
    fragments = speed_fragments()
    for table, each in ((TABLE, results), (EARLIER, read(EARLIER_MEASURED))):
        assert each["complete"] or each["notes"]
        for note in each.get("notes", []):
            assert plain(note) in shown
        origin = plain(fragments[f"{table}-origin.md"])
        assert ("to its end no: see below" in origin) is not each["complete"]
        assert origin in shown
    found = [figures["profile"] for run in results["runs"] for figures in run["systems"].values()]
    unprofiled = not any("busy_share" in each for each in found)
    assert ("The GPU's busy share was not found in this run." in shown) is unprofiled
    if unprofiled:
        assert not results["complete"]
        assert any("busy share" in note for note in results["notes"])
    assert (NOT_MEASURED.strip("*") in shown) is not MEMORY_MEASURED.is_file()


def plain(html: str) -> str:
    """Return text without tags, its white space as single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]+>|\s+", " ", html)).split())


def built_text() -> str:
    built = ROOT / "site" / "benchmark" / "index.html"
    if not built.is_file():
        pytest.fail("the site is not built: run `make site`", pytrace=False)
    return plain(built.read_text("utf-8"))


def test_the_page_shows_all_of_the_file(results: dict[str, Any]) -> None:
    fragments = speed_fragments()
    empty = [name for name, text in fragments.items() if NOT_MEASURED in text or NOT_SHOWN in text]
    assert empty == ([] if MEMORY_MEASURED.is_file() else [f"{MEMORY}.md"])
    shown = built_text()
    for name, text in fragments.items():
        if not name.startswith(f"{TABLE}-chart"):  # of the chart, a screen reader's text is in a tag of its own
            assert plain(text).strip("*") in shown, name


def test_an_unmeasured_page_says_so() -> None:
    if MEASURED.is_file():
        assert NOT_MEASURED not in speed_fragments()["benchmark-h200-origin.md"]
    else:
        assert speed_fragments()["benchmark-h200-origin.md"].strip() == NOT_MEASURED
