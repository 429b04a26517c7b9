"""The page around the exercises: without JavaScript, by keyboard, on a phone, in the dark, across navigation."""

import re

import pytest
from playwright.sync_api import expect

from course.judge.exercise import load_exercises
from course.judge.stub import exercise_solution
from tests.browser.conftest import NEXT_FRAME

pytestmark = pytest.mark.browser

CHAPTERS = ["", "why-paging/", "block-pool/", "about/"]


@pytest.mark.parametrize("path", CHAPTERS)
def test_a_page_that_is_only_read_loads_no_python(visit, path):
    visit.open(path)
    visit.page.wait_for_load_state("networkidle")
    assert visit.requests
    assert not visit.asked_for_python()


@pytest.mark.parametrize("chapter", sorted({exercise.chapter for exercise in load_exercises()}))
def test_every_exercise_is_on_its_page(visit, chapter):
    visit.open_chapter(chapter)
    here = [exercise for exercise in load_exercises() if exercise.chapter == chapter]
    assert visit.page.locator("course-exercise").count() == len(here)
    for exercise in here:
        heading = visit.bench(exercise.id).root.get_by_role("heading", name=exercise.title)
        expect(heading).to_be_visible()


def test_readable_without_javascript(visit_with):
    visit = visit_with(java_script_enabled=False)
    visit.open_plain("block-pool/")
    exercise = visit.page.locator("course-exercise[name='block-pool']")
    expect(exercise.get_by_text("Write the pool that hands out blocks")).to_be_visible()
    expect(exercise.locator(".exercise-stub pre")).to_contain_text("class BlockPool:")
    expect(exercise.get_by_text("python practice/judge.py check block-pool")).to_be_visible()
    hints = exercise.locator(".exercise-hint")
    expect(hints).to_have_count(3)
    for hint in hints.all():
        hint.locator("summary").click()
        expect(hint.locator("p").first).to_be_visible()


def test_keyboard_alone(visit):
    bench = visit.exercise("kv-bytes")
    keyboard = visit.page.keyboard
    for _ in range(60):
        keyboard.press("Tab")
        if visit.page.evaluate("document.activeElement.shadowRoot?.activeElement?.getAttribute('aria-label')"):
            break
    expect(bench.editor).to_be_focused()
    keyboard.press("Control+A")
    keyboard.insert_text(exercise_solution("kv-bytes").rstrip())
    keyboard.press("Tab")
    assert bench.code.splitlines()[-1].startswith(8 * " "), "Tab indents while the editor has the focus"
    keyboard.press("Shift+Tab")
    keyboard.press("Escape")
    keyboard.press("Tab")
    expect(bench.check_button).to_be_focused()
    keyboard.press("Enter")
    bench.wait()
    expect(bench.status).to_have_text(re.compile("^Passed"))
    expect(bench.check_button).to_be_focused()
    keyboard.press("Tab")
    expect(bench.root.get_by_role("button", name="Compare with the reference")).to_be_focused()
    keyboard.press("Tab")
    expect(bench.root.locator(".exercise-hint summary").first).to_be_focused()
    for _ in range(3):  # the next hints are not there yet; what is checked and the reference are
        keyboard.press("Tab")
        if bench.reference.locator("summary").evaluate("element => element === document.activeElement"):
            break
    keyboard.press("Enter")
    expect(bench.reference.locator(".listing").first).to_be_visible()


def test_the_site_s_shortcuts_leave_the_editor_alone(visit):
    bench = visit.exercise("kv-bytes")
    bench.write("")
    visit.page.keyboard.type("fs/.,np")
    assert bench.code == "fs/.,np"
    expect(visit.page.locator("[data-md-component=search-query]")).not_to_be_focused()


def test_the_editor_and_the_verdict_have_names(visit):
    bench = visit.exercise("kv-bytes")
    expect(bench.editor).to_have_attribute("aria-label", "Your code for “The bytes of one token”")
    expect(bench.editor).to_have_attribute("aria-description", re.compile("Escape"))
    expect(bench.status).to_have_attribute("role", "status")


