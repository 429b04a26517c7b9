"""Paged attention and the writing of K and V: the PyTorch reference and the Triton kernels, against float64."""

from dataclasses import replace
from types import ModuleType

import pytest
import torch

from solutions import attention, triton_attention, triton_slot_write
from tests.engine.attention_checks import ATTENTION_CHECKS, DEVICE, WRITE_CHECKS, Check, assert_right
from tests.engine.cases import empty_cache, make_case, relative_error

ATTENTION = pytest.mark.parametrize("part", [attention, triton_attention], ids=lambda part: part.__name__.split(".")[1])
WRITE = pytest.mark.parametrize("part", [attention, triton_slot_write], ids=lambda part: part.__name__.split(".")[1])
# At a block's end, at its start, and over three tiles of keys.
LENGTHS = [1, 15, 16, 17, 0, 200]
BATCHES = {
    "decode": (LENGTHS, [1, 1, 1, 1, 0, 1]),
    "prefill": (LENGTHS, LENGTHS),
    "chunk": (LENGTHS, [1, 8, 15, 2, 0, 150]),
    "mixed": ([37, 5, 20, 200, 0, 64], [1, 5, 8, 1, 0, 31]),
    "nothing": ([30, 3], [0, 0]),
}
# Triton's interpreter multiplies bfloat16 as if it were integers, so bfloat16 is for the GPU tests.
DTYPES = {
    "fp32": (torch.float32, torch.float32),
    "fp16": (torch.float16, torch.float16),
    "fp32-int8": (torch.float32, torch.int8),
    "fp16-int8": (torch.float16, torch.int8),
    "fp32-fp16": (torch.float32, torch.float16),
}


@ATTENTION
@pytest.mark.parametrize("check", ATTENTION_CHECKS, ids=lambda check: check.__name__)
def test_attention(part: ModuleType, check: Check) -> None:
    check(part)


@WRITE
@pytest.mark.parametrize("check", WRITE_CHECKS, ids=lambda check: check.__name__)
def test_writing(part: ModuleType, check: Check) -> None:
    check(part)


@ATTENTION
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_batches(part: ModuleType, batch: tuple[list[int], list[int]], dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    case = make_case(*batch, dtype=dtypes[0], cache_dtype=dtypes[1], num_heads=2, num_kv_heads=1, device=DEVICE)
    # A float32 model on a float16 cache differs from its float64 answer by the rounding of the cache.
    assert_right(part, case, 3e-3 if dtypes == (torch.float32, torch.float16) else None)


@ATTENTION
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(3, 3), (4, 2), (3, 1), (8, 2), (8, 1), (28, 4)])
def test_grouped_queries(part: ModuleType, num_heads: int, num_kv_heads: int) -> None:
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
    assert_right(part, make_case([5, 33], [1, 1], device=DEVICE, **heads))
    assert_right(part, make_case([5, 33], [2, 4], device=DEVICE, **heads))


@ATTENTION
@pytest.mark.parametrize("head_dim", [32, 48, 64, 80, 96, 112, 128])
def test_head_sizes(part: ModuleType, head_dim: int) -> None:
    assert_right(part, make_case([5, 33], [1, 1], head_dim=head_dim, device=DEVICE))
    assert_right(part, make_case([5, 33], [3, 20], head_dim=head_dim, cache_dtype=torch.int8, device=DEVICE))


@ATTENTION
@pytest.mark.parametrize("block_size", [8, 16, 32, 64, 128, 256])
def test_block_sizes(part: ModuleType, block_size: int) -> None:
    lengths, heads = [block_size - 1, block_size, block_size + 1], {"num_heads": 2, "num_kv_heads": 1}
    assert_right(part, make_case(lengths, [1, 1, 1], block_size=block_size, device=DEVICE, **heads))
    sizes = {"block_size": block_size, "cache_dtype": torch.int8}
    assert_right(part, make_case(lengths, [2, 5, 1], device=DEVICE, **sizes, **heads))


