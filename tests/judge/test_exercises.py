"""Every exercise, held against its reference, its stub, every mutant, and right answers in other styles."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from course.browser.scores import RESULTS
from course.judge import page
from course.judge.exercise import Exercise, find_exercise, load_exercises
from course.judge.process import judge
from course.judge.stub import exercise_solution, exercise_stub, reference_source, stub_source
from course.mutants.score import judge_catalogue, judge_mechanical, tally
from tests.judge.conftest import InPage

ANSWERS = Path(__file__).parent / "answers"
SCORES = json.loads(RESULTS.read_text("utf-8"))["exercises"]
EXERCISES = pytest.mark.parametrize("exercise", load_exercises(), ids=lambda exercise: exercise.id)


def report_of(exercise: Exercise, source: str) -> dict[str, Any]:
    return judge(exercise, source).as_dict()


def test_the_exercises_are_there_in_course_order() -> None:
    assert [exercise.id for exercise in load_exercises()] == [
        *("kv-bytes", "utilization", "concurrency"),
        *("block-pool", "block-table", "slot-mapping", "fork", "copy-on-write"),
        *("kv-write-gather", "online-softmax", "paged-attention", "paged-attention-torch"),
        *("sequence-phase", "schedule-step", "look-ahead", "chunked-prefill", "preempt"),
        *("triton-slot-write", "triton-decode", "triton-paged-attention", "find-strides", "find-mask"),
        *("load-gpt2", "packed-forward", "parity-diagnosis"),
        *("int8-append", "int8-attention"),
    ]


@EXERCISES
def test_the_definition_is_whole(exercise: Exercise) -> None:
    assert exercise.task
    assert len(exercise.hints) == 3
    assert exercise.checks
    for check in exercise.checks:
        assert check.promise.endswith("."), check.name
        assert check.why, check.name
    for symbol in exercise.symbols:
        assert symbol.rsplit(".")[-1].strip("_").split("__")[-1] in exercise.task or symbol.endswith("__init__")


@EXERCISES
def test_the_reference_passes(exercise: Exercise) -> None:
    for source in (reference_source(exercise.module), exercise_solution(exercise.id)):
        report = report_of(exercise, source)
        assert report["status"] == "pass", report["tests"][-1]
        assert [test["name"] for test in report["tests"]] == [check.name for check in exercise.checks]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "exercise", [each for each in load_exercises() if "gpu" in each.executors], ids=lambda exercise: exercise.id
)
def test_the_reference_passes_on_a_gpu(exercise: Exercise) -> None:
    report = judge(exercise, exercise_solution(exercise.id), executor="gpu").as_dict()
    assert report["status"] == "pass", report["tests"][-1]


@EXERCISES
def test_the_stub_is_unfinished(exercise: Exercise) -> None:
    for source in (stub_source(exercise.module), exercise_stub(exercise.id)):
        report = report_of(exercise, source)
        assert (report["status"], report["unfinished"]) == ("fail", not exercise.is_bug)
        if not exercise.is_bug:
            assert report["tests"][-1]["message"] == f"{exercise.symbols[0]} is not written yet"


@EXERCISES
def test_every_symbol_left_unwritten_is_noticed(exercise: Exercise) -> None:
    """Each symbol alone as a stub, the others written: the report names it."""
    from course.judge.stub import replace_symbols, symbol_sources

    if exercise.is_bug:
        pytest.skip("a bug is whole, and wrong")
    stubs = symbol_sources(exercise_stub(exercise.id))
    for symbol in exercise.symbols:
        source = replace_symbols(reference_source(exercise.module), {symbol: stubs[symbol]})
        report = report_of(exercise, source)
        assert report["unfinished"], symbol
        assert report["tests"][-1]["message"] == f"{symbol} is not written yet"


@EXERCISES
def test_the_page_and_the_command_line_agree_on_reference_and_stub(exercise: Exercise, in_page: InPage) -> None:
    for source in (exercise_solution(exercise.id), exercise_stub(exercise.id)):
        assert in_page(exercise, source) == report_of(exercise, source)


@EXERCISES
def test_every_wrong_answer_is_rejected_or_explained(exercise: Exercise) -> None:
    """The site shows these scores. Anew: `python -m course.mutants --output docs/results/mutants.json`."""
    catalogued, mechanical = list(judge_catalogue([exercise])), list(judge_mechanical([exercise]))
    wrong = [
        f"{verdict.change}: rejected by {verdict.rejected_by}, not by {check}"
        for verdict, check in catalogued
        if verdict.rejected_by != check
    ]
    assert not wrong, "\n".join(wrong)
    away = [verdict for verdict in mechanical if verdict.rejected_by is None and verdict.explained is None]
    stale = [verdict for verdict in mechanical if verdict.rejected_by is not None and verdict.explained is not None]
    assert not away, f"neither rejected nor explained: {away}"
    assert not stale, f"explained as equal, but rejected: {stale}"
    assert tally([exercise], [verdict for verdict, _ in catalogued], mechanical) == {exercise.id: SCORES[exercise.id]}


def test_the_score_is_of_these_exercises(record_score: Callable[[str], None]) -> None:
    """Each exercise's numbers are held to what is found by the test above."""
    assert [*SCORES] == [exercise.id for exercise in load_exercises()]
    total = {name: sum(score[name] for score in SCORES.values()) for name in ("catalogued", "rejected", "explained")}
    record_score(
        f"known mistakes: {total['catalogued']}, each rejected by the check that it names; "
        f"mechanical mutants: {total['rejected']} rejected, {total['explained']} explained"
    )


