"""Completion in the editor: on request, without Python."""

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

CODE = """\
import math
from collections import deque
from collections.abc import Sequence


class Pool:
    def allocate(self, num_blocks: int) -> list[int]: ...


class BlockTable:
    def __init__(self, pool: Pool, block_size: int) -> None:
        self.pool = pool
        self.blocks: list[int] = []
        self._free = deque(range(8))

    def grow(self, taken: dict[str, int], new: Sequence[int]) -> None:
"""

OFFERED = {
    "self.": ["grow", "pool", "blocks", "_free"],
    "self.pool.": ["allocate"],
    "self.blocks.": ["append", "sort"],
    "self._free.": ["appendleft", "popleft"],
    "taken.": ["items", "setdefault"],
    "math.is": ["isqrt"],
    "from itertools import cha": ["chain"],
    "found = {1, 2}\n        found.": ["add"],
    "block_s": ["block_size"],
    "NotImpl": ["NotImplementedError"],
    "Block": ["BlockTable"],
}


def test_what_is_offered(visit):
    bench = visit.exercise("block-table")
    visit.page.wait_for_load_state("networkidle")
    assert not any("completions.json" in url for url in visit.requests), "fetched before anyone asked for it"
    listbox = bench.root.get_by_role("listbox")
    for typed, names in OFFERED.items():
        bench.write(CODE.replace("grow(self, ", "grow(self, block_size, ") + f"        {typed}")
        visit.page.keyboard.press("Control+Space")
        for name in names:
            expect(listbox.get_by_role("option", name=name, exact=True)).to_have_count(1)
        visit.page.keyboard.press("Escape")
        expect(listbox).to_have_count(0)
    assert not visit.asked_for_python()


def test_a_completion_is_taken_by_keyboard(visit):
    bench = visit.exercise("block-table")
    bench.write(f"{CODE}        self._free.popl")
    visit.page.keyboard.press("Control+Space")
    expect(bench.root.get_by_role("option", name="popleft")).to_have_attribute("aria-selected", "true")
    visit.page.wait_for_timeout(100)  # CodeMirror takes no key for a list that has only just opened
    visit.page.keyboard.press("Enter")
    assert bench.code.endswith("self._free.popleft")


def test_without_the_table_the_text_s_own_names_are_there(visit_with):
    visit = visit_with(service_workers="block")
    visit.context.route("**/completions.json*", lambda route: route.abort())
    bench = visit.exercise("block-table")
    bench.write(f"{CODE}        self.")
    visit.page.keyboard.press("Control+Space")
    expect(bench.root.get_by_role("option", name="grow")).to_be_visible()
    visit.errors.clear()  # the browser's own words on the refused request
