"""`python -m course.mutants`: print the score, and every mutant that got away. Exit status 1 when one did.

With `--output FILE` it is also written as JSON, from which the site makes a table.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

from course.judge.exercise import ROOT, load_exercises
from course.mutants.score import Verdict, judge_catalogue, judge_mechanical, tally


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m course.mutants", description="Hold the checks against wrong answers."
    )
    parser.add_argument("--output", type=Path, help="write the score to this file too")
    arguments = parser.parse_args()
    exercises = load_exercises()
    catalogued = list(judge_catalogue(exercises))
    mechanical = list(judge_mechanical(exercises))
    wrong = [
        f"{verdict.exercise} {verdict.change}: rejected by {verdict.rejected_by}, not by {check}"
        for verdict, check in catalogued
        if verdict.rejected_by != check
    ]
    wrong += [problem for verdict in mechanical if (problem := _problem_of(verdict))]
    for line in wrong:
        print(line)
    scores = tally(exercises, [verdict for verdict, _ in catalogued], mechanical)
    total = {name: sum(score[name] for score in scores.values()) for name in next(iter(scores.values()))}
    print(f"catalogue: {total['catalogued']} mutants, each to be rejected by the check that it names")
    print(f"mechanical: {total['rejected']} rejected + {total['explained']} explained of {len(mechanical)}")
    if arguments.output and not wrong:
        arguments.output.write_text(json.dumps({**_setting(), "exercises": scores}, indent=1) + "\n", "utf-8")
    return 1 if wrong else 0


def _problem_of(verdict: Verdict) -> str | None:
    if verdict.rejected_by is None and verdict.explained is None:
        return f"{verdict.exercise} — {verdict.change}: not rejected, not explained"
    if verdict.rejected_by is not None and verdict.explained is not None:
        return f"{verdict.exercise} — {verdict.change}: explained, but rejected by {verdict.rejected_by}"
    return None


def _setting() -> dict[str, str | None]:
    git = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "command": " ".join(["python -m course.mutants", *sys.argv[1:]]),
        "commit": commit or None,
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