@pytest.mark.parametrize("path", sorted(ANSWERS.glob("*/*.py")), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_right_answers_in_other_styles_pass(path: Path) -> None:
    """Each file in answers/<module>/ is right for every exercise of the module, written as somebody else would."""
    source = path.read_text("utf-8")
    for exercise in load_exercises():
        if exercise.module == path.parent.name:
            report = report_of(exercise, source)
            assert report["status"] == "pass", report["tests"][-1] if report["tests"] else report


def test_a_failure_shows_what_led_to_it() -> None:
    source = reference_source("block_pool").replace("num_blocks > len(self._free)", "num_blocks >= len(self._free)")
    report = report_of(find_exercise("block-pool"), source)
    failed = report["tests"][-1]
    assert report["status"] == "fail"
    assert report["next"] == "python practice/judge.py hint block-pool"
    assert failed["name"] == "can_hand_out_everything"
    assert failed["message"] == "pool.allocate(4) gave None"
    assert failed["expected"] == "[0, 1, 2, 3]"
    assert failed["promise"] == "A request for exactly the blocks that are free is met."
    assert failed["why"] == "A pool that always keeps one block back wastes memory that was paid for."
    assert [call["call"] for call in failed["calls"]] == ["pool = BlockPool(4)", "pool.allocate(4)"]
    state = {"pool": {"kind": "BlockPool", "num_free": 4, "ref_counts": [0, 0, 0, 0]}}
    assert [call["state"] for call in failed["calls"]] == [state, state]


def test_states_follow_the_calls() -> None:
    source = reference_source("block_table").replace("self.pool.free([shared])", "pass")
    report = report_of(find_exercise("copy-on-write"), source)
    calls = {call["call"]: call["state"] for call in report["tests"][-1]["calls"]}
    assert calls["child.append(1)"] == {
        "pool": {"kind": "BlockPool", "num_free": 1, "ref_counts": [2, 2, 1, 0]},
        "table": {"kind": "BlockTable", "block_size": 4, "blocks": [0, 1], "num_tokens": 6},
        "child": {"kind": "BlockTable", "block_size": 4, "blocks": [0, 2], "num_tokens": 7},
    }
    assert list(calls)[:3] == ["pool = BlockPool(4)", "table = BlockTable(pool, 4)", "table.grow(6)"]
    assert "child = table.fork()" in calls


def test_a_sequence_is_seen_before_its_properties_are_written() -> None:
    """What a timeline is drawn from are fields and the table, none of which is the answer's to derive."""
    report = report_of(find_exercise("sequence-phase"), exercise_stub("sequence-phase"))
    made = next(call for call in report["tests"][-1]["calls"] if call["call"].startswith("sequence = "))
    counts = {"num_prompt": 3, "num_tokens": 3, "num_computed": 0, "num_blocks": 0}
    assert made["state"]["sequence"] == {"kind": "Sequence", **counts, "max_new_tokens": 4, "ended": False}


def test_a_named_tuple_of_the_stub_s_keeps_its_methods() -> None:
    source = exercise_solution("chunked-prefill").replace("step.batch.append(Scheduled(", "step.batch.append(_part(")
    source += (
        "\n\ndef _part(*fields: object) -> Scheduled:\n    return Scheduled(*fields)._replace(num_new=fields[1])\n"
    )
    assert report_of(find_exercise("chunked-prefill"), source)["status"] == "pass"


def test_one_exercise_does_not_fail_for_anothers_mistake() -> None:
    """A right `fork` in a file whose `grow` and `append` are wrong: `fork` passes, the others fail."""
    source = reference_source("block_table").replace("self.num_tokens += num_new", "self.num_tokens -= num_new")
    verdicts = {each.id: report_of(each, source)["status"] for each in load_exercises() if each.module == "block_table"}
    assert verdicts == {"block-table": "fail", "slot-mapping": "pass", "fork": "pass", "copy-on-write": "fail"}


def test_a_helper_of_ones_own_may_be_called_as_one_of_the_reference_s() -> None:
    """The reference has a `_dot` too, which takes other arguments."""
    source = reference_source("scalar_attention").replace("scale * _dot(query, key)", "_dot(scale, query, key)")
    source = source.replace("def _dot(a: Vector, b: Vector)", "def _dot(scale: float, a: Vector, b: Vector)")
    source = source.replace("return sum(x * y", "return scale * sum(x * y")
    assert report_of(find_exercise("paged-attention"), source)["status"] == "pass"


def test_a_lost_run_is_reported_from_its_events() -> None:
    posted: list[Any] = []
    page.check("block-pool", exercise_solution("block-pool"), lambda events: posted.append(json.loads(events)))
    upto = next(i for i, batch in enumerate(posted) if ["check", "refusal_takes_nothing"] in batch)
    report = json.loads(page.lost("block-pool", json.dumps(posted[: upto + 2]), "timeout"))
    assert report["status"] == "fail"
    assert [test["status"] for test in report["tests"]] == ["pass", "pass", "pass", "pass", "fail"]
    assert report["tests"][-1]["message"] == (
        "pool.allocate(2) did not end within 2 s (an endless loop?)\n"
        "Each call is followed by a look at num_free and ref_count: it may be in one of these."
    )
    first = find_exercise("fork").checks[0].name  # a fork's learner has written nothing that a look calls
    elsewhere = json.loads(page.lost("fork", json.dumps([[["check", first]]]), "timeout"))
    assert elsewhere["tests"][-1]["message"] == "the check did not end within 2 s (an endless loop?)"
    assert json.loads(page.lost("block-pool", "[]", "stopped"))["status"] == "error"


def test_an_end_without_detail_has_no_empty_brackets() -> None:
    ended = json.loads(page.lost("block-pool", "[]", "exit"))
    assert ended["message"] == "loading practice/block_pool.py ended the process itself"
