"""What a browser keeps of a learner's work: across reloads, upgrades, two tabs, and storage that is full or refused."""

import json

import pytest
from playwright.sync_api import expect

from course.judge.stub import exercise_solution

pytestmark = pytest.mark.browser

RECORD = "paged-inference-course/exercise/kv-bytes"


def record(visit):
    return json.loads(visit.page.evaluate("key => localStorage.getItem(key)", RECORD))


def put_record(visit, text):
    visit.page.evaluate("([key, text]) => localStorage.setItem(key, text)", [RECORD, text])


def two_tabs(visit):
    """Return the workbench of one exercise in two tabs."""
    other = visit.second_tab()
    return visit.exercise("kv-bytes"), other.exercise("kv-bytes")


def versions(bench):
    bench.root.get_by_role("button", name="Versions").click()
    return bench.root.get_by_role("list", name="Versions").get_by_role("listitem")


def test_a_changed_stub_is_said_until_it_is_accepted(visit):
    bench = visit.exercise("kv-bytes")
    bench.write("mine = 1\n")
    put_record(visit, json.dumps({**record(visit), "course": "0.0.1", "stub": "another"}))
    for _ in range(2):
        visit.reload()
        expect(bench.notes).to_contain_text("The stub has changed")
        bench.editor.click()
        visit.page.keyboard.press("ControlOrMeta+End")
        visit.page.keyboard.type("#")
    assert bench.code == "mine = 1\n##"
    bench.notes.get_by_role("button", name="Keep mine").click()
    expect(bench.notes).to_have_count(0)
    visit.reload()
    bench.editor.wait_for()
    expect(bench.notes).to_have_count(0)
    assert bench.code == "mine = 1\n##"


def test_a_record_of_the_first_version_is_read(visit):
    bench = visit.exercise("kv-bytes")
    old = {"code": "mine = 1\n", "course": "0.1.0", "stub": "x", "savedAt": "", "passed": None, "later": "field"}
    put_record(visit, json.dumps(old))
    visit.reload()
    bench.editor.wait_for()
    assert bench.code == "mine = 1\n"
    bench.write("mine = 2\n")
    assert record(visit)["later"] == "field", "what a newer version has added is lost"


@pytest.mark.parametrize("text", ["{", "[]", '{"code": 3}', "null"])
def test_a_record_that_cannot_be_read_is_not_thrown_away(visit, text):
    visit.open("about/")
    put_record(visit, text)
    bench = visit.exercise("kv-bytes")
    assert "kv_bytes_per_token" in bench.code
    versions(bench).get_by_role("button").click()
    assert bench.code == text


def test_what_a_reset_took_is_a_version_after_a_reload(visit):
    bench = visit.exercise("kv-bytes")
    bench.write("mine = 1\n")
    bench.root.get_by_role("button", name="Reset").click()
    visit.reload()
    items = versions(bench)
    expect(items).to_have_count(1)
    expect(items).to_contain_text("before a reset, 1 line")
    items.get_by_role("button").click()
    assert bench.code == "mine = 1\n"
    expect(bench.root.get_by_role("button", name="Versions")).to_be_hidden()


def test_another_tab_s_text_is_offered_and_taken(visit):
    one, two = two_tabs(visit)
    one.write("one = 1\n")
    expect(two.notes).to_contain_text("Another tab has other code")
    assert "kv_bytes_per_token" in two.code, "written over without asking"
    two.notes.get_by_role("button", name="Take the other").click()
    expect(two.notes).to_have_count(0)
    assert two.code == "one = 1\n"
    expect(one.notes).to_have_count(0)
    two.write("two = 2\n")
    expect(one.notes).to_contain_text("Another tab has other code")


def test_two_tabs_that_both_write_lose_nothing(visit):
    one, two = two_tabs(visit)
    one.write("one = 1\n")
    expect(two.notes).to_contain_text("Another tab has other code")
    two.write("two = 2\n")
    assert record(visit)["code"] == "one = 1\n"
    expect(one.notes).to_have_count(0)

    two.notes.get_by_role("button", name="Keep this one").click()
    expect(one.notes).to_contain_text("Another tab has other code")  # a tab hears of the other's writes a little later
    assert record(visit)["code"] == "two = 2\n"
    assert one.code == "one = 1\n"
    one.notes.get_by_role("button", name="Take the other").click()
    assert one.code == "two = 2\n"
    versions(one).get_by_role("button").first.click()
    assert one.code == "one = 1\n"


def test_a_tab_that_is_closed_in_a_contest_leaves_its_text(visit):
    one, two = two_tabs(visit)
    one.write("one = 1\n")
    expect(two.notes).to_contain_text("Another tab has other code")
    two.write("two = 2\n")
    two.page.close()
    visit.reload()
    one.editor.wait_for()
    assert one.code == "one = 1\n"
    versions(one).get_by_role("button").click()
    assert one.code == "two = 2\n"


def test_a_pass_in_one_tab_is_seen_in_the_other_and_asks_nothing(visit):
    one, two = two_tabs(visit)
    one.write(exercise_solution("kv-bytes"))
    two.notes.get_by_role("button", name="Take the other").click()
    one.check()
    expect(two.root.locator(".bench-passed")).to_be_visible()
    expect(two.notes).to_have_count(0)


REFUSALS = {
    "refused": "Storage.prototype.setItem = () => { throw new DOMException('not here', 'SecurityError') }",
    "forbidden": "Object.defineProperty(window, 'localStorage',"
    " { get() { throw new DOMException('not here', 'SecurityError') } })",
}


@pytest.mark.parametrize("script", REFUSALS.values(), ids=REFUSALS)
def test_refused_storage_loses_nothing_on_the_way_through_the_site(visit_with, script):
    visit = visit_with()
    visit.page.add_init_script(script)
    bench = visit.exercise("kv-bytes")
    bench.write(exercise_solution("kv-bytes") + "# mine\n")
    expect(bench.notes).to_contain_text("refuses to keep your code")
    bench.check()
    sidebar = visit.page.locator(".md-nav--primary")
    sidebar.get_by_role("link", name="The block pool").click()
    visit.bench("fork")
    sidebar.get_by_role("link", name="Why paging").click()
    bench = visit.bench("kv-bytes")
    assert bench.code.endswith("# mine\n")
    expect(bench.root.locator(".bench-passed")).to_be_visible()
    visit.errors[:] = [error for error in visit.errors if "not here" not in error]  # the theme's own, on its palette


def test_full_storage_is_said_and_kept_once_there_is_room(visit):
    bench = visit.exercise("kv-bytes")
    bench.write("mine = 1\n")
    visit.page.evaluate(
        """() => {
            let text = "x".repeat(1 << 20), number = 0;
            while (text.length) {
                try { localStorage.setItem(`fill-${number++}`, text); }
                catch { text = text.slice(text.length / 2 + 1); }
            }
        }"""
    )
    bench.write("mine = 2  # " + "longer " * 50 + "\n")
    expect(bench.notes).to_contain_text("storage is full")
    assert record(visit)["code"] == "mine = 1\n"
    visit.page.evaluate("() => localStorage.removeItem('fill-0')")
    visit.page.keyboard.type("#")
    expect(bench.notes).to_have_count(0)
    assert record(visit)["code"] == bench.code
