"""What the timeline of chapter 4 shows: the reference scheduler's steps, for every position of the picture's sliders.

A run is a list of steps (for the page, one string of them all). A step is a string with one character for each request,
in order of arrival: `-` not there (not yet, or no more), `w` waiting, `i` running without a part in the step,
`d` decode, `x` preempted, `f` finished (its blocks are back), and `A`, `B`, … for a prefill of 1, 2, … tokens.
"""

from __future__ import annotations

from typing import Any

from solutions.block_pool import BlockPool
from solutions.block_table import BlockTable
from solutions.scheduler import Scheduler, Sequence, Step

BLOCK_SIZE = 4
# Prompt and new tokens of each request. The longest needs 6 blocks, so that every pool below can serve all.
REQUESTS = {"A": (6, 8), "B": (14, 4), "C": (3, 10), "D": (20, 3), "E": (5, 6), "F": (9, 5)}
POOLS = (6, 7, 8, 10, 12, 16, 20, 24)
GAPS = (0, 1, 2, 4)  # steps from one arrival to the next
BUDGETS = (4, 8, 16, 32)  # tokens a step
START = {"pool": 8, "gap": 1, "budget": 8}


def timelines() -> dict[str, Any]:
    """Return the sliders' values and each run by its place among them, as plain data."""
    return {
        "block_size": BLOCK_SIZE,
        "requests": [[name, *lengths] for name, lengths in REQUESTS.items()],
        "pools": POOLS,
        "gaps": GAPS,
        "budgets": BUDGETS,
        "start": [POOLS.index(START["pool"]), GAPS.index(START["gap"]), BUDGETS.index(START["budget"])],
        "runs": [[["".join(run(pool, gap, budget)) for budget in BUDGETS] for gap in GAPS] for pool in POOLS],
    }


def run(num_blocks: int, gap: int, budget: int) -> list[str]:
    """Serve the requests with the reference, until the last one's blocks are back; return the steps as strings."""
    pool = BlockPool(num_blocks)
    scheduler = Scheduler(pool, max_step_tokens=budget)
    sequences = {
        name: Sequence(BlockTable(pool, BLOCK_SIZE), [0] * num_prompt, num_prompt, max_new_tokens)
        for name, (num_prompt, max_new_tokens) in REQUESTS.items()
    }
    arrivals = {name: index * gap for index, name in enumerate(sequences)}
    gone: set[str] = set()
    steps: list[str] = []
    while len(gone) < len(sequences):
        for name, when in arrivals.items():
            if when == len(steps):
                scheduler.add(sequences[name])
        before = {name: sequence.is_decoding for name, sequence in sequences.items()}
        step = scheduler.schedule()
        there = {name for name, when in arrivals.items() if when <= len(steps)} - gone
        steps.append(
            "".join(_sign(step, sequences[name], before[name]) if name in there else "-" for name in sequences)
        )
        gone |= {name for name, sequence in sequences.items() if sequence.is_finished}
        for part in step.batch:
            if part.samples:
                part.sequence.take(0)
    return steps


def _sign(step: Step, sequence: Sequence, was_decoding: bool) -> str:
    if sequence.is_finished:
        return "f"
    if sequence in step.preempted:
        return "x"
    for part in step.batch:
        if part.sequence is sequence:
            return "d" if was_decoding else chr(ord("A") + part.num_new - 1)
    return "i" if sequence.num_computed else "w"
