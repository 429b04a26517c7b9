"""An exercise in the page: solving it, failing it, stopping it, coming back to it."""

import re

import pytest
from playwright.sync_api import expect

from course.judge.exercise import find_exercise
from course.judge.stub import exercise_solution

pytestmark = pytest.mark.browser


def test_a_typed_answer_passes(visit):
    bench = visit.exercise("kv-bytes")
    expect(bench.check_button).to_be_visible()
    assert not visit.asked_for_python(), "Python is loaded before anyone asked for it"
    bench.replace_line("raise NotImplementedError", "return 2 * num_layers * num_kv_heads * head_dim * bytes_per_value")
    bench.page.keyboard.press("Control+Enter")
    verdict = bench.wait()
    expect(bench.status).to_have_text(re.compile("^Passed: all"))
    expect(verdict.locator(".check-pass")).to_have_count(len(find_exercise("kv-bytes").promises))
    expect(bench.root.locator(".bench-passed")).to_be_visible()


def test_the_stub_is_unfinished_and_not_wrong(chapter):
    bench = chapter.bench("copy-on-write")
    bench.check()
    expect(bench.status).to_have_text("Not written yet: there is a part still to do.")
    expect(bench.root.locator(".bench-passed")).to_be_hidden()


def test_a_failure_shows_what_led_to_it(chapter):
    bench = chapter.bench("block-pool")
    bench.write(exercise_solution("block-pool").replace("self._free.append(block)", "self._free.appendleft(block)"))
    verdict = bench.check()
    expect(bench.status).to_have_text(re.compile(r"^Not yet: check \d+ of \d+ fails\.$"))
    calls = verdict.get_by_role("table")
    expect(calls.locator("tbody tr").first).to_contain_text("pool = BlockPool(")
    expect(calls.locator(".calls-expected")).to_be_visible()
    expect(verdict).to_contain_text("Why it matters")
    expect(verdict.locator(".check-fail")).to_have_count(1)
    expect(verdict.locator(".check-waiting").first).to_be_visible()


def test_what_python_says_is_folded_and_what_was_printed_is_not(chapter):
    bench = chapter.bench("slot-mapping")
    bench.write(
        exercise_solution("slot-mapping").replace("    return ", '    print("hello from here")\n    1 / 0\n    return ')
    )
    verdict = bench.check()
    expect(verdict.get_by_text("hello from here")).to_be_visible()
    words = verdict.get_by_text("ZeroDivisionError: division by zero")
    expect(words).to_be_hidden()
    verdict.get_by_text("What Python says").click()
    expect(words).to_be_visible()


def test_code_that_is_not_python(chapter):
    bench = chapter.bench("slot-mapping")
    bench.write("def slot_mapping(:\n")
    verdict = bench.check()
    expect(bench.status).to_have_text("Your code could not be loaded.")
    expect(verdict).to_contain_text("practice/block_table.py, line 1")


def test_stop_ends_an_endless_loop_and_the_next_check_works(chapter):
    bench = chapter.bench("fork")
    solution = exercise_solution("fork")
    bench.write(solution)
    bench.check()
    bench.write(solution.replace("        child = ", "        while True: pass\n        child = "))
    bench.check_button.press("Enter")
    expect(bench.status).to_have_text("Running the checks…")
    bench.stop_button.click()
    verdict = bench.wait()
    expect(verdict).to_contain_text("stopped during")
    expect(verdict.locator(".calls-last")).to_contain_text("table.fork()")
    bench.write(solution)
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))


def test_an_endless_loop_runs_out_of_time(chapter):
    bench = chapter.bench("slot-mapping")
    bench.write(exercise_solution("slot-mapping"))
    bench.check()
    bench.write(exercise_solution("slot-mapping").replace("    return ", "    while True: pass\n    return "))
    # The word is there until the verdict is, which may be at once.
    told_after = bench.status.evaluate(
        """async status => {
            const begun = performance.now();
            let told = null;
            new MutationObserver(() => {
                if (status.textContent.startsWith("Out of time")) told ??= performance.now() - begun;
            }).observe(status, { childList: true, characterData: true, subtree: true });
            await status.closest("course-exercise").check();
            return told / 1000;
        }"""
    )
    limit = find_exercise("slot-mapping").time_limit
    assert limit <= told_after < limit + 1
    expect(bench.verdict).to_contain_text(f"did not end within {limit:g} s")
    verdict = bench.wait()
    expect(verdict.locator(".calls-last")).to_contain_text("slot_mapping(")


