"""`bench`: times the engine that the learner's parts make against the reference, once both compute the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from course.assembly.worker import Worker, working
from course.bench.results import record, write
from course.bench.rounds import Disagreement, Measured, Round, Spread, measure
from course.bench.workload import Workload, make_workload
from course.judge.console.arguments import UsageError
from course.judge.console.invocation import command
from course.judge.console.packages import ENGINE
from course.judge.console.progress import Progress
from course.judge.console.prose import sentence
from course.judge.console.session import Session, open_session, print_json
from course.judge.console.settings import Settings
from course.judge.console.terminal import Terminal

TITLE = "Your engine against the reference, and whose its parts are"
REFERENCE, YOURS = "reference", "yours"
BUSY = 1.5  # the best round over the worst; a quiet machine stays far below


class EngineSystem(NamedTuple):
    """An engine in a worker's process, as a system of the benchmark."""

    name: str
    worker: Worker
    blocks: int | None

    def run(self, workload: Workload) -> Round:
        done = self.worker.result("round", prompts=workload.prompts, new_tokens=workload.new_tokens, blocks=self.blocks)
        return Round(**done)


def run_bench(screen: Terminal, out: Terminal | None, progress: Progress, settings: Settings) -> int:
    """Measure. Exit status 1 when nothing is the learner's, and when the two engines' tokens differ."""
    _refuse_bad_output(settings.output)
    with open_session(screen, progress, settings, TITLE, ENGINE) as session:
        if not session.uses_mine:
            text = f"Nothing to measure yet: no part of the engine is yours. {command('next')} shows what to write."
            return _give_up(screen, out, session, text)
        with working(settings.step_limit) as worker:
            worker.result("look", device=session.machine["device"], interpret=settings.interpret)
            theirs = worker.result("assemble", **{**session.job, "modules": {}})
            mine = session.worker.result("assemble", **session.job)
            workload = make_workload(settings.requests, settings.new_tokens, theirs["vocabulary"])
            systems = [
                EngineSystem(REFERENCE, worker, settings.blocks),
                EngineSystem(YOURS, session.worker, settings.blocks),
            ]
            try:
                measured = measure(systems, workload, settings.rounds, _progress(screen))
            except Disagreement as error:
                return _give_up(screen, out, session, f"Not timed: {error}.")
        details = _details(session, settings, {REFERENCE: theirs, YOURS: mine})
        results = record(measured, workload, session.machine, details)
        screen.write(["", *_table(measured), "", *sentence(screen, _verdict(results, workload)), ""])
        if settings.output:
            write(results, Path(settings.output))
            screen.write([f"The results, with every raw time, are in {settings.output}.", ""])
        if out is not None:
            print_json(out, results)
    return 0


def _details(session: Session, settings: Settings, assembled: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what is known of each system besides its times; `assembled` is what its worker said of it."""
    parts = {REFERENCE: None, YOURS: [origin.as_dict() for origin in session.found]}
    return {
        name: {
            "model": os.path.basename(os.path.normpath(settings.model)),
            "random_weights": settings.random,
            "dtype": settings.dtype,
            "kv_dtype": settings.kv_dtype or settings.dtype,
            "block_size": settings.block_size,
            "kernels": session.job["kernels"],
            "parts": parts[name],
            "load_seconds": done["seconds"],
            "threads": done["threads"],
        }
        for name, done in assembled.items()
    }


def _progress(screen: Terminal) -> Callable[[str], None]:
    """Return what says how far the measuring is: on one line that changes where the terminal can do that."""
    height = 0

    def say(what: str) -> None:
        nonlocal height
        screen.rewrite([f"  {what}"], height)
        height = int(screen.can_rewrite)

    return say


def _table(measured: list[Measured]) -> list[str]:
    """Return the lines of the table: medians over the rounds, and the least and the most."""
    lines = [f"  {'':10} {'tokens/s':>26}  {'ms a step':>24}  {'ms to the first token':>24}"]
    for each in measured:
        rates = _spread(Spread.of(each.rates()), 1, ",.0f")
        steps = _spread(Spread.of(each.step_seconds()), 1000, ".2f")
        first = _spread(Spread.of(each.first_token_seconds()), 1000, ".1f")
        lines.append(f"  {each.name:10} {rates:>26}  {steps:>24}  {first:>24}")
    return lines


def _spread(spread: Spread, factor: float, form: str) -> str:
    median, least, most = (format(number * factor, form) for number in spread)
    return f"{median} ({least} to {most})"


def _verdict(results: dict[str, Any], workload: Workload) -> str:
    found = Spread(**results["ratios"][YOURS])
    text = (
        f"Yours makes {found.median:.2f} times as many tokens a second as the reference ({found.least:.2f} to "
        f"{found.most:.2f}, round by round): {len(workload.prompts)} requests of {workload.new_tokens} new tokens, "
        f"{len(results['systems'][0]['rounds'])} rounds each, in turn; the same tokens in every round."
    )
    if (
        max(each["tokens_per_second"]["most"] / each["tokens_per_second"]["least"] for each in results["systems"])
        > BUSY
    ):
        text += " The rounds differ so much that this machine was busy with other things: measure again."
    return text


def _give_up(screen: Terminal, out: Terminal | None, session: Session, text: str) -> int:
    screen.write(["", *sentence(screen, text), ""])
    if out is not None:
        parts = [origin.as_dict() for origin in session.found]
        print_json(out, {"status": "fail", "message": text, "parts": parts})
    return 1


def _refuse_bad_output(output: str | None) -> None:
    """Find out before minutes of measuring that the results could not be written."""
    if output and not os.path.isdir(os.path.dirname(os.path.abspath(output))):
        raise UsageError(f"--output: there is no folder for {output!r}.")
    if output and os.path.isdir(output):
        raise UsageError(f"--output takes a file, and {output!r} is a folder.")
