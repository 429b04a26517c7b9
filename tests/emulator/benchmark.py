"""How long the heaviest kernel takes on the emulator, in Triton's interpreter, and in the page's Python, in one run.

    python -m tests.emulator.benchmark            # emulator and interpreter, turn by turn
    python -m tests.emulator.benchmark --page     # and the emulator in Pyodide, run by Node

The work: paged attention of three sequences with several new tokens each, 4 heads, head size 32, blocks of 16, and the
decode of three sequences. Each figure is the median of the runs, after one that is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PREFILL, DECODE = ([9, 20, 70], [9, 5, 40]), ([9, 20, 33], [1, 1, 1])
WORK = {
    f"{name} {dtype}": (lengths, dtype)
    for name, lengths in (("prefill", PREFILL), ("decode", DECODE))
    for dtype in ("float32", "float16")
}


def timed(run: Callable[[], Any], runs: int) -> list[float]:
    """Return the milliseconds of each run."""
    run()
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        run()
        times.append((time.perf_counter() - started) * 1000)
    return times


def on_the_emulator(runs: int) -> dict[str, list[float]]:
    from tests.emulator.batches import SOLUTIONS, load, make_batch

    attention, writer = load(SOLUTIONS / "triton_attention.py"), load(SOLUTIONS / "triton_slot_write.py")
    result = {}
    for name, (lengths, dtype) in WORK.items():
        batch = make_batch(writer, *lengths, dtype=dtype)
        result[name] = timed(lambda batch=batch: batch.run(attention), runs)  # type: ignore[misc]
    return result


def in_the_interpreter(runs: int) -> dict[str, list[float]]:
    os.environ["TRITON_INTERPRET"] = "1"
    import torch

    from solutions import triton_attention
    from tests.engine.cases import make_case

    torch.set_num_threads(1)
    result = {}
    for name, (lengths, dtype) in WORK.items():
        case = make_case(*lengths, dtype=getattr(torch, dtype))
        result[name] = timed(lambda case=case: case.run(triton_attention), runs)  # type: ignore[misc]
    return result


def in_the_page(runs: int) -> dict[str, list[float]]:
    """Run the emulator in Pyodide: its files are written into Pyodide's own file system."""
    from course.browser.bytecode import PYODIDE
    from course.setup.node import find_node

    names = [*ROOT.glob("course/emulator/*.py"), *ROOT.glob("tests/emulator/*.py"), *ROOT.glob("solutions/triton_*.py")]
    names += [ROOT / each for each in ("course/__init__.py", "tests/__init__.py", "solutions/__init__.py")]
    files = {str(each.relative_to(ROOT)): each.read_text("utf-8") for each in names}
    script = (
        f"const {{ loadPyodide }} = await import({json.dumps((PYODIDE / 'pyodide.mjs').resolve().as_uri())});\n"
        "const python = await loadPyodide();\n"
        f"for (const [name, text] of Object.entries({json.dumps(files)})) {{\n"
        '  python.FS.mkdirTree("/work/" + name.split("/").slice(0, -1).join("/"));\n'
        '  python.FS.writeFile("/work/" + name, text);\n'
        "}\n"
        "console.log(python.runPython(`import sys, json\n"
        "sys.path.insert(0, '/work')\n"
        "from tests.emulator.benchmark import on_the_emulator\n"
        f"json.dumps(on_the_emulator({runs}))`));\n"
    )
    node = find_node()
    command = [str(node.node), "--input-type=module", "-"]
    ran = subprocess.run(command, input=script, env=node.environment(), capture_output=True, text=True, check=True)
    result: dict[str, list[float]] = json.loads(ran.stdout.splitlines()[-1])
    return result


PLACES = {"emulator": on_the_emulator, "interpreter": in_the_interpreter, "page": in_the_page}


def elsewhere(place: str, runs: int) -> dict[str, list[float]]:
    """Measure in a process of its own: the emulator and Triton do not share one."""
    command = [sys.executable, "-m", "tests.emulator.benchmark", "--place", place, "--runs", str(runs)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    result: dict[str, list[float]] = json.loads(ran.stdout)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="runs a turn; there are three turns")
    parser.add_argument("--page", action="store_true", help="in Pyodide too")
    parser.add_argument("--place", choices=PLACES, help="print the times of one place as JSON")
    options = parser.parse_args()
    if options.place:
        print(json.dumps(PLACES[options.place](options.runs)))
        return
    places = [place for place in PLACES if place != "page" or options.page]
    times: dict[str, dict[str, list[float]]] = {place: {name: [] for name in WORK} for place in places}
    for _ in range(3):
        for place in places:
            for name, measured in elsewhere(place, options.runs).items():
                times[place][name] += measured
    print(f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, milliseconds:")
    for name in WORK:
        shown = [
            f"{place} {statistics.median(each):.0f} ({min(each):.0f} to {max(each):.0f})"
            for place in places
            for each in [times[place][name]]
        ]
        print(f"{name:16} {', '.join(shown)}")


if __name__ == "__main__":
    main()
