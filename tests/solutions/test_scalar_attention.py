"""Paged attention over lists: equal to the engine's attention over tensors, and loud about memory that nobody wrote."""

import math
import random

import pytest
import torch

from solutions import attention, scalar_attention
from solutions.block_table import slot_mapping
from solutions.kv_cache import LayerCache
from solutions.scalar_attention import OnlineSoftmax

TABLES = [[0, 3, 6, 8, 10, 12, 13, 14, 15, 16], [1, 4], [2, 5, 7, 9, 11]]
CONTEXT_LENS, STARTS = [37, 5, 20], [0, 1, 6, 14]


def test_lists_and_tensors_agree() -> None:
    """The chapter's three requests: a decode, a whole prefill, the second half of a chunk."""
    generator = torch.Generator().manual_seed(0)

    def random_tokens(count: int, heads: int) -> torch.Tensor:
        return torch.randn(count, heads, 16, generator=generator, dtype=torch.float64)

    unwritten = torch.full((17, 4, 2, 16), math.nan, dtype=torch.float64)
    tensors, lists = LayerCache(unwritten, unwritten.clone()), scalar_attention.LayerCache(17, 4, 2)
    for table, length in zip(TABLES, CONTEXT_LENS, strict=True):
        keys, values = random_tokens(length, 2), random_tokens(length, 2)
        slots = slot_mapping(table, 4, length, length)
        attention.write_kv(keys, values, tensors, torch.tensor(slots))
        scalar_attention.write_kv(keys.tolist(), values.tolist(), lists, slots)
    queries = random_tokens(14, 8)
    tables = torch.tensor([table + [0] * (10 - len(table)) for table in TABLES], dtype=torch.int32)
    expected = attention.paged_attention(
        queries, tensors, tables, torch.tensor(STARTS), torch.tensor(CONTEXT_LENS), 8, 0.25
    )
    out = scalar_attention.paged_attention(queries.tolist(), lists, TABLES, STARTS, CONTEXT_LENS, 0.25)
    assert torch.tensor(out, dtype=torch.float64) == pytest.approx(expected, abs=1e-12)


def test_a_slot_that_was_never_written_is_an_error() -> None:
    cache = scalar_attention.LayerCache(1, 4, 1)
    scalar_attention.write_kv([[[1.0]]], [[[2.0]]], cache, [0])
    assert scalar_attention.attend([1.0], cache, [0], 1, 0, 1.0) == [2.0]
    with pytest.raises(TypeError):
        scalar_attention.attend([1.0], cache, [0], 2, 0, 1.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_cut_into_blocks_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    scores = [rng.gauss(0, 300) if rng.random() < 0.7 else -math.inf for _ in range(30)]
    values = [[rng.gauss(0, 1)] for _ in scores]
    results = []
    for size in (1, 2, 7, 30):
        softmax = OnlineSoftmax(1)
        for first in range(0, len(scores), size):
            softmax.add(scores[first : first + size], values[first : first + size])
        results.append(softmax.result())
    weights = torch.tensor(scores, dtype=torch.float64).softmax(0)
    expected = float(weights @ torch.tensor(values, dtype=torch.float64))
    assert results == [[pytest.approx(expected, abs=1e-12)]] * 4
