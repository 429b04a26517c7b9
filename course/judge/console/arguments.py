"""Reads the command line. Whatever is wrong with it is one sentence that says what to type instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from course.judge.console.invocation import command


class UsageError(Exception):
    """The command line asks for something that there is not."""


class Command(NamedTuple):
    """What a command takes, and what it does, for the help."""

    takes: str
    does: str
    options: tuple[str, ...] = ()


# What an engine is made for; the three commands that run one take these.
ENGINE = ("--model", "--random", "--device", "--dtype", "--kv-dtype", "--block-size", "--interpret", "--unproven")
# With --systems, `bench` is the whole table of `course.bench`; the two others say where its peers are.
TABLE = ("--systems", "--vllm-python", "--ctranslate2-python")
COMMANDS = {
    "board": Command("", "what is passed, what is red on purpose, what is next; the same as no command"),
    "next": Command("[id]", "the next exercise, or the one named: its task, and where to write"),
    "check": Command("[id]", "judge one exercise, or all that you have started", ("--json", "--on")),
    "watch": Command("[id]", "judge again whenever you save, until Ctrl-C", ("--on",)),
    "hint": Command("[id] [n]", "one hint more, or hint n"),
    "diff": Command("id", "the reference against your answer, once that has passed", ("--give-up",)),
    "reset": Command("id", "put the stub back, and keep a copy of what was there", ("--file",)),
    "export": Command("[file]", "your answers as a file, which the course's page can import"),
    "import": Command("file", "put answers that the page has exported into practice/"),
    "engine": Command(
        "", "run the engine that your parts make", (*ENGINE, "--prompt", "--new-tokens", "--blocks", "--json")
    ),
    "parity": Command("", "hold that engine against Hugging Face, layer by layer", (*ENGINE, "--json")),
    "bench": Command(
        "",
        "time that engine against the reference",
        (*ENGINE, "--requests", "--new-tokens", "--blocks", "--rounds", "--output", "--json", *TABLE),
    ),
    "list": Command("", "all exercises", ("--json",)),
    "doctor": Command("", "whether this machine can run the judge"),
    "help": Command("", "this text"),
}
OPTIONS = {
    "--json": "check, list, engine, parity, bench: print JSON (check: as exercism's results.json)",
    "--on WHERE": "check, watch: what runs tensors: emulator (the default), interpreter or gpu; torch or gpu",
    "--give-up": "diff: show the reference although your answer has not passed",
    "--file": "reset: the whole file, with all its exercises",
    "--time-limit S": "seconds that an answer, or a step of an engine, may take, in place of the usual limit",
    "--no-color": "no colours; so does NO_COLOR, and FORCE_COLOR asks for them",
}
ENGINE_OPTIONS = {
    "--model NAME": "a folder, or a name on the Hugging Face hub; the course's small model unless given",
    "--random": "the sizes of a model and random weights: a folder with a config.json, or gpt2 to gpt2-xl",
    "--device NAME": "cpu or cuda; a GPU where there is one unless given",
    "--dtype NAME": "of the weights: float32, float16 or bfloat16",
    "--kv-dtype NAME": "of the KV cache: the same, or int8",
    "--block-size N": "tokens a block: 8, 16 (unless given), 32, 64, 128 or 256",
    "--blocks N": "engine, bench: blocks in the pool; as many as all requests need unless given",
    "--new-tokens N": "engine, bench: how many tokens each request gets",
    "--prompt TEXT": "engine: a text to continue; may be given several times",
    "--requests N": "bench: how many requests at once; with --systems several, commas between",
    "--rounds N": "bench: how many rounds of each engine, in turn",
    "--output FILE": "bench: where to write the results, as JSON",
    "--systems NAMES": "bench: systems side by side: all, or names that python -m course.bench --help shows",
    "--vllm-python PATH": "bench: an interpreter that has vLLM, or a folder of packages for this one",
    "--ctranslate2-python PATH": "bench: the same for CTranslate2",
    "--interpret": "use the Triton kernels on a CPU, in Triton's own interpreter (slow)",
    "--unproven": "use what you wrote even where its checks fail: to find out where it goes wrong",
}
_ALL = OPTIONS | ENGINE_OPTIONS


class Request(NamedTuple):
    """What was asked for: `exercise` is an id as typed, `number` a hint's, `file` a path as typed."""

    command: str
    exercise: str | None
    number: int | None
    options: frozenset[str]
    time_limit: float | None
    file: str | None = None
    executor: str | None = None
    values: Mapping[str, list[str]] = MappingProxyType({})  # of the options that take one, in the order given


def read_arguments(words: Iterable[str]) -> Request:
    """Return the request; `UsageError` when it makes no sense."""
    names: list[str] = []
    options: set[str] = set()
    values: dict[str, list[str]] = {}
    left = list(words)
    while left:
        word = left.pop(0)
        if word in ("-h", "--help"):
            names.insert(0, "help")
        elif word.startswith("-"):
            option, equals, value = word.partition("=")
            option = _known(option, [name.partition(" ")[0] for name in _ALL], "option")
            if option in _ALL:  # it takes no value, or its name in the help would say which
                if equals:
                    raise UsageError(f"{option} takes no value, and there is {value!r}.")
                options.add(option)
            elif not equals and not left:
                raise UsageError(f"{option} needs a value. {command('help')} shows which.")
            else:
                values.setdefault(option, []).append(value if equals else left.pop(0))
        else:
            names.append(word)
    time_limit = _seconds(values.pop("--time-limit")[-1]) if "--time-limit" in values else None
    name = names.pop(0) if names else "board"
    if name not in COMMANDS:
        _refuse_bare_id(name)
    name = _known(name, COMMANDS, "command")
    if name == "help":
        return Request("help", None, None, frozenset(), None)
    for option in sorted({*options, *values} - {"--no-color", *COMMANDS[name].options}):
        raise UsageError(f"{name} takes no {option}. {command('help')} shows what it takes.")
    executor = _executor(values["--on"][-1]) if "--on" in values else None
    exercise, number = _operands(name, names)
    if "file" in COMMANDS[name].takes:
        return Request(name, None, None, frozenset(options), time_limit, file=exercise)
    return Request(name, exercise, number, frozenset(options), time_limit, executor=executor, values=values)


def _refuse_bare_id(word: str) -> None:
    from course.judge.exercise import exercise_ids

    if word in exercise_ids():
        raise UsageError(f"{word} is an exercise. Its answer is judged by: {command('check', word)}")


def find_id(typed: str, ids: Iterable[str]) -> str:
    """Return `typed` when it is an id."""
    return _known(typed, ids, "exercise")


def help_lines() -> list[str]:
    commands = {f"{name} {each.takes}".rstrip(): each.does for name, each in COMMANDS.items()}
    return [
        "",
        f"{command()} [command]",
        "",
        *_columns(commands),
        "",
        *_columns(OPTIONS),
        "",
        "engine, parity, bench:",
        "",
        *_columns(ENGINE_OPTIONS),
        "",
        "Exit status: 0 passed, 1 failed, 2 something else is wrong (this machine, the command line).",
        "",
    ]


def _columns(texts: Mapping[str, str]) -> list[str]:
    width = max(map(len, texts)) + 2
    return [f"  {name:<{width}}{text}" for name, text in texts.items()]


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
