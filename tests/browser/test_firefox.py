"""The site in Firefox: an exercise solved by typing, an endless loop stopped, and the next check as if nothing was."""

import json
from collections.abc import Iterator

import pytest
from firefox import Firefox

from course.judge.stub import exercise_solution
from course.setup.firefox import find_firefox

pytestmark = pytest.mark.browser

ELEMENT = "document.querySelector(\"course-exercise[name='kv-bytes']\")"
# The editor's lines lie in a shadow tree.
LINE = """
(async () => {
    const within = (root, found = []) => {
        for (const node of root.querySelectorAll("*")) {
            if (node.matches(".cm-line")) found.push(node);
            if (node.shadowRoot) within(node.shadowRoot, found);
        }
        return found;
    };
    await customElements.whenDefined("course-exercise");
    const element = ELEMENT;
    await element.ready;
    const line = within(element).find((each) => each.textContent.includes("raise NotImplementedError"));
    line.scrollIntoView({ block: "center", behavior: "instant" });
    const { left, top, height } = line.getBoundingClientRect();
    return [left + 60, top + height / 2];
})()
""".replace("ELEMENT", ELEMENT)
VERDICT = f"""
new Promise((resolve) => {ELEMENT}.addEventListener("course:report", (event) => resolve(event.detail)))
"""


@pytest.fixture
def firefox(port: int) -> Iterator[Firefox]:
    executable = find_firefox()
    if executable is None:
        pytest.skip("no Firefox on this machine (Debian: `apt-get install firefox-esr`)")
    with Firefox(executable) as browser:
        browser.open(f"http://127.0.0.1:{port}/why-paging/")
        yield browser


def test_a_typed_answer_passes(firefox):
    firefox.click(*firefox.evaluate(LINE))
    firefox.press("Home")
    firefox.press("Shift", "End")
    firefox.type("return 2 * num_layers * num_kv_heads * head_dim * bytes_per_value")
    firefox.evaluate(f"(() => {{ window.verdict = {VERDICT}; }})()")
    firefox.press("Control", "Enter")
    assert firefox.evaluate("verdict")["status"] == "pass"


def test_an_endless_loop_is_stopped_and_the_next_check_works(firefox):
    solution = exercise_solution("kv-bytes")
    endless = solution.replace("    return ", "    while True: pass\n    return ")
    report = firefox.evaluate(
        f"""(async () => {{
            await customElements.whenDefined("course-exercise");
            const element = {ELEMENT};
            await element.ready;
            element.source = {json.dumps(endless)};
            const run = element.check();
            const status = element.querySelector(".bench-status");
            while (!status.textContent.startsWith("Running")) await new Promise((resolve) => setTimeout(resolve, 10));
            element.stop();
            return run;
        }})()"""
    )
    assert report["status"] != "pass"
    report = firefox.evaluate(f"(() => {{ {ELEMENT}.source = {json.dumps(solution)}; return {ELEMENT}.check(); }})()")
    assert report["status"] == "pass"
