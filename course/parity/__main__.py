"""`python -m course.parity`: hold the engine against Hugging Face's GPT-2. Exit status 0 when they agree, else 1."""

from __future__ import annotations

import argparse
import sys

import torch

from course.parity.compare import compare, compare_greedy
from course.parity.models import load_pair
from solutions.engine import Engine

LENGTHS = [*range(1, 22), 63, 64, 65, 512, 1023]
# dtype of weights and KV cache: (relative error of hidden states, gap of log-probabilities)
BOUNDS = {"float32": (1e-4, 0.005), "float16": (1e-2, 0.05), "bfloat16": (8e-2, 0.4)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m course.parity", description=__doc__)
    parser.add_argument("--model", default="course/model", help="a folder, a hub name, or 'random' for GPT-2 small")
    parser.add_argument("--dtype", default="float32", choices=BOUNDS)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--block-size", type=int, default=16)
    options = parser.parse_args()
    tolerance, gap = BOUNDS[options.dtype]
    config, weights, reference = load_pair(options.model, getattr(torch, options.dtype), options.device)
    engine = Engine(
        config, weights, block_size=options.block_size, num_blocks=2 * config.n_positions // options.block_size
    )
    print(engine.describe())
    generator = torch.Generator().manual_seed(0)
    failed = False
    print(f"{'tokens':>6}  {'plan':8} {'hidden error':>12}  {'log-prob gap':>12}")
    for length in (length for length in LENGTHS if length < config.n_positions):
        tokens = torch.randint(config.vocab_size, (length,), generator=generator).tolist()
        for result in compare(engine, reference, tokens, tolerance):
            wrong = result.divergence is not None or result.log_prob_gap > gap
            failed |= wrong
            figures = f"{result.hidden_error:12.1e}  {result.log_prob_gap:12.1e}"
            print(f"{length:6}  {result.plan:8} {figures}{'  ✗' if wrong else ''}")
            if result.divergence:
                print(f"        {result.divergence}")
    tokens = torch.randint(config.vocab_size, (21,), generator=generator).tolist()
    greedy = compare_greedy(engine, reference, tokens, 64, gap)
    failed |= not greedy.equal
    tie = " (then a tie)" if greedy.tie else ""
    print(f"greedy: {greedy.agreed} of {greedy.wanted} tokens equal{tie}")
    print("they agree" if not failed else "they differ")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
