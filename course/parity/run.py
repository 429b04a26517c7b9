"""Holds an engine against a `transformers` model, over the lengths at which paging goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from course.parity.compare import Comparison, compare_greedy, compare_plan, plans
from course.parity.record import record_reference
from solutions.engine import Engine

LENGTHS = (*range(1, 22), 63, 64, 65, 512, 1023)
NUM_GREEDY, GREEDY_PROMPT = 64, 21
# dtype of weights and KV cache: (relative error of hidden states, gap of log-probabilities)
BOUNDS = {"float32": (1e-4, 0.005), "float16": (1e-2, 0.05), "bfloat16": (8e-2, 0.4)}
# An INT8 cache keeps 7 bits of the largest value in a block and head, whatever the weights are.
INT8_BOUNDS = (8e-2, 0.4)


@dataclass(frozen=True)
class Row:
    """One comparison. The greedy one has no errors, but how many tokens agree."""

    plan: str
    num_tokens: int
    agrees: bool
    hidden_error: float | None = None
    log_prob_gap: float | None = None
    agreed: int | None = None
    tie: bool = False
    divergence: str | None = None


def bounds(dtype: str, kv_dtype: torch.dtype) -> tuple[float, float]:
    """Return what a hidden state may be off, relatively, and a log-probability."""
    return INT8_BOUNDS if kv_dtype == torch.int8 else max(BOUNDS[dtype], BOUNDS[str(kv_dtype).removeprefix("torch.")])


def hold(engine: Engine, reference: Any, dtype: str, begin: Callable[[str], None] = lambda what: None) -> Iterator[Row]:
    """Compare prompts of every length in every plan, then a greedy continuation.

    `begin` hears before each what it is, as the end of a sentence ("in the comparison of …").
    `dtype` is that of the weights, "float32", "float16" or "bfloat16".
    """
    tolerance, gap = bounds(dtype, engine.cache.dtype)
    vocabulary, room = engine.config.vocab_size, engine.config.n_positions
    generator = torch.Generator().manual_seed(0)
    for length in (length for length in LENGTHS if length < room):
        tokens = torch.randint(vocabulary, (length,), generator=generator).tolist()
        theirs = record_reference(reference, tokens)
        for plan, chunks in plans(length).items():
            begin(f"in the comparison of {length} token{'s' if length > 1 else ''} ({plan})")
            yield _row(compare_plan(engine, theirs, tokens, plan, chunks, tolerance), gap)
    tokens = torch.randint(vocabulary, (GREEDY_PROMPT,), generator=generator).tolist()
    wanted = min(NUM_GREEDY, room - GREEDY_PROMPT)
    begin(f"in the greedy continuation of {GREEDY_PROMPT} tokens")
    greedy = compare_greedy(engine, reference, tokens, wanted, gap)
    yield Row("greedy", greedy.wanted, greedy.equal, agreed=greedy.agreed, tie=greedy.tie)


def _row(result: Comparison, gap: float) -> Row:
    agrees = result.divergence is None and result.log_prob_gap <= gap
    divergence = str(result.divergence) if result.divergence else None
    return Row(result.plan, result.num_tokens, agrees, result.hidden_error, result.log_prob_gap, divergence=divergence)
