"""The catalogue's mistakes in Triton kernels, planted in the reference: what the emulator says of each.

A mistake that breaks a rule of the machine is reported, with its address; one that computes something else is wrong in
value. Both fail an exercise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from course import emulator
from tests.emulator.batches import SOLUTIONS, empty_cache, largest_error, load, make_batch, write
from tests.engine.planting import planted_source

WRONG = "wrong in value"
SWAPPED = ("*cache.keys.stride()[:3]", "cache.keys.stride(0), cache.keys.stride(2), cache.keys.stride(1)")
TWO_TILES, INT8 = ([70, 40], [1, 1]), {"cache_dtype": "int8"}
PREFILL, DECODE = ([9, 20, 40], [9, 5, 40]), ([9, 20, 33], [1, 1, 1])


@dataclass(frozen=True)
class Plant:
    """`changes` are pairs of source text, what to find and what to put; `said` is a part of the report, or `WRONG`."""

    bug: str
    said: str
    changes: tuple[tuple[str, str], ...]
    lengths: tuple[list[int], list[int]] = DECODE
    sizes: dict[str, Any] = field(default_factory=dict)
    module: str = "attention"


def attention(bug: str, said: str, *changes: tuple[str, str], lengths: Any = DECODE, **sizes: Any) -> Plant:
    return Plant(bug, said, changes, lengths, sizes)


def writer(bug: str, said: str, *changes: tuple[str, str], **sizes: Any) -> Plant:
    return Plant(bug, said, changes, DECODE, sizes, "slot_write")


PADDED = {"num_heads": 6, "num_kv_heads": 2, "head_dim": 48}
TILE_MASK = "mask=valid[:, None] & (dim < HEAD_DIM), other=0.0"
STORED = "out_ptr.dtype.element_ty), mask=mask"
PLANTS = [
    attention("TK01", r"keys_ptr \+ \d+, which nobody has written", SWAPPED),
    writer("TK01", "both store to key_cache_ptr", SWAPPED),
    attention("TK02", WRONG, ("position = context_len - query_len + index", "position = index"), lengths=PREFILL),
    attention(
        "TK03", "the masked load of values_ptr without `other`", (TILE_MASK, TILE_MASK.removesuffix(", other=0.0"))
    ),
    writer(
        "TK03", "the masked load of key_scales_ptr without", ("first_slot > 0, other=0.0", "first_slot > 0"), **INT8
    ),
    attention("TK04", r"values_ptr \+ \d+, which nobody has written", (TILE_MASK, "mask=dim < HEAD_DIM, other=0.0")),
    attention(
        "TK08",
        r"values_ptr \+ \d+, which nobody has written",
        ("kv_head = head // GROUP", "kv_head = head"),
        lengths=PREFILL,
    ),
    attention("TK09", WRONG, ("acc * rescale[:, None]", "acc"), lengths=TWO_TILES),
    attention("TK09", WRONG, ("total = total * rescale +", "total = total +"), lengths=TWO_TILES),
    attention(
        "TK11",
        "both store to out_ptr",
        ("(index < query_len)[:, None]", "(row < tl.load(query_start_loc_ptr + tl.num_programs(1)))"),
        lengths=PREFILL,
    ),
    attention(
        "TK12", r"out_ptr \+ 864: the buffer holds", ("mask = (lane < GROUP)", "mask = (lane < HEADS)"), **PADDED
    ),
    attention("TK15", WRONG, (STORED, f"{STORED} & (dim < HEAD_DIM // 2)")),
    attention("TK17", r"tl.store writes out_ptr \+ 48 more than once", ("(dim < HEAD_DIM)", "(dim < DIMS)"), **PADDED),
    attention("TK18", r"keys_ptr \+ \d+: the buffer holds", ("block_tables.stride(0)", "2")),
    attention("TK20", WRONG, ("*queries.stride()[:2]", "num_heads * head_dim, head_dim")),
    attention("TK23", "K, the axis that is summed over, must be at least 16", ("(32, 4, 5)", "(8, 4, 5)")),
]


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    emulator.install()
    yield
    emulator.uninstall()


def parts(module: str, changes: Any, folder: Path) -> Any:
    """Return both kernel files on the emulator, one of them with bugs in it."""
    loaded = {name: load(SOLUTIONS / f"triton_{name}.py") for name in ("attention", "slot_write")}
    path = folder / f"planted_{module}.py"
    path.write_text(planted_source(f"triton_{module}", changes), "utf-8")
    return SimpleNamespace(**loaded | {module: load(path)})


@pytest.mark.parametrize("plant", PLANTS, ids=[f"{each.bug}-{each.module}" for each in PLANTS])
def test_a_planted_bug_is_seen(plant: Plant, tmp_path: Path) -> None:
    planted = parts(plant.module, plant.changes, tmp_path)

    def run() -> float:
        batch = make_batch(planted.slot_write, *plant.lengths, **plant.sizes)
        return largest_error(batch.run(planted.attention), batch.expected)

    if plant.said == WRONG:
        assert run() > 1e-3
        return
    with pytest.raises(emulator.EmulatorError, match=plant.said) as caught:
        run()
    print(caught.value)
    assert re.search(r"_(attention|slot_write)\.py, line \d+", str(caught.value))


FAR = 2**30 + 2**20  # elements: 32 bits hold a block's stride, and not the offset of block 2


def far_cache(block_size: int = 16) -> Any:
    """Return a cache of three blocks, far apart."""
    memory = emulator.unwritten((3 * FAR,), "float16")
    shape, strides = (3, block_size, 2, 32), (FAR, 64, 32, 1)
    keys, values = (emulator.view(memory, shape, strides, start) for start in (0, block_size * 64))
    return SimpleNamespace(keys=keys, values=values, key_scales=None, value_scales=None)


WIDENING = [("return block.to(tl.int64)", "return block")]


@pytest.mark.parametrize("bug", [None, "TK13-attention", "TK13-slot_write"])
def test_offsets_beyond_32_bits(bug: str | None, tmp_path: Path) -> None:
    """TK13. The reference reads and writes there; a planted bug wraps around, and the report says so."""
    planted = parts("attention", WIDENING if bug == "TK13-attention" else (), tmp_path)
    if bug == "TK13-slot_write":
        planted = parts("slot_write", [("slots_ptr + row)", "slots_ptr + row).to(tl.int32)")], tmp_path)
    cache = far_cache()

    def run() -> Any:
        write(planted.slot_write, cache, [[[1.0] * 32] * 2], [[[3.0] * 32] * 2], [32], 16, "float16")
        integers = [emulator.tensor(each, "int32") for each in ([[2]], [0, 1], [1])]
        queries = emulator.tensor([[[0.0] * 32] * 2], "float16")
        return planted.attention.paged_attention(queries, cache, *integers, 1, 1.0).tolist()

    if bug is None:
        assert run() == [[[3.0] * 32] * 2]
        return
    with pytest.raises(emulator.InvalidAccess, match=r"keys_ptr|key_cache_ptr") as caught:
        run()
    assert re.search(r"ptr - \d+: the buffer holds", str(caught.value))
    assert "wraps around" in str(caught.value) and "tl.int64" in str(caught.value)


def test_products_in_tf32_are_seen(tmp_path: Path) -> None:
    """TK14. Triton's interpreter cannot see it."""
    planted = parts("attention", [(', input_precision="ieee"', "")], tmp_path)
    batch = make_batch(planted.slot_write, *DECODE)
    assert largest_error(batch.run(planted.attention), batch.expected) > 1e-4


def test_int8_that_does_not_saturate_is_reported(tmp_path: Path) -> None:
    unclamped = ("steps = tl.minimum(tl.maximum(steps, -127.0), 127.0)", "pass")
    planted = parts("slot_write", [unclamped], tmp_path)
    smallest = 2.0**-149  # the scale is 1.5 times that, rounded down to it: 190 steps do not fit
    rows = [[[190 * smallest] + [0.0] * 31]]
    with pytest.raises(emulator.PoisonStored, match="a cast of 190, which does not fit int8"):
        write(planted.slot_write, empty_cache(2, 8, 1, 32, "int8"), rows, rows, [8], 8)
