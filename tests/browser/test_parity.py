"""One answer, one verdict: the page and the command line report the same, byte for byte."""

import difflib
import json
from collections.abc import Iterator

import pytest

from course.judge.exercise import find_exercise, load_exercises
from course.judge.process import judge
from course.judge.stub import exercise_solution, exercise_stub, reference_source, stub_source
from course.mutants.catalogue import all_mutants

pytestmark = pytest.mark.browser


def answers() -> Iterator[tuple[str, str, str]]:
    """Yield (exercise id, what it is, source): stub and reference as page and clone hold them, and every mutant."""
    for exercise in load_exercises():
        yield exercise.id, "the page's stub", exercise_stub(exercise.id)
        yield exercise.id, "the page's solution", exercise_solution(exercise.id)
        yield exercise.id, "the clone's stub", stub_source(exercise.module)
        yield exercise.id, "the reference", reference_source(exercise.module)
    for mutant in all_mutants():
        yield mutant.exercise, f"mutant {mutant.id}", mutant.source


def comparable(report: dict) -> str:
    """Return a report as text, without the interpreter's words, which differ between versions of Python."""
    tests = [{**test, "interpreter": None} for test in report["tests"]]
    return json.dumps({**report, "interpreter": None, "tests": tests}, indent=1, sort_keys=True)


def test_page_and_command_line_agree(visit):
    bench = visit.exercise("block-pool")
    on_this_page = {element.get_attribute("name") for element in visit.page.locator("course-exercise").all()}
    differences = []
    for chapter in sorted({each.chapter for each in load_exercises()}):
        exercises = [each.id for each in load_exercises() if each.chapter == chapter and each.runs_in_page]
        if not set(exercises) <= on_this_page:
            bench = visit.exercise(exercises[0])
            on_this_page = set(exercises)
        for exercise_id, name, source in answers():
            if exercise_id not in exercises:
                continue
            in_page = bench.page.evaluate(
                """async ([name, source]) => {
                    const element = document.querySelector(`course-exercise[name="${name}"]`);
                    await element.ready;
                    element.source = source;
                    return element.check();
                }""",
                [exercise_id, source],
            )
            in_terminal = judge(find_exercise(exercise_id), source).as_dict()
            if comparable(in_page) != comparable(in_terminal):
                both = (comparable(report).splitlines() for report in (in_terminal, in_page))
                changes = difflib.unified_diff(*both, "terminal", "page", lineterm="")
                differences.append("\n".join([f"{exercise_id}, {name}", *changes]))
    assert not differences, "\n\n".join(differences)
