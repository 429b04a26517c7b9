"""The record of a benchmark: what was run, on what, every raw time, and the figures that follow from them."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from course.bench.rounds import Measured, Spread, ratio
from course.bench.workload import Workload

SCHEMA = 2  # raised when a field changes its meaning; new fields may come at any time
ROOT = Path(__file__).resolve().parents[2]


def record(
    measured: Sequence[Measured],
    workload: Workload,
    machine: dict[str, Any],
    details: dict[str, dict[str, Any]],
) -> dict[str, Any]:
    """Return the record, as JSON data.

    The first of `measured` is the reference that the others are compared with. `details` says by its name what is known
    of a system besides: its dtypes, its parts, how long it took to load.
    """
    return {
        **origin("pair", machine),
        "workload": workload.as_dict(),
        "like_for_like": len({(each["dtype"], each["kv_dtype"]) for each in details.values()}) == 1,
        "systems": [{"name": each.name, **details[each.name], **figures(each)} for each in measured],
        "ratios": {each.name: ratio(each, measured[0])._asdict() for each in measured[1:]},
    }


def origin(kind: str, machine: dict[str, Any]) -> dict[str, Any]:
    """Return what every results file begins with: what it is, and where its numbers come from."""
    return {
        "schema": SCHEMA,
        "kind": kind,  # "pair": two engines, one workload; "table": many systems, many; "memory": how many fit
        "command": shlex.join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        **_commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "hardware": hardware(machine),
        "versions": machine["versions"],
    }


def hardware(machine: dict[str, Any]) -> dict[str, Any]:
    """Return what the runs were measured on."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "device": machine["device"],
        "gpu": machine["gpu"],
        "driver": _driver() if machine["gpu"] else None,
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_at_end": load,
    }


def figures(each: Measured) -> dict[str, Any]:
    """Return what was measured of a system, and every raw time. A time that it does not show is null."""
    first = each.first_token_seconds()
    return {
        "warm_up_seconds": each.warm_up.seconds,
        "tokens_per_second": Spread.of(each.rates())._asdict(),
        "step_seconds": Spread.of(each.step_seconds())._asdict(),
        "first_token_seconds": Spread.of(first)._asdict() if first else None,
        "rounds": [
            {
                "new_tokens": sum(map(len, result.tokens)),
                **{name: value for name, value in result._asdict().items() if name != "tokens"},
            }
            for result in each.rounds
        ],
    }


SAME = ("schema", "kind", "commit", "modified", "versions", "model", "seed", "new_tokens", "num_rounds")


def joined(earlier: dict[str, Any], later: dict[str, Any]) -> dict[str, Any]:
    """Return one record of two tables that differ in their numbers of requests alone; of the same number, the later's.

    So a table that takes longer than one command may run is made by several. `ValueError` for tables that are not of
    one code, one machine and one plan.
    """
    places = [*SAME, *(f"hardware.{name}" for name in ("gpu", "driver", "cpu"))]
    for place in places:
        one, other = (_at(each, place) for each in (earlier, later))
        if one != other:
            raise ValueError(f"the results that are there have {place} {one!r}, and these would have {other!r}")
    runs = {run["workload"]["requests"]: run for record in (earlier, later) for run in record["runs"]}
    systems = {**earlier["systems"], **later["systems"]}
    absent = {**earlier["not_run"], **later["not_run"]}
    return {
        **later,
        "systems": systems,
        "not_run": {name: each for name, each in absent.items() if name not in systems},
        "failures": [*earlier["failures"], *later["failures"]],
        "runs": [runs[requests] for requests in sorted(runs)],
    }


def _at(record: dict[str, Any], place: str) -> Any:
    for name in place.split("."):
        record = record[name]
    return record


def write(results: dict[str, Any], path: Path) -> None:
    """Write a results file; one that is there is replaced as a whole or not at all."""
    unfinished = path.with_name(path.name + ".part")
    unfinished.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    unfinished.replace(path)


def _commit() -> dict[str, Any]:
    """Return which commit was measured, and whether files differed from it."""
    commit = _output("git", "rev-parse", "HEAD")
    return {"commit": commit, "modified": bool(_output("git", "status", "--porcelain")) if commit else None}


def _driver() -> str | None:
    lines = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    return lines.split("\n")[0] if lines else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").split("\n")
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _output(*command: str) -> str | None:
    """Return what a command prints; None when it cannot be run."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
