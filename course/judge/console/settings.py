"""What the three commands that run an engine were asked for, checked before anything slow begins."""

from __future__ import annotations

from typing import NamedTuple

from course.judge.console.arguments import TABLE, Request, UsageError
from course.judge.exercise import ROOT

SMALL_MODEL = str(ROOT / "course" / "model")
PROMPTS = ("Alice was ", "The White Rabbit ", "The Queen said ", "Down, down, down. ")
DTYPES = ("float32", "float16", "bfloat16")
STEP_LIMIT = 30.0  # seconds
INTERPRETED_LIMIT = 600.0  # Triton's interpreter takes seconds where a GPU takes microseconds


class Settings(NamedTuple):
    """`None` stands for what depends on the machine, the model or the requests."""

    model: str
    random: bool
    device: str | None
    dtype: str
    kv_dtype: str | None
    block_size: int
    interpret: bool
    unproven: bool
    prompts: tuple[str, ...]
    new_tokens: int
    blocks: int | None
    requests: int
    rounds: int
    output: str | None
    step_limit: float


def read_settings(request: Request) -> Settings:
    """Return the settings; `UsageError` when one makes no sense."""
    values = {name: given[-1] for name, given in request.values.items()}
    for option in TABLE:
        if option in values:
            raise UsageError(f"{option} is for the table of many systems: say which with --systems, for example all.")
    is_random = "--random" in request.options
    return Settings(
        model=values.get("--model", "gpt2" if is_random else SMALL_MODEL),
        random=is_random,
        device=_one_of(values, "--device", ("cpu", "cuda")),
        dtype=_one_of(values, "--dtype", DTYPES) or "float32",
        kv_dtype=_one_of(values, "--kv-dtype", (*DTYPES, "int8")),
        block_size=_number(values, "--block-size", 16),
        interpret="--interpret" in request.options,
        unproven="--unproven" in request.options,
        prompts=tuple(request.values.get("--prompt", PROMPTS)),
        new_tokens=_number(values, "--new-tokens", 64),
        blocks=_number(values, "--blocks", 0) or None,
        requests=_number(values, "--requests", 8),
        rounds=_number(values, "--rounds", 5),
        output=values.get("--output"),
        step_limit=request.time_limit or (INTERPRETED_LIMIT if "--interpret" in request.options else STEP_LIMIT),
    )


def _one_of(values: dict[str, str], option: str, known: tuple[str, ...]) -> str | None:
    value = values.get(option)
    if value is not None and value not in known:
        raise UsageError(f"{option} takes {', '.join(known[:-1])} or {known[-1]}, and {value!r} is not that.")
    return value


def _number(values: dict[str, str], option: str, default: int) -> int:
    text = values.get(option)
    if text is None:
        return default
    if not text.isdecimal() or not 0 < int(text) <= 1_000_000:
        raise UsageError(f"{option} takes a number from 1 to 1,000,000, and {text!r} is not that.")
    return int(text)
