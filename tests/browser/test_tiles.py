"""The picture of chapter 5: the tiles that it walks are those that the reference's kernels load."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Locator, expect

from course import emulator
from course.judge import executors, paged
from course.judge.graft import load_file
from course.judge.stub import reference_path
from tests.browser.test_pictures import DOCS, open_picture, set_slider

QUERIES = 16
TABLE = [5, 2, 7, 0, 6, 3, 8, 1]
# (context length, new tokens, block size, keys a tile)
SETTINGS = [
    (44, 28, 8, 16),
    (43, 1, 8, 16),
    (64, 32, 16, 32),
    (64, 1, 32, 16),
    (33, 17, 8, 32),
    (16, 16, 32, 16),
    (1, 1, 8, 32),
]


class Step(NamedTuple):
    program: str
    first: int
    last: int
    entries: list[int]
    masked: bool


def walk(context_len: int, new_tokens: int, block_size: int, tile: int) -> list[Step]:
    """Return what each program loads, one step a tile, as the kernels' loops have it."""
    steps = []
    decodes = new_tokens == 1
    count = 2 if decodes else -(-new_tokens // QUERIES)
    for number in range(count):
        first = context_len - new_tokens + number * QUERIES
        limit = context_len if decodes else min(first + QUERIES, context_len)
        program = f"({number}, 0)" if decodes else f"(0, 0, {count - 1 - number})"  # the last tile starts first
        for start in range(0, limit, tile):
            last = min(start + tile, limit) - 1
            entries = sorted({position // block_size for position in range(start, last + 1)})
            steps.append(Step(program, start, last, entries, not decodes and start + tile > first + 1))
    return steps


def set_to(drawn: Locator, context_len: int, new_tokens: int, block_size: int, tile: int) -> None:
    set_slider(drawn, "Context length", context_len)
    set_slider(drawn, "New tokens", new_tokens)
    set_slider(drawn, "Block size", (8, 16, 32).index(block_size))
    set_slider(drawn, "Keys a tile", (16, 32).index(tile))


@pytest.mark.browser
def test_every_step_is_the_kernel_s(visit: Any) -> None:
    drawn = open_picture(visit, "course-tiles")
    words, total = drawn.locator(".tiles-words"), drawn.locator(".tiles-sum")
    for setting in SETTINGS:
        set_to(drawn, *setting)
        steps = walk(*setting)
        keys = 0
        expect(drawn.get_by_role("slider", name="Step")).to_have_attribute("max", str(len(steps)))
        for number, step in enumerate(steps, 1):
            set_slider(drawn, "Step", number)
            keys += step.last - step.first + 1
            said = words.inner_text()
            span = f"Position {step.first}" if step.first == step.last else f"Positions {step.first} to {step.last}"
            blocks = [TABLE[entry] for entry in step.entries]
            assert said.startswith(f"Program {step.program}:") and f"{span}:" in said, said
            named = re.search(r"(?:entry|entries) ([\d, and]+) of the block table, blocks? ([\d, and]+)\.", said)
            assert named, said
            assert [[int(each) for each in re.findall(r"\d+", text)] for text in named.groups()] == [
                step.entries,
                blocks,
            ]
            assert ("compares positions" in said) is step.masked
            assert total.inner_text().startswith(f"So far: {keys} key")
            assert drawn.locator(".tiles-pool .is-now").count() == step.last - step.first + 1


@pytest.fixture
def emulated() -> Iterator[None]:
    emulator.install()
    yield
    emulator.uninstall()


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize(("context_len", "new_tokens", "block_size", "tile"), SETTINGS)
def test_the_kernel_loads_what_the_walk_says(context_len: int, new_tokens: int, block_size: int, tile: int) -> None:
    """The bytes that the reference moves on the emulator, with the picture's tiles, number by number."""
    functions = executors.load("emulator")
    module = load_file(str(reference_path("triton_attention")), "walked")
    module.PREFILL_TILES[4, 32] = (QUERIES, tile, 4, 1)
    module.DECODE_TILES[4, 32] = (tile, 4, 1)
    num_heads, num_kv_heads = (6, 2) if new_tokens == 1 else (1, 1)
    case = paged.make_case(
        [context_len], [new_tokens], num_heads=num_heads, num_kv_heads=num_kv_heads, block_size=block_size
    )
    functions["traffic"]()
    paged.run(_Local(module, functions), case)
    steps = walk(context_len, new_tokens, block_size, tile)
    keys = sum(step.last - step.first + 1 for step in steps)
    entries = sum(1 if block_size >= tile else step.last - step.first + 1 for step in steps)
    programs = len({step.program for step in steps})
    queries = new_tokens * num_heads * 32
    assert functions["traffic"]()["loaded"] == 4 * (2 * keys * 32 + entries + 3 * programs + queries)


class _Local:
    """The `solution` of a check, in this process."""

    def __init__(self, module: Any, functions: dict[str, Any]) -> None:
        self._names = {**vars(module), **functions}

    def __getattr__(self, name: str) -> Any:
        return lambda *args, as_="", **kwargs: self._names[name](*args, **kwargs)


def test_the_words_of_the_page_are_the_first_setting_s() -> None:
    text = (DOCS / "triton-kernel.md").read_text("utf-8")
    inside = text.split("/// html | course-tiles")[1].split("///")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in inside.splitlines() if line.startswith("| ")
    ]
    written = [[row[1], row[2], row[3], row[4], row[5], row[6]] for row in rows if row[0].isdigit()]
    assert written == [
        [
            step.program,
            f"{step.first}–{step.last}",
            ", ".join(map(str, step.entries)),
            ", ".join(str(TABLE[entry]) for entry in step.entries),
            str(step.last - step.first + 1),
            "yes" if step.masked else "no",
        ]
        for step in walk(*SETTINGS[0])
    ]
