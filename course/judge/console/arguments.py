"""Reads the command line. Whatever is wrong with it is one sentence that says what to type instead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from course.judge.console.invocation import command


class UsageError(Exception):
    """The command line asks for something that there is not."""


class Command(NamedTuple):
    """What a command takes, and what it does, for the help."""

    takes: str
    does: str
    options: tuple[str, ...] = ()


COMMANDS = {
    "board": Command("", "what is passed, what is red on purpose, what is next; the same as no command"),
    "next": Command("", "the next exercise: its task, and where to write"),
    "check": Command("[id]", "judge one exercise, or all that you have started", ("--json", "--on")),
    "watch": Command("[id]", "judge again whenever you save, until Ctrl-C", ("--on",)),
    "hint": Command("[id] [n]", "one hint more, or hint n"),
    "diff": Command("id", "the reference against your answer, once that has passed", ("--give-up",)),
    "reset": Command("id", "put the stub back, and keep a copy of what was there", ("--file",)),
    "export": Command("[file]", "your answers as a file, which the course's page can import"),
    "import": Command("file", "put answers that the page has exported into practice/"),
    "list": Command("", "all exercises", ("--json",)),
    "doctor": Command("", "whether this machine can run the judge"),
    "help": Command("", "this text"),
}
OPTIONS = {
    "--json": "check, list: print JSON (check: exercism's results.json, version 3)",
    "--on WHERE": "check, watch: what runs tensors: emulator (the default), interpreter or gpu; torch or gpu",
    "--give-up": "diff: show the reference although your answer has not passed",
    "--file": "reset: the whole file, with all its exercises",
    "--time-limit S": "seconds that an answer may take, in place of the exercise's own limit",
    "--no-color": "no colours; so does NO_COLOR, and FORCE_COLOR asks for them",
}


class Request(NamedTuple):
    """What was asked for: `exercise` is an id as typed, `number` a hint's, `file` a path as typed."""

    command: str
    exercise: str | None
    number: int | None
    options: frozenset[str]
    time_limit: float | None
    file: str | None = None
    executor: str | None = None


def read_arguments(words: Iterable[str]) -> Request:
    """Return the request; `UsageError` when it makes no sense."""
    names: list[str] = []
    options: set[str] = set()
    time_limit: float | None = None
    executor: str | None = None
    left = list(words)
    while left:
        word = left.pop(0)
        option, equals, value = word.partition("=")
        if option in ("-h", "--help"):
            names.insert(0, "help")
        elif option == "--time-limit":
            time_limit = _seconds(value if equals else left.pop(0) if left else "")
        elif option == "--on":
            executor = _executor(value if equals else left.pop(0) if left else "")
            options.add("--on")
        elif word.startswith("-"):
            options.add(_known(word, [name for name in OPTIONS if " " not in name], "option"))
        else:
            names.append(word)
    name = names.pop(0) if names else "board"
    if name not in COMMANDS:
        _refuse_bare_id(name)
    name = _known(name, COMMANDS, "command")
    if name == "help":
        return Request("help", None, None, frozenset(), None)
    for option in sorted(options - {"--no-color", *COMMANDS[name].options}):
        raise UsageError(f"{name} takes no {option}. {command('help')} shows what it takes.")
    exercise, number = _operands(name, names)
    if "file" in COMMANDS[name].takes:
        return Request(name, None, None, frozenset(options), time_limit, file=exercise)
    return Request(name, exercise, number, frozenset(options), time_limit, executor=executor)


def _refuse_bare_id(word: str) -> None:
    from course.judge.exercise import exercise_ids

    if word in exercise_ids():
        raise UsageError(f"{word} is an exercise. Its answer is judged by: {command('check', word)}")


def find_id(typed: str, ids: Iterable[str]) -> str:
    """Return `typed` when it is an id."""
    return _known(typed, ids, "exercise")


def help_lines() -> list[str]:
    width = max(len(name) for name in [*OPTIONS, *(f"{name} {each.takes}" for name, each in COMMANDS.items())]) + 2
    lines = ["", f"{command()} [command]", ""]
    lines += [f"  {f'{name} {each.takes}':<{width}}{each.does}" for name, each in COMMANDS.items()]
    lines += ["", *(f"  {name:<{width}}{text}" for name, text in OPTIONS.items())]
    return [
        *lines,
        "",
        "Exit status: 0 passed, 1 failed, 2 something else is wrong (this machine, the command line).",
        "",
    ]


def _operands(name: str, words: list[str]) -> tuple[str | None, int | None]:
    takes = COMMANDS[name].takes
    room = len(takes.split())
    if len(words) > room:
        raise UsageError(f"{name} takes {takes or 'nothing more'}, and there is {words[room]!r} too.")
    if takes == "id" and not words:
        raise UsageError(f"{name} needs an exercise, for example: {command(name, 'block-pool')}")
    if takes == "file" and not words:
        raise UsageError(f"{name} needs a file, for example: {command(name, 'paged-inference-work.json')}")
    number = None
    if name == "hint" and words and words[-1].isdecimal():
        number = int(words.pop())
    elif len(words) == 2:
        raise UsageError(f"{words[1]!r} is no number of a hint.")
    return (words[0] if words else None), number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise UsageError(f"--time-limit takes seconds from 0 to 3600, and {text!r} is not that.")
    return seconds


def _executor(name: str) -> str:
    from course.judge.executors import EXECUTORS

    known = list(dict.fromkeys(each for executors in EXECUTORS.values() for each in executors))
    if name not in known:
        raise UsageError(f"--on takes one of {', '.join(known)}, and {name!r} is none of them.")
    return name


def _known(typed: str, known: Iterable[str], kind: str) -> str:
    names = list(known)
    if typed in names:
        return typed
    import difflib

    near = difflib.get_close_matches(typed, names, 1, 0.4)
    others = {"command": "help", "option": "help", "exercise": "list"}[kind]
    guess = f" Did you mean {near[0]}?" if near else ""
    raise UsageError(f"There is no {kind} {typed!r}.{guess} {command(others)} shows them all.")
