"""The command line, `python practice/judge.py`: reads what is asked for and hands it to the one part that does it.

Exit status: 0 passed, 1 failed, 2 the environment (no child process, a command line that makes no sense).
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from course.judge import spawn
from course.judge.console.arguments import Request, UsageError, find_id, help_lines, read_arguments
from course.judge.console.invocation import command
from course.judge.executors import NotAvailable

if TYPE_CHECKING:
    # Nothing heavy here: the child process is started before the rest is imported.
    from course.judge.console.progress import Progress
    from course.judge.console.terminal import Terminal
    from course.judge.exercise import Exercise


def main(arguments: list[str]) -> int:
    """Do what the arguments ask for; return the exit status."""
    color = "--no-color" not in arguments
    try:
        request = read_arguments(arguments)
        if request.command == "check" and request.exercise is not None:
            spawn.start_ahead()
        return _run(request, color=color)
    except UsageError as error:
        return _complain(str(error), color=color)
    except spawn.StartError as error:
        return _complain(f"Your code cannot be run here: {error}\n{command('doctor')} says more.", color=color)
    except NotAvailable as error:
        return _complain(str(error), color=color)
    except BrokenPipeError:
        # Whoever read along has gone (`| head`); Python must not complain about that at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return _complain("Stopped.", color=color)


def _run(request: Request, *, color: bool) -> int:
    # Each command imports what it needs, so that none waits for the others.
    from course.judge.console.progress import Progress
    from course.judge.console.terminal import Terminal

    terminal, progress = Terminal.of(sys.stdout, color=color), Progress()
    options, limit = request.options, request.time_limit
    match request.command:
        case "check" | "watch":
            return _judge(request, terminal, progress)
        case "next":
            from course.judge.console.guide import show_task

            return show_task(terminal, _named_or_next(request, progress))
        case "hint":
            return _hint(request, terminal, progress)
        case "diff":
            from course.judge.console.compare import show_difference

            return show_difference(terminal, progress, _exercise(request), give_up="--give-up" in options)
        case "reset":
            from course.judge.console.reset import ResetError, reset

            try:
                return reset(terminal, _exercise(request), whole_file="--file" in options)
            except ResetError as error:
                return _complain(str(error), color=color)
        case "export" | "import":
            return _exchange(request, terminal, progress, color=color)
        case "bench" if "--systems" in request.values:
            from course.bench.__main__ import main as run_table

            return run_table(_words(request))
        case "engine" | "parity" | "bench":
            return _engine(request, terminal, progress)
        case "list":
            from course.judge.console.listing import show_list
            from course.judge.exercise import load_exercises

            return show_list(terminal, load_exercises(), as_json="--json" in options)
        case "doctor":
            from course.judge.console.doctor import examine

            return examine(terminal)
        case "help":
            terminal.write(help_lines())
            return 0
        case _:
            from course.judge.console.board import show_board

            return show_board(terminal, progress, limit)


def _judge(request: Request, terminal: Terminal, progress: Progress) -> int:
    from course.judge.console.check import check_one, check_started
    from course.judge.console.standing import limited
    from course.judge.exercise import load_exercises

    one = request.exercise is not None
    exercises = [limited(each, request.time_limit) for each in ([_exercise(request)] if one else load_exercises())]
    executor = request.executor
    if executor is not None:
        if one and executor not in exercises[0].executors:
            possible = ", ".join(exercises[0].executors) or "Python alone: leave --on out"
            raise UsageError(f"{exercises[0].id} does not run on {executor!r}; it runs on {possible}.")
        exercises = [each for each in exercises if executor in each.executors]
    if request.command == "watch":
        from course.judge.console.watch import watch

        return watch(terminal, progress, exercises, executor)
    as_json = "--json" in request.options
    if one:
        return check_one(terminal, progress, exercises[0], executor, as_json=as_json)
    return check_started(terminal, progress, exercises, executor, as_json=as_json)


def _engine(request: Request, terminal: Terminal, progress: Progress) -> int:
    """Do what needs the engine. With `--json`, what is for people goes nowhere."""
    import io

    from course.judge.console.session import Stopped
    from course.judge.console.settings import read_settings
    from course.judge.console.terminal import Terminal

    settings = read_settings(request)
    as_json = "--json" in request.options
    screen, out = (Terminal.of(io.StringIO(), color=False), terminal) if as_json else (terminal, None)
    try:
        match request.command:
            case "engine":
                from course.judge.console.engine import run_engine

                return run_engine(screen, out, progress, settings)
            case "parity":
                from course.judge.console.parity import run_parity

                return run_parity(screen, out, progress, settings)
            case _:
                from course.judge.console.bench import run_bench

                return run_bench(screen, out, progress, settings)
    except Stopped as stopped:
        return stopped.tell(screen, out, command(request.command))


def _words(request: Request) -> list[str]:
    """Return the options as they are typed, for a command with a reader of its own, which refuses what it has not."""
    return [*sorted(request.options), *(word for name, given in request.values.items() for word in (name, given[-1]))]


def _exchange(request: Request, terminal: Terminal, progress: Progress, *, color: bool) -> int:
    from course.judge.console.exchange import ExchangeError, export_work, import_work

    try:
        if request.command == "export":
            return export_work(terminal, progress, request.file)
        return import_work(terminal, progress, request.file or "")
    except ExchangeError as error:
        return _complain(str(error), color=color)


def _hint(request: Request, terminal: Terminal, progress: Progress) -> int:
    from course.judge.console.guide import show_hints

    exercise = _named_or_next(request, progress)
    if exercise is None:
        raise UsageError("Every exercise is passed. Name one to see its hints.")
    if request.number is not None and not 1 <= request.number <= len(exercise.hints):
        raise UsageError(f"{exercise.id} has hints 1 to {len(exercise.hints)}, not {request.number}.")
    return show_hints(terminal, progress, exercise, request.number)


def _named_or_next(request: Request, progress: Progress) -> Exercise | None:
    """Return the exercise that was named, or else the next one; None when all are passed."""
    from course.judge.console.standing import next_standing, standings

    if request.exercise is not None:
        return _exercise(request)
    standing = next_standing(standings(progress, request.time_limit))
    return standing.exercise if standing else None


def _exercise(request: Request) -> Exercise:
    from course.judge.exercise import exercise_ids, find_exercise

    return find_exercise(find_id(request.exercise or "", sorted(exercise_ids())))


def _complain(text: str, *, color: bool) -> int:
    """Say on stderr why nothing was done."""
    from course.judge.console.terminal import Terminal

    terminal = Terminal.of(sys.stderr, color=color)
    terminal.write(terminal.clean(text).split("\n"))
    return 2