def test_a_flood_of_output_leaves_the_page_alive(chapter):
    bench = chapter.bench("slot-mapping")
    bench.write(
        exercise_solution("slot-mapping").replace("    return ", '    while True: print("x" * 1000)\n    return ')
    )
    verdict = bench.check()
    expect(verdict).to_contain_text("did not end within")
    expect(verdict.get_by_text("What your code printed")).to_be_visible()
    assert len(verdict.inner_text()) < 60_000


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import os; os._exit(0)", "ended the process itself"),
        ("while True: slot_mapping(blocks, block_size, context_len, num_new)", "calls itself without end"),
        ("import sys; sys.exit(0)", "tried to leave the program"),
        ("input()", "waited for input"),
    ],
)
def test_an_answer_that_misbehaves_is_told_so(chapter, line, said):
    bench = chapter.bench("slot-mapping")
    bench.write(exercise_solution("slot-mapping").replace("    return ", f"    {line}\n    return "))
    expect(bench.check()).to_contain_text(said)


def test_an_answer_that_closes_the_worker_does_not_harm_the_next(chapter):
    bench = chapter.bench("slot-mapping")
    bench.write(exercise_solution("slot-mapping").replace("    return ", "    import js; js.close()\n    return "))
    bench.check()
    bench.write(exercise_solution("slot-mapping"))
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))


def test_two_checks_take_turns(chapter):
    bench = chapter.bench("fork")
    other = chapter.bench("slot-mapping")
    bench.write(exercise_solution("fork"))
    other.write(exercise_solution("slot-mapping"))
    bench.check_button.press("Enter")
    other.check_button.press("Enter")
    bench.wait()
    other.wait()
    expect(bench.status).to_have_text(re.compile("^Passed"))
    expect(other.status).to_have_text(re.compile("^Passed"))


def test_code_and_pass_outlive_a_reload(visit):
    bench = visit.exercise("kv-bytes")
    answer = exercise_solution("kv-bytes") + "\n# mine\n"
    bench.write(answer)
    bench.check()
    visit.reload()
    bench.editor.wait_for()
    assert bench.code == answer
    expect(bench.root.locator(".bench-passed")).to_be_visible()


def test_reset_can_be_taken_back(visit):
    bench = visit.exercise("kv-bytes")
    stub = bench.code
    bench.write("mine = 1\n")
    bench.root.get_by_role("button", name="Reset").click()
    assert bench.code == stub
    bench.root.get_by_role("button", name="Undo reset").click()
    assert bench.code == "mine = 1\n"
    bench.root.get_by_role("button", name="Reset").click()
    bench.editor.click()
    bench.page.keyboard.press("ControlOrMeta+Z")
    assert bench.code == "mine = 1\n"


def test_an_upgrade_keeps_the_work_and_says_that_the_stub_changed(visit):
    bench = visit.exercise("kv-bytes")
    bench.write("mine = 1\n")
    visit.page.evaluate(
        """() => {
            const key = "paged-inference-course/exercise/kv-bytes";
            const saved = JSON.parse(localStorage.getItem(key));
            localStorage.setItem(key, JSON.stringify({ ...saved, course: "0.0.1", stub: "another" }));
        }"""
    )
    visit.reload()
    bench.editor.wait_for()
    assert bench.code == "mine = 1\n"
    expect(bench.root.locator(".bench-note")).to_contain_text("The stub has changed")


def test_refused_storage_is_said(visit):
    visit.page.add_init_script("Storage.prototype.setItem = () => { throw new DOMException('full') }")
    bench = visit.exercise("kv-bytes")
    bench.write("mine = 1\n")
    expect(bench.root.locator(".bench-note")).to_contain_text("refuses to keep your code")
    assert bench.code == "mine = 1\n"


def test_python_that_cannot_be_loaded_is_said_and_tried_again(visit_with):
    visit = visit_with(service_workers="block")
    bench = visit.exercise("kv-bytes")
    bench.write(exercise_solution("kv-bytes"))
    visit.page.context.route("**/pyodide.asm.wasm", lambda route: route.abort())
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Python could not be loaded"))
    visit.errors.clear()  # the browser's own words on the refused request
    visit.page.context.unroute("**/pyodide.asm.wasm")
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))


def test_hints_come_one_at_a_time(visit):
    bench = visit.exercise("kv-bytes")
    hints = bench.root.locator(".exercise-hint")
    expect(hints).to_have_count(3)
    for number in range(3):
        expect(hints.nth(number)).to_be_visible()
        if number < 2:
            expect(hints.nth(number + 1)).to_be_hidden()
        hints.nth(number).locator("summary").press("Enter")  # by key, like the reference's fold
