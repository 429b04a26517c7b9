"""Where the learner stands: one state for each exercise, derived from the files and never stored."""

from __future__ import annotations

from typing import Any, NamedTuple

from course.judge.console.answers import Answer, is_started, read_answer
from course.judge.console.progress import Progress, Verdict
from course.judge.executors import NotAvailable
from course.judge.exercise import Exercise, load_exercises


class Standing(NamedTuple):
    """`state` is "passed", "red" (started, and not right yet), "unwritten" (the stub, red on purpose) or "unjudged".

    Unjudged is what is started and needs something that this machine lacks: `message` says what.
    Of a red one, `check` is the check that found it, and `unfinished` says that something is not written yet.
    """

    exercise: Exercise
    state: str
    message: str = ""
    check: str = ""
    unfinished: bool = False


def judge_answer(
    exercise: Exercise, answer: Answer, progress: Progress, executor: str | None = None, *, compiling: bool = False
) -> dict[str, Any]:
    """Judge an answer now, remember the verdict and return the report; `compiling`: kernels are compiled, too.

    `StartError` when it cannot be run, `NotAvailable` when this machine lacks what it needs. Only the usual executor's
    verdict is remembered.
    """
    # Imported on need: a board that knows every verdict starts no process.
    from course.judge.process import judge
    from course.judge.report import Report

    if answer.text is None:
        report = Report.of(exercise, [["broken", answer.problem, None]]).as_dict()
        report["next"] = f"python practice/judge.py reset {exercise.id}"
    else:
        judged = judge(exercise, answer.text, executor=executor)
        if compiling:
            from course.judge.console.compiled import add_to

            add_to(judged, exercise, answer.text)
        report = judged.as_dict()
    if executor in (None, *exercise.executors[:1]):
        progress.remember(exercise, answer, report)
    return report


def standing_of(exercise: Exercise, answer: Answer, progress: Progress) -> Standing:
    """Return the state of one exercise, judging its answer only when no verdict of these very files is known."""
    if not is_started(exercise, answer):
        return Standing(exercise, "unwritten")
    try:
        verdict = progress.verdict(exercise, answer) or Verdict.of(judge_answer(exercise, answer, progress))
    except NotAvailable as error:
        return Standing(exercise, "unjudged", str(error))
    state = "passed" if verdict.status == "pass" else "red"
    return Standing(exercise, state, verdict.message, verdict.check, verdict.unfinished)


def standings(progress: Progress, time_limit: float | None = None) -> list[Standing]:
    """Return the state of every exercise, in course order."""
    exercises = load_exercises()
    answers = {module: read_answer(module) for module in {exercise.module for exercise in exercises}}
    return [standing_of(limited(each, time_limit), answers[each.module], progress) for each in exercises]


def next_standing(all_standings: list[Standing]) -> Standing | None:
    """Return the exercise to go on with: one that is started before one that is not; None when all are passed."""
    for state in ("red", "unwritten"):
        for standing in all_standings:
            if standing.state == state:
                return standing
    return None


def limited(exercise: Exercise, time_limit: float | None) -> Exercise:
    """Return `exercise` with another time limit, where one is given."""
    return exercise if time_limit is None else exercise._replace(time_limit=time_limit)
