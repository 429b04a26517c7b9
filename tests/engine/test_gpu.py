"""The engine on a GPU with its Triton kernels. Run there: `python -m pytest -m gpu tests/engine`."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from course.parity.compare import agreement, compare, compare_greedy
from course.parity.models import load_pair
from solutions.engine import Engine

pytestmark = pytest.mark.gpu

LENGTHS = [*range(1, 22), 63, 64, 65, 512, 1023]
MIXED = [1, 5, 15, 16, 17, 40, 3, 64, 200, 21, 8, 33]


@functools.cache
def pair(dtype: torch.dtype) -> tuple[Any, Any, Any]:
    """GPT-2 small with seeded random weights, twice."""
    return load_pair("random", dtype, "cuda")


def engine_with(dtype: torch.dtype = torch.float32, **options: Any) -> Engine:
    config, weights, _ = pair(dtype)
    return Engine(config, weights, **{"num_blocks": 512, **options})


def tokens_of(length: int, seed: int = 0) -> list[int]:
    return torch.randint(50257, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


@pytest.mark.parametrize("length", LENGTHS)
def test_fp32_parity(length: int) -> None:
    for result in compare(engine_with(), pair(torch.float32)[2], tokens_of(length), 1e-4):
        assert result.divergence is None, result.divergence
        assert result.hidden_error <= 1e-4
        assert result.log_prob_gap <= 0.005


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "hidden", "gap"),
    [
        (torch.float16, None, 5e-3, 0.05),
        (torch.bfloat16, None, 4e-2, 0.4),
        (torch.float32, torch.float16, 1e-3, 0.01),
        (torch.float32, torch.int8, 5e-2, 0.3),
        (torch.float16, torch.int8, 5e-2, 0.3),
    ],
)
def test_narrow_types(dtype: torch.dtype, kv_dtype: torch.dtype | None, hidden: float, gap: float) -> None:
    for length in (17, 65, 512):
        results = compare(engine_with(dtype, kv_dtype=kv_dtype), pair(torch.float32)[2], tokens_of(length), hidden)
        for result in results:
            print(length, result)
            assert result.hidden_error <= hidden
            assert result.log_prob_gap <= gap


@pytest.mark.parametrize("length", [1, 16, 21, 65, 512])
def test_greedy_tokens(length: int) -> None:
    assert compare_greedy(engine_with(), pair(torch.float32)[2], tokens_of(length), 64, 0.005).equal


@pytest.mark.parametrize(
    "options", [{}, {"max_step_tokens": 48}, {"num_blocks": 40}, {"block_size": 64, "num_blocks": 128}]
)
def test_company_changes_nobodys_tokens(options: dict[str, Any]) -> None:
    """A batch, in chunks, with preemption: each request as Hugging Face continues it alone."""
    reference = pair(torch.float32)[2]
    prompts = [tokens_of(length, seed) for seed, length in enumerate(MIXED)]
    engine = engine_with(**options)
    results = engine.generate(prompts, 64)
    solo = [engine_with().generate([prompt], 64)[0] for prompt in prompts]
    for prompt, ours, alone in zip(prompts, results, solo, strict=True):
        assert agreement(reference, prompt, ours, alone, 0.005).equal
    assert engine.pool.num_free == engine.cache.num_blocks


def test_the_default_pool_fits_the_card() -> None:
    config, weights, _ = pair(torch.float32)
    engine = Engine(config, weights, max_running=64)
    print(engine.describe())
    assert engine.cache.num_blocks == 64 * 64
    assert len(engine.generate([tokens_of(5)], 4)[0]) == 4


def test_a_step_waits_for_the_device_once() -> None:
    """Reading the sampled tokens is the only point at which the host waits."""
    engine = engine_with()
    for seed in range(8):
        engine.add(tokens_of(20, seed), 16)
    engine.step()
    torch.cuda.set_sync_debug_mode("error")
    waits = 0
    tolist = torch.Tensor.tolist

    def counted(tensor: torch.Tensor) -> Any:
        nonlocal waits
        waits += tensor.is_cuda
        torch.cuda.set_sync_debug_mode("default")
        try:
            return tolist(tensor)
        finally:
            torch.cuda.set_sync_debug_mode("error")

    torch.Tensor.tolist = counted  # type: ignore[method-assign]
    try:
        engine.step()
        engine.step()
    finally:
        torch.Tensor.tolist = tolist  # type: ignore[method-assign]
        torch.cuda.set_sync_debug_mode("default")
    assert waits == 2
