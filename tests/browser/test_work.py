"""Work to a file and back, in the page and with the command line; and how far the learner is."""

import json
import re

import pytest
from playwright.sync_api import expect

from course.judge.exercise import load_exercises
from course.judge.stub import exercise_solution, symbol_sources
from tests.judge.learner import LIMIT, Learner

pytestmark = pytest.mark.browser

IDS = [exercise.id for exercise in load_exercises()]


def work_file(sources, passed=(), **fields):
    exercises = {name: {"source": source, "passed": name in passed} for name, source in sources.items()}
    return json.dumps({"format": "paged-inference-course/work", "version": 1, "exercises": exercises, **fields})


def bring(visit, text):
    """Open the start page and choose a file with this text."""
    if not visit.page.url.endswith("localhost/"):
        visit.open("")
    work = visit.page.locator("course-work")
    with visit.page.expect_file_chooser() as chooser:
        work.get_by_role("button", name="Import…").click()
    data = text if isinstance(text, bytes) else text.encode()
    chooser.value.set_files({"name": "work.json", "mimeType": "application/json", "buffer": data})
    return work


def export(visit):
    visit.open("")
    with visit.page.expect_download() as download:
        visit.page.locator("course-work").get_by_role("button", name="Export").click()
    assert download.value.suggested_filename == "paged-inference-work.json"
    return download.value.path()


def test_from_the_page_to_a_clone_and_into_another_browser(visit_with, tmp_path):
    visit = visit_with()
    fork = exercise_solution("fork") + "\n\ndef helper():\n    return 1  # mine\n"
    for name, source in (("fork", fork), ("slot-mapping", exercise_solution("slot-mapping"))):
        visit.exercise(name).write(source)
    bench = visit.exercise("kv-bytes")
    bench.write(exercise_solution("kv-bytes"))
    bench.check()
    path = export(visit)

    learner = Learner(tmp_path)
    imported = learner.run("import", str(path))
    assert imported.returncode == 0, imported.stdout
    assert "return 1  # mine" in learner.read("block_table")
    for name in ("fork", "slot-mapping", "kv-bytes"):
        assert learner.run("check", name, *LIMIT).returncode == 0
    assert learner.run("diff", "kv-bytes").returncode == 0, "passed in the page"
    assert learner.run("export", "back.json").returncode == 0

    other = visit_with()
    work = bring(other, (learner.folder / "back.json").read_bytes())
    expect(work.locator(".work-status")).to_have_text("3 exercises were imported.")
    expect(work.locator("course-progress")).to_contain_text(f"3 of {len(IDS)} passed")
    bench = other.exercise("fork")
    assert symbol_sources(bench.code) == symbol_sources(fork)
    expect(bench.root.locator(".bench-passed")).to_be_visible()
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))


def test_what_an_import_would_replace_is_asked_and_kept(visit):
    bench = visit.exercise("fork")
    bench.write("mine = 1\n")
    text = work_file({"fork": "theirs = 1\r\n", "kv-bytes": "new = 1\n", "warp-drive": "x"})

    work = bring(visit, text)
    ask = work.locator(".work-ask")
    expect(ask.get_by_role("listitem")).to_have_text(["Two sequences, one prompt"])
    expect(ask.get_by_role("button", name="Import all")).to_be_focused()
    ask.get_by_role("button", name="Cancel").click()
    expect(work.locator(".work-status")).to_have_text("Nothing was imported.")
    assert "new" not in visit.exercise("kv-bytes").code

    bring(visit, text).get_by_role("button", name="Leave these").click()
    expect(work.locator(".work-status")).to_contain_text("1 exercise was imported.")
    expect(work.locator(".work-status")).to_contain_text("This version of the course has no warp-drive")
    assert visit.exercise("kv-bytes").code == "new = 1\n"
    assert visit.exercise("fork").code == "mine = 1\n"

    bring(visit, text).get_by_role("button", name="Import all").click()
    expect(work.locator(".work-status")).to_contain_text("1 exercise was imported.")
    bench = visit.exercise("fork")
    assert bench.code == "theirs = 1\n"
    bench.root.get_by_role("button", name="Versions").click()
    bench.root.get_by_role("list", name="Versions").get_by_role("button").click()
    assert bench.code == "mine = 1\n"
    expect(bring(visit, work_file({"kv-bytes": "new = 1\n"})).locator(".work-status")).to_have_text(
        "All of it is here already."
    )