@pytest.mark.parametrize("path", CHAPTERS)
def test_no_sideways_scroll_on_a_phone(visit_with, path):
    visit = visit_with(viewport={"width": 360, "height": 740})
    visit.open(path)
    visit.page.wait_for_load_state("networkidle")
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize(("chapter", "width"), [(4, 390), (5, 1280)])
def test_nothing_moves_as_an_editor_comes_into_view(visit_with, chapter, width):
    visit = visit_with(viewport={"width": width, "height": 800})
    visit.open_chapter(chapter)
    benches = visit.page.locator("course-exercise .bench")
    heights = "all => all.map((each) => each.getBoundingClientRect().height)"
    before = benches.evaluate_all(heights)
    for bench in benches.all():
        for line in (bench.locator(".cm-line").first, bench.locator(".cm-line").last):
            line.scroll_into_view_if_needed()
            visit.page.evaluate(NEXT_FRAME)
    assert benches.evaluate_all(heights) == before


def test_a_verdict_fits_a_phone(visit_with):
    visit = visit_with(viewport={"width": 360, "height": 740})
    bench = visit.exercise("block-pool")
    bench.write(exercise_solution("block-pool").replace("self._free.append(block)", "pass"))
    bench.check()
    for fold in bench.verdict.locator("summary").all():
        fold.click()
    assert visit.page.evaluate("document.documentElement.scrollWidth") == 360


def test_dark_and_light(visit_with):
    visit = visit_with(color_scheme="dark")
    bench = visit.exercise("kv-bytes")

    def luminance(selector):
        return bench.root.locator(selector).first.evaluate(
            """element => {
                let node = element, colour;
                do {
                    colour = getComputedStyle(node).backgroundColor.match(/[\\d.]+/g).map(Number);
                    node = node.parentElement ?? node.getRootNode().host;
                } while (colour.length === 4 && colour[3] === 0);
                return (colour[0] + colour[1] + colour[2]) / 765;
            }"""
        )

    assert luminance(".cm-editor") < 0.2
    visit.page.get_by_title("Switch to the light palette").click()
    expect(visit.page.locator("body")).to_have_attribute("data-md-color-scheme", "default")
    assert luminance(".cm-editor") > 0.9


def test_instant_navigation_keeps_python_and_the_editor_s_looks(visit):
    bench = visit.exercise("kv-bytes")
    bench.check()
    visit.page.evaluate("window.sameDocument = true")
    sidebar = visit.page.locator(".md-nav--primary")
    sidebar.get_by_role("link", name="The block pool").click()
    other = visit.bench("fork")
    assert visit.page.evaluate("window.sameDocument"), "this was a full page load"
    assert len(visit.page.workers) >= 1
    workers = len(visit.page.workers)
    other.write(exercise_solution("fork"))
    other.check()
    expect(other.status).to_have_text(re.compile("^Passed"))
    assert len(visit.page.workers) == workers
    sidebar.get_by_role("link", name="Why paging").click()
    bench.editor.wait_for()
    font = bench.editor.evaluate("element => getComputedStyle(element).fontFamily")
    assert "JetBrains" in font


def test_leaving_the_page_stops_what_runs(visit):
    bench = visit.exercise("kv-bytes")
    bench.write(exercise_solution("kv-bytes").replace("    return ", "    while True: pass\n    return "))
    bench.check_button.press("Enter")
    expect(bench.status).to_have_text("Running the checks…")
    visit.page.locator(".md-nav--primary").get_by_role("link", name="The block pool").click()
    other = visit.bench("fork")
    other.write(exercise_solution("fork"))
    other.check()
    expect(other.status).to_have_text(re.compile("^Passed"))


def test_going_away_during_a_check_and_coming_back(visit):
    bench = visit.exercise("kv-bytes")
    code = exercise_solution("kv-bytes").replace("    return ", "    while True: pass\n    return ")
    bench.write(code)
    bench.check_button.press("Enter")
    expect(bench.status).to_have_text("Running the checks…")
    sidebar = visit.page.locator(".md-nav--primary")
    sidebar.get_by_role("link", name="The block pool").click()
    visit.bench("fork")
    sidebar.get_by_role("link", name="Why paging").click()
    bench = visit.bench("kv-bytes")
    assert bench.code == code
    expect(bench.check_button).to_be_visible()
    bench.write(exercise_solution("kv-bytes"))
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))


def test_the_line_that_is_typed_is_in_sight(visit):
    bench = visit.exercise("block-pool")
    bench.editor.click()
    visit.page.keyboard.press("ControlOrMeta+End")
    visit.page.keyboard.type("\n" * 30 + "here")
    line = bench.editor.locator(".cm-line").last.bounding_box()
    bar = bench.root.locator(".bench-bar").bounding_box()
    assert line["y"] + line["height"] <= bar["y"]
