"""`python -m tests.engine.histories [steps]`: a million steps of random scheduler histories, all invariants held."""

from __future__ import annotations

import sys
import time

from tests.engine.driver import random_history

STEPS_EACH = 1000


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    start = time.time()
    finished = sum(random_history(10_000 + seed, STEPS_EACH) for seed in range(steps // STEPS_EACH))
    print(f"{steps:,} steps, {finished:,} requests ran as if alone, {time.time() - start:.0f} s")


if __name__ == "__main__":
    main()
