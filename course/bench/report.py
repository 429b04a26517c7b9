"""The tables that a results file makes, for a terminal and for a page."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable
from html import escape
from typing import Any, NamedTuple

from course.bench import floor
from course.bench.rounds import Spread


class Grid(NamedTuple):
    """A table: its name, its title, the head and the rows (the first cell heads the row), and what is said below."""

    name: str
    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str]


Cell = Callable[[dict[str, Any], dict[str, Any]], str]  # (the system's figures, the run) → what stands in the table


TABLES = (
    "against", "rates", "times", "steps", "decode", "first", "shares", "ablations", "losses", "agreement", "warm-up",
    "not-run",
)  # fmt: skip


def grids(results: dict[str, Any]) -> list[Grid]:
    """Return the tables of a record of the kind "table": of `TABLES`, those that it has figures for."""
    rounds = results["num_rounds"]
    title = results["systems"].get(_base(results), {}).get("title", "")

    def times_of_others(figures: dict[str, Any], run: dict[str, Any]) -> str:
        return "" if results["systems"][figures["name"]]["group"] == "ablations" else _times(figures, run)

    found = [
        _best_peers(results),
        _by_requests(
            results, "rates", f"Tokens a second: the median of {rounds} rounds (the least to the most)", _rate, []
        ),
        _by_requests(
            results,
            "times",
            f"How many times as fast the {title} is: round by round, the median (the least to the most)",
            times_of_others,
            [
                "—: not said, because a token that the system chose is further below Hugging Face's best than allowed.",
                "†: the two do not compute in the same dtype.",
            ],
        ),
        _by_requests(results, "steps", "Milliseconds a step: the round's time over its steps, prefill included", _step),
        _decode_steps(results),
        _by_requests(
            results,
            "first",
            "Milliseconds to the first token: the median request",
            _first,
            ["°: from rounds apart, because a timed round hands out all tokens at its end."],
        ),
        _waiting(results),
        _ablations(results),
        _losses(results),
        _by_requests(
            results,
            "agreement",
            "Against Hugging Face in float32: texts with its own greedy tokens to the end; the fewest tokens "
            "before the first that is not its own; the largest log-probability given away (what is allowed)",
            _agreement,
            ["A request has a text for each way in which the system continued it: one, if all rounds were the same."],
        ),
        _by_requests(
            results, "warm-up", "Seconds of the first, untimed round, in which what is left is compiled", _warm_up
        ),
    ]
    return [*(grid for grid in found if grid.rows), _absent(results)]


def as_text(grid: Grid) -> str:
    """Return a table for a terminal."""
    lines = [grid.head, *grid.rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(grid.head))]
    text = [
        "  " + "  ".join(f"{cell:{'<' if i == 0 else '>'}{widths[i]}}" for i, cell in enumerate(line)).rstrip()
        for line in lines
    ]
    return "\n".join([grid.title, *text, *(f"  {note}" for note in grid.notes)])


def as_html(grid: Grid, prefix: str) -> str:
    """Return a table for a page, in a box that it scrolls in; `prefix` makes its ids its own.

    Of a cell with figures, each part has a line of its own, and a spread stands below its median.
    """
    key = f"{prefix}-{grid.name}"
    kinds = [max((_kind(cell) for cell in column), default="") for column in zip(*grid.rows, strict=True)]
    head = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(grid.head, kinds, strict=True))
    facts = "" if any(grid.head) else " facts"  # nothing to head: each row is something by itself
    lines = [
        f'<div class="figures" role="region" aria-labelledby="{key}" tabindex="0"><table class="figures{facts}">',
        f'<caption id="{key}">{escape(grid.title)}</caption>',
        "<tbody>" if facts else f"<thead><tr>{head}</tr></thead><tbody>",
        *(
            f'<tr><th scope="row"{_kind(first)}>{escape(first)}</th>{"".join(map(_cell, cells))}</tr>'
            for first, *cells in grid.rows
        ),
        "</tbody></table></div>",
    ]
    notes = "".join(f"<li>{escape(note)}</li>" for note in grid.notes)
    return "\n".join([*lines, *([f'<ul class="figures-notes">{notes}</ul>'] if notes else [])])


def _cell(text: str) -> str:
    if _kind(text):
        return f'<td class="words">{escape(text)}</td>'
    lines = "<br>".join(map(escape, text.split("; ")))
    return "<td>" + re.sub(r" (\([^()]+\))( [†°])?$", r"\2<small>\1</small>", lines) + "</td>"


def _kind(text: str) -> str:
    """Return the class of a cell with words; one with figures begins with a digit, or says that it has none."""
    return ' class="words"' if any(map(str.isalpha, text.partition(" ")[0])) else ""


def _base(results: dict[str, Any]) -> str | None:
    """Return the system that the others are compared with."""
    return next((run["compared_with"] for run in results["runs"] if run["compared_with"]), None)


def _best_peers(results: dict[str, Any]) -> Grid:
    """Return, for each number of requests, our engine beside the fastest vLLM and the fastest of the other peers."""
    base = _base(results)
    peers = [name for name, system in results["systems"].items() if system["group"] == "peers"]
    vllm = [name for name in peers if name.startswith("vllm")]
    rows = [
        [
            f"{run['workload']['requests']}",
            f"{run['systems'][base]['tokens_per_second']['median']:,.0f}",
            *_fastest(results, run, vllm),
            *_fastest(results, run, [name for name in peers if name not in vllm]),
        ]
        for run in results["runs"]
        if base in run["systems"] and any(run["compared"].get(name, {}).get("times") for name in peers)
    ]
    ours = results["systems"].get(base, {}).get("title", "")
    theirs = ("tokens a second", "times as fast")
    head = ["requests at once", f"{ours}: tokens a second", "fastest vLLM", *theirs, "fastest other peer", *theirs]
    notes = [
        f"Times as fast: the {ours} over the peer, round by round, the median (the least to the most).",
        "A peer whose tokens do not hold against Hugging Face's is passed over.",
    ]
    return Grid("against", f"The {ours} against the fastest peers as shipped", head, rows, notes)


def fastest(run: dict[str, Any], names: Iterable[str]) -> str | None:
    """Return the fastest of these systems whose tokens hold, by its median rate; None if there is none."""
    there = [name for name in names if run["compared"].get(name, {}).get("times")]
    return max(there, key=lambda name: run["systems"][name]["tokens_per_second"]["median"], default=None)


def _fastest(results: dict[str, Any], run: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Return the title, the rate and the ratio of the fastest of these systems whose tokens hold."""
    name = fastest(run, names)
    if name is None:
        return ["none", "", ""]
    rate = run["systems"][name]["tokens_per_second"]["median"]
    return [results["systems"][name]["title"], f"{rate:,.0f}", _times({"name": name}, run)]


