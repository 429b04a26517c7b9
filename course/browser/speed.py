"""What the page on the benchmark shows, made of the results files that the repository has: a fragment each.

`docs/results/benchmark-h200.json` makes the chart, each table and the sentence on our goal,
`benchmark-h200-earlier.json` a few of them again, `memory-h200.json` the table of memory. Where a file or what a table
needs is missing, its fragments say so: a site can be built before anything is measured.
"""

import json
from pathlib import Path
from typing import Any

from course.bench.chart import draw
from course.bench.memory import lines_of
from course.bench.report import TABLES, Grid, as_html, fastest, grids
from course.bench.results import SCHEMA
from course.browser.output import ROOT

RESULTS = ROOT / "docs" / "results"
TABLE, EARLIER, MEMORY = "benchmark-h200", "benchmark-h200-earlier", "memory-h200"
PARTS = {TABLE: ("origin", "goal", "chart", *TABLES), EARLIER: ("origin", "goal", "against")}
NOT_MEASURED = "*Not measured yet.*"
NOT_SHOWN = "*This run has no such figures.*"
GOAL = 8  # times the fastest vLLM


def speed_fragments(folder: Path = RESULTS) -> dict[str, str]:
    """Return each fragment by its file's name; `ValueError` for a file that another version has written."""
    names = [f"{table}-{part}" for table, parts in PARTS.items() for part in parts]
    found = dict.fromkeys([*names, MEMORY], NOT_MEASURED)
    for table, parts in PARTS.items():
        if results := _read(folder / f"{table}.json", "table"):
            made = {grid.name: as_html(grid, table) for grid in [_origin(results, table), *grids(results)]}
            made |= {"goal": _goal(results), "chart": draw(results, table)}
            found |= {f"{table}-{part}": made.get(part) or NOT_SHOWN for part in parts}
    if results := _read(folder / f"{MEMORY}.json", "memory"):
        found[MEMORY] = as_html(_memory(results), MEMORY)
    return {f"{name}.md": f"{text}\n" for name, text in found.items()}


def _read(path: Path, kind: str) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    results: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if (results["schema"], results["kind"]) != (SCHEMA, kind):
        raise ValueError(f"{path.name} has schema {results['schema']}; this version reads {SCHEMA}: measure again")
    return results


def _origin(results: dict[str, Any], table: str) -> Grid:
    systems = results["systems"].values()
    versions = {**results["versions"], **{k: v for each in systems for k, v in each.get("versions", {}).items()}}
    dtypes = sorted({each["dtype"] for each in systems if each["group"] != "ablations"})
    requests = ", ".join(f"{run['workload']['requests']}" for run in results["runs"])
    prompts = [length for run in results["runs"] for length in run["workload"].get("prompt_tokens", [])]
    rows = [
        *_where(results),
        ["versions", ", ".join(f"{name} {version}" for name, version in versions.items())],
        ["model", f"{results['model']}, in {' and '.join(dtypes)}"],
        ["requests at once", requests],
        ["prompts", f"{min(prompts)} to {max(prompts)} tokens, of seed {results['seed']}" if prompts else "unknown"],
        ["new tokens of each request", f"{results['new_tokens']}"],
        ["rounds", f"{results['num_rounds']}"],
        ["to its end", "yes" if results["complete"] else "no: see below"],
    ]
    title = f"What was measured on what: docs/results/{table}.json"
    return Grid("origin", title, ["", ""], rows, results.get("notes", []))


def _goal(results: dict[str, Any]) -> str:
    """Return what was aimed at and where it was missed, by the medians; nothing in a run without vLLM."""
    vllm = [name for name in results["systems"] if name.startswith("vllm")]
    found = {run["workload"]["requests"]: (fastest(run, vllm), run["compared"]) for run in results["runs"]}
    times = {each: compared[name]["times"]["median"] for each, (name, compared) in found.items() if name}
    reached, missed = ([f"{each}" for each in times if (times[each] >= GOAL) is good] for good in (True, False))
    if not times:
        return NOT_SHOWN
    parts = [f"{how} with {', '.join(which)}" for how, which in (("reached", reached), ("missed", missed)) if which]
    return f"We aimed at {GOAL} times the fastest vLLM. By the medians this is {' and '.join(parts)} requests at once."


def _memory(results: dict[str, Any]) -> Grid:
    engine = results["engine"]
    rows = [[what, figure] for what, figure in lines_of(results)]
    rows += [["block size", f"{results['block_size']}"], ["dtype of the cache", engine["kv_dtype"]], *_where(results)]
    return Grid("memory", f"The plain engine, alone on the card: docs/results/{MEMORY}.json", ["", ""], rows, [])


def _where(results: dict[str, Any]) -> list[list[str]]:
    hardware = results["hardware"]
    card = f"{hardware['gpu']} (driver {hardware['driver'] or 'unknown'}); " if hardware["gpu"] else ""
    changed = ", with changes" if results["modified"] else ""
    return [
        ["machine", f"{card}{hardware['cpu']}, {hardware['cores']} cores"],
        ["date", results["date"][:10]],
        ["commit", f"{(results['commit'] or 'unknown')[:7]}{changed}"],
        ["command", results["command"]],
    ]
