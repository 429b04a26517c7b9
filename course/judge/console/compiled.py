"""What Triton's compiler makes of an answer that the emulator has found right: what it costs on a GPU, or a refusal."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from course.judge.exercise import Exercise
from course.judge.report import Report

ROOT = Path(__file__).resolve().parents[3]
ARCHITECTURE = 90
TIME_LIMIT = 120.0  # seconds, for all the launches of an exercise
VARIANTS = 4  # compiled at most: each takes a second or two
# Shared memory that one block may ask for, by compute capability (CUDA C++ Programming Guide, "Technical Specifications
# per Compute Capability").
SHARED_LIMIT = {80: 163 << 10, 86: 99 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10, 120: 99 << 10}


def can_compile() -> bool:
    """Say whether Triton is installed here, and not the emulator in its place."""
    spec = importlib.util.find_spec("triton")
    return spec is not None and spec.loader is not None


def compile_launches(
    module: str,
    symbols: tuple[str, ...],
    source: str,
    launches: list[dict[str, Any]],
    arch: int = ARCHITECTURE,
    time_limit: float = TIME_LIMIT,
) -> list[dict[str, Any]]:
    """Compile an answer for its launches, in a process of its own (see `compiling` for what comes back).

    Each kernel of the answer's own is compiled once for the types of its arguments, as it was launched last with them,
    because checks go from small to large; at most `VARIANTS` in all. A compiler that does not come to an end, or dies,
    is an error of the first kernel.
    """
    own = [launch for launch in launches if launch["module"] == f"practice.{module}"]
    chosen = list({json.dumps([each["kernel"], each["signature"]]): each for each in own}.values())[:VARIANTS]
    if not chosen:
        return []
    request = {"module": module, "symbols": list(symbols), "source": source, "launches": chosen, "arch": arch}
    command = [sys.executable, "-m", "course.judge.compiling"]
    try:
        ran = subprocess.run(
            command,
            input=json.dumps(request),
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=time_limit,
            check=False,
        )
        replies: list[dict[str, Any]] = json.loads(ran.stdout)
    except subprocess.TimeoutExpired:
        return [{"kernel": chosen[0]["kernel"], "types": [], "error": f"it did not come to an end in {time_limit:g} s"}]
    except ValueError:
        last = ran.stderr.strip().splitlines()[-1:] or [f"exit status {ran.returncode}"]
        return [{"kernel": chosen[0]["kernel"], "types": [], "error": f"the compiler ended early: {last[0]}"}]
    for reply in replies:
        if "error" not in reply and reply["shared"] > SHARED_LIMIT[arch]:
            reply["error"] = (
                f"it needs {_kilobytes(reply['shared'])} of shared memory, and a GPU of compute capability "
                f"{capability(arch)} has {_kilobytes(SHARED_LIMIT[arch])}: choose smaller tiles or fewer stages"
            )
    return replies


def capability(arch: int) -> str:
    return f"{arch // 10}.{arch % 10}"


def add_to(report: Report, exercise: Exercise, source: str) -> None:
    """Compile what the checks launched, where they all passed and Triton is installed, and tell the report."""
    if report.status != "pass" or not report.launches or not can_compile():
        return
    started = time.perf_counter()
    replies = compile_launches(exercise.module, exercise.symbols, source, report.launches)
    refused = next((reply for reply in replies if "error" in reply), None)
    if refused is None:
        seconds = time.perf_counter() - started
        report.add(["compiled", {"arch": ARCHITECTURE, "seconds": seconds, "kernels": replies}])
        return
    report.add(
        [
            "refused",
            f"Triton's compiler refuses {_name(refused)} for a GPU of compute capability {capability(ARCHITECTURE)}",
            refused["error"],
        ]
    )


def lines_of(compiled: dict[str, Any]) -> list[str]:
    """Return what each kernel costs, a sentence each; variants of one cost are told once."""
    told = dict.fromkeys(cost(each) for each in compiled["kernels"])
    place = f"for a GPU of compute capability {capability(compiled['arch'])}, which need not be here"
    return [*told, f"(in {compiled['seconds']:.1f} s, {place})"]


def cost(reply: dict[str, Any]) -> str:
    spilled = f"{reply['spilled']} bytes spilled" if reply["spilled"] else "nothing spilled"
    shared = f"{_kilobytes(reply['shared'])} of shared memory" if reply["shared"] else "no shared memory"
    return f"{_name(reply)}: {reply['registers']} registers, {shared}, {spilled}"


def _name(reply: dict[str, Any]) -> str:
    floats = [each for each in reply["types"] if each in ("fp16", "bf16", "fp32", "i8")]
    return f"`{reply['kernel']}`" + (f" ({', '.join(floats)})" if floats else "")


def _kilobytes(size: int) -> str:
    return f"{size / 1024:.1f} KB" if size % 1024 else f"{size // 1024} KB"
