"""Split decode attention: every check of paged attention, and contexts cut into more and fewer parts than they have."""

from dataclasses import replace

import pytest
import torch

from solutions import split_kv, triton_attention
from tests.engine.attention_checks import ATTENTION_CHECKS, DEVICE, TOLERANCE, Check, assert_right
from tests.engine.cases import Case, make_case, relative_error

pytestmark = pytest.mark.usefixtures("guarded_memory")

DTYPES = {
    "fp32": (torch.float32, torch.float32),
    "fp16": (torch.float16, torch.float16),
    "fp32-int8": (torch.float32, torch.int8),
    "fp16-int8": (torch.float16, torch.int8),
}
# Of INT8, heads of 80 are read alone, of 48 in pairs, of 32 by fours; three heads of 64 cannot be paired. Blocks are
# smaller than a tile of keys, and larger.
SHAPES = {
    "3-1x80": {"num_heads": 3, "num_kv_heads": 1, "head_dim": 80, "block_size": 8},
    "6-2x48": {"num_heads": 6, "num_kv_heads": 2, "head_dim": 48, "block_size": 8},
    "8x32": {"num_heads": 8, "num_kv_heads": 8, "head_dim": 32, "block_size": 16},
    "3x64": {"num_heads": 3, "num_kv_heads": 3, "head_dim": 64, "block_size": 128},
}
LENGTHS = [1, 15, 16, 17, 0, 63, 64, 65, 200, 0]


def decode_case(dtypes: tuple[torch.dtype, torch.dtype], block_major: bool = True, **sizes: int) -> Case:
    news = [min(each, 1) for each in LENGTHS]
    return make_case(
        LENGTHS, news, dtype=dtypes[0], cache_dtype=dtypes[1], device=DEVICE, block_major=block_major, **sizes
    )


@pytest.mark.parametrize("check", ATTENTION_CHECKS, ids=lambda check: check.__name__)
def test_checks(check: Check) -> None:
    check(split_kv)


@pytest.mark.parametrize("splits", [1, 2, 5])
@pytest.mark.parametrize(("shape", "dtype"), [
    *(("3-1x80", dtype) for dtype in DTYPES),
    *((shape, "fp16-int8") for shape in ("6-2x48", "8x32", "3x64")),
    ("3x64", "fp16"),
])  # fmt: skip
def test_parts(shape: str, dtype: str, splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_kv, "num_splits", lambda *_: splits)
    assert_right(split_kv, decode_case(DTYPES[dtype], **SHAPES[shape]))


def test_heads_that_are_not_neighbours_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_kv, "num_splits", lambda *_: 2)
    assert_right(split_kv, decode_case(DTYPES["fp16-int8"], block_major=False, **SHAPES["6-2x48"]))


def test_scales_that_are_not_neighbours_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_kv, "num_splits", lambda *_: 2)
    case = decode_case(DTYPES["fp16-int8"], **SHAPES["8x32"])
    keys, values = (each.t().contiguous().t() for each in case.cache[2:] if each is not None)
    assert_right(split_kv, replace(case, cache=case.cache._replace(key_scales=keys, value_scales=values)))


@pytest.mark.parametrize("factor", [1e-4, 100])
def test_values_of_any_size(factor: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights carry the values' scales through fp16: neither too small nor too large for it."""
    monkeypatch.setattr(split_kv, "num_splits", lambda *_: 2)
    case = make_case([5, 100], [1, 1], dtype=torch.float16, cache_dtype=torch.int8, device=DEVICE)
    assert case.cache.value_scales is not None
    case.cache.value_scales.mul_(factor)
    out = torch.zeros_like(case.queries, dtype=torch.float32)  # fp16 would round small answers
    case.run(split_kv, out=out)
    assert relative_error(out / factor, case.expected) < TOLERANCE[torch.float16]


@pytest.mark.parametrize("scale", [40, -40])
def test_scores_beyond_the_range_of_exp(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys are the same, and so attention is the mean of the values."""
    monkeypatch.setattr(split_kv, "num_splits", lambda *_: 2)
    case = make_case([200], [1], device=DEVICE)
    case.cache.keys.fill_(1)
    case.queries.fill_(1)
    values = case.cache.values[case.slots // 16, case.slots % 16]
    expected = values.mean(0).repeat_interleave(2, 0)[None]
    assert relative_error(replace(case, scale=scale).run(split_kv), expected) < TOLERANCE[torch.float32]


def test_without_an_output_one_is_made() -> None:
    case = decode_case(DTYPES["fp32-int8"], **SHAPES["3-1x80"])
    lengths = (case.block_tables, case.query_start_loc, case.context_lens, case.max_query_len, case.scale)
    out = split_kv.paged_attention(case.queries, case.cache, *lengths)
    assert relative_error(out, case.expected) < TOLERANCE[torch.float32]


@pytest.mark.parametrize(("dtype", "splits", "query_len", "handed_on"), [
    ("fp16", 1, 1, True), ("fp16", 2, 1, False), ("fp16-int8", 1, 1, False), ("fp16-int8", 2, 2, True),
])  # fmt: skip
def test_what_is_handed_on(
    dtype: str, splits: int, query_len: int, handed_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split_kv, "num_splits", lambda *_: splits)
    called = []
    monkeypatch.setattr(triton_attention, "paged_attention", lambda *arguments: called.append(arguments))
    query_dtype, cache_dtype = DTYPES[dtype]
    case = make_case([40], [query_len], dtype=query_dtype, cache_dtype=cache_dtype, device=DEVICE)
    out = torch.full_like(case.queries.contiguous(), float("nan"))
    case.run(split_kv, out=out)
    assert len(called) == handed_on
    assert bool(out.isnan().all()) == handed_on


def test_contexts_are_split_while_programs_are_few() -> None:
    programs = split_kv.PROGRAMS[2]
    assert split_kv.num_splits(12, 512, 2) == 512 // split_kv.PART
    assert split_kv.num_splits(12, 1 << 20, 2) == programs // 12
    assert split_kv.num_splits(100, 1 << 20, 1) == split_kv.PROGRAMS[1] // 100 > programs // 100
    assert split_kv.num_splits(1, 1 << 20, 1) == split_kv.MOST_SPLITS
    assert split_kv.num_splits(programs + 1, 1 << 20, 2) == 1
    assert split_kv.num_splits(0, 0, 2) == 1