def _decode_steps(results: dict[str, Any]) -> Grid:
    """Return the time of a decode step of each system that shows its first tokens, and how near the floor that is."""
    bandwidth, base = results.get("copy_bandwidth"), _base(results)

    def floor_of(name: str, run: dict[str, Any]) -> float | None:
        if not bandwidth:
            return None
        return floor.seconds(run["workload"], results["systems"][name], results["step_numbers"], bandwidth)

    def cell(figures: dict[str, Any], run: dict[str, Any]) -> str:
        took = floor.decode_steps(figures["rounds"], run["workload"]["new_tokens"])
        if not took:
            return ""
        median, bounds = spread(Spread.of(took)._asdict(), 1e6, ",.0f").split(" ", 1)
        least = floor_of(figures["name"], run)
        return f"{median}; {statistics.median(took) / least:.2f} × {bounds}" if least else f"{median} {bounds}"

    notes = ["From the last request's first token on: the time that is left, over the tokens that are left."]
    found = _by_requests(results, "decode", "Microseconds a decode step", cell, notes)
    bounds = [floor_of(base, run) if base in run["systems"] else None for run in results["runs"]] if base else []
    if not (found.rows and bandwidth and any(bounds)):
        return found
    notes += [
        f"The floor: what such a step has to read, at the {bandwidth / 1e12:.2f} TB/s that a copy moved on this "
        "machine. Fp32 weights are held against their own.",
    ]
    row = ["the floor", *(f"{least * 1e6:,.1f}" if least else "" for least in bounds)]
    title = "Microseconds a decode step; how many times the floor (the least to the most)"
    return found._replace(title=title, rows=[row, *found.rows], notes=notes)


def _ablations(results: dict[str, Any]) -> Grid:
    """Return how much longer a round takes without an idea than with it, of the same round's rates."""
    systems = results["systems"]

    def cell(figures: dict[str, Any], run: dict[str, Any]) -> str:
        name = figures["name"]
        base = "plain" if name.startswith("plain-") else "fast"
        if base not in run["systems"] or (name != "plain" and systems[name]["group"] != "ablations"):
            return ""
        pairs = zip(run["systems"][base]["rounds"], figures["rounds"], strict=True)
        longer = [theirs["seconds"] / mine["seconds"] for mine, theirs in pairs]
        return spread(Spread.of(longer)._asdict(), 1, ".2f") if longer else ""

    title = "How many times as long a round takes without an idea: round by round, the median (the least to the most)"
    return _by_requests(
        results,
        "ablations",
        title,
        cell,
        ["Against the fast engine; fp32 weights against the plain engine with the run's own."],
    )


