"""The INT8 cache in plain Python, in PyTorch and in Triton: the same integers and scales, whatever is written."""

from __future__ import annotations

import random
from types import ModuleType

import pytest
import torch

from solutions import attention, scalar_int8, triton_slot_write
from tests.engine.attention_checks import DEVICE, write
from tests.engine.cases import empty_cache

BLOCK_SIZE, NUM_BLOCKS, NUM_HEADS, HEAD_DIM = 8, 4, 2, 32
PARTS = pytest.mark.parametrize("part", [attention, triton_slot_write], ids=lambda part: part.__name__.split(".")[1])


def vector(rng: random.Random) -> list[float]:
    """Return numbers whose scale is exact, and whose quotients by it are exact or far from half-way.

    Then float32 and Python's floats round alike, exact halves included.
    """
    scale = rng.choice([1.0, 1.5]) * 2.0 ** rng.randint(-3, 3)
    numbers = [rng.randint(-8 * 127, 8 * 127) / 8 * scale for _ in range(HEAD_DIM)]
    numbers[rng.randrange(HEAD_DIM)] = rng.choice([-127.0, 127.0]) * scale
    return numbers


def rows(rng: random.Random, count: int) -> list[list[list[float]]]:
    return [[vector(rng) for _ in range(NUM_HEADS)] for _ in range(count)]


def some_slots(rng: random.Random, lengths: list[int]) -> list[int]:
    """Return the slots of one step, block by block, with padding between; `lengths` are the blocks' tokens."""
    slots = []
    for block in rng.sample(range(NUM_BLOCKS), rng.randint(1, NUM_BLOCKS)):
        first = lengths[block] if lengths[block] < BLOCK_SIZE and rng.random() < 0.8 else 0
        lengths[block] = rng.randint(first + 1, BLOCK_SIZE)
        slots += [block * BLOCK_SIZE + offset for offset in range(first, lengths[block])] + [-1] * rng.randint(0, 1)
    return slots


@PARTS
@pytest.mark.parametrize("seed", range(4))
def test_plain_python_pytorch_and_triton_write_the_same(part: ModuleType, seed: int) -> None:
    rng = random.Random(seed)
    plain = scalar_int8.Int8Cache(NUM_BLOCKS, BLOCK_SIZE)
    cache = empty_cache(NUM_BLOCKS, BLOCK_SIZE, NUM_HEADS, HEAD_DIM, torch.int8, DEVICE)
    assert cache.key_scales is not None and cache.value_scales is not None
    lengths = [0] * NUM_BLOCKS
    for _ in range(5):
        slots = some_slots(rng, lengths)
        keys, values = rows(rng, len(slots)), rows(rng, len(slots))
        scalar_int8.write_kv(keys, values, plain, slots)
        write(part, cache, torch.tensor(keys), torch.tensor(values), slots)
    for block, length in enumerate(lengths):
        if length:
            assert cache.key_scales[block].tolist() == plain.key_scales[block]
            assert cache.value_scales[block].tolist() == plain.value_scales[block]
            assert cache.keys[block, :length].tolist() == plain.keys[block][:length]
            assert cache.values[block, :length].tolist() == plain.values[block][:length]


def test_the_exact_scales_are_exact() -> None:
    """What `vector` promises: its scale times 127 is its largest magnitude, and halves do come up."""
    rng = random.Random(0)
    halves = 0
    for _ in range(100):
        numbers = vector(rng)
        scale = max(map(abs, numbers)) / 127
        assert torch.tensor(scale).item() == scale
        halves += sum(abs(number / scale) % 1 == 0.5 for number in numbers)
    assert halves > 100
