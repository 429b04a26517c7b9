"""Pictures that move, and the quizzes: what they say is what Python says, by mouse, by keyboard and by ear."""

import itertools
import math
import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from course.browser import timeline
from course.browser.output import NODE_MODULES
from course.browser.pictures import (
    BLOCK_SIZE,
    KEYS,
    MAX_LEN,
    QUERIES,
    TABLES,
    VALUES,
    divergence,
    softmax,
    story,
    workload,
)
from course.judge.stub import exercise_solution
from solutions.utilization import paged_utilization, reserved_utilization

pytestmark = pytest.mark.browser

DOCS = Path(__file__).resolve().parents[2] / "docs"
PICTURES = {
    "course-waste": "why-paging/",
    "course-blocks": "block-pool/",
    "course-softmax": "paged-attention/",
    "course-timeline": "continuous-batching/",
    "course-tiles": "triton-kernel/",
    "course-divergence": "gpt2-parity/",
    "course-int8": "int8-kv/",
}
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
    drawn.get_by_role("slider", name=label).evaluate(
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


# The softmax in one pass.


def sums_shown(drawn: Locator) -> dict[str, str]:
    return drawn.locator(".softmax-sums").evaluate(
        """list => Object.fromEntries([...list.querySelectorAll('dt')].map(term =>
            [term.textContent, term.nextSibling.textContent]))"""
    )


def figures(text: str) -> str:
    return text.replace("−", "-")


def in_two_passes(position: int) -> float:
    """The chapter's attention of one query over the keys that it sees, by the textbook."""
    weights = [math.exp(QUERIES[position] * key) for key in KEYS[: position + 1]]
    return sum(weight * value for weight, value in zip(weights, VALUES, strict=False)) / sum(weights)


def test_the_softmax_is_python_s_at_every_step(visit):
    """For every block size and query: the sums after each block, and the weights of the keys read so far."""
    drawn = open_picture(visit, "course-softmax")
    for at, size in enumerate(TABLES):
        set_slider(drawn, "Block size", at)
        for position in range(len(QUERIES)):
            set_slider(drawn, "Query at position", position)
            runs = softmax()["runs"][size][position]
            for step, sums in enumerate(runs, 1):
                set_slider(drawn, "Step", step)
                shown = {term: figures(text).split(" = ")[-1] for term, text in sums_shown(drawn).items()}
                result = sums["accumulator"][0] / sums["total"]
                assert shown["total"] == f"{sums['total']:.3f}"
                assert shown["accumulator"] == f"{sums['accumulator'][0]:.3f}"
                assert float(shown["maximum"]) == pytest.approx(sums["maximum"])
                assert shown["result so far"] == f"{result:.3f}"
                assert shown["in two passes"] == f"{in_two_passes(position):.3f}"
            assert shown["result so far"] == shown["in two passes"]
            shares = drawn.locator(".softmax-key").evaluate_all(
                "keys => keys.map(key => Number(key.style.getPropertyValue('--share')))"
            )
            assert sum(shares) == pytest.approx(1)
            assert not any(shares[position + 1 :])


def test_the_softmax_table_is_python_s():
    text = (DOCS / "paged-attention.md").read_text("utf-8")
    inside = text.split("/// html | course-softmax")[1].split("///")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in inside.splitlines() if line[:3] == "| 5"]
    rows += [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in inside.splitlines()
        if line[:3] in ("| 2", "| 7")
    ]
    expected, before = [], -math.inf
    for block, sums in zip(TABLES[4], softmax()["runs"][4][10], strict=True):
        numbers = (math.exp(before - sums["maximum"]), sums["total"], sums["accumulator"][0])
        result = sums["accumulator"][0] / sums["total"]
        expected.append([f"{block}", f"{sums['maximum']}", *(f"{number:.3f}" for number in (*numbers, result))])
        before = sums["maximum"]
    assert rows == expected
    assert f"{in_two_passes(10):.3f}" in inside


def test_a_rising_maximum_is_told_in_words(visit):
    drawn = open_picture(visit, "course-softmax")
    words = drawn.locator(".softmax-words")
    expect(words).to_contain_text("The block table says 5, 2 and 7.")
    for _ in range(2):
        drawn.get_by_role("button", name="Next step").click()
    expect(words).to_contain_text("Block 2 brings 4 scores: 1.8, −0.3, 0.9 and 2.4.")
    expect(words).to_contain_text("The maximum rises from 1.1 to 2.4, so both sums so far are multiplied by 0.273.")
    seen = drawn.locator(".softmax-key .for-screen-readers")
    expect(seen.nth(7)).to_have_text("position 7: score 2.4, value 7, 42 % of the weight")
    expect(seen.nth(8)).to_have_text("position 8: score −1.2, value 5")
    expect(seen.nth(11)).to_have_text("position 11: later than the query, not seen")
    expect(drawn.get_by_label("Query at position")).to_have_attribute(
        "aria-valuetext", "10, which sees 11 keys: 3 blocks, result 6.605"
    )


def test_a_learner_s_softmax_is_played_to_where_it_went_wrong(visit_with):
    visit = visit_with(reduced_motion="reduce")
    bench = visit.exercise("online-softmax")
    drawn = picture(visit.page, "course-softmax")
    expect(drawn.get_by_role("button", name="Play your last run")).to_be_hidden()
    bench.write(exercise_solution("online-softmax").replace("        self.total *= rescale\n", ""))
    bench.check().get_by_role("button", name="Play these calls in the picture").click()
    drawn.get_by_role("button", name="Pause").click()
    expect(drawn.get_by_label("What to play").locator("option:checked")).to_contain_text("fails")
    expect(drawn.get_by_label("Block size")).to_be_hidden()
    drawn.get_by_role("slider", name="Step").focus()
    visit.page.keyboard.press("End")
    expect(drawn.locator(".softmax-words")).to_contain_text("Here it goes wrong: softmax.total gave 2.0")
    expect(drawn.locator(".softmax-words")).to_contain_text("Expected: 1.135")
    assert sums_shown(drawn)["total"] == "2.000"
    expect(drawn.locator(".softmax-block:visible")).to_have_count(2)


def test_a_right_softmax_can_be_played_whole(visit):
    bench = visit.exercise("online-softmax")
    drawn = picture(visit.page, "course-softmax")
    bench.write(exercise_solution("online-softmax"))
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))
    options = drawn.get_by_label("What to play").locator("optgroup option")
    assert options.count() == bench.verdict.locator(".check").count()
    for value in options.evaluate_all("options => options.map(option => option.value)"):
        drawn.get_by_label("What to play").select_option(value)
        last = int(drawn.get_by_role("slider", name="Step").get_attribute("max"))
        for step in range(last + 1):
            set_slider(drawn, "Step", step)
            words = drawn.locator(".softmax-words").inner_text()
            assert not re.search("wrong|undefined|NaN", words)
            assert ("Before the first call." in words) == (step == 0)
        shown = sums_shown(drawn)
        assert shown["result so far"] == "no key yet" or re.match(r"−?\d", shown["result so far"])
    drawn.get_by_label("What to play").select_option("0")
    expect(drawn.get_by_label("Block size")).to_be_visible()


# The timeline.

SIGNS = {"w": "w", "x": "x", "f": "f", "i": "i", "-": "", "d": "1"}


def test_the_timeline_s_table_is_the_reference_s():
    """The table in the text is the run that the picture begins with."""
    text = (DOCS / "continuous-batching.md").read_text("utf-8")
    inside = text.split("/// html | course-timeline")[1].split("///")[0]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in inside.splitlines() if re.match(r"\| \d", line)
    ]
    steps = timeline.run(*timeline.START.values())
    cells = [[SIGNS.get(sign) or (str(ord(sign) - 64) if sign.isupper() else "") for sign in step] for step in steps]
    assert rows == [[str(number), *row] for number, row in enumerate(cells, 1)]


def said(words: str) -> dict[str, str]:
    """Read a step's sentences back into a sign for each request."""
    signs = {}
    for pattern, sign in (
        (r"([A-F, and]+) decodes?\.", "d"),
        (r"([A-F, and]+) waits?\.", "w"),
        (r"([A-F, and]+) (?:has|have) finished", "f"),
        (r"([A-F, and]+) gives? way", "x"),
        (r"([A-F, and]+) runs? and", "i"),
    ):
        for names in re.findall(pattern, words):
            signs |= dict.fromkeys(re.findall("[A-F]", names), sign)
    return signs | {name: chr(64 + int(count)) for name, count in re.findall(r"([A-F]) computes (\d+) token", words)}


@pytest.mark.parametrize("place", [(2, 1, 1), (0, 0, 0), (7, 3, 3)])
def test_every_step_of_the_timeline_is_the_reference_s(visit, place):
    drawn = open_picture(visit, "course-timeline")
    for label, index in zip(("Pool", "Arrivals", "Token budget"), place, strict=True):
        set_slider(drawn, label, index)
    pool, gap, budget = (
        values[index] for values, index in zip((timeline.POOLS, timeline.GAPS, timeline.BUDGETS), place, strict=True)
    )
    steps = timeline.run(pool, gap, budget)
    expect(drawn.locator(".steps input")).to_have_attribute("max", str(len(steps)))
    for number, step in enumerate(steps, 1):
        drawn.get_by_role("button", name="Next step").click()
        words = drawn.locator(".blocks-words")
        expect(words).to_contain_text(f"Step {number}.")
        wanted = {name: sign for name, sign in zip(timeline.REQUESTS, step, strict=True) if sign != "-"}
        assert said(words.inner_text()) == wanted, words.inner_text()
        assert f"of {pool} blocks" in words.inner_text()
    assert drawn.locator(".timeline-labels .owner").all_inner_texts() == list(timeline.REQUESTS)


def test_a_run_of_the_reader_s_own_in_the_timeline(visit):
    bench = visit.exercise("preempt")
    drawn = picture(visit.page, "course-timeline")
    bench.write(exercise_solution("preempt"))
    bench.check()
    choice = drawn.get_by_label("What to play")
    name = choice.locator("option", has_text="holds: tries again after preempting")
    choice.select_option(label=name.text_content())
    expect(drawn.get_by_label("Pool")).to_be_hidden()
    drawn.locator(".steps input").press("End")
    expect(drawn.locator(".blocks-words")).to_have_text(
        "Step 2. a decodes. b and c give way: their blocks go back, and they wait at the front. "
        "In use: 1 token, 2 of 3 blocks."
    )
    bench.write(exercise_solution("preempt").replace("appendleft", "append"))
    bench.check()
    bench.verdict.get_by_role("button", name="See these steps in the picture").click()
    expect(drawn.get_by_label("What to play")).to_have_value(re.compile(r"\d+"))
    drawn.locator(".steps input").press("End")
    expect(drawn.locator(".blocks-words")).to_contain_text("Here it goes wrong: scheduler.waiting gave")


# Where a planted bug starts.


def test_every_bug_shows_its_errors_and_where_they_start(visit):
    drawn = open_picture(visit, "course-divergence")
    measured = divergence()
    for bug in measured["bugs"]:
        drawn.get_by_role("combobox", name="Planted bug").select_option(bug["id"])
        expect(drawn.locator("caption")).to_have_text(f"Relative errors: {bug['name']}")
        cells = drawn.locator(".divergence-table tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.cells].slice(1).map(cell => cell.innerText.replace('✗', '').trim()))"
        )
        heads = {2 * layer + 1: errors for layer, errors in enumerate(bug["heads"])}
        for stage, (error, shown) in enumerate(zip(bug["errors"], cells, strict=True)):
            wanted = [error, *heads.get(stage, [])]
            assert [float(text) for text in shown if text] == pytest.approx(wanted, rel=0.06), (bug["id"], stage)
        marked = drawn.locator(".divergence-table td.is-beyond").count()
        assert marked == sum(error > 1e-4 for error in (*bug["errors"], *(e for layer in bug["heads"] for e in layer)))
        said = bug["report"] or "no divergence."
        expect(drawn.locator(".divergence-harness")).to_have_text(f"The harness says (bound 1e-4): {said}")


def test_the_first_place_follows_the_bound(visit):
    drawn = open_picture(visit, "course-divergence")
    words = drawn.locator(".divergence-words")
    expect(words).to_have_attribute("aria-live", "polite")
    for bug, bound, place in (
        ("none", -4, "nothing"),
        ("none", -7, "layer 0, heads 1 and 3"),
        ("gelu", -4, "layer 0, after its heads"),
        ("gelu", -3, "layer 2, heads 0, 2 and 3"),
        ("gelu", -2, "nothing"),
        ("strides", -4, "layer 0, heads 1, 2 and 3"),
        ("norm", -1, "the logits"),
        ("positions", -4, "the embedding"),
    ):
        drawn.get_by_role("combobox", name="Planted bug").select_option(bug)
        set_slider(drawn, "Bound", bound)
        expect(words).to_contain_text(f"First beyond the bound of 1e{bound}: {place}.")
        expect(drawn.get_by_label("Bound")).to_have_attribute("aria-valuetext", re.compile(f"^1e{bound}; .*: {place}$"))


def test_the_reader_s_own_functions_read_the_bugs(visit):
    bench = visit.exercise("parity-diagnosis")
    drawn = picture(visit.page, "course-divergence")
    own = drawn.locator(".divergence-own")
    expect(own).to_be_hidden()
    bench.write(exercise_solution("parity-diagnosis"))
    bench.check()
    drawn.get_by_role("combobox", name="Planted bug").select_option("strides")
    expect(own).to_have_text("Your last run says: (0, [1, 2, 3]), 'strides'.")
    bench.write(exercise_solution("parity-diagnosis").replace('return "block table"', 'return "attention"'))
    bench.check()
    expect(own).to_have_text("Your last run says: nothing yet, since a check before this one fails.")


# Quizzes.


@pytest.mark.parametrize("path", PICTURES.values())
def test_every_quiz_knows_its_answer(visit, path):
    visit.open(path)
    quizzes = visit.page.locator("course-quiz")
    assert quizzes.count() >= 6
    expect(quizzes.get_by_role("radiogroup")).to_have_count(quizzes.count())
    for quiz in quizzes.all():
        # No mouse: on a page that is still being drawn, what it is pressed on may move away from under it.
        quiz.get_by_role("radio").first.dispatch_event("click")
        expect(quiz.get_by_text("✓ right", exact=True)).to_have_count(1)
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
    visit.open_plain(PICTURES[tag])
    expect(visit.page.locator(tag).locator("table")).to_be_visible()
    quiz = visit.page.locator("course-quiz").first
    expect(quiz.locator("li")).to_have_count(3)
    quiz.locator("summary").click()
    expect(quiz.locator("details p")).to_be_visible()


@pytest.mark.parametrize("tag", PICTURES)
def test_what_the_page_held_stays_under_the_picture(visit, tag):
    drawn = open_picture(visit, tag)
    kept = drawn.locator(".picture-words table")
    expect(kept).to_be_hidden()
    drawn.get_by_text("The same in words").click()
    expect(kept).to_be_visible()


@pytest.mark.parametrize("viewport", [PHONE, {"width": 1440, "height": 900}], ids=["phone", "desktop"])
@pytest.mark.parametrize("tag", PICTURES)
def test_nothing_jumps_when_a_picture_is_drawn_or_stepped(visit_with, tag, viewport):
    plain = visit_with(viewport=viewport)
    plain.page.route(
        "**/assets/course/course.js*", lambda route: route.fulfill(content_type="text/javascript", body="")
    )
    plain.open_plain(PICTURES[tag])
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
    if tag == "course-divergence":
        for bug in divergence()["bugs"]:
            drawn.get_by_role("combobox", name="Planted bug").select_option(bug["id"])
            assert abs(visit.page.evaluate(height, tag) - after) <= 1, bug["id"]
    elif tag != "course-waste":
        step = drawn.get_by_role("slider", name="Step")
        step.press("Home")
        for _ in range(int(step.get_attribute("max"))):
            drawn.get_by_role("button", name="Next step").click()
            assert abs(visit.page.evaluate(height, tag) - after) <= 1


def test_less_motion_where_that_is_asked_for(visit_with):
    visit = visit_with(reduced_motion="reduce")
    drawn = open_picture(visit, "course-blocks")
    drawn.get_by_role("button", name="A.free()").click()
    assert (
        visit.page.evaluate("document.getAnimations().filter(each => each.effect.getTiming().duration > 1).length") == 0
    )


@pytest.mark.parametrize("tag", PICTURES)
def test_axe_finds_nothing(visit, tag):
    drawn = open_picture(visit, tag)
    if tag == "course-blocks":
        drawn.get_by_role("button", name="C.append(1)").click()
    if tag == "course-softmax":
        drawn.get_by_role("button", name="Next step").click()
    for quiz, option in ((0, 0), (1, 1)):
        visit.page.locator("course-quiz").nth(quiz).get_by_role("radio").nth(option).click()
    visit.page.evaluate("document.querySelectorAll('.md-content details').forEach(fold => { fold.open = true; })")
    visit.page.add_script_tag(path=NODE_MODULES / "axe-core" / "axe.min.js")
    for viewport, scheme in itertools.product([{"width": 1280, "height": 900}, PHONE], ["default", "slate"]):
        visit.page.set_viewport_size(viewport)
        body = visit.page.locator("body")
        if body.get_attribute("data-md-color-scheme") != scheme:
            visit.page.locator(".md-header__option label:not([hidden])").click()
        expect(body).to_have_attribute("data-md-color-scheme", scheme)
        visit.page.evaluate("Promise.allSettled(document.getAnimations().map(each => each.finished))")
        axe = "axe.run(document, {resultTypes: ['violations']}).then(({violations}) => violations)"
        found = visit.page.evaluate(axe)
        violations = [(each["id"], [node["target"] for node in each["nodes"]]) for each in found]
        assert violations == [], f"{scheme}, {viewport['width']} pixels wide"
