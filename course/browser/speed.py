"""The benchmark's chart and tables, from the results files that the repository has: a fragment each.

`docs/results/benchmark-h200.json` makes `benchmark-h200.md`. Where there is no such file, there is no fragment.
"""

import json
from pathlib import Path
from typing import Any

from course.bench.chart import draw
from course.bench.report import as_markdown, grids
from course.bench.results import SCHEMA
from course.browser.output import ROOT

RESULTS = ROOT / "docs" / "results"


def speed_fragments(folder: Path = RESULTS) -> dict[str, str]:
    """Return each fragment by its file's name; `ValueError` for a file that another version has written."""
    found = {}
    for path in sorted(folder.glob("benchmark-*.json")):
        results = json.loads(path.read_text("utf-8"))
        if (results["schema"], results["kind"]) != (SCHEMA, "table"):
            raise ValueError(f"{path.name} has schema {results['schema']}; this version reads {SCHEMA}: measure again")
        parts = [draw(results, path.stem), *map(as_markdown, grids(results)), _origin(results, path.name)]
        found[f"{path.stem}.md"] = "\n\n".join(part.rstrip() for part in parts) + "\n"
    return found


def _origin(results: dict[str, Any], name: str) -> str:
    hardware = results["hardware"]
    on = hardware["gpu"] or f"{hardware['cpu']}, {hardware['cores']} cores"
    changed = ", with changes" if results["modified"] else ""
    return (
        f"{on}; commit `{(results['commit'] or 'unknown')[:7]}`{changed}; {results['date'][:10]}; "
        f"`{results['command']}`. Every raw time is in `docs/results/{name}`."
    )
