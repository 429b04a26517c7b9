"""The page on the benchmark: its tables and its chart on a phone, by keyboard, and for a screen reader."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Locator, expect

from course.browser.speed import RESULTS, TABLE
from tests.browser.conftest import NEXT_FRAME, Visit

pytestmark = pytest.mark.skipif(not (RESULTS / f"{TABLE}.json").is_file(), reason="nothing is measured yet")
PHONE = {"width": 390, "height": 800}


def open_page(visit: Visit) -> Locator:
    visit.open("benchmark/")
    return visit.page.locator("article")


def test_tables_scroll_in_their_boxes_by_key_and_the_page_does_not(visit_with: Callable[..., Visit]) -> None:
    visit = visit_with(viewport=PHONE)
    page, article = visit.page, open_page(visit)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    rates = article.get_by_role("region", name="Tokens a second")
    assert rates.evaluate("box => box.scrollWidth > box.clientWidth")
    first = rates.get_by_role("rowheader").first
    left = (first.bounding_box() or {})["x"]
    rates.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")
    page.wait_for_function("box => box.scrollLeft > 0", arg=rates.element_handle())
    page.evaluate(NEXT_FRAME)
    assert (first.bounding_box() or {})["x"] == left, "whose figures they are stays in sight"


def test_every_table_has_a_name_and_heads(visit: Visit) -> None:
    article = open_page(visit)
    tables = article.locator("table.figures")
    assert tables.count() > 10
    for table in tables.all():
        assert (table.locator("caption").inner_text()).strip()
        expect(table.locator("tbody tr").first.get_by_role("rowheader")).to_have_count(1)


def test_the_chart_names_its_lines_at_their_ends_or_in_a_key(visit_with: Callable[..., Visit]) -> None:
    for viewport, beside in (({"width": 1280, "height": 900}, True), (PHONE, False)):
        visit = visit_with(viewport=viewport)
        figure = open_page(visit).locator("figure.speed")
        names, key = figure.locator(".name"), figure.locator(".speed-key")
        assert key.is_visible() is not beside
        assert {name.is_visible() for name in names.all()} == {beside}
        assert key.locator("li").count() == names.count()
        picture = figure.get_by_role("img")
        expect(picture).to_have_accessible_name(re.compile("^Tokens a second over requests at once"))
        plot = figure.locator(".speed-plot").bounding_box()
        assert plot
        assert plot["x"] + plot["width"] <= viewport["width"]
        # Whole names where they are shown, and else the lines' last marks, lie within what is not cut off.
        shown = [
            each.bounding_box()
            for each in (names.all() if beside else figure.locator(".speed-plot g:not(.name) > path").all())
        ]
        assert shown
        for each in filter(None, shown):
            assert each["x"] + each["width"] <= plot["x"] + plot["width"]


def test_the_chart_has_the_contrast_of_text_in_both_palettes(visit_with: Callable[..., Visit]) -> None:
    for scheme in ("light", "dark"):
        visit = visit_with(color_scheme=scheme)
        open_page(visit)
        ratios = visit.page.evaluate(CONTRASTS)
        assert len(ratios) >= 10
        assert min(ratios) >= 4.5, (scheme, ratios)


CONTRASTS = """() => {
    const channels = (color) => color.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const luminance = (color) => channels(color)
        .map((value) => value / 255)
        .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
        .reduce((sum, value, index) => sum + value * [0.2126, 0.7152, 0.0722][index], 0);
    const ground = luminance(getComputedStyle(document.body).backgroundColor);
    return [...document.querySelectorAll("figure.speed .name text")].map((text) => {
        const ink = luminance(getComputedStyle(text).fill);
        return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
    });
}"""
