"""The figures of chapter 1."""

import random

import pytest

from solutions.utilization import kv_bytes_per_token, max_requests, paged_utilization, reserved_utilization

GIB = 1 << 30


@pytest.fixture(scope="module")
def workload() -> list[int]:
    """The lengths of the chapter's 200 requests, prompt and answer together."""
    rng = random.Random(0)
    return [rng.randint(100, 2000) + rng.randint(20, 1500) for _ in range(200)]


def test_reserving_uses_less_than_half(workload: list[int]) -> None:
    assert round(100 * reserved_utilization(workload, 4096), 1) == 46.2


@pytest.mark.parametrize(("block_size", "percent"), [(1, 100.0), (16, 99.6), (64, 98.3), (256, 93.2)])
def test_paging_uses_nearly_all(workload: list[int], block_size: int, percent: float) -> None:
    assert round(100 * paged_utilization(workload, block_size), 1) == percent


def test_reserving_is_paging_with_one_large_block(workload: list[int]) -> None:
    assert reserved_utilization(workload, 4096) == paged_utilization(workload, 4096)


def test_qwen_on_an_80_gb_gpu() -> None:
    bytes_per_token = kv_bytes_per_token(num_layers=28, num_kv_heads=4, head_dim=128, bytes_per_value=2)
    assert bytes_per_token == 56 * 1024
    kv_memory = (80 - 15 - 10) * GIB
    assert max_requests(kv_memory, bytes_per_token, context_len=3000, block_size=16) == 342
    assert max_requests(kv_memory, bytes_per_token, context_len=3000, block_size=32 * 1024) == 31
