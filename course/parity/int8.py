"""`python -m course.parity.int8`: what a smaller KV cache costs in exactness, on the shipped model and on the CPU.

Texts that the model itself writes are read again over caches of float16 and int8, each filled in one prefill and token
by token, and held against a float32 cache filled in the same way. `docs/results/int8-parity.json` keeps the figures.
"""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from course.parity.record import record_engine
from solutions.batch import Row, build_batch
from solutions.engine import Engine
from solutions.kv_cache import KVCache
from solutions.tokenizer import load_tokenizer
from solutions.weights import load_weights, read_config

MODEL = Path("course/model")
RESULTS = Path("docs/results/int8-parity.json")
PROMPTS = ("Alice was ", "The Queen said", "`What is ", "There was a table")
NUM_TOKENS = 240
BLOCK_SIZE = 16
FILLS = {"prefill": [NUM_TOKENS], "decode": [1] * NUM_TOKENS}


def main() -> None:
    torch.set_num_threads(1)
    engines = {dtype: make_engine(dtype) for dtype in (torch.float32, torch.float16, torch.int8)}
    texts = [write_text(engines[torch.float32], prompt) for prompt in PROMPTS]
    rows = []
    for fill, chunks in FILLS.items():
        exact = log_probs(engines[torch.float32], texts, chunks)
        for dtype in (torch.float16, torch.int8):
            found = differences(log_probs(engines[dtype], texts, chunks), exact, texts)
            rows.append({"cache": name(dtype), "filled_by": fill, **found})
            print(rows[-1])
    growths = count_growths(engines[torch.int8], texts)
    print(growths)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    result = {
        "command": "python -m course.parity.int8",
        "commit": commit.stdout.strip(),
        "date": datetime.date.today().isoformat(),
        "hardware": f"CPU, {platform.machine()}, one thread",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "runs": "one: nothing is random, the prompts are in the script",
        "model": "course/model, fp32 weights",
        "texts": {"prompts": PROMPTS, "tokens_each": NUM_TOKENS, "written_by": "the model, greedily, fp32 cache"},
        "block_size": BLOCK_SIZE,
        "bytes_per_block": {name(dtype): bytes_per_block(engine) for dtype, engine in engines.items()},
        "measurements": rows,
        "growths_of_a_block_and_head": growths,
    }
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def make_engine(kv_dtype: torch.dtype) -> Engine:
    config = read_config(MODEL)
    weights = load_weights(MODEL, config, torch.float32, torch.device("cpu"))
    tokenizer = load_tokenizer(str(MODEL), config.vocab_size)
    num_blocks = config.n_positions // BLOCK_SIZE
    return Engine(config, weights, tokenizer, block_size=BLOCK_SIZE, num_blocks=num_blocks, kv_dtype=kv_dtype)


def bytes_per_block(engine: Engine) -> int:
    config, dtype = engine.config, engine.cache.dtype
    return KVCache.bytes_per_block(config.n_layer, BLOCK_SIZE, config.n_head, config.head_dim, dtype)


def write_text(engine: Engine, prompt: str) -> list[int]:
    assert engine.tokenizer is not None
    tokens = engine.tokenizer.encode(prompt)
    (new,) = engine.generate([tokens], NUM_TOKENS - len(tokens))
    return tokens + new


def log_probs(engine: Engine, texts: list[list[int]], chunks: list[int]) -> torch.Tensor:
    """Return the log-probabilities of every next token: `[texts, tokens, vocabulary]`."""
    return torch.stack([record_engine(engine, text, chunks).logits.log_softmax(-1) for text in texts])


def differences(found: torch.Tensor, exact: torch.Tensor, texts: list[list[int]]) -> dict[str, float]:
    """Return the largest gap of any log-probability, the texts' mean one, and how often the top token is the same."""
    following = torch.tensor(texts)[:, 1:, None]
    own = (found - exact)[:, :-1].gather(-1, following)
    same = (found.argmax(-1) == exact.argmax(-1)).float().mean()
    return {
        "largest_log_prob_gap": round(float((found - exact).abs().max()), 5),
        "mean_log_prob_gap_of_the_text": round(float(own.abs().mean()), 5),
        "same_top_token": round(float(same), 4),
    }


def count_growths(engine: Engine, texts: list[list[int]]) -> dict[str, Any]:
    """Fill the cache token by token and count how often a full block's scale grew after its first token."""
    growths = []
    for text in texts:
        table = engine.new_table()
        before = torch.zeros(())
        grown: list[torch.Tensor] = []
        for position, token in enumerate(text):
            table.append(1)
            batch = build_batch(
                [Row([token], position + 1, table.blocks, samples=True)],
                BLOCK_SIZE, engine.parts.slot_mapping, engine.device,
            )  # fmt: skip
            with torch.inference_mode():
                engine.model.forward(batch, engine.caches)
            assert engine.cache.scales is not None
            scales = engine.cache.scales[:, :, table.blocks[-1]].clone()
            if position % BLOCK_SIZE == 0:
                grown.append(torch.zeros_like(scales))
            else:
                grown[-1] += scales > before
            before = scales
        table.free()
        growths.append(torch.stack(grown))
    counts = torch.stack(growths).flatten()
    share = counts.long().bincount().float() / len(counts)
    return {
        "mean": round(float(counts.mean()), 2),
        "largest": int(counts.max()),
        "share_with_that_many": [round(each, 3) for each in share.tolist()],
    }


if __name__ == "__main__":
    main()
