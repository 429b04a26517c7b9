"""The tables that a results file makes, for a terminal and for a page."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any, NamedTuple

from course.bench.rounds import Spread


class Grid(NamedTuple):
    """A table: its title, the head and the rows (the first cell names the system), and what is said below."""

    title: str
    head: list[str]
    rows: list[list[str]]
    notes: list[str]


Cell = Callable[[dict[str, Any], dict[str, Any]], str]  # (the system's figures, the run) → what stands in the table


def grids(results: dict[str, Any]) -> list[Grid]:
    """Return the tables of a record of the kind "table"."""
    rounds = results["num_rounds"]
    base = next((run["compared_with"] for run in results["runs"] if run["compared_with"]), None)
    title = results["systems"][base]["title"] if base else ""
    found = [
        _by_requests(results, f"Tokens a second: the median of {rounds} rounds (the least to the most)", _rate, []),
        _by_requests(
            results,
            f"How many times as fast the {title} is: round by round, the median (the least to the most)",
            _times,
            [
                "—: not said, because a token that the system chose is further below Hugging Face's best than allowed.",
                "†: the two do not compute in the same dtype.",
            ],
        ),
        _by_requests(results, "Milliseconds a step: the round's time over its steps, prefill included", _step, []),
        _by_requests(
            results,
            "Milliseconds to the first token: the median request",
            _first,
            ["°: from rounds apart, because a timed round hands out all tokens at its end."],
        ),
        _by_requests(
            results,
            "The host's share of the time (scheduling, assembly, reading) / the GPU's busy share",
            _shares,
            [
                "Both from rounds apart, not timed; the GPU's busy time is set against the time of a timed round.",
                "·: not to be seen from outside.",
            ],
        ),
        _by_requests(
            results,
            "Against Hugging Face in float32: requests with its own greedy tokens to the end; the fewest tokens "
            "before the first that is not its own; the largest log-probability given away (what is allowed)",
            _agreement,
            [],
        ),
        _by_requests(results, "Seconds of the first, untimed round, in which what is left is compiled", _warm_up, []),
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


def as_markdown(grid: Grid) -> str:
    """Return a table for a page."""
    lines = [grid.head, ["---", *["--:"] * (len(grid.head) - 1)], *grid.rows]
    rows = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return "\n".join([f"**{grid.title}**", "", *rows, "", *(f"{note}\n" for note in grid.notes)])


def _by_requests(results: dict[str, Any], title: str, cell: Cell, notes: list[str]) -> Grid:
    runs = results["runs"]
    rows = []
    for name, system in results["systems"].items():
        cells = [cell({"name": name, **run["systems"][name]}, run) if name in run["systems"] else "" for run in runs]
        if any(each not in ("", "·") for each in cells):
            rows.append([system["title"], *cells])
    shown = "".join(each for row in rows for each in row)
    return Grid(
        title,
        ["requests at once", *(f"{run['workload']['requests']}" for run in runs)],
        rows,
        [note for note in notes if note[0] in shown or note[0].isalpha()],
    )


def _rate(figures: dict[str, Any], run: dict[str, Any]) -> str:
    return spread(figures["tokens_per_second"], 1, ",.0f")


def _times(figures: dict[str, Any], run: dict[str, Any]) -> str:
    compared = run["compared"].get(figures["name"])
    if compared is None:
        return ""
    mark = "" if compared["like_for_like"] else " †"
    return "—" if compared["times"] is None else spread(compared["times"], 1, ".2f") + mark


def _step(figures: dict[str, Any], run: dict[str, Any]) -> str:
    return spread(figures["step_seconds"], 1e3, ".3f")


def _first(figures: dict[str, Any], run: dict[str, Any]) -> str:
    if figures["first_token_seconds"]:
        return spread(figures["first_token_seconds"], 1e3, ".1f")
    seen = [statistics.median(each["first_token_seconds"]) for each in figures["observed"] if "host" not in each]
    return f"{spread(Spread.of(seen)._asdict(), 1e3, '.1f')} °" if seen else "·"


def _shares(figures: dict[str, Any], run: dict[str, Any]) -> str:
    host = [each["host"]["host"] for each in figures["observed"] if "host" in each]
    busy = [figures["profile"]["busy_share"]] if "busy_share" in figures["profile"] else []
    both = [f"{statistics.median(shares):.0%}" if shares else "·" for shares in (host, busy)]
    return " / ".join(both) if host or busy else "·"


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
    return Grid("Not run, or not to the end", ["system", "why"], rows or [["none", ""]], [])


def spread(found: dict[str, float], factor: float, form: str) -> str:
    """Return a median with the least and the most."""
    median, least, most = (format(found[name] * factor, form) for name in ("median", "least", "most"))
    return f"{median} ({least} to {most})"
