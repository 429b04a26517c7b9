"""The kernels as a GPU runs them: every check, larger batches in every dtype, and that nothing waits for the host.

Run there: `python -m pytest -m gpu tests/engine/test_kernels_gpu.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import ModuleType

import pytest
import torch

from solutions import split_kv, triton_attention, triton_slot_write
from tests.engine.attention_checks import (
    ATTENTION_CHECKS,
    DEVICE,
    TOLERANCE,
    WRITE_CHECKS,
    Check,
    assert_right,
    touched_blocks,
)
from tests.engine.cases import Case, contiguous_attention, empty_cache, make_case, relative_error

pytestmark = pytest.mark.gpu

DTYPES = {
    "fp32": (torch.float32, torch.float32),
    "fp16": (torch.float16, torch.float16),
    "bf16": (torch.bfloat16, torch.bfloat16),
    "fp32-int8": (torch.float32, torch.int8),
    "fp16-int8": (torch.float16, torch.int8),
    "bf16-int8": (torch.bfloat16, torch.int8),
}
# (query heads, KV heads, head size, block size): GPT-2 small and XL, Llama, Qwen2.5-7B, and sizes that are padded.
SHAPES = {
    "12x64": (12, 12, 64, 16),
    "25x64": (25, 25, 64, 32),
    "32-8x128": (32, 8, 128, 16),
    "28-4x128": (28, 4, 128, 64),
    "9-3x80": (9, 3, 80, 8),
    "6-1x96": (6, 1, 96, 256),
}
NARROW = {"8x32": (8, 8, 32, 16), "6-2x48": (6, 2, 48, 8)}  # of INT8, several heads are read at once
LENGTHS = [1, 15, 16, 17, 63, 64, 65, 193, 255, 256, 257, 0, 500, 1023, 1500]
BATCHES = {
    "decode": (LENGTHS, [min(each, 1) for each in LENGTHS]),
    "prefill": (LENGTHS, LENGTHS),
    "chunk": (LENGTHS, [-(-each // 3) for each in LENGTHS]),
    "mixed": (LENGTHS, [each if i % 3 == 0 else min(each, 1 + 40 * (i % 2)) for i, each in enumerate(LENGTHS)]),
}


@pytest.mark.parametrize("part", [triton_attention, split_kv], ids=lambda part: part.__name__.split(".")[1])
@pytest.mark.parametrize("check", ATTENTION_CHECKS, ids=lambda check: check.__name__)
def test_attention(check: Check, part: ModuleType) -> None:
    check(part)


@pytest.mark.parametrize("check", WRITE_CHECKS, ids=lambda check: check.__name__)
def test_writing(check: Check) -> None:
    check(triton_slot_write)


# Every dtype in two shapes, two in the others: what is compiled takes longer than what is run.
CHOSEN = [
    (shape, dtype)
    for shape in SHAPES
    for dtype in (DTYPES if shape in ("12x64", "32-8x128") else ("bf16", "fp32-int8"))
]


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize(("shape", "dtype"), CHOSEN)
def test_batches(shape: str, dtype: str, batch: str) -> None:
    num_heads, num_kv_heads, head_dim, block_size = SHAPES[shape]
    sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim, "block_size": block_size}
    query_dtype, cache_dtype = DTYPES[dtype]
    case = make_case(*BATCHES[batch], dtype=query_dtype, cache_dtype=cache_dtype, device=DEVICE, **sizes)
    assert_right(triton_attention, case)


@pytest.mark.usefixtures("guarded_memory")
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize(("shape", "dtype"), [*CHOSEN, *((each, "fp16-int8") for each in NARROW)])
def test_split_decode(shape: str, dtype: str, splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_kv, "num_splits", lambda *_: splits)
    num_heads, num_kv_heads, head_dim, block_size = (SHAPES | NARROW)[shape]
    sizes = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "head_dim": head_dim, "block_size": block_size}
    query_dtype, cache_dtype = DTYPES[dtype]
    case = make_case(*BATCHES["decode"], dtype=query_dtype, cache_dtype=cache_dtype, device=DEVICE, **sizes)
    assert_right(split_kv, case)


def test_float32_is_rounded_to_bfloat16() -> None:
    new = torch.randn(5, 2, 64, device=DEVICE)
    cache = empty_cache(2, 8, 2, 64, torch.bfloat16, DEVICE)
    triton_slot_write.write_kv(new, -new, cache, torch.arange(8, 13, device=DEVICE))
    assert torch.equal(cache.keys[1, :5], new.bfloat16()) and torch.equal(cache.values[1, :5], -new.bfloat16())


@pytest.fixture
def errors_where_the_host_waits() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode("default")


def step(case: Case, keys: torch.Tensor, slots: torch.Tensor, touched: torch.Tensor, out: torch.Tensor) -> None:
    triton_slot_write.write_kv(keys, -keys, case.cache, slots, touched)
    case.run(triton_attention, out=out)


@pytest.mark.parametrize("cache_dtype", [torch.float16, torch.int8], ids=str)
@pytest.mark.parametrize("query_lens", [[1, 1], [1, 30]], ids=str)
def test_the_host_never_waits(query_lens: list[int], cache_dtype: torch.dtype, request: pytest.FixtureRequest) -> None:
    case = make_case([70, 90], query_lens, dtype=torch.float16, cache_dtype=cache_dtype, device=DEVICE)
    slots = case.slots[[69]]
    touched = touched_blocks(slots.tolist(), 16)
    keys = torch.randn(1, 2, 32, device=DEVICE).half()
    out = torch.empty_like(case.queries.contiguous())
    step(case, keys, slots, touched, out)  # the compiler may wait
    torch.cuda.synchronize()
    request.getfixturevalue("errors_where_the_host_waits")
    step(case, keys, slots, touched, out)


def test_a_captured_graph_follows_its_buffers() -> None:
    """One capture serves every length: a decode step is replayed with other slots and contexts in its buffers."""
    case = make_case([200, 33, 64], [1, 1, 1], dtype=torch.float16, device=DEVICE)
    static = replace(
        case,
        queries=case.queries.clone(),
        block_tables=case.block_tables.clone(),
        context_lens=torch.ones_like(case.context_lens),
    )
    keys = torch.zeros(3, 2, 32, dtype=torch.float16, device=DEVICE)
    slots = torch.full((3,), -1, device=DEVICE)
    touched = torch.zeros(3, 4, dtype=torch.int32, device=DEVICE)
    out = torch.empty_like(static.queries)
    step(static, keys, slots, touched, out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(static, keys, slots, touched, out)

    for lengths in ([200, 33, 64], [199, 1, 17], [16, 15, 5]):
        first = torch.tensor([0, 200, 233], device=DEVICE)
        contexts = torch.tensor(lengths, device=DEVICE)
        static.context_lens.copy_(contexts)
        slots.copy_(case.slots[first + contexts - 1])
        keys.normal_()
        graph.replay()
        for row, (start, length) in enumerate(zip(first.tolist(), lengths, strict=True)):
            used = case.slots[start : start + length]
            expected = contiguous_attention(
                case.queries[row : row + 1],
                case.cache.keys[used // 16, used % 16],
                case.cache.values[used // 16, used % 16],
                case.scale,
            )
            assert torch.equal(case.cache.keys[used[-1] // 16, used[-1] % 16], keys[row])
            assert relative_error(out[row : row + 1], expected) < TOLERANCE[torch.float16]
