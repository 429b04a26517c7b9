"""`python -m course.bench.memory`: how many sequences fit into memory at once, one engine alone on the machine.

Sequences of one length are computed until the pool has no blocks for another; then each decodes once more, on top of
the keys and values that it has kept while the others came. Three figures stand side by side and are never taken for
each other: the pool, which is reserved from the start whatever runs; the blocks that the sequences use; and what the
driver says that the card holds, weights and workspaces included. The driver is asked through `nvidia-smi` (NVML) from
this process, which holds nothing on the card itself: it sees all of the card, and the memory of a system that does not
use PyTorch too. Beside it: how many sequences the same memory holds where each one reserves the longest context that
the model allows.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from course.bench.process import Absent, Process
from course.bench.results import origin, write
from course.bench.rounds import SystemFailed
from course.bench.table import look

IDLE = 1 << 30  # bytes that a card without work may show as used: the driver's own
INTACT = 0.99  # of the sequences repeat their token; one in a hundred may have had a near tie
SMALL_MODEL = Path(__file__).resolve().parents[1] / "model"


class Refused(Exception):
    """The figure would not be what it says."""


class Card(NamedTuple):
    """What the driver says of a card, in bytes."""

    used: int
    total: int


Ask = Callable[[], Card | None]


def ask_driver() -> Card | None:
    """Ask NVML, through `nvidia-smi`, about the first card; None where there is none."""
    command = ["nvidia-smi", "--query-gpu=memory.used,memory.total", "--format=csv,noheader,nounits", "--id=0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    used, total = (int(number) << 20 for number in done.stdout.split(","))
    return Card(used, total)


def hold_alone(before: Card | None) -> None:
    """Refuse to begin while something else holds memory on the card: it would be counted too."""
    if before and before.used > IDLE:
        raise Refused(f"something else holds {before.used:,} bytes on the card: the figure would not be this engine's")


def hold_plausible(after: Card) -> None:
    """Refuse a figure that cannot be: more than the card has (seen under WSL2, which counts host memory too)."""
    if after.used > after.total:
        raise Refused(f"the driver says {after.used:,} bytes on a card of {after.total:,}: what is used is not known")


def measure(process: Any, settings: dict[str, Any], tokens: int, ask: Ask = ask_driver) -> dict[str, Any]:
    """Load one engine, fill its pool, and return the figures. `Refused` where one would not be true."""
    before = ask()
    hold_alone(before)
    process.begin_load(**settings)
    process.end_load()
    filled = process.ask("fill", tokens=tokens)
    needed = filled["alive"] * -(-tokens // filled["block_size"])
    if filled["used_blocks"] < needed:
        raise Refused(
            f"{filled['used_blocks']:,} blocks are used; {filled['alive']:,} sequences at once need {needed:,}"
        )
    if filled["repeated"] < INTACT * filled["alive"]:
        raise Refused(f"only {filled['repeated']:,} of {filled['alive']:,} sequences still have their keys and values")
    after = ask()
    if after:
        hold_plausible(after)
    return {
        "engine": process.about,
        "tokens": tokens,
        **figures(filled),
        "driver_used_bytes": after and after.used,
        "driver_total_bytes": after and after.total,
        "driver_used_before_bytes": before and before.used,
    }


def figures(filled: dict[str, Any]) -> dict[str, Any]:
    """Work out what follows from what the engine says: the pool is reserved, its blocks are used."""
    block_bytes = filled["pool_bytes"] // filled["blocks"]
    return {
        **filled,
        "used_bytes": filled["used_blocks"] * block_bytes,
        "alive_if_reserved": filled["blocks"] * filled["block_size"] // filled["positions"],
    }


def main() -> int:
    options = _read()
    try:
        machine = look(options.device)
        settings = {
            "model": str(options.model.resolve()),
            "device": machine["device"],
            "dtype": options.dtype,
            "engine": "plain",
            "requests": None,
            "most_tokens": options.tokens,
            "block_size": options.block_size,
            "blocks": options.blocks,
            "modules": {},
            "kernels": "",
        }
        process = Process("plain", "ours.py")
        try:
            found = measure(process, settings, options.tokens)
        finally:
            process.close()
    except (ValueError, Refused, Absent, SystemFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    results = {**origin("memory", machine), "model": options.model.name, **found}
    if options.output:
        write(results, options.output)
    print(text_of(results))
    return 0


def lines_of(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return each figure with what it is."""
    driver = found["driver_used_bytes"]
    card = f"{driver:,} of {found['driver_total_bytes']:,} bytes" if driver else "no card here"
    return [
        (f"sequences of {found['tokens']:,} tokens alive at once", f"{found['alive']:,}"),
        ("of them repeated their token", f"{found['repeated']:,}"),
        (f"the same memory, {found['positions']:,} tokens reserved for each", f"{found['alive_if_reserved']:,}"),
        ("pool, reserved from the start", f"{found['pool_bytes']:,} bytes in {found['blocks']:,} blocks"),
        ("used by the sequences", f"{found['used_bytes']:,} bytes"),
        ("the driver's figure for all of the card", card),
    ]


def text_of(found: dict[str, Any]) -> str:
    """Return the figures as lines."""
    return "\n".join(": ".join(line) for line in lines_of(found))


def _read() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m course.bench.memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--model", type=Path, default=SMALL_MODEL, help="a folder with config.json and safetensors")
    add("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    add("--device", choices=["cpu", "cuda"])
    add("--block-size", type=int, default=16)
    add("--blocks", type=int, help="blocks in the pool; as many as the memory holds unless given")
    add("--tokens", type=int, default=96, help="the length of each sequence")
    add("--output", type=Path, metavar="FILE")
    options = parser.parse_args()
    if not (options.model / "config.json").is_file():
        parser.error(f"--model: {options.model} is no folder with a config.json")
    return options


if __name__ == "__main__":
    sys.exit(main())
