"""How near a decode step is to what memory allows: every weight is read once, and the keys and values of every token.

Counted in numbers, not bytes: how large one is depends on the dtypes of the system. Of GPT-2's weights all are read but
the positions', of which a step takes a row a sequence. What else a step moves, it moves inside the caches of the chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1}


def step_numbers(config: Mapping[str, Any]) -> dict[str, int]:
    """Return how many numbers a decode step reads of the weights, and of the cache for each token of its contexts.

    `config` is that of a GPT-2.
    """
    width, layers = config["n_embd"], config["n_layer"]
    layer = 12 * width**2 + 13 * width  # four matrices with their biases, two layer norms
    return {"weights": layers * layer + (config["vocab_size"] + 2) * width, "kv_per_token": 2 * layers * width}


def seconds(
    workload: Mapping[str, Any], system: Mapping[str, Any], numbers: Mapping[str, int], bandwidth: float
) -> float | None:
    """Return the least time of a decode step, of a round's mean context, at `bandwidth` bytes a second.

    None for a dtype whose size is not known.
    """
    if not BYTES.keys() >= {system["dtype"], system["kv_dtype"]}:
        return None
    # A sequence's first decode step has one token more than its prompt, and each one after it one more.
    tokens = sum(workload["prompt_tokens"]) + len(workload["prompt_tokens"]) * workload["new_tokens"] / 2
    weight_bytes = numbers["weights"] * BYTES[system["dtype"]]
    kv_bytes = numbers["kv_per_token"] * BYTES[system["kv_dtype"]] * tokens
    return float((weight_bytes + kv_bytes) / bandwidth)


def decode_steps(rounds: Sequence[Mapping[str, Any]], new_tokens: int) -> list[float]:
    """Return the seconds of a decode step in each round that shows first tokens: from the last of them to the end."""
    if new_tokens < 2:
        return []
    shown = [each for each in rounds if each["first_token_seconds"]]
    return [(each["seconds"] - max(each["first_token_seconds"])) / (new_tokens - 1) for each in shown]
