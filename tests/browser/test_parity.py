"""One answer, one verdict: the page and the command line report the same, byte for byte."""

import concurrent.futures
import difflib
import json
from collections.abc import Iterator

import pytest

from course.judge.exercise import Exercise, load_exercises
from course.judge.process import judge
from course.judge.stub import exercise_solution, exercise_stub, reference_source, stub_source
from course.mutants.catalogue import catalogue
from tests.browser.conftest import PAGES, Visit

pytestmark = pytest.mark.browser


def answers(exercise: Exercise) -> Iterator[tuple[str, str]]:
    """Yield what it is, and its source: stub and reference as page and clone hold them, and every mutant."""
    yield "the page's stub", exercise_stub(exercise.id)
    yield "the page's solution", exercise_solution(exercise.id)
    yield "the clone's stub", stub_source(exercise.module)
    yield "the reference", reference_source(exercise.module)
    for mutant in catalogue(exercise):
        yield f"mutant {mutant.id}", mutant.source


def comparable(report: dict) -> str:
    """Return a report as text, without the interpreter's words, which differ between versions of Python."""
    tests = [{**test, "interpreter": None} for test in report["tests"]]
    return json.dumps({**report, "interpreter": None, "tests": tests}, indent=1, sort_keys=True)


@pytest.mark.parametrize("chapter", sorted(PAGES))
def test_page_and_command_line_agree(visit: Visit, chapter: int) -> None:
    """The terminal judges the next answer while the page judges this one."""
    exercises = [each for each in load_exercises() if each.chapter == chapter and each.runs_in_page]
    visit.exercise(exercises[0].id)
    differences = []
    with concurrent.futures.ThreadPoolExecutor(1) as terminal:
        turns = [
            (exercise, name, source, terminal.submit(judge, exercise, source))
            for exercise in exercises
            for name, source in answers(exercise)
        ]
        for exercise, name, source, verdict in turns:
            in_page = visit.page.evaluate(
                """async ([name, source]) => {
                    const element = document.querySelector(`course-exercise[name="${name}"]`);
                    await element.ready;
                    element.source = source;
                    return element.check();
                }""",
                [exercise.id, source],
            )
            in_terminal = verdict.result().as_dict()
            if comparable(in_page) != comparable(in_terminal):
                both = (comparable(report).splitlines() for report in (in_terminal, in_page))
                changes = difflib.unified_diff(*both, "terminal", "page", lineterm="")
                differences.append("\n".join([f"{exercise.id}, {name}", *changes]))
    assert not differences, "\n\n".join(differences)
