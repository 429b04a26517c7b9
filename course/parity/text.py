"""A comparison as a line of text. Needs no PyTorch, so that whoever only shows results can use it."""

from __future__ import annotations

from typing import Any

HEADING = f"{'tokens':>6}  {'plan':8} {'hidden error':>12}  {'log-prob gap':>12}"


def row_text(row: dict[str, Any]) -> str:
    """Return the line of a `run.Row`, given by its fields."""
    if row["agreed"] is not None:
        tie = " (then a tie)" if row["tie"] else ""
        return f"greedy: {row['agreed']} of {row['num_tokens']} tokens equal{tie}"
    return f"{row['num_tokens']:6}  {row['plan']:8} {row['hidden_error']:12.1e}  {row['log_prob_gap']:12.1e}"
