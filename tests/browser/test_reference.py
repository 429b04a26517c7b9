"""The reference beside the answer: after a pass, or on giving up."""

import pytest
from playwright.sync_api import expect

from course.judge.stub import exercise_solution

pytestmark = pytest.mark.browser


def asked_for_reference(visit):
    return [url for url in visit.requests if ".reference.json" in url]


def test_giving_up_is_asked_once(visit):
    bench = visit.exercise("block-pool")
    summary = bench.reference_fold
    expect(summary).to_have_text("Give up, and see the reference")
    bench.fold_reference()
    bench.reference.get_by_role("button", name="Keep trying").press("Enter")
    expect(bench.reference).not_to_have_attribute("open", "")
    expect(summary).to_be_focused()
    assert not asked_for_reference(visit), "the reference is fetched before anyone asked for it"

    bench.fold_reference()
    bench.reference.get_by_role("button", name="Show the reference").press("Enter")
    allocate = bench.reference.get_by_role("region", name="BlockPool.allocate")
    expect(allocate.locator(".reference-side").first).to_contain_text("is not written yet")
    expect(allocate.locator(".reference-side").last).to_contain_text("self._free.popleft()")
    imports = bench.reference.get_by_role("region", name="imports")
    expect(imports.locator(".reference-side").last).to_contain_text("from collections import Counter, deque")
    expect(bench.root.locator(".bench-passed")).to_be_hidden()

    visit.reload()
    bench.fold_reference()
    expect(allocate).to_be_visible()


def test_after_a_pass_the_reference_stands_beside_the_answer(visit):
    bench = visit.exercise("slot-mapping")
    answer = exercise_solution("slot-mapping")
    bench.write(answer.replace("    return ", "    mine = context_len  # my own words\n    return "))
    bench.check()
    bench.verdict.get_by_role("button", name="Compare with the reference").click()
    part = bench.reference.get_by_role("region", name="slot_mapping")
    expect(part.locator(".reference-side").first).to_contain_text("my own words")
    expect(part.locator(".reference-side").last).to_contain_text("def slot_mapping(")
    expect(part).not_to_contain_text("Return the slots", use_inner_text=True)
    bench.write("def slot_mapping(:\n")
    bench.fold_reference()
    bench.fold_reference()
    expect(bench.reference.locator(".reference-side").last).to_contain_text("def slot_mapping(")


def test_a_reference_that_does_not_arrive_is_said_and_tried_again(visit_with):
    visit = visit_with(service_workers="block")
    bench = visit.exercise("kv-bytes")
    visit.context.route("**/*.reference.json*", lambda route: route.abort())
    bench.fold_reference()
    bench.reference.get_by_role("button", name="Show the reference").press("Enter")
    expect(bench.reference).to_contain_text("could not be loaded")
    visit.errors.clear()  # the browser's own words on the refused request
    visit.context.unroute("**/*.reference.json*")
    bench.reference.get_by_role("button", name="Try again").press("Enter")
    expect(bench.reference.locator(".listing").last).to_contain_text("return 2 * num_layers")
