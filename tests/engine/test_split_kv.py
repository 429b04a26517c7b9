"""Split decode attention: every check of paged attention, and contexts cut into more and fewer parts than they have."""

import pytest
import torch

from solutions import split_kv
from tests.engine.attention_checks import ATTENTION_CHECKS, DEVICE, TOLERANCE, Check, assert_right
from tests.engine.cases import make_case, relative_error

DTYPES = {
    "fp32": (torch.float32, torch.float32),
    "fp16": (torch.float16, torch.float16),
    "fp32-int8": (torch.float32, torch.int8),
    "fp16-int8": (torch.float16, torch.int8),
}
LENGTHS = [1, 15, 16, 17, 0, 63, 64, 65, 200, 0]


@pytest.mark.parametrize("check", ATTENTION_CHECKS, ids=lambda check: check.__name__)
def test_checks(check: Check) -> None:
    check(split_kv)


@pytest.mark.parametrize("splits", [1, 2, 5])
@pytest.mark.parametrize("dtypes", DTYPES.values(), ids=DTYPES)
def test_parts(dtypes: tuple[torch.dtype, torch.dtype], splits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_kv, "num_splits", lambda *_: splits)
    sizes = {"num_heads": 3, "num_kv_heads": 1, "head_dim": 80, "block_size": 8}
    case = make_case(
        LENGTHS, [min(each, 1) for each in LENGTHS], dtype=dtypes[0], cache_dtype=dtypes[1], device=DEVICE, **sizes
    )
    assert_right(split_kv, case)


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


def test_contexts_are_split_while_programs_are_few() -> None:
    assert split_kv.num_splits(12, 512) == 512 // split_kv.PART
    assert split_kv.num_splits(12, 1 << 20) == split_kv.PROGRAMS // 12
    assert split_kv.num_splits(split_kv.PROGRAMS + 1, 1 << 20) == 1