@ATTENTION
@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.int8], ids=str)
def test_a_cache_in_another_order_in_memory(part: ModuleType, cache_dtype: torch.dtype) -> None:
    assert_right(part, make_case([20, 33], [1, 9], block_major=False, cache_dtype=cache_dtype, device=DEVICE))


def test_three_requests_in_blocks_of_4() -> None:
    """A decode, a whole prefill and the second half of a chunk, in the block tables that turns give."""
    sizes = {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "block_size": 4}
    case = make_case([37, 5, 20], [1, 5, 8], **sizes)
    assert relative_error(case.run(attention), case.expected) < 1e-5
    tables = [[0, 3, 6, 8, 10, 12, 13, 14, 15, 16], [1, 4], [2, 5, 7, 9, 11]]
    old_blocks = torch.cat([case.block_tables[i, : len(table)] for i, table in enumerate(tables)]).long()
    new_blocks = torch.tensor([block for table in tables for block in table])
    for stored in case.cache[:2]:
        moved = torch.full_like(stored, float("nan"))
        moved[new_blocks] = stored[old_blocks]
        stored.copy_(moved)
    for i, table in enumerate(tables):
        case.block_tables[i, : len(table)] = torch.tensor(table)
    assert relative_error(case.run(attention), case.expected) < 1e-5


def test_the_reference_computes_in_float64() -> None:
    assert_right(attention, make_case([37, 5, 20], [1, 5, 8], dtype=torch.float64, block_size=4))


@ATTENTION
def test_an_output_of_its_own(part: ModuleType) -> None:
    case = make_case([20, 33], [1, 9], device=DEVICE)
    arguments = (case.block_tables, case.query_start_loc, case.context_lens, case.max_query_len, case.scale)
    out = part.paged_attention(case.queries, case.cache, *arguments)
    assert out.shape == case.queries.shape and out.is_contiguous()
    assert relative_error(out, case.expected) < 1e-5


@pytest.mark.parametrize("query_len", [1, 3])
def test_a_context_of_nothing_gives_0(query_len: int) -> None:
    """A captured graph pads its batch with rows of no context."""
    case = make_case([20, 33], [query_len, 1], device=DEVICE)
    case.context_lens[1] = 0
    assert (case.run(triton_attention)[-1] == 0).all()


def test_padding_of_touched_blocks_writes_nothing() -> None:
    cache = empty_cache(2, 8, 1, 32, torch.int8, DEVICE)
    touched = torch.tensor([[-1, 0, 0, 0], [1, 0, 0, 5]], dtype=torch.int32, device=DEVICE)
    new = torch.ones(2, 1, 32, device=DEVICE)
    triton_slot_write.write_kv(new, new, cache, torch.tensor([-1, -1], device=DEVICE), touched)
    assert (cache.keys == 99).all() and cache.key_scales is not None and cache.key_scales.isnan().all()


def test_what_the_kernels_do_not_support_is_refused_by_name() -> None:
    case = make_case([5], [1])
    with pytest.raises(ValueError, match="block size 4 is not supported"):
        make_case([5], [1], block_size=4).run(triton_attention)
    with pytest.raises(ValueError, match="head size 16 is not supported"):
        make_case([5], [1], head_dim=16).run(triton_attention)
    with pytest.raises(ValueError, match="3 query heads cannot share 2 KV heads"):
        replace(case, queries=case.queries[:, :3]).run(triton_attention)
    new = torch.zeros(1, 1, 32)
    with pytest.raises(ValueError, match="block size 12 is not supported"):
        triton_slot_write.write_kv(new, new, empty_cache(2, 12, 1, 32, torch.float32), torch.zeros(1))
    with pytest.raises(ValueError, match="pass `touched`"):
        triton_slot_write.write_kv(new, new, empty_cache(2, 8, 1, 32, torch.int8), torch.zeros(1))
    with pytest.raises(ValueError, match="do not fit a cache"):
        triton_slot_write.write_kv(new, new, empty_cache(2, 8, 2, 32, torch.float32), torch.zeros(1))
