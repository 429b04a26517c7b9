"""`python -m course.generate "Alice was "`: the reference on some prompts, its text as it comes."""

from __future__ import annotations

import argparse
import sys
import time

import torch

from course.choose import choose_engine
from course.parity.models import find_folder
from solutions.engine import Engine
from solutions.tokenizer import load_tokenizer
from solutions.weights import load_weights, read_config


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m course.generate", description=__doc__)
    parser.add_argument("prompt", nargs="+", help="one or more texts to continue, all at once")
    parser.add_argument("--model", default="course/model", help="a folder, or a name on the Hugging Face hub")
    parser.add_argument("--new-tokens", type=int, default=120)
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    kv_dtypes = ["float32", "float16", "bfloat16", "int8"]
    parser.add_argument("--kv-dtype", choices=kv_dtypes, help="default: as the weights")
    parser.add_argument("--block-size", type=int, default=16)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    try:
        folder = find_folder(options.model)
        config = read_config(folder)
        weights = load_weights(folder, config, getattr(torch, options.dtype), torch.device(options.device))
        engine, which = choose_engine(
            config,
            weights,
            load_tokenizer(str(folder), config.vocab_size),
            block_size=options.block_size,
            kv_dtype=getattr(torch, options.kv_dtype) if options.kv_dtype else None,
        )
        print(f"{which}\n{engine.describe()}", file=sys.stderr)
        _run(engine, options.prompt, options.new_tokens)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _run(engine: Engine, prompts: list[str], new_tokens: int) -> None:
    """One prompt is shown as its tokens come; of several, each when all are done."""
    assert engine.tokenizer is not None
    start = time.perf_counter()
    tokens: list[list[int]] = [[] for _ in prompts]
    shown = ""
    for output in engine.stream(prompts, new_tokens, engine.tokenizer.eos_token_id):
        tokens[output.request] += output.tokens
        if len(prompts) == 1:
            text = prompts[0] + engine.tokenizer.decode(tokens[0])
            print(text[len(shown) :], end="", flush=True)
            shown = text
    if len(prompts) > 1:
        for prompt, new in zip(prompts, tokens, strict=True):
            print(f"── {prompt}{engine.tokenizer.decode(new)}\n")
    seconds = time.perf_counter() - start
    count = sum(map(len, tokens))
    print(f"\n{count} tokens in {seconds:.2f} s, first use of every kernel included", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
