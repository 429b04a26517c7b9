"""The engine in the page: what it writes, on whose parts, and how it says which of them failed."""

import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from course.browser.output import NODE_MODULES
from course.judge.exercise import load_exercises
from course.judge.stub import exercise_solution
from course.page_engine.engine import Engine, Settings
from course.page_engine.gpt2 import GPT2
from course.page_engine.parts import MODULES, reference_parts

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parents[2]
PAGE = "continuous-batching"
MODEL = ROOT / "course" / "model"
PHONE = {"width": 390, "height": 844}
PROMPTS = ["Alice was", "The Queen of Hearts ", "“Well!” said"]
# Too small a pool for all three: somebody is preempted.
SETTINGS = Settings(PROMPTS, 16, num_blocks=9, block_size=8, max_step_tokens=16, arrival_gap=2)
EXERCISES = [each.id for each in load_exercises() if each.module in MODULES]
# True in no check, which have smaller pools: the answer passes and fails here.
PLANT = "if len(self._ref_counts) == 57 and len(self._free) < 52:"


class Desk:
    """The element, as a reader handles it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.root = page.locator("course-engine.is-drawn")
        self.root.wait_for()
        self.status = self.root.locator(".engine-status")
        self.aloud = self.root.get_by_role("status")
        self.requests = self.root.locator(".engine-request")
        self.title = self.root.locator(".engine-steps .blocks-title span")

    def button(self, name: str) -> Locator:
        return self.root.get_by_role("button", name=name, exact=True)

    def set(self, settings: Settings) -> None:
        self.root.get_by_label("Prompts").fill("\n".join(settings.prompts))
        for label, value in (
            ("Pool", settings.num_blocks),
            ("Block size", settings.block_size.bit_length() - 2),
            ("A request comes", settings.arrival_gap),
            ("Step budget", settings.max_step_tokens),
            ("New tokens for each", settings.max_new_tokens),
        ):
            self.slide(label, value)

    def texts(self) -> list[str]:
        return self.root.locator(".engine-text").evaluate_all("all => all.map(each => each.textContent)")

    def in_words(self, step: int) -> str:
        """Look at a step, and return what is said of it."""
        self.slide("Look at step", step)
        return self.root.locator(".engine-words").inner_text()

    def slide(self, label: str, value: int) -> None:
        self.root.get_by_role("slider", name=label).evaluate(
            "(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", value
        )

    def parts(self) -> Locator:
        """Unfold whose parts run, and return the list."""
        self.root.locator(".engine-whose summary").click()
        return self.root.locator(".engine-whose-list")


def open_engine(visit) -> Desk:
    visit.open(f"{PAGE}/")
    return Desk(visit.page)


def keep(visit, exercise: str, code: str) -> None:
    """Put an answer that has passed into the browser, as the exercise's element keeps it."""
    record = {"code": code, "course": "", "stub": "", "savedAt": "", "passed": {"at": "", "course": "", "stub": ""}}
    visit.page.evaluate(
        "([id, text]) => localStorage.setItem(`paged-inference-course/exercise/${id}`, text)",
        [exercise, json.dumps(record)],
    )


def planted(failing: str) -> str:
    """Return a pool that passes every check and fails in an engine with 57 blocks."""
    first = "        if num_blocks > len(self._free):\n"
    right = exercise_solution("block-pool")
    assert first in right
    return right.replace(first, f"        {PLANT}\n            {failing}\n{first}")


def test_it_writes_what_the_engine_writes(visit):
    desk = open_engine(visit)
    desk.set(SETTINGS)
    desk.button("Start").click()
    expect(desk.status).to_have_text(re.compile("^Finished"))

    model = GPT2((MODEL / "config.json").read_text("utf-8"), (MODEL / "model.safetensors").read_bytes())
    engine = Engine(model, reference_parts(), SETTINGS)
    steps = []
    while engine.has_work:
        steps.append(engine.step())
    written = ["".join(step["text"].get(name, "") for step in steps) for name in "ABC"]
    assert desk.texts() == [prompt + text for prompt, text in zip(PROMPTS, written, strict=True)]
    preemptions = sum(part["doing"] == "preempted" for step in steps for part in step["parts"].values())
    assert preemptions > 0
    expect(desk.status).to_contain_text(f"step {len(steps)} · 48 new tokens, ")
    expect(desk.status).to_contain_text(f"{preemptions} preemption")
    expect(desk.title).to_have_text(f"{len(steps)} steps")
    for step in steps:
        said = desk.in_words(step["step"])
        gone = [name for name, part in step["parts"].items() if part["doing"] == "preempted"]
        assert ("gives way" in said) == (len(gone) == 1)
        assert not gone or f"{gone[0]} gives way" in said
        assert f"{9 - step['num_free']} of 9 blocks" in said
        free = desk.root.get_by_role("img", name=f"{step['num_free']} of 9 blocks free")
        assert [len(step["tables"][name]) for name in sorted(step["tables"])] == [
            int(count) for count in re.findall(r"holds (\d)", free.get_attribute("aria-label") or "")
        ]
    expect(desk.root.get_by_role("img", name="9 of 9 blocks free")).to_be_visible()
    expect(desk.requests).to_have_count(3)
    assert desk.requests.locator(".engine-state").all_text_contents() == ["finished"] * 3


def test_nothing_is_fetched_before_the_start_and_the_model_once(visit):
    desk = open_engine(visit)
    fetched = lambda: [url for url in visit.requests if "/model/" in url]  # noqa: E731
    assert not visit.asked_for_python()
    assert fetched() == []
    desk.set(SETTINGS._replace(prompts=["Alice was"]))
    for _ in range(2):
        desk.button("Start").click()
        expect(desk.status).to_have_text(re.compile("^Finished: step 16"))
        desk.root.get_by_label("Prompts").fill("Alice wos")
    assert len(fetched()) == 2
    assert desk.texts()[0].startswith("Alice wos")


