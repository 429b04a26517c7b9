"""The table of how many wrong answers each exercise's checks were held against, from the results file."""

import json

from course.browser.output import ROOT
from course.judge.exercise import find_exercise

RESULTS = ROOT / "docs" / "results" / "mutants.json"


def score_table() -> str:
    """Return the table in Markdown, an exercise a row and the sums at its end."""
    scores = json.loads(RESULTS.read_text("utf-8"))["exercises"]
    lines = [
        "| exercise | checks | known mistakes | mechanical mutants: rejected | change nothing |",
        "|---|--:|--:|--:|--:|",
    ]
    sums = [0, 0, 0, 0]
    for name, score in scores.items():
        numbers = [len(find_exercise(name).promises), score["catalogued"], score["rejected"], score["explained"]]
        sums = [total + number for total, number in zip(sums, numbers, strict=True)]
        lines.append(f"| `{name}` | {' | '.join(map(str, numbers))} |")
    lines.append(f"| all | {' | '.join(f'**{number:,}**' for number in sums)} |")
    return "\n".join(lines) + "\n"
