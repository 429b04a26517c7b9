"""What the commands that run an engine share: the child that has it, and the table of whose its parts are."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from course.assembly.parts import Origin, plan
from course.assembly.worker import Failed, Refused, Worker, working
from course.judge.console.arguments import UsageError
from course.judge.console.failed import failure_lines, failure_text
from course.judge.console.invocation import command
from course.judge.console.packages import install_command, missing
from course.judge.console.progress import Progress
from course.judge.console.prose import heading
from course.judge.console.settings import Settings
from course.judge.console.terminal import Terminal
from course.judge.console.verdict import next_row
from course.judge.console.whose import judge_parts, table


class Session(NamedTuple):
    """A worker that can make the engine of the learner's parts, and what is known about it.

    `job` is what has a worker put the engine together; with other `modules` (none: the reference) it makes another.
    """

    worker: Worker
    machine: dict[str, Any]
    found: list[Origin]
    job: dict[str, Any]

    @property
    def uses_mine(self) -> bool:
        return any(piece.used for origin in self.found for piece in origin.pieces)


class Stopped(Exception):
    """The engine failed: `failure` is a `blame.Failure`'s fields, `found` says whose its parts are."""

    def __init__(self, failure: dict[str, Any], found: list[Origin]) -> None:
        super().__init__(failure["what"])
        self.failure = failure
        self.found = found

    def tell(self, screen: Terminal, out: Terminal | None, again: str) -> int:
        """Say what happened, to people on `screen` and as JSON to `out`; return the exit status.

        `again` is the command to run again, once the part is mended. Where its checks fail too, they come first.
        """
        red = [
            piece.exercise.id
            for origin in self.found
            for piece in origin.pieces
            if origin.part.name == self.failure["part"] and piece.used and not piece.passed
        ]
        next_command = command("check", red[0]) if red else again
        screen.write(["", *failure_lines(screen, self.failure, self.found), *next_row(screen, next_command), ""])
        if out is not None:
            parts = [origin.as_dict() for origin in self.found]
            print_json(out, {"status": "fail", "message": failure_text(self.failure), "parts": parts, **self.failure})
        return 1


@contextlib.contextmanager
def open_session(
    screen: Terminal, progress: Progress, settings: Settings, title: str, packages: tuple[str, ...]
) -> Iterator[Session]:
    """Lend a session, after the table of whose the parts are is shown.

    `UsageError` when the engine cannot be had as it was asked for; `Stopped` when it failed.
    """
    absent = missing(packages)
    if absent:
        raise UsageError(
            f"Not installed here: {', '.join(absent)}. Install what the engine needs:\n{install_command()}"
        )
    found: list[Origin] = []
    with contextlib.ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory()) if settings.random else None
        worker = stack.enter_context(working(settings.step_limit))  # it imports PyTorch while the answers are judged
        try:
            looked = worker.ask("look", device=settings.device, interpret=settings.interpret)
            machine = dict(looked)["done"]
            kernels = "triton" if machine["device"] == "cuda" or settings.interpret else "torch"
            found, texts = judge_parts(progress, kernels, unproven=settings.unproven)
            screen.write(["", *heading(screen, title), "", *table(screen, found), ""])
            yield Session(worker, machine, found, _job(settings, machine, kernels, plan(found, texts), scratch))
        except Refused as refused:
            raise UsageError(f"The engine was not started: {str(refused).removesuffix('.')}.") from refused
        except Failed as failed:
            raise Stopped(failed.failure, found) from failed


def print_json(out: Terminal, data: object) -> None:
    out.write([json.dumps(data, indent=2)])


def _job(
    settings: Settings, machine: dict[str, Any], kernels: str, modules: dict[str, Any], scratch: str | None
) -> dict[str, Any]:
    return {
        "modules": modules,
        "kernels": kernels,
        "model": settings.model,
        "scratch": scratch,
        "device": machine["device"],
        "dtype": settings.dtype,
        "kv_dtype": settings.kv_dtype,
        "block_size": settings.block_size,
    }
