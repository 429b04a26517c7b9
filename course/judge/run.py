"""Runs an exercise's checks against one answer, over any channel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from course.judge.executors import NotAvailable
from course.judge.exercise import Check, Exercise
from course.judge.expect import Failure
from course.judge.remote import Channel, Lost, Raised, Rebound, Session, Solution
from course.judge.report import Report


def run_checks(
    exercise: Exercise,
    source: str,
    channel: Channel,
    listen: Callable[[list[Any]], None] = lambda event: None,
    executor: str | None = None,
) -> Report:
    """Load `source` and run the checks in order, up to the first failure. `listen` hears every event as it happens.

    `executor` says what tensors are made of, where the exercise has a choice. `NotAvailable` when the machine lacks
    what it needs.
    """
    report = Report(exercise)

    def emit(event: list[Any]) -> None:
        report.add(event)
        listen(event)

    channel.on_output = lambda text: emit(["output", text])
    try:
        reply = prepare(exercise, channel, executor)
        if "raised" not in reply:
            reply = channel.ask(
                {"do": "load", "module": exercise.module, "symbols": list(exercise.symbols), "source": source}
            )
        error = _loading_error(exercise, reply)
        if error is not None:
            emit(["broken", *error])
            return report
        session = Session(channel, reply["value"], emit)
        for check in exercise.checks:
            emit(["check", check.name])
            session.start()
            failure = _run_check(exercise, check, session, report)
            if failure is not None:
                emit(["fail", failure])
                return report
            emit(["pass"])
        emit(["done"])
    except Lost as lost:
        emit(["lost", lost.reason, lost.detail])
    return report


def prepare(exercise: Exercise, channel: Channel, executor: str | None = None) -> dict[str, Any]:
    """Have the agent import what the answer is run beside, and return its reply."""
    beside = exercise.folder / "beside.py"
    return channel.ask(
        {
            "do": "prepare",
            "module": exercise.module,
            "reference": str(exercise.folder / "fixed.py") if exercise.is_bug else None,
            "uses": list(exercise.uses),
            "beside": str(beside) if beside.exists() else None,
            "executor": executor or next(iter(exercise.executors), None),
        }
    )


def _loading_error(exercise: Exercise, reply: dict[str, Any]) -> tuple[str, str | None] | None:
    """Return (message, the interpreter's words) when the answer could not be loaded."""
    if "rebound" in reply:
        return _rebound(*reply["rebound"]), None
    error = reply.get("raised")
    if error is None:
        return None
    if error["type"] == "NotAvailable":
        raise NotAvailable(f"{exercise.id} cannot be judged here: {error['message']}")
    if error["missing"]:
        return f"{exercise.file} has no {error['missing']}: was it renamed or deleted?", None
    if error["borrowed"]:
        return f"{exercise.file} takes `{error['borrowed']}` from solutions/: an answer is to be your own", None
    if "SyntaxError" in error["bases"]:
        place = f", line {error['line']}" if error["line"] else ""
        return f"{exercise.file}{place}: this is not valid Python", error["text"]
    if error["type"] == "SystemExit":
        return f"{exercise.file} leaves the program while it is loaded (sys.exit?)", error["text"]
    return f"{exercise.file} raises {error['type']} while it is loaded", error["text"]


def _run_check(exercise: Exercise, check: Check, session: Session, report: Report) -> dict[str, Any] | None:
    """Run one check; return the failure's fields, or None when the promise is kept."""
    try:
        check.run(Solution(session))
    except Failure as failure:
        message = f"{report.last_call()} {failure.message}" if failure.about_call else failure.message
        return {"message": message, "expected": failure.expected, "why": failure.why}
    except Raised as raised:
        return _raised(exercise, raised.error, report.last_call())
    except Rebound as rebound:
        return {"message": _rebound(*rebound.args)}
    except Lost:
        raise
    except Exception:
        # The check could not work with what came back: a value of the wrong kind, which a check need not foresee.
        import traceback

        text = f"{report.last_call()} gave something that this check cannot work with"
        return {"message": text, "interpreter": traceback.format_exc(limit=-2).rstrip()}
    return None


def _raised(exercise: Exercise, error: dict[str, Any], call: str) -> dict[str, Any]:
    unwritten = _unwritten(exercise, error)
    if unwritten is not None:
        return {"message": f"{unwritten} is not written yet", "unfinished": True}
    explanations = {
        "SystemExit": "tried to leave the program (sys.exit?) instead of returning",
        "KeyboardInterrupt": "raised KeyboardInterrupt",
        "RecursionError": "calls itself without end (RecursionError)",
        "EOFError": "waited for input: nobody is there to type while an answer is judged",
        "MemoryError": "ran out of memory (MemoryError)",
    }
    message = f"{call} {explanations.get(error['type'], 'raised ' + error['type'])}"
    if "EmulatorError" in error["bases"]:
        message = f"{call}: {error['message']}"
    if error["type"] == "TypeError" and not error["entered"]:
        message = f"{call} does not accept these arguments: keep the signature of the stub"
    return {"message": message, "interpreter": error["text"]}


def _unwritten(exercise: Exercise, error: dict[str, Any]) -> str | None:
    """Return the symbol whose stub raised `error`. Triton has no `raise`: what refuses it shows the line."""
    said = error["message"] if error["type"] == "NotImplementedError" else ""
    if exercise.needs == "triton":
        said += error["message"] + error["text"]
    return next((each for each in exercise.symbols if f"{exercise.id}: {each} is not written yet" in said), None)


def _rebound(module: str, name: str) -> str:
    if module == "builtins":
        return f"your code replaces the builtin `{name}` for the whole program: give yours another name"
    return f"your code changes `{name}` in {module}, a part of the judge: leave that as it is"
