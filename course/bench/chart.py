"""The chart of a results file: tokens a second over requests at once, both on logarithmic axes, as one SVG element.

It needs no script and takes its colours from the page, light or dark. Nothing is told by colour alone: our engines'
lines are solid, the peers' dashed, each has its own mark, and its name stands at its end.
"""

from __future__ import annotations

import math
from html import escape
from typing import Any, NamedTuple

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 84, 240, 24, 48  # the margins: the names stand in the right one
LINE = 15  # between two names
STYLE = (
    "svg.speed{color:inherit;font:12px var(--md-text-font-family,system-ui,sans-serif);max-width:100%;height:auto}"
    ".speed text{fill:currentColor}.speed .grid{stroke:currentColor;opacity:.15}"
    ".speed .name{paint-order:stroke;stroke:var(--md-default-bg-color,Canvas);stroke-width:3px}"
    ".speed polyline{fill:none;stroke:currentColor;stroke-width:1.5}"
    ".speed .peers polyline{stroke-dasharray:5 3;opacity:.75}.speed path{fill:currentColor}"
    ".speed .ours{color:var(--md-typeset-a-color,LinkText)}.speed .ours polyline{stroke-width:2.5}"
)
MARKS = (  # around 0, 0
    "M-4-4h8v8h-8z", "M0-5 5 4H-5z", "M0-5 5 0 0 5-5 0z", "M0 5 5-4H-5z", "M-5-1.5h10v3h-10z", "M-1.5-5h3v10h-3z",
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0", "M-5-5 5 5 5 2-2-5z", "M-5 5 5-5 2-5-5 2z",
)  # fmt: skip


class Series(NamedTuple):
    """One system's line: its name, its group, and (requests, tokens a second) where its tokens were good enough."""

    title: str
    group: str
    points: list[tuple[int, float]]


def series_of(results: dict[str, Any]) -> list[Series]:
    """Return the lines to draw. Ablations have none, nor has a rate whose tokens did not hold against Hugging Face."""
    found = []
    for name, system in results["systems"].items():
        cells = [(run["workload"]["requests"], run["systems"].get(name)) for run in results["runs"]]
        points = [
            (requests, cell["tokens_per_second"]["median"])
            for requests, cell in cells
            if cell and cell["agreement"] and cell["agreement"]["holds"]
        ]
        if points and system["group"] in ("ours", "peers"):
            found.append(Series(system["title"], system["group"], points))
    return found


def draw(results: dict[str, Any], name: str) -> str:
    """Return the chart as a figure in HTML without empty lines; `name` makes its ids its own."""
    lines = series_of(results)
    if not lines:
        return ""
    x, xs = _x_axis(sorted({point[0] for each in lines for point in each.points}))
    y, ys = _y_axis([point[1] for each in lines for point in each.points])
    where = results["hardware"]["gpu"] or "a CPU"
    title = f"Tokens a second over requests at once, on {where}"
    says = "; ".join(f"{each.title}: {', '.join(f'{rate:,.0f} at {n}' for n, rate in each.points)}" for each in lines)
    parts = [
        f'<figure><svg class="speed" role="img" viewBox="0 0 {WIDTH} {HEIGHT}" aria-labelledby="{name}-t {name}-d">',
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(says)}.</desc>',
        f"<style>{STYLE}</style>",
        *(_vertical(x(value), f"{value}") for value in xs),
        *(_horizontal(y(value), f"{value:,}") for value in ys),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">requests at once</text>',
        f'<text x="{LEFT - 8}" y="12" text-anchor="end">tokens a second</text>',
    ]
    ends = _spread_out([(x(each.points[-1][0]), y(each.points[-1][1])) for each in lines])
    for number, (each, end) in enumerate(zip(lines, ends, strict=True)):
        mark = MARKS[number % len(MARKS)]
        places = [(x(requests), y(rate)) for requests, rate in each.points]
        parts += [
            f'<g class="{each.group}"><polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in places)}"/>',
            *(f'<path transform="translate({a:.1f} {b:.1f})" d="{mark}"/>' for a, b in places),
            f'<text class="name" x="{places[-1][0] + 10:.1f}" y="{end + 4:.1f}">{escape(each.title)}</text></g>',
        ]
    caption = f"{title}: medians of {results['num_rounds']} rounds; both axes are logarithmic."
    return "\n".join([*parts, f"</svg><figcaption>{escape(caption)}</figcaption></figure>"])


def _x_axis(values: list[int]) -> tuple[Any, list[int]]:
    low, high = math.log2(values[0]), math.log2(values[-1])
    room = WIDTH - LEFT - RIGHT

    def place(value: float) -> float:
        return LEFT + room * ((math.log2(value) - low) / (high - low) if high > low else 0.5)

    return place, values


def _y_axis(values: list[float]) -> tuple[Any, list[int]]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    room = HEIGHT - TOP - BOTTOM

    def place(value: float) -> float:
        return HEIGHT - BOTTOM - room * (math.log10(value) - low) / (high - low)

    return place, [10**power for power in range(low, high + 1) if power >= 0]


def _vertical(x: float, text: str) -> str:
    low = HEIGHT - BOTTOM
    line = f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{low}"/>'
    return f'{line}<text x="{x:.1f}" y="{low + 18}" text-anchor="middle">{text}</text>'


def _horizontal(y: float, text: str) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'


def _spread_out(ends: list[tuple[float, float]]) -> list[float]:
    """Return where the names stand: at their lines' ends, but no two of one column over each other."""
    placed = [0.0] * len(ends)
    last: dict[float, float] = {}
    for index in sorted(range(len(ends)), key=lambda each: ends[each][1]):
        column, height = ends[index]
        placed[index] = max(height, last.get(column, float("-inf")) + LINE)
        last[column] = placed[index]
    return placed
