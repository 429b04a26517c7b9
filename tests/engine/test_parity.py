"""Parity with Hugging Face, and that a planted bug is named for what it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from course.parity.compare import agreement, compare, compare_greedy
from course.parity.diagnose import Divergence, diagnose
from course.parity.planted import BUGS, Bug
from course.parity.record import record_engine, record_reference
from solutions.engine import Engine
from tests.engine.tiny import tiny_model

TOLERANCE, GAP = 1e-4, 0.005


def engine_with(dtype: torch.dtype = torch.float32, **options: Any) -> Engine:
    config, weights, _ = tiny_model(dtype)
    return Engine(config, weights, num_blocks=64, **options)


def tokens_of(length: int, seed: int = 0) -> list[int]:
    return torch.randint(300, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("length", [*range(1, 22), 63, 64, 65, 200])
def test_every_layer_and_every_log_probability(length: int) -> None:
    for result in compare(engine_with(), tiny_model()[2], tokens_of(length), TOLERANCE):
        assert result.divergence is None, result.divergence
        assert result.hidden_error <= TOLERANCE
        assert result.log_prob_gap <= GAP


@pytest.mark.parametrize("length", [1, 16, 21, 65])
def test_greedy_tokens(length: int) -> None:
    result = compare_greedy(engine_with(), tiny_model()[2], tokens_of(length), 64, GAP)
    assert result.equal
    assert result.agreed == 64 or result.tie


# Bounds on the relative error of hidden states and on the gap of log-probabilities, against float32. Half precision
# keeps 11 bits and bfloat16 8; INT8 keeps 7 of the largest value in a block and head.
@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "hidden", "gap"),
    [
        (torch.float16, None, 5e-3, 0.05),
        (torch.bfloat16, None, 4e-2, 0.4),
        (torch.float32, torch.float16, 1e-3, 0.01),
        (torch.float32, torch.int8, 5e-2, 0.3),
    ],
)
def test_narrow_types_stay_within_their_bounds(
    dtype: torch.dtype, kv_dtype: torch.dtype | None, hidden: float, gap: float
) -> None:
    engine = engine_with(dtype=dtype, kv_dtype=kv_dtype)
    for length in (17, 65):
        for result in compare(engine, tiny_model()[2], tokens_of(length), hidden):
            assert result.hidden_error <= hidden
            assert result.log_prob_gap <= gap


def test_a_tie_is_no_difference() -> None:
    reference = tiny_model()[2]
    prompt = tokens_of(9)
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt])).logits[0, -1]
    best, second = logits.topk(2).indices.tolist()
    difference = float(logits[best] - logits[second])
    assert agreement(reference, prompt, [second, 1], [best, 2], gap=difference * 1.01).tie
    assert not agreement(reference, prompt, [second, 1], [best, 2], gap=difference * 0.99).equal
    assert agreement(reference, prompt, [best, 2], [best, 2], gap=0.0).equal


# Planted bugs, and what the report must say of each: layer, heads, words.
ALL = [0, 1, 2, 3]
REPORTS: dict[str, tuple[list[int], int | None, list[int], str]] = {
    "strides": ([40], 0, [1, 2, 3], "strides: only head 0 is right"),
    "mask": ([38, 1, 1], 0, ALL, "mask: these positions see the first key only"),
    "positions": ([20, 20], None, [], "position offset"),
    "table": ([40], 0, ALL, "block table: the first block is right"),
    "scale": ([40], 0, ALL, "attention as a whole"),
    "cut": ([40], 0, ALL, "attention as a whole"),
    "epsilon": ([40], 0, ALL, "the layer norm before it"),
    "gelu": ([40], 0, [], "after them: the output projection"),
    "transpose": ([40], 0, [], "a matrix that should have been transposed"),
    "norm": ([40], 3, [], "the final layer norm"),
}


def report_on(bug: Bug, plan: list[int]) -> Divergence | None:
    config, weights, reference = tiny_model()
    tokens = tokens_of(sum(plan))
    engine = bug.engine(config, weights, num_blocks=64)
    return diagnose(record_engine(engine, tokens, plan), record_reference(reference, tokens), TOLERANCE, 16)


@pytest.mark.parametrize("name", [name for name in BUGS if name not in ("none", "half")])
def test_planted_bugs_are_named(name: str) -> None:
    plan, layer, heads, says = REPORTS[name]
    divergence = report_on(BUGS[name], plan)
    assert divergence is not None
    assert (divergence.layer, divergence.heads) == (layer, heads), divergence
    assert says in str(divergence)


def test_a_mask_that_forgets_the_context_is_named() -> None:
    """In a chunk of several tokens, such a mask shows more than the first key."""
    assert "query positions: the first pass is right" in str(report_on(BUGS["mask"], [20, 20]))


@pytest.mark.parametrize("name", ["none", "half"])
def test_what_is_no_bug_is_named_by_its_error_alone(name: str) -> None:
    divergence = report_on(BUGS[name], [20, 20])
    assert divergence is None if name == "none" else divergence is not None and divergence.error < 1e-3


def test_the_right_engine_has_no_divergence() -> None:
    tokens = tokens_of(40)
    theirs = record_reference(tiny_model()[2], tokens)
    for plan in ([40], [38, 1, 1], [20, 20], [1] * 40):
        assert diagnose(record_engine(engine_with(), tokens, plan), theirs, TOLERANCE, 16) is None
