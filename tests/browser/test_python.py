"""Python in the page, from the outside: how it is loaded, killed and replaced, and that no run touches another."""

import re

import pytest
from playwright.sync_api import expect

from course.browser.bytecode import PYODIDE
from course.judge.stub import exercise_solution

pytestmark = pytest.mark.browser

# What an answer may well import. All of it must be in the page's library.
USEFUL = """
    abc array ast base64 bisect builtins calendar cmath collections collections.abc contextlib copy csv dataclasses
    datetime decimal dis enum fnmatch fractions functools gc graphlib hashlib heapq inspect io itertools json keyword
    linecache locale logging math numbers operator os pathlib pickle platform pprint queue random re reprlib secrets
    shutil statistics string struct sys tempfile textwrap threading time timeit tokenize tomllib traceback tracemalloc
    types typing unicodedata uuid warnings weakref zlib
"""

STOPPED_RUN = """
async ([source, patience]) => {
    const element = document.querySelector("course-exercise[name='slot-mapping']");
    const status = element.querySelector(".bench-status");
    await element.ready;
    element.source = source;
    let isOver = false;
    const run = element.check().finally(() => (isOver = true));
    const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));
    while (!isOver && !status.textContent.startsWith("Running")) await pause(10);
    await pause(patience);
    element.stop();
    return run;
}
"""
WHOLE_RUN = """
async (source) => {
    const element = document.querySelector("course-exercise[name='slot-mapping']");
    await element.ready;
    element.source = source;
    return element.check();
}
"""


def slot_mapping(*first: str) -> str:
    """Return an answer that does what the lines in `first` say before it does its work."""
    return exercise_solution("slot-mapping").replace(
        "    return ", "".join(f"    {line}\n" for line in first) + "    return "
    )


def output(report: dict) -> str:
    return "".join(test["output"] for test in report["tests"])


def times_asked(visit, name: str) -> int:
    return sum(name in url for url in visit.requests)


def archives_asked(visit) -> list[str]:
    """Return the archives of the course's Python that were fetched, as often as they were."""
    return sorted(re.findall(r"/archives/(\w+)\.zip", " ".join(visit.requests)))


def pythons_left(visit, at_most: int) -> int:
    """Return how many Pythons there are, once there are `at_most` or after ten seconds: a killed one takes a moment."""
    for _ in range(100):
        count = sum("course/worker.js" in worker.url for worker in visit.page.workers)
        if count <= at_most:
            break
        visit.page.wait_for_timeout(100)
    return count


def test_ten_stops_in_a_row_and_no_run_is_taken_for_another(visit):
    visit.exercise("slot-mapping")
    for number in range(10):
        # Some are stopped at once, some when a spare Python is loading, some when it may be ready.
        source = slot_mapping(f"while True: print('run {number}')")
        report = visit.page.evaluate(STOPPED_RUN, [source, (0, 400, 800)[number % 3]])
        said = [test["message"] for test in report["tests"]] or [report["message"]]
        assert "stopped" in said[-1]
        assert set(re.findall(r"run \d", output(report))) <= {f"run {number}"}
        report = visit.page.evaluate(WHOLE_RUN, slot_mapping(f"print('whole {number}')"))
        assert report["status"] == "pass"
        assert set(re.findall(r"(?:run|whole) \d", output(report))) == {f"whole {number}"}
    assert pythons_left(visit, at_most=2) <= 2, "killed Pythons are still there"
    for name in ("pyodide.asm.wasm", "library.bin"):
        assert times_asked(visit, name) == 1, f"{name} was fetched again"
    assert archives_asked(visit) == ["block_table", "judge"]


def test_an_exercise_asks_for_the_judge_and_its_own_file(visit):
    bench = visit.exercise("kv-bytes")
    bench.write(exercise_solution("kv-bytes"))
    assert not visit.asked_for_python()
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))
    assert archives_asked(visit) == ["judge", "utilization"]


def test_the_emulator_is_fetched_once_for_the_exercises_that_run_in_it(visit):
    visit.exercise("triton-slot-write")
    for name in ("triton-slot-write", "find-mask"):
        bench = visit.bench(name)
        bench.write(exercise_solution(name))
        bench.check()
        expect(bench.status).to_have_text(re.compile("^Passed"))
    assert archives_asked(visit) == ["emulator", "find_mask", "judge", "triton_slot_write"]


