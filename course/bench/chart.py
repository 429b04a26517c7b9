"""The chart of a results file: tokens a second over requests at once, both on logarithmic axes, as a figure.

It needs no script and takes its colours from the page, light or dark. Nothing is told by colour alone: our engines'
lines are solid, those of each family of peers dashed in its own way, and within a family each system has its own mark.
The names stand beside the lines' ends, each with its mark. Where a screen is too narrow for them, the page's styles cut
them off and show the key instead.
"""

from __future__ import annotations

import itertools
import math
from html import escape
from typing import Any, NamedTuple

WIDTH, HEIGHT = 850, 500
LEFT, RIGHT, TOP, BOTTOM = 84, 326, 30, 52  # the margins: the names stand in the right one
LINE = 15  # between two names
FAMILIES = ("ours", "vllm", "hf", "ctranslate2")  # by which a line is dashed and coloured; the systems' names begin so
MARKS = (  # around 0, 0
    "M-4-4h8v8h-8z", "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0", "M0-5 5 4H-5z", "M0-6 5 0 0 6-5 0z", "M0 5 5-4H-5z",
    "M-1.5-5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5v-3h3.5z", "M-6-1.5h12v3h-12z",
)  # fmt: skip


class Point(NamedTuple):
    """Tokens a second of so many requests at once: the median, the least and the most."""

    requests: int
    median: float
    least: float
    most: float


class Series(NamedTuple):
    """One system's line: its title, its family, its mark, and what was measured where its tokens were good enough."""

    title: str
    family: str
    mark: str
    points: list[Point]


def series_of(results: dict[str, Any]) -> list[Series]:
    """Return the lines to draw, those that end highest first.

    Ablations have none, nor has a rate whose tokens did not hold against Hugging Face.
    """
    found: list[Series] = []
    marks = {family: itertools.cycle(MARKS) for family in FAMILIES}
    for name, system in results["systems"].items():
        cells = [(run["workload"]["requests"], run["systems"].get(name)) for run in results["runs"]]
        points = [
            Point(requests, **cell["tokens_per_second"])
            for requests, cell in cells
            if cell and cell["agreement"] and cell["agreement"]["holds"]
        ]
        if points and system["group"] in ("ours", "peers"):
            family = next((each for each in FAMILIES if name.startswith(each)), FAMILIES[0])
            found.append(Series(system["title"], family, next(marks[family]), points))
    return sorted(found, key=lambda each: -each.points[-1].median)


def draw(results: dict[str, Any], name: str) -> str:
    """Return the chart as a figure in HTML without empty lines; `name` makes its ids its own."""
    lines = series_of(results)
    if not lines:
        return ""
    x, xs = _x_axis(sorted({point.requests for each in lines for point in each.points}))
    y, ys = _y_axis([bound for each in lines for point in each.points for bound in (point.least, point.most)])
    where = results["hardware"]["gpu"] or "a CPU"
    title = f"Tokens a second over requests at once, on {where}"
    says = "; ".join(
        f"{each.title}: {', '.join(f'{point.median:,.0f} at {point.requests}' for point in each.points)}"
        for each in lines
    )
    parts = [
        f'<figure class="speed"><div class="speed-plot"><svg role="img" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'aria-labelledby="{name}-t {name}-d">',
        f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(says)}.</desc>',
        *(_vertical(x(value), f"{value}") for value in xs),
        *(_horizontal(y(value), f"{value:,}") for value in ys),
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.0f}" y="{HEIGHT - 8}" text-anchor="middle">requests at once</text>',
        '<text x="0" y="14">tokens a second</text>',
    ]
    ends = _spread_out([y(each.points[-1].median) for each in lines])
    for each, end in reversed(list(zip(lines, ends, strict=True))):  # the highest lie on top
        places = [(x(point.requests), y(point.median)) for point in each.points]
        parts += [
            f'<g class="{each.family}"><polyline points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in places)}"/>',
            *(_whisker(x(point.requests), y(point.least), y(point.most)) for point in each.points),
            *(f'<path transform="translate({a:.1f} {b:.1f})" d="{each.mark}"/>' for a, b in places),
            f'<g class="name" transform="translate({WIDTH - RIGHT + 22} {end:.1f})"><path d="{each.mark}"/>'
            f'<text x="10" y="4">{escape(each.title)}</text></g></g>',
        ]
    key = [
        f'<li class="{each.family}"><svg viewBox="-18 -7 36 14"><polyline points="-18,0 18,0"/>'
        f'<path d="{each.mark}"/></svg>{escape(each.title)}</li>'
        for each in lines
    ]
    caption = (
        f"{title}. A mark is the median of {results['num_rounds']} rounds; the line through it goes from the least to "
        "the most. Both axes are logarithmic."
    )
    return "\n".join(
        [
            *parts,
            '</svg></div><ul class="speed-key" aria-hidden="true">',
            *key,
            f"</ul><figcaption>{escape(caption)}</figcaption></figure>",
        ]
    )


def _whisker(x: float, low: float, high: float) -> str:
    return f'<path class="spread" d="M{x - 3:.1f} {low:.1f}h6m-3 0V{high:.1f}m-3 0h6"/>'


def _x_axis(values: list[int]) -> tuple[Any, list[int]]:
    low, high = math.log2(values[0]), math.log2(values[-1])
    room = WIDTH - LEFT - RIGHT

    def place(value: float) -> float:
        return LEFT + room * ((math.log2(value) - low) / (high - low) if high > low else 0.5)

    return place, values


def _y_axis(values: list[float]) -> tuple[Any, list[int]]:
    low, high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05
    room = HEIGHT - TOP - BOTTOM

    def place(value: float) -> float:
        return HEIGHT - BOTTOM - room * (math.log10(value) - low) / (high - low)

    steps = (1,) if high - low > 2 else (1, 2, 5)
    ticks = [step * 10**power for power in range(max(0, math.floor(low)), math.ceil(high)) for step in steps]
    return place, [tick for tick in ticks if low <= math.log10(tick) <= high]


def _vertical(x: float, text: str) -> str:
    low = HEIGHT - BOTTOM
    line = f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{low}"/>'
    return f'{line}<text x="{x:.1f}" y="{low + 18}" text-anchor="middle">{text}</text>'


def _horizontal(y: float, text: str) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'


def _spread_out(heights: list[float]) -> list[float]:
    """Return where the names stand, from the top down: at their lines' ends, but none over another or off the chart."""
    placed: list[float] = []
    for height in heights:
        placed.append(max([height, *(last + LINE for last in placed[-1:])]))
    lowest = float(HEIGHT - BOTTOM)
    for index in reversed(range(len(placed))):
        placed[index] = min(placed[index], lowest)
        lowest = placed[index] - LINE
    return placed