def _losses(results: dict[str, Any]) -> Grid:
    """Return where another system is faster than our engine, to its tokens or to the first of them."""
    rows = []
    for run in results["runs"]:
        mine = _first_seconds(run["systems"][run["compared_with"]]) if run["compared_with"] else None
        for name, compared in run["compared"].items():
            if compared["times"] is None:  # nothing is said of wrong tokens
                continue
            theirs = _first_seconds(run["systems"][name])
            title, requests = results["systems"][name]["title"], f"{run['workload']['requests']}"
            if compared["times"]["median"] < 1:
                rows.append([title, requests, f"tokens a second: {1 / compared['times']['median']:.2f} × as many"])
            if mine and theirs and theirs["median"] < mine["median"]:
                rows.append([title, requests, f"first token: {theirs['median'] / mine['median']:.2f} × the time"])
    title = f"Where another is faster than the {results['systems'].get(_base(results), {}).get('title', '')}"
    head = ["system", "requests at once", "by how much"]
    return Grid(
        "losses",
        title,
        head,
        rows or [["none in this run", "", ""]],
        ["By the medians of the rounds: what is less than their spread says little."],
    )


def _by_requests(results: dict[str, Any], name: str, title: str, cell: Cell, notes: Iterable[str] = ()) -> Grid:
    runs = results["runs"]
    rows = []
    for system, about in results["systems"].items():
        cells = [
            cell({"name": system, **run["systems"][system]}, run) if system in run["systems"] else "" for run in runs
        ]
        if any(each not in ("", "·") for each in cells):
            rows.append([about["title"], *cells])
    shown = "".join(each for row in rows for each in row)
    return Grid(
        name,
        title,
        ["requests at once", *(f"{run['workload']['requests']}" for run in runs)],
        rows,
        [note for note in notes if note[0] in shown or note[0].isalpha()],
    )


def _rate(figures: dict[str, Any], run: dict[str, Any]) -> str:
    return spread(figures["tokens_per_second"], 1, ",.0f")


def _times(figures: dict[str, Any], run: dict[str, Any]) -> str:
    """Return the ratio to our engine."""
    compared = run["compared"].get(figures["name"])
    if compared is None:
        return ""
    mark = "" if compared["like_for_like"] else " †"
    return "—" if compared["times"] is None else spread(compared["times"], 1, ".2f") + mark


def _step(figures: dict[str, Any], run: dict[str, Any]) -> str:
    return spread(figures["step_seconds"], 1e3, ".3f")


def _first(figures: dict[str, Any], run: dict[str, Any]) -> str:
    seconds = _first_seconds(figures)
    mark = "" if figures["first_token_seconds"] else " °"
    return spread(seconds, 1e3, ".1f") + mark if seconds else "·"


def _first_seconds(figures: dict[str, Any]) -> dict[str, float] | None:
    """Return the time to the first token, of the timed rounds, or where these do not show it, of rounds apart."""
    if figures["first_token_seconds"]:
        return dict(figures["first_token_seconds"])
    seen = [statistics.median(each["first_token_seconds"]) for each in figures["observed"] if "host" not in each]
    return Spread.of(seen)._asdict() if seen else None


def _waiting(results: dict[str, Any]) -> Grid:
    """Return the host's share of each system that shows it, and the GPU's busy share in a run that was profiled."""

    def cell(figures: dict[str, Any], run: dict[str, Any]) -> str:
        host = [each["host"]["host"] for each in figures["observed"] if "host" in each]
        busy = [figures["profile"]["busy_share"]] if "busy_share" in figures["profile"] else []
        shown = [f"{statistics.median(shares):.0%}" if shares else "·" for shares in (host, busy)]
        return " / ".join(shown if profiled else shown[:1]) if host or busy else "·"

    profiled = any("busy_share" in each["profile"] for run in results["runs"] for each in run["systems"].values())
    title = "The host's share of the time (scheduling, assembly, reading)"
    if not profiled:
        notes = ["From rounds apart, not timed. The GPU's busy share was not found in this run."]
        return _by_requests(results, "shares", title, cell, notes)
    notes = [
        "Both from rounds apart, not timed; the GPU's busy time is set against the time of a timed round.",
        "·: not to be seen from outside.",
    ]
    return _by_requests(results, "shares", f"{title} / the GPU's busy share", cell, notes)


def _agreement(figures: dict[str, Any], run: dict[str, Any]) -> str:
    found = figures["agreement"]
    if found is None:
        return "not held"
    return f"{found['equal']} of {found['texts']}; {found['shortest']}; {found['gap']:.1e} ({found['bound']:g})"


def _warm_up(figures: dict[str, Any], run: dict[str, Any]) -> str:
    return f"{figures['warm_up_seconds']:.2f}"


def _absent(results: dict[str, Any]) -> Grid:
    rows = [[each["title"], each["why"]] for each in results["not_run"].values()]
    for failure in results["failures"]:
        title = results["systems"].get(failure["system"], {}).get("title", failure["system"])
        requests = f" with {failure['requests']} requests" if failure["requests"] else ""
        rows.append([title, f"failed {failure['when']}{requests}: {failure['why']}"])
    return Grid("not-run", "Not run, or not to the end", ["system", "why"], rows or [["none", ""]], [])


def spread(found: dict[str, float], factor: float, form: str) -> str:
    """Return a median with the least and the most."""
    median, least, most = (format(found[name] * factor, form) for name in ("median", "least", "most"))
    return f"{median} ({least} to {most})"