def test_an_exercise_that_the_reader_turns_to_is_prepared_before_the_check(visit):
    bench, other = visit.exercise("slot-mapping"), visit.bench("block-pool")
    other.editor.click()
    assert not visit.asked_for_python(), "without a check there is no Python"
    bench.write(exercise_solution("slot-mapping"))
    bench.check()
    with visit.page.expect_request_finished(lambda request: "/archives/block_pool.zip" in request.url):
        other.editor.click()
    other.write(exercise_solution("block-pool"))
    other.check()
    expect(other.status).to_have_text(re.compile("^Passed"))
    assert archives_asked(visit) == ["block_pool", "block_table", "judge"]


@pytest.mark.parametrize("name", ["judge", "utilization"])
@pytest.mark.parametrize("answer", [{"status": 404}, {"status": 200, "body": "<!doctype html>Sign in first"}])
def test_an_archive_that_does_not_come_is_said_and_tried_again(visit, name, answer):
    bench = visit.exercise("kv-bytes")
    bench.write(exercise_solution("kv-bytes"))
    visit.context.route(f"**/archives/{name}.zip*", lambda route: route.fulfill(**answer))
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Python could not be loaded"))
    expect(bench.verdict).to_contain_text(f"{name}.zip")
    visit.errors.clear()  # the browser's own words on the answer
    visit.context.unroute(f"**/archives/{name}.zip*")
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))


@pytest.mark.parametrize(
    "harm",
    ["import sys; sys.path_hooks.clear(); sys.path_importer_cache.clear()", "import js; js.close()"],
    ids=["damaged", "deaf"],
)
def test_a_python_that_an_answer_harmed_is_replaced_before_another_exercise(visit, harm):
    bench, other = visit.exercise("slot-mapping"), visit.bench("block-pool")
    bench.write(slot_mapping(harm))
    bench.check()
    other.write(exercise_solution("block-pool"))
    other.check()
    expect(other.status).to_have_text(re.compile("^Passed"))


def test_the_next_python_knows_nothing_of_the_one_before(visit):
    visit.exercise("slot-mapping")
    look = ("import random, sys", "print(hasattr(sys, 'left'), random.getrandbits(64), hash('a'))")
    seen = []
    for _ in range(2):
        seen.append(output(visit.page.evaluate(WHOLE_RUN, slot_mapping(*look))).split()[:3])
        visit.page.evaluate(STOPPED_RUN, [slot_mapping("import sys; sys.left = True", "while True: pass"), 0])
    (left, number, hashed), (left_later, number_later, hashed_later) = seen
    assert (left, left_later) == ("False", "False")
    assert number != number_later
    assert hashed != hashed_later


def test_the_library_has_what_an_answer_may_import(chapter):
    bench = chapter.bench("slot-mapping")
    imports = "".join(f"import {name}\n" for name in USEFUL.split())
    bench.write(exercise_solution("slot-mapping") + imports)
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))


def test_an_answer_keeps_its_docstrings_and_asserts(chapter):
    bench = chapter.bench("slot-mapping")
    bench.write(slot_mapping("print(slot_mapping.__doc__)", "assert not blocks, 'as it is said'"))
    verdict = bench.check()
    expect(verdict).to_contain_text("raised AssertionError")
    expect(verdict).to_contain_text("Return the slots of the last")


def test_a_module_that_is_left_out_is_named(chapter):
    bench = chapter.bench("slot-mapping")
    bench.write(exercise_solution("slot-mapping") + "import xmlrpc\n")
    expect(bench.check()).to_contain_text("No module named 'xmlrpc'")


def test_a_host_that_calls_webassembly_something_else_will_do(visit):
    def answer(route):
        route.fulfill(path=PYODIDE / "pyodide.asm.wasm", content_type="application/octet-stream")

    visit.page.context.route("**/pyodide.asm.wasm", answer)
    visit.exercise("slot-mapping")
    assert visit.page.evaluate(WHOLE_RUN, exercise_solution("slot-mapping"))["status"] == "pass"
