"""`python -m course.mutants`: print the score, and every mutant that got away. Exit status 1 when one did."""

from __future__ import annotations

import sys

from course.mutants.score import judge_catalogue, judge_mechanical


def main() -> int:
    wrong = 0
    total = 0
    for verdict, check in judge_catalogue():
        total += 1
        if verdict.rejected_by != check:
            wrong += 1
            print(f"{verdict.exercise} {verdict.change}: rejected by {verdict.rejected_by}, not by {check}")
    print(f"catalogue: {total - wrong} of {total} mutants are rejected by the check that each names")
    verdicts = list(judge_mechanical())
    killed = sum(verdict.rejected_by is not None for verdict in verdicts)
    explained = sum(verdict.rejected_by is None and verdict.explained is not None for verdict in verdicts)
    for verdict in verdicts:
        if verdict.rejected_by is None and verdict.explained is None:
            print(f"{verdict.exercise} — {verdict.change}: not rejected, not explained")
        if verdict.rejected_by is not None and verdict.explained is not None:
            wrong += 1
            print(f"{verdict.exercise} — {verdict.change}: explained, but rejected by {verdict.rejected_by}")
    print(f"mechanical: {killed} rejected + {explained} explained of {len(verdicts)}")
    return 0 if not wrong and killed + explained == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
