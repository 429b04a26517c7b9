"""`python -m course.bench`: every system that this machine has, side by side, on the same token numbers.

On an H200, GPT-2 small with seeded random weights (nothing is fetched), vLLM and CTranslate2 in a folder of packages:

    python -m course.bench.make_model /tmp/gpt2
    python -m course.bench --model /tmp/gpt2 --dtype float16 --requests 1,4,8,16,32,64,128,256 --rounds 5 \\
        --vllm-python /tmp/site --ctranslate2-python /tmp/site --output docs/results/benchmark-h200.json

What is done is written after each number of requests, so that a run that is cut short is not lost; with `--add`,
another command measures other numbers of requests and adds them to the file.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from course.bench.report import as_text, grids
from course.bench.results import joined, write
from course.bench.systems import GROUPS, SYSTEMS, choose
from course.bench.table import Plan, Table, look

SMALL_MODEL = Path(__file__).resolve().parents[1] / "model"


def main(words: list[str] | None = None) -> int:
    options = _read(words)
    try:
        specs = choose(options.systems)
        machine = look(options.device)
        plan = _plan(options, machine, wants_mine=any(spec.name == "yours" for spec in specs))
        table = Table(plan, specs, machine, _sayer())
        earlier = json.loads(options.output.read_text("utf-8")) if options.add else None
        results = table.record(complete=False)
        results = joined(earlier, results) if earlier else results
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with table.loaded():
        for new in table.run():
            results = joined(earlier, new) if earlier else new
            if options.output:
                write(results, options.output)
    print("\n\n".join(map(as_text, grids(results))))
    return int(bool(results["failures"]))


def _read(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m course.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    names = ", ".join([*GROUPS, *(spec.name for spec in SYSTEMS)])
    add("--systems", default="all", help=f"names and groups, with commas between: {names}")
    add("--requests", type=_numbers, default=(1, 4, 8), help="how many at once, in this order (default: 1,4,8)")
    add("--new-tokens", type=_number, default=64)
    add("--rounds", type=_number, default=5)
    add("--model", type=Path, default=SMALL_MODEL, help="a folder with config.json and safetensors")
    add("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    add("--device", choices=["cpu", "cuda"], help="a GPU where there is one unless given")
    add("--block-size", type=_number, default=16)
    add("--vllm-python", metavar="PATH", help="an interpreter that has vLLM, or a folder of packages for this one")
    add("--ctranslate2-python", metavar="PATH", help="the same for CTranslate2")
    add("--profile", type=_numbers, help="with how many requests the GPU's busy share is found (default: all)")
    add("--output", type=Path, metavar="FILE", help="where to write the results, with every raw time")
    add("--add", action="store_true", help="add to the results of --output, made with other numbers of requests")
    add("--load-limit", type=_number, default=900, metavar="S", help="seconds for loading, and for a first round")
    add("--round-limit", type=_number, default=300, metavar="S", help="seconds for a round")
    options = parser.parse_args(words)
    if not (options.model / "config.json").is_file():
        parser.error(f"--model: {options.model} is no folder with a config.json")
    if options.output and not options.output.absolute().parent.is_dir():
        parser.error(f"--output: there is no folder for {options.output}")
    if options.add and not (options.output and options.output.is_file()):
        parser.error("--add: there is no --output file to add to")
    return options


def _plan(options: argparse.Namespace, machine: dict[str, Any], *, wants_mine: bool) -> Plan:
    kernels = "triton" if machine["device"] == "cuda" else "torch"
    return Plan(
        model=options.model,
        dtype=options.dtype,
        block_size=options.block_size,
        requests=options.requests,
        new_tokens=options.new_tokens,
        rounds=options.rounds,
        pythons={"vllm": options.vllm_python, "ctranslate2": options.ctranslate2_python},
        modules=_mine(kernels) if wants_mine else {},
        kernels=kernels,
        load_limit=options.load_limit,
        round_limit=options.round_limit,
        profiled=options.profile,
    )


def _mine(kernels: str) -> dict[str, Any]:
    """Return what the learner has written of the engine's parts and the checks pass."""
    from course.assembly.parts import plan
    from course.judge.console.progress import Progress
    from course.judge.console.whose import judge_parts

    return plan(*judge_parts(Progress(), kernels, unproven=False))


def _sayer() -> Any:
    start = time.perf_counter()

    def say(what: str) -> None:
        print(f"{time.perf_counter() - start:7.1f} s  {what}", file=sys.stderr, flush=True)

    return say


def _number(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_number(each) for each in text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
