"""`python -m tests.engine.scheduler_rate`: how many sequences a second the scheduler plans, 256 decoding at once."""

from __future__ import annotations

import random
import statistics
import time

from solutions.block_pool import BlockPool
from solutions.block_table import BlockTable
from solutions.scheduler import Scheduler, Sequence

RUNS, STEPS, SEQUENCES = 7, 200, 256


def rate() -> float:
    """Return planned sequences a second, reading the tokens included."""
    rng = random.Random(0)
    pool = BlockPool(100_000)
    scheduler = Scheduler(pool, max_step_tokens=8192, max_running=SEQUENCES)
    for _ in range(SEQUENCES):
        prompt = [1] * rng.randint(5, 60)
        scheduler.add(Sequence(BlockTable(pool, 16), prompt, len(prompt), 2 * STEPS))
    planned = 0
    start = time.perf_counter()
    for _ in range(STEPS):
        step = scheduler.schedule()
        for each in step.batch:
            if each.samples:
                each.sequence.num_unread -= 1
                each.sequence.tokens.append(1)
        planned += len(step.batch)
    return planned / (time.perf_counter() - start)


def main() -> None:
    rates = sorted(rate() for _ in range(RUNS))
    print(f"{statistics.median(rates):,.0f} sequences a second (median of {RUNS}; {rates[0]:,.0f} to {rates[-1]:,.0f})")


if __name__ == "__main__":
    main()