def test_step_pause_and_stop_by_keyboard(visit):
    desk = open_engine(visit)
    heard = desk.aloud.evaluate_handle(
        "element => { const heard = []; new MutationObserver(() => heard.push(element.textContent))"
        ".observe(element, {childList: true, characterData: true, subtree: true}); return heard; }"
    )
    desk.button("Step").focus()
    press = visit.page.keyboard.press
    press("Enter")
    expect(desk.status).to_have_text(re.compile(r"^step 1 · "))
    expect(desk.button("Continue")).to_be_visible()
    press("Enter")
    expect(desk.status).to_have_text(re.compile(r"^step 2 · "))
    expect(desk.button("Step")).to_be_focused()
    desk.button("Continue").focus()
    press("Space")
    expect(desk.status).to_have_text(re.compile(r"^step ([5-9]|\d\d) · "))
    press("Space")
    expect(desk.aloud).to_contain_text("Paused after step")
    desk.button("Stop").click()
    expect(desk.status).to_have_text(re.compile(r"^Stopped: step \d+"))
    expect(desk.button("Start")).to_be_visible()
    assert {"stopped", "not here yet"} >= set(desk.root.locator(".engine-state").all_text_contents()) - {"finished"}
    said = heard.json_value()
    assert len(said) <= 8, f"a screen reader would never stop: {said}"


def test_the_reader_s_parts_drive_it_and_the_page_says_which(visit):
    desk = open_engine(visit)
    keep(visit, "block-pool", exercise_solution("block-pool"))
    keep(visit, "copy-on-write", exercise_solution("copy-on-write") + "\n\nprint('mine')\n")
    keep(visit, "fork", exercise_solution("fork").replace("return child", "return self"))
    desk.set(SETTINGS)
    desk.button("Start").click()
    expect(desk.root.locator(".engine-whose summary")).to_have_text(f"Whose parts run: 2 of {len(EXERCISES)} are yours")
    listed = desk.parts()
    expect(listed.locator(".is-yours")).to_have_count(2)
    expect(listed.get_by_text("does not pass")).to_have_count(1)
    expect(desk.status).to_have_text(re.compile("^Finished"))


def test_a_part_that_raises_is_named_and_what_was_written_stays(visit):
    desk = open_engine(visit)
    keep(visit, "block-pool", planted("raise RuntimeError('lost')"))
    desk.set(SETTINGS._replace(num_blocks=57))
    desk.button("Start").click()
    failure = desk.root.get_by_role("alert")
    expect(failure).to_have_text(
        re.compile(
            r"^BlockPool\.allocate raised RuntimeError: lost, in step \d+ for request [ABC]\. What was .* stays\.$"
        )
    )
    expect(desk.status).to_have_text(re.compile(r"^Failed: step \d+"))
    assert len(desk.texts()[0]) > len(PROMPTS[0])
    # With another pool it works, in the same Python.
    desk.set(SETTINGS)
    desk.button("Start").click()
    expect(desk.status).to_have_text(re.compile("^Finished"))
    expect(failure).to_be_hidden()


def test_a_part_that_hangs_is_named_and_stopped(visit):
    desk = open_engine(visit)
    keep(visit, "block-pool", planted("while True: pass"))
    desk.set(SETTINGS._replace(num_blocks=57))
    desk.button("Start").click()
    expect(desk.root.get_by_role("alert")).to_have_text(
        re.compile(r"^BlockPool\.allocate did not come back within 5 s and was stopped, in step \d+ for request [ABC]")
    )
    assert len(desk.texts()[0]) > len(PROMPTS[0])
    desk.set(SETTINGS)
    desk.button("Start").click()
    expect(desk.status).to_have_text(re.compile("^Finished"))


def test_leaving_the_page_ends_it_and_coming_back_begins_anew(visit):
    desk = open_engine(visit)
    desk.button("Start").click()
    expect(desk.status).to_have_text(re.compile(r"^step \d"))
    visit.page.evaluate("window.sameDocument = true")
    navigation = visit.page.locator(".md-nav--primary")
    navigation.get_by_role("link", name="Why paging").click()
    visit.page.locator("course-waste.is-drawn").wait_for()
    visit.page.go_back()
    desk = Desk(visit.page)
    assert visit.page.evaluate("window.sameDocument")
    expect(desk.title).to_have_text("a column for each")
    expect(desk.button("Start")).to_be_visible()


def test_readable_without_javascript(visit_with):
    visit = visit_with(java_script_enabled=False)
    visit.open_plain(f"{PAGE}/")
    expect(visit.page.locator("course-engine")).to_contain_text("needs JavaScript")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_and_nothing_sticks_out(visit_with, scheme):
    viewport = PHONE if scheme == "dark" else {"width": 1280, "height": 900}
    visit = visit_with(color_scheme=scheme, viewport=viewport)
    desk = open_engine(visit)
    desk.set(SETTINGS._replace(prompts=[*PROMPTS, "x" * 90], num_blocks=9))
    desk.button("Start").click()
    expect(desk.status).to_have_text(re.compile("^Finished"))
    expect(desk.requests.last).to_contain_text("refused: ")
    assert visit.page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    desk.root.evaluate("element => element.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    visit.page.add_script_tag(path=NODE_MODULES / "axe-core" / "axe.min.js")
    found = visit.page.evaluate(
        "axe.run('course-engine', {resultTypes: ['violations']}).then(({violations}) => violations)"
    )
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []
