"""The picture of an INT8 block: its errors, scales and growths are those of the reference, for every choice."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from course.browser.pictures import int8
from course.judge.stub import exercise_solution
from solutions.scalar_int8 import append

pytestmark = pytest.mark.browser

DOCS = Path(__file__).resolve().parents[2] / "docs"
DATA = int8()
SIZE, OUTLIER = DATA["block_size"], DATA["outlier"]
SCALES = {
    "one for each block and head": "head",
    "one for each block": "block",
    "one for each token and head": "token",
}
COMING = {"one by one": "one by one", "one by one, each louder than the last": "rising", "in one write": "in one write"}


def largest(vector: list[float]) -> float:
    return max(map(abs, vector))


def tokens_of(loudness: int, arrival: str) -> list[list[list[float]]]:
    tokens = [
        [[number * loudness for number in loud] if index == OUTLIER else loud, quiet]
        for index, (loud, quiet) in enumerate(DATA["tokens"])
    ]
    if arrival == "rising":
        tokens = [
            list(pair) for pair in zip(*(sorted(head, key=largest) for head in zip(*tokens, strict=True)), strict=True)
        ]
    return tokens


def full_block(loudness: int, grain: str, arrival: str) -> Iterator[tuple[int, list[int], list[float], list[float]]]:
    """Yield (growths, each slot's largest integer, its error in steps, and as a share of the token) of each head."""
    tokens = tokens_of(loudness, arrival)
    shaped = [[[*loud, *quiet]] for loud, quiet in tokens] if grain == "block" else tokens
    heads = len(shaped[0])
    block, scales, growths = [], None, [0] * heads
    if arrival == "in one write" and grain != "token":
        block, scales = append([], None, shaped)
    elif grain != "token":
        for token in shaped:
            before = scales
            block, scales = append(block, scales, [token])
            growths = [count + (now > was) for count, was, now in zip(growths, before or scales, scales, strict=True)]
    else:
        parts = [append([], None, [token]) for token in shaped]
        block = [part[0][0] for part in parts]
    if grain == "block":
        block = [[heads[0][:4], heads[0][4:]] for heads in block]
        scales, growths = scales * 2, growths * 2
    for head in (0, 1):
        integers = [token[head] for token in block]
        numbers = [token[head] for token in tokens]
        steps = [parts[slot][1][head] if grain == "token" else scales[head] for slot in range(SIZE)]
        errors = [
            max(abs(n * step - number) for n, number in zip(row, vector, strict=True))
            for row, vector, step in zip(integers, numbers, steps, strict=True)
        ]
        yield (
            growths[head],
            [largest(row) for row in integers],
            [error / step for error, step in zip(errors, steps, strict=True)],
            [error / largest(vector) for error, vector in zip(errors, numbers, strict=True)],
        )


@pytest.fixture
def drawn(visit) -> Locator:
    visit.open("int8-kv/")
    picture = visit.page.locator("course-int8.is-drawn")
    picture.wait_for()
    return picture


def turn_up(drawn: Locator, power: int) -> None:
    drawn.get_by_label(f"Loudness of token {OUTLIER}").evaluate(
        "(input, value) => { input.value = value; input.dispatchEvent(new Event('input', {bubbles: true})); }", power
    )


@pytest.mark.parametrize("coming", COMING)
@pytest.mark.parametrize("scales", SCALES)
def test_a_full_block_is_the_reference_s(drawn: Locator, scales: str, coming: str) -> None:
    drawn.get_by_label("Scales").select_option(label=scales)
    drawn.get_by_label("Tokens come").select_option(label=coming)
    for power in range(6):
        turn_up(drawn, power)
        for head, (growths, integers, errors, shares) in enumerate(
            full_block(2**power, SCALES[scales], COMING[coming])
        ):
            slots = drawn.get_by_role("list", name=f"Slots of head {head}")
            assert slots.locator(".for-screen-readers").all_inner_texts() == [
                f"slot {slot}: largest integer {integer}, error {error:.2f} steps, {100 * share:.1f} % of the token"
                for slot, (integer, error, share) in enumerate(zip(integers, errors, shares, strict=True))
            ]
            said = drawn.locator(".int8-facts").nth(head).inner_text()
            assert f"{growths} growth" in said
            assert f"largest error {max(errors):.2f} steps of {(growths + 1) / 2:g} allowed" in said
            assert max(errors) <= (growths + 1) / 2 + 1e-9


def test_the_table_in_words_says_what_the_picture_shows(drawn: Locator) -> None:
    text = (DOCS / "int8-kv.md").read_text("utf-8").split("/// html | course-int8")[1].split("///")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "×" in line]
    assert len(rows) == 7
    for scales, coming, loudness, *shares in rows:
        found = full_block(int(loudness[1:]), SCALES[scales], COMING[coming])
        assert shares == [f"{100 * max(each):.1f} %" for _, _, _, each in found]


def test_it_fills_step_by_step_and_tells_a_growth(drawn: Locator) -> None:
    step = drawn.get_by_role("slider", name="Step")
    words = drawn.locator(".int8-words")
    step.focus()
    step.press("Home")
    expect(words).to_contain_text("The block is empty.")
    expect(drawn.locator(".int8-slot.is-empty")).to_have_count(2 * SIZE)
    step.press("ArrowRight")
    expect(words).to_contain_text("It sets the scale.")
    step.press("ArrowRight")
    expect(words).to_contain_text("the token before it is requantised")
    expect(drawn.locator(".int8-slot.is-empty")).to_have_count(2 * (SIZE - 2))
    expect(step).to_have_attribute("aria-valuetext", re.compile(r"^2 of 16: Token 1 comes"))


def test_a_loud_token_is_heard_by_its_own_head_alone(drawn: Locator) -> None:
    quiet = drawn.locator(".int8-facts").nth(1)
    before = quiet.inner_text()
    turn_up(drawn, 5)
    assert quiet.inner_text() == before
    drawn.get_by_label("Scales").select_option(label="one for each block")
    expect(quiet).to_contain_text("off by up to 100.0 % of a token")


def test_the_reader_s_own_run_is_played(visit) -> None:
    bench = visit.exercise("int8-append")
    drawn = visit.page.locator("course-int8.is-drawn")
    drawn.wait_for()
    bench.write(
        exercise_solution("int8-append").replace("scales[head] if old else 0.0", "scales[head] if scales else 0.0")
    )
    bench.check().get_by_role("button", name="Play these calls in the picture").click()
    drawn.get_by_role("button", name="Pause").click()
    drawn.get_by_role("slider", name="Step").press("End")
    expect(drawn.locator(".int8-words")).to_contain_text("Here it goes wrong: append([], [9.0]")
    expect(drawn.get_by_role("region", name="the block")).to_contain_text("head 0")
    bench.write(exercise_solution("int8-append"))
    bench.check()
    expect(bench.status).to_have_text(re.compile("^Passed"))
    choice = drawn.get_by_label("What to play")
    choice.select_option(
        label=next(text for text in choice.locator("option").all_inner_texts() if "a decode appends" in text)
    )
    drawn.get_by_role("slider", name="Step").press("End")
    keys = drawn.get_by_role("region", name="keys of block 0")
    expect(keys.get_by_role("cell")).to_have_text(["0.01575", "64", "127"])
