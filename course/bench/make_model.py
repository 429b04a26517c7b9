"""`python -m course.bench.make_model FOLDER`: GPT-2 small with seeded random weights, made here and not fetched."""

from __future__ import annotations

import argparse
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m course.bench.make_model", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    import torch
    import transformers

    torch.manual_seed(options.seed)
    transformers.GPT2LMHeadModel(transformers.GPT2Config()).save_pretrained(options.folder)
    print(f"GPT-2 small, random weights of seed {options.seed}: {options.folder}")


if __name__ == "__main__":
    main()
