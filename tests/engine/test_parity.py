"""Parity with Hugging Face, and that a planted bug is named for what it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from course.parity.compare import agreement, compare, compare_greedy
from course.parity.diagnose import diagnose
from course.parity.record import record_engine, record_reference
from solutions import attention, gpt2
from solutions.engine import Engine, Parts
from tests.engine.tiny import tiny_model

TOLERANCE, GAP = 1e-4, 0.005


def engine_with(parts: Parts | None = None, dtype: torch.dtype = torch.float32, **options: Any) -> Engine:
    config, weights, _ = tiny_model(dtype)
    return Engine(config, weights, num_blocks=64, parts=parts, **options)


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


# Planted bugs, and what the report must say of each.


def swapped_strides(keys: Any, values: Any, cache: Any, slots: Any, touched: Any) -> None:
    """Head h of slot s is written where head s of slot h belongs: right for head 0 of slot 0 only."""
    attention.write_kv(keys.roll(1, 1), values.roll(1, 1), cache, slots)
    attention.write_kv(
        torch.cat([keys[:, :1], keys.roll(1, 1)[:, 1:]], 1),
        torch.cat([values[:, :1], values.roll(1, 1)[:, 1:]], 1),
        cache,
        slots,
    )


def mask_by_row(queries: Any, cache: Any, tables: Any, starts: Any, lens: Any, longest: int, scale: float) -> Any:
    """The mask takes a query's row in its tile for its position."""
    out = torch.zeros_like(queries)
    bounds = starts.tolist()
    for index in range(len(lens)):
        for row in range(bounds[index], bounds[index + 1]):
            one = torch.tensor([0, 1], dtype=torch.int32)
            seen = torch.tensor([row - bounds[index] + 1], dtype=torch.int32)
            out[row : row + 1] = attention.paged_attention(
                queries[row : row + 1], cache, tables[index : index + 1], one, seen, 1, scale
            )
    return out


class PositionsFromZero(gpt2.GPT2):
    """Positions start at 0 in every forward pass."""

    def embed(self, batch: Any) -> torch.Tensor:
        starts = batch.query_start_loc
        return super().embed(replace(batch, positions=torch.arange(len(batch.tokens)) - starts[0]))


class ExactGelu(gpt2.GPT2):
    def mlp(self, layer: Any, hidden: torch.Tensor) -> torch.Tensor:
        normed = self.layer_norm(hidden, layer.ln_2_weight, layer.ln_2_bias)
        inner = torch.nn.functional.gelu(torch.addmm(layer.mlp_c_fc_bias, normed, layer.mlp_c_fc_weight))
        return torch.addmm(layer.mlp_c_proj_bias, inner, layer.mlp_c_proj_weight)


class Untransposed(gpt2.GPT2):
    def attention(self, layer: Any, *rest: Any) -> torch.Tensor:
        return super().attention(layer._replace(attn_c_proj_weight=layer.attn_c_proj_weight.T), *rest)


def last_key_missing(queries: Any, cache: Any, tables: Any, starts: Any, lens: Any, longest: int, scale: float) -> Any:
    return attention.paged_attention(queries * 0.5, cache, tables, starts, lens, longest, scale)


def second_block_is_the_first(
    queries: Any, cache: Any, tables: Any, starts: Any, lens: Any, longest: int, scale: float
) -> Any:
    return attention.paged_attention(queries, cache, tables[:, :1].expand_as(tables), starts, lens, longest, scale)


@pytest.mark.parametrize(
    ("parts", "plan", "layer", "heads", "says"),
    [
        (Parts(write_kv=swapped_strides), [40], 0, [1, 2, 3], "strides: only head 0 is right"),
        (Parts(attend=mask_by_row), [38, 1, 1], 0, [0, 1, 2, 3], "mask: these positions see the first key only"),
        (Parts(model=PositionsFromZero), [20, 20], None, [], "position offset"),
        (Parts(attend=second_block_is_the_first), [40], 0, [0, 1, 2, 3], "block table: the first block of 16 is right"),
        (Parts(attend=last_key_missing), [40], 0, [0, 1, 2, 3], "attention as a whole"),
        (Parts(model=ExactGelu), [40], 0, [], "after them: the output projection"),
        (Parts(model=Untransposed), [40], 0, [], "a matrix that should have been transposed"),
    ],
)
def test_planted_bugs_are_named(parts: Parts, plan: list[int], layer: int | None, heads: list[int], says: str) -> None:
    tokens = tokens_of(40)
    theirs = record_reference(tiny_model()[2], tokens)
    divergence = diagnose(record_engine(engine_with(parts), tokens, plan), theirs, TOLERANCE, 16)
    assert divergence is not None
    assert (divergence.layer, divergence.heads) == (layer, heads), divergence
    assert says in str(divergence)


def test_the_right_engine_has_no_divergence() -> None:
    tokens = tokens_of(40)
    theirs = record_reference(tiny_model()[2], tokens)
    for plan in ([40], [38, 1, 1], [20, 20], [1] * 40):
        assert diagnose(record_engine(engine_with(), tokens, plan), theirs, TOLERANCE, 16) is None