def test_export_and_import_by_keyboard(visit):
    # The driver catches file choosers from the moment that somebody listens, and does not say when that moment is.
    visit.page.on("filechooser", lambda chooser: None)
    visit.exercise("kv-bytes").write("mine = 1\n")
    visit.open("")
    keyboard = visit.page.keyboard
    work = visit.page.locator("course-work")
    for _ in range(60):
        keyboard.press("Tab")
        if work.get_by_role("button", name="Export").evaluate("element => element === document.activeElement"):
            break
    with visit.page.expect_download():
        keyboard.press("Enter")
    keyboard.press("Tab")
    expect(work.get_by_role("button", name="Import…")).to_be_focused()
    with visit.page.expect_file_chooser() as chooser:
        keyboard.press("Enter")
    text = work_file({"kv-bytes": "theirs = 1\n"}).encode()
    chooser.value.set_files({"name": "work.json", "mimeType": "application/json", "buffer": text})
    expect(work.get_by_role("button", name="Import all")).to_be_focused()
    keyboard.press("Enter")
    expect(work.locator(".work-status")).to_have_text("1 exercise was imported.")
    expect(work.get_by_role("button", name="Import…")).to_be_focused()


def test_an_import_is_offered_to_the_tab_that_has_the_exercise_open(visit):
    bench = visit.exercise("fork")
    other = visit.second_tab()
    bring(other, work_file({"fork": "theirs = 1\n"}))
    expect(bench.notes).to_contain_text("Another tab has other code")
    assert "BlockTable" in bench.code
    bench.notes.get_by_role("button", name="Take the other").click()
    assert bench.code == "theirs = 1\n"


REFUSED = {
    "not JSON": ("practice", "it is not JSON"),
    "bytes": (b"\xff\xfe\x00", "it is not JSON"),
    "other JSON": ('{"a": 1}', "it does not say paged-inference-course/work"),
    "null": ("null", "it does not say"),
    "newer": (work_file({}, version=2), "made by a newer version of the course (format 2"),
    "no text": (work_file({"fork": 3}), "is damaged"),
    "a list": (work_file({}, exercises=[]), "is damaged"),
}


def test_a_file_that_is_no_export_changes_nothing(visit):
    for text, said in REFUSED.values():
        expect(bring(visit, text).locator(".work-status")).to_contain_text(said)
    assert visit.page.evaluate("Object.keys(localStorage).filter(key => key.startsWith('paged'))") == []


def test_an_import_that_is_not_kept_is_said(visit):
    visit.page.add_init_script(
        "Storage.prototype.setItem = () => { throw new DOMException('x', 'QuotaExceededError') }"
    )
    work = bring(visit, work_file({"fork": "theirs = 1\n"}))
    expect(work.locator(".work-status")).to_contain_text("storage is full")
    visit.page.get_by_role("link", name="The block pool").first.click()
    bench = visit.bench("fork")
    assert bench.code == "theirs = 1\n"


def test_nothing_to_export_is_said(visit):
    visit.open("")
    visit.page.locator("course-work").get_by_role("button", name="Export").click()
    expect(visit.page.locator(".work-status")).to_have_text("There is nothing to export yet.")


def test_progress_is_live_in_the_navigation_and_on_the_start_page(visit):
    other = visit.second_tab()
    other.open("")
    chapter = other.page.locator("course-progress[page='why-paging/']")
    expect(chapter).to_have_text("0 of 3 passed")
    bench = visit.exercise("kv-bytes")
    link = visit.page.locator(".md-nav--primary").get_by_role("link", name="Why paging")
    expect(link).to_contain_text("0 of 3 exercises passed")
    bench.write(exercise_solution("kv-bytes"))
    bench.check()
    expect(link).to_contain_text("1 of 3 exercises passed")
    expect(chapter).to_have_text("1 of 3 passed")
    expect(chapter.locator("i[data-passed]")).to_have_count(1)
    visit.page.locator(".md-nav--primary").get_by_role("link", name="The block pool").click()
    visit.bench("fork")
    expect(link).to_contain_text("1 of 3 exercises passed")
    expect(link.locator(".nav-progress")).to_have_count(1)
