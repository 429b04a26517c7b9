"""Pictures that move, and the quizzes: what they say is what Python says, by mouse, by keyboard and by ear."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from course.browser.output import NODE_MODULES
from course.browser.pictures import BLOCK_SIZE, MAX_LEN, story, workload
from course.judge.stub import exercise_solution
from solutions.utilization import paged_utilization, reserved_utilization

pytestmark = pytest.mark.browser

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = {"course-waste": "why-paging/", "course-blocks": "block-pool/"}
PHONE = {"width": 390, "height": 844}
LENGTHS = [prompt + answer for prompt, answer in workload()["requests"]]


def picture(page: Page, tag: str) -> Locator:
    drawn = page.locator(f"{tag}.is-drawn")
    drawn.wait_for()
    return drawn


def open_picture(visit, tag: str) -> Locator:
    visit.open(PICTURES[tag])
    return picture(visit.page, tag)


def set_slider(drawn: Locator, label: str, value: int) -> None:
    drawn.get_by_label(label).evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', {bubbles: true})); }", value
    )


# Reserved against paged.


def test_the_shares_are_python_s_for_every_block_size(visit):
    drawn = open_picture(visit, "course-waste")
    for count in (1, 2, 3, 7, 10, 50, 117, 199, 200):
        set_slider(drawn, "Requests", count)
        lengths = LENGTHS[:count]
        for power in range(13):
            set_slider(drawn, "Block size", power)
            places = sum(-(-length // 2**power) * 2**power for length in lengths)
            shown = drawn.locator(".waste-figures").all_inner_texts()
            assert [re.sub(r"[,\s]+", "", text) for text in shown] == [
                f"{100 * reserved_utilization(lengths, MAX_LEN):.1f}%of{count * MAX_LEN}placesholdtokens",
                f"{100 * paged_utilization(lengths, 2**power):.1f}%of{places}placesholdtokens",
            ]


def test_the_figures_of_the_table_are_those_of_the_picture(visit):
    drawn = open_picture(visit, "course-waste")
    drawn.get_by_text("The same in words").click()
    for size, share in drawn.locator("tr").evaluate_all(
        "rows => rows.slice(1, 5).map(row => [row.cells[1].innerText, row.cells[3].innerText])"
    ):
        set_slider(drawn, "Block size", int(size).bit_length() - 1)
        expect(drawn.locator(".waste-paged .waste-share")).to_have_text(share)
    expect(drawn.locator(".waste-reserved .waste-share")).to_have_text("46.2 %")


def test_sliders_by_keyboard_say_what_they_mean(visit):
    drawn = open_picture(visit, "course-waste")
    size = drawn.get_by_label("Block size")
    size.focus()
    visit.page.keyboard.press("End")
    expect(size).to_have_attribute("aria-valuetext", re.compile(r"^4096 tokens; paged memory: 46\.2 % holds tokens"))
    visit.page.keyboard.press("Home")
    expect(size).to_have_attribute("aria-valuetext", re.compile(r"^1 token; paged memory: 100\.0 %"))


def test_each_request_says_its_numbers(visit):
    drawn = open_picture(visit, "course-waste")
    look = drawn.get_by_label("Look at request")
    look.focus()
    visit.page.keyboard.press("ArrowRight")
    prompt, answer = workload()["requests"][1]
    blocks = -(-(prompt + answer) // 16)
    said = (
        f"2: holds {prompt} + {answer} = {prompt + answer} tokens; reserved {MAX_LEN - prompt - answer} places empty; "
    )
    said += f"paged {blocks} blocks, {blocks * 16 - prompt - answer} places empty"
    expect(look).to_have_attribute("aria-valuetext", said)
    columns = drawn.locator(".waste-paged .waste-columns")
    width = columns.evaluate("element => element.clientWidth")
    columns.hover(position={"x": width * 99.5 / 200, "y": 20})
    expect(look).to_have_value("100")
    set_slider(drawn, "Requests", 10)
    expect(look).to_have_value("10")


# The explorer.


def test_the_story_is_the_page_s():
    """The table in the text says what the reference does."""
    text = (DOCS / "block-pool.md").read_text("utf-8")
    inside = text.split("/// html | course-blocks")[1].split("///")[0]
    rows = [[cell.strip(" `*") for cell in line.strip("|").split("|")] for line in inside.splitlines() if "`" in line]
    rows = [[cell.replace("**", "") for cell in row] for row in rows if len(row) == 6]
    calls = story()["calls"]
    assert len(rows) == len(calls) == 9
    for number, (row, call) in enumerate(zip(rows, calls, strict=True), 1):
        state = call["state"]
        blocks = {name: " ".join(map(str, state.get(name, {}).get("blocks", []))) for name in "CD"}
        returned = call["returned"] if "append" in call["call"] else ""
        queue = " ".join(map(str, state["pool"]["free_queue"]))
        assert row == [str(number), call["call"], returned, blocks["C"], blocks["D"], queue]


def seen(drawn: Locator) -> dict:
    return drawn.evaluate(
        """element => ({
            counts: [...element.querySelectorAll('.cell-count')].map(each => each.textContent),
            queue: [...element.querySelectorAll('.queue [data-chip]')].map(each => Number(each.textContent)),
            entries: [...element.querySelectorAll('.table')].map(table =>
                [...table.querySelectorAll('.entry b')].map(each => Number(each.textContent))),
            filled: [...element.querySelectorAll('.table')].map(table => table.querySelectorAll('.slot-filled').length),
        })"""
    )


def test_the_story_step_by_step(visit):
    drawn = open_picture(visit, "course-blocks")
    words = drawn.locator(".blocks-words")
    expect(words).to_contain_text("Before the first call")
    expect(words).to_have_attribute("aria-live", "polite")
    for call in story()["calls"]:
        drawn.get_by_role("button", name="Next step").click()
        expect(drawn.locator("[aria-current=step]")).to_contain_text(call["call"])
        expect(words).to_contain_text(call["call"])
        state = call["state"]
        now = seen(drawn)
        assert now["counts"] == [f"×{count}" if count else "free" for count in state["pool"]["ref_counts"]]
        assert now["queue"] == state["pool"]["free_queue"]
        tables = [state.get(name, {"blocks": [], "num_tokens": 0}) for name in "ABCD"]
        assert now["entries"] == [table["blocks"] for table in tables]
        assert now["filled"] == [table["num_tokens"] for table in tables]
    expect(drawn.get_by_role("button", name="Next step")).to_have_attribute("aria-disabled", "true")


def test_a_copy_is_told_in_words_and_slots(visit):
    drawn = open_picture(visit, "course-blocks")
    drawn.get_by_role("button", name="C.append(1)").click()
    words = drawn.locator(".blocks-words")
    expect(words).to_contain_text("C.append(1) gives [(0, 1)].")
    expect(words).to_contain_text("Block 0 now has 1 owner.")
    expect(words).to_contain_text("the engine copies block 0 to block 1")
    expect(drawn.locator(".table").nth(2)).to_contain_text("slots 20–31, 4–6")
    expect(drawn.locator(".cell").nth(0)).to_contain_text("block 0: 1 owner, D, 2 of 4 slots hold tokens, source")
    assert BLOCK_SIZE == 4


def test_arrow_keys_step_and_home_and_end_jump(visit):
    drawn = open_picture(visit, "course-blocks")
    drawn.get_by_role("button", name="Next step").focus()
    press = visit.page.keyboard.press
    current = drawn.locator("[aria-current=step]")
    press("ArrowRight")
    press("ArrowRight")
    expect(current).to_contain_text("B.append(8)")
    press("ArrowLeft")
    expect(current).to_contain_text("A.append(12)")
    press("End")
    expect(current).to_contain_text("D.free()")
    press("Home")
    expect(current).to_have_count(0)
    drawn.get_by_role("slider", name="Step").focus()
    press("ArrowRight")
    expect(current).to_contain_text("A.append(12)")


def test_it_plays_pauses_and_stops_at_the_end(visit):
    visit.page.clock.install()
    drawn = open_picture(visit, "course-blocks")
    drawn.get_by_role("button", name="Play").click()
    visit.page.clock.run_for(3500)
    drawn.get_by_role("button", name="Pause").click()
    expect(drawn.locator("[aria-current=step]")).to_contain_text("B.append(8)")
    visit.page.clock.run_for(5000)
    expect(drawn.locator("[aria-current=step]")).to_contain_text("B.append(8)")
    drawn.get_by_role("button", name="Play").click()
    visit.page.clock.run_for(20_000)
    expect(drawn.locator("[aria-current=step]")).to_contain_text("D.free()")
    expect(drawn.get_by_role("button", name="Play")).to_be_visible()


# The learner's own run.


def test_a_failing_run_is_played_to_where_it_went_wrong(visit_with):
    visit = visit_with(reduced_motion="reduce")
    bench = visit.exercise("copy-on-write")
    drawn = picture(visit.page, "course-blocks")
    expect(drawn.get_by_role("button", name="Play your last run")).to_be_hidden()
    bench.write(exercise_solution("copy-on-write").replace("return [(shared, own)]", "return []"))
    bench.check().get_by_role("button", name="Play these calls in the picture").click()
    drawn.get_by_role("button", name="Pause").click()
    expect(drawn.get_by_label("What to play").locator("option:checked")).to_contain_text("fails")
    wrong = drawn.locator(".blocks-calls .is-wrong")
    expect(wrong).to_contain_text("child.append(1)")
    expect(wrong).to_contain_text("here it goes wrong")
    expect(drawn.locator(".call-expected")).to_have_text("expected [(1, 2)]")
    wrong.get_by_role("button").click()
    expect(drawn.locator(".blocks-words")).to_contain_text("Here it goes wrong: child.append(1) gave []")
    expect(drawn.locator(".blocks-words")).to_contain_text("Expected: [(1, 2)]")
    assert seen(drawn)["entries"] == [[0, 1], [0, 2]]


def test_an_owner_too_many_is_seen_before_the_judge_says_so(visit):
    bench = visit.exercise("copy-on-write")
    drawn = picture(visit.page, "course-blocks")
    bench.write(exercise_solution("copy-on-write").replace("self.pool.free([shared])", "pass"))
    bench.check()
    drawn.get_by_role("button", name="Play your last run").click()
    drawn.get_by_role("button", name="child.append(1)").click()
    expect(drawn.locator(".blocks-words")).to_contain_text("Block 1 has a count of 2, and 1 table lists it.")
    expect(drawn.locator(".cell.is-wrong")).to_have_count(1)


@pytest.mark.parametrize("exercise", ["block-pool", "block-table", "fork", "copy-on-write"])
def test_a_passing_run_can_be_played_and_contradicts_itself_nowhere(chapter, exercise):
    bench = chapter.bench(exercise)
    drawn = picture(chapter.page, "course-blocks")
    bench.write(exercise_solution(exercise))
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))
    options = drawn.get_by_label("What to play").locator("optgroup option")
    assert options.count() == bench.verdict.locator(".check").count()
    step = drawn.get_by_role("slider", name="Step")
    for value in options.evaluate_all("options => options.map(option => option.value)"):
        drawn.get_by_label("What to play").select_option(value)
        heard = step.evaluate(
            """input => {
                const words = input.closest('.picture').querySelector('.blocks-words');
                return Array.from({length: Number(input.max) + 1}, (_, at) => {
                    input.value = at;
                    input.dispatchEvent(new Event('input', {bubbles: true}));
                    return words.textContent;
                });
            }"""
        )
        assert len(heard) > 1
        assert not [words for words in heard if re.search("contradict|has a count of|goes wrong|undefined|NaN", words)]


def test_a_run_without_a_pool_is_told_as_text(chapter):
    bench = chapter.bench("slot-mapping")
    drawn = picture(chapter.page, "course-blocks")
    bench.write(exercise_solution("slot-mapping").replace("* block_size +", "* block_size + 1 +"))
    bench.check()
    drawn.get_by_role("button", name="Play your last run: slot-mapping").click()
    expect(drawn.locator(".blocks-state")).to_contain_text("nothing to draw in this run")
    expect(drawn.locator(".blocks-calls .is-wrong")).to_contain_text("slot_mapping(")


def test_what_is_played_stays_until_the_reader_chooses(chapter):
    """A new verdict offers itself; it takes the picture from nobody, unless the run that it shows is gone."""
    drawn = picture(chapter.page, "course-blocks")
    drawn.get_by_label("What to play").select_option("0")
    drawn.get_by_role("button", name="C.append(14)").click()
    bench = chapter.bench("fork")
    bench.write(exercise_solution("fork"))
    bench.check()
    expect(drawn.locator("[aria-current=step]")).to_contain_text("C.append(14)")


# Quizzes.


@pytest.mark.parametrize("path", PICTURES.values())
def test_every_quiz_knows_its_answer(visit, path):
    visit.open(path)
    quizzes = visit.page.locator("course-quiz")
    assert quizzes.count() >= 6
    expect(quizzes.get_by_role("radiogroup")).to_have_count(quizzes.count())
    for quiz in quizzes.all():
        quiz.get_by_role("radio").first.click()
        assert quiz.get_by_text("✓ right", exact=True).count() == 1
        assert not re.match(r"\d+:", quiz.locator(".quiz-why").inner_text())


def test_right_and_wrong_are_told_in_words(visit):
    visit.open("block-pool/")
    quiz = visit.page.locator("course-quiz").first
    expect(quiz.locator(".quiz-why")).to_be_hidden()
    quiz.get_by_role("radio", name="[2, 3]").click()
    expect(quiz.locator(".quiz-verdict")).to_have_text("✗ Not 1. It is 3.")
    expect(quiz.get_by_role("radio", name="wrong")).to_have_attribute("aria-checked", "true")
    expect(quiz.locator(".quiz-why")).to_contain_text("Block 0 still belongs to a.")
    quiz.get_by_role("radio", name="[5, 2]").click()
    expect(quiz.locator(".quiz-verdict")).to_have_text("✓ Right.")
    expect(quiz.get_by_text("wrong")).to_have_count(0)


def test_a_quiz_by_keyboard(visit):
    visit.open("block-pool/")
    quiz = visit.page.locator("course-quiz").first
    options = quiz.get_by_role("radio")
    assert options.evaluate_all("all => all.map(each => each.tabIndex)") == [0, -1, -1]
    options.first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "ArrowUp"):
        visit.page.keyboard.press(key)
    expect(options.nth(2)).to_be_focused()
    expect(quiz.locator(".quiz-verdict")).to_have_text("Choose one.")
    visit.page.keyboard.press("Space")
    expect(quiz.locator(".quiz-verdict")).to_have_text("✓ Right.")


def test_instant_navigation_draws_pictures_and_quizzes_anew(visit):
    drawn = open_picture(visit, "course-blocks")
    drawn.get_by_role("button", name="Play").click()
    visit.page.locator("course-quiz").first.get_by_role("radio").first.click()
    visit.page.evaluate("window.sameDocument = true")
    sidebar = visit.page.locator(".md-nav--primary")
    sidebar.get_by_role("link", name="Why paging").click()
    picture(visit.page, "course-waste")
    sidebar.get_by_role("link", name="The block pool").click()
    drawn = picture(visit.page, "course-blocks")
    assert visit.page.evaluate("window.sameDocument")
    expect(drawn.locator(".picture")).to_have_count(1)
    expect(drawn.locator(".blocks-words")).to_contain_text("Before the first call")
    expect(visit.page.locator("course-quiz").first.locator(".quiz-verdict")).to_have_text("Choose one.")


# For everybody.


@pytest.mark.parametrize("tag", PICTURES)
def test_readable_without_javascript(visit_with, tag):
    visit = visit_with(java_script_enabled=False)
    visit.open(PICTURES[tag])
    expect(visit.page.locator(tag).locator("table")).to_be_visible()
    quiz = visit.page.locator("course-quiz").first
    expect(quiz.locator("li")).to_have_count(3)
    quiz.locator("summary").click()
    expect(quiz.locator("details p")).to_be_visible()


@pytest.mark.parametrize("tag", PICTURES)
def test_what_the_page_held_stays_under_the_picture(visit, tag):
    drawn = open_picture(visit, tag)
    expect(drawn.locator("table")).to_be_hidden()
    drawn.get_by_text("The same in words").click()
    expect(drawn.locator("table")).to_be_visible()


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1440, "height": 900}], ids=["phone", "desktop"])
@pytest.mark.parametrize("tag", PICTURES)
def test_nothing_jumps_when_a_picture_is_drawn_or_stepped(visit_with, tag, viewport):
    plain = visit_with(viewport=viewport)
    plain.page.route(
        "**/assets/course/course.js*", lambda route: route.fulfill(content_type="text/javascript", body="")
    )
    plain.open(PICTURES[tag])
    height = "tag => document.querySelector(tag).getBoundingClientRect().height"
    quiz = "[...document.querySelectorAll('course-quiz')].map(quiz => quiz.getBoundingClientRect().height)"
    plain.page.evaluate("document.fonts.ready")
    before, quizzes = plain.page.evaluate(height, tag), plain.page.evaluate(quiz)
    visit = visit_with(viewport=viewport)
    drawn = open_picture(visit, tag)
    visit.page.evaluate("document.fonts.ready")
    after = visit.page.evaluate(height, tag)
    assert abs(after - before) <= 4
    assert visit.page.evaluate(quiz) == pytest.approx(quizzes, abs=2)
    assert visit.page.evaluate("document.documentElement.scrollWidth") == viewport["width"]
    if tag == "course-blocks":
        for _ in story()["calls"]:
            drawn.get_by_role("button", name="Next step").click()
            assert abs(visit.page.evaluate(height, tag) - after) <= 1


def test_less_motion_where_that_is_asked_for(visit_with):
    visit = visit_with(reduced_motion="reduce")
    drawn = open_picture(visit, "course-blocks")
    drawn.get_by_role("button", name="A.free()").click()
    assert (
        visit.page.evaluate("document.getAnimations().filter(each => each.effect.getTiming().duration > 1).length") == 0
    )


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1280, "height": 900}], ids=["phone", "desk"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PICTURES.values())
def test_axe_finds_nothing(visit_with, path, scheme, viewport):
    visit = visit_with(color_scheme=scheme, viewport=viewport)
    visit.open(path)
    tag = next(tag for tag, where in PICTURES.items() if where == path)
    drawn = picture(visit.page, tag)
    visit.page.locator(".cm-content").last.wait_for()
    if tag == "course-blocks":
        drawn.get_by_role("button", name="C.append(1)").click()
    for quiz, option in ((0, 0), (1, 1)):
        visit.page.locator("course-quiz").nth(quiz).get_by_role("radio").nth(option).click()
    visit.page.evaluate("document.querySelectorAll('.md-content details').forEach(fold => { fold.open = true; })")
    visit.page.wait_for_timeout(400)  # colours change by a transition
    visit.page.add_script_tag(path=NODE_MODULES / "axe-core" / "axe.min.js")
    found = visit.page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)")
    assert [(each["id"], [node["target"] for node in each["nodes"]]) for each in found] == []
