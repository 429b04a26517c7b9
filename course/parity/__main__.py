"""`python -m course.parity`: hold the engine against Hugging Face's GPT-2.

Exit status 0 when they agree, 1 when they differ, 2 when there is nothing to compare.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

import torch

from course.parity.models import load_pair
from course.parity.run import BOUNDS, hold
from course.parity.text import HEADING, row_text
from solutions.engine import Engine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m course.parity", description=__doc__)
    parser.add_argument("--model", default="course/model", help="a folder, a hub name, or 'random' for GPT-2 small")
    parser.add_argument("--dtype", default="float32", choices=BOUNDS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--block-size", type=int, default=16)
    options = parser.parse_args()
    try:
        config, weights, reference = load_pair(options.model, getattr(torch, options.dtype), options.device)
        num_blocks = 2 * config.n_positions // max(options.block_size, 1)
        engine = Engine(config, weights, block_size=options.block_size, num_blocks=num_blocks)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(engine.describe())
    failed = False
    print(HEADING)
    for row in hold(engine, reference, options.dtype):
        failed |= not row.agrees
        print(f"{row_text(asdict(row))}{'' if row.agrees else '  ✗'}")
        if row.divergence:
            print(f"        {row.divergence}")
    print("they agree" if not failed else "they differ")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
