"""Every known mistake in paged attention, in its Triton kernels and in the INT8 cache, planted: a check must fail.

The numbers are those of the catalogue of real mistakes that the course keeps. Some can show only on a GPU, because
Triton's interpreter fills masked loads with 0, multiplies float32 exactly and takes tiles of any size; for those the
source is read here, and the kernels are compiled in `test_compile.py`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from tests.engine import attention_checks as checks
from tests.engine.attention_checks import Check
from tests.engine.planting import plant, planted_source, source_of

# A bug that reads out of bounds is wrong in the interpreter, but it can end a process that uses a GPU.
pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="bugs are planted in the interpreter")

TRITON = ("triton_attention", "triton_slot_write")


@dataclass(frozen=True)
class Plant:
    """A bug: `changes` are pairs of source text, what to find and what to put. `check` must fail with it."""

    bug: str
    module: str
    check: Check
    changes: tuple[tuple[str, str], ...]


def reference(bug: str, check: Check, *changes: tuple[str, str]) -> Plant:
    return Plant(bug, "attention", check, changes)


def kernel(bug: str, check: Check, *changes: tuple[str, str]) -> Plant:
    return Plant(bug, "triton_attention", check, changes)


def writer(bug: str, check: Check, *changes: tuple[str, str]) -> Plant:
    return Plant(bug, "triton_slot_write", check, changes)


POSITIONS = "torch.arange(context_len - len(query), context_len, device"
GATHERED = ".flatten(0, 1)[:context_len]"
KEYS_BEYOND = ("key_positions = torch.arange(context_len, device", "key_positions = torch.arange(len(keys), device")
PACKED = (
    "        keys = _gather(cache.keys, cache.key_scales, block_tables[seq], context_len).to(compute)\n"
    "        values = _gather(cache.values, cache.value_scales, block_tables[seq], context_len).to(compute)\n",
    "        many = list(zip(block_tables, context_lens.tolist()))[: seq + 1]\n"
    "        keys = torch.cat([_gather(cache.keys, None, table, length) for table, length in many]).to(compute)\n"
    "        values = torch.cat([_gather(cache.values, None, table, length) for table, length in many]).to(compute)\n"
    "        context_len = len(keys)\n",
)

PLANTS = [
    # ---- paged attention, in the PyTorch reference ----
    reference("PA01", checks.a_decode_sees_its_whole_context, (POSITIONS, "torch.arange(len(query), device")),
    reference(
        "PA02",
        checks.a_chunk_is_masked,
        (
            "sees = key_positions <= query_positions[:, None]",
            "sees = (key_positions <= query_positions[:, None]) | torch.tensor(len(query) < context_len)",
        ),
    ),
    reference(
        "PA03",
        checks.a_decode_sees_its_whole_context,
        ("sees = key_positions <= query_positions", "sees = key_positions < query_positions"),
    ),
    reference(
        "PA04",
        checks.a_decode_sees_its_whole_context,
        ("enumerate(context_lens.tolist())", "enumerate((context_lens + 1).tolist())"),
    ),
    reference("PA05", checks.a_decode_sees_its_whole_context, (GATHERED, ".flatten(0, 1)"), KEYS_BEYOND),
    reference(
        "PA06",
        checks.a_decode_sees_its_whole_context,
        (GATHERED, ".flatten(0, 1)"),
        KEYS_BEYOND,
        ('torch.where(sees, scores, float("-inf"))', '(scores + torch.where(sees, 0.0, float("-inf")))'),
        ("values.repeat_interleave", "values.nan_to_num().repeat_interleave"),
    ),
    reference(
        "PA09",
        checks.every_head_is_right,
        ("keys.repeat_interleave(group, 1)", "keys.repeat(1, group, 1)"),
        ("values.repeat_interleave(group, 1)", "values.repeat(1, group, 1)"),
    ),
    reference(
        "PA12",
        checks.each_sequence_has_its_own_length,
        (
            "    starts = query_start_loc.tolist()",
            "    block_tables = block_tables.clamp(0, len(cache.keys) - 1)\n    starts = query_start_loc.tolist()",
        ),
        ("enumerate(context_lens.tolist())", "enumerate([int(context_lens.max())] * len(context_lens))"),
    ),
    reference(
        "PA13",
        checks.rows_are_placed_by_query,
        (
            "        out[rows] = torch.einsum(",
            "        place = out[int(context_lens[:seq].sum()) :][: len(query)]\n        place[:] = torch.einsum(",
        ),
        ("values.repeat_interleave(group, 1)).to(out.dtype)", "values.repeat_interleave(group, 1))[: len(place)]"),
    ),
    reference("PA14", checks.packed_sequences_do_not_see_each_other, PACKED),
    reference("PA16", checks.a_chunk_over_several_blocks_is_masked, (POSITIONS, "torch.arange(len(query), device")),
    # ---- the same in the kernels ----
    kernel("PA03", checks.a_chunk_is_masked, ("key_position[None, :] <= position", "key_position[None, :] < position")),
    kernel(
        "PA04",
        checks.a_decode_sees_its_whole_context,
        ("context_len = tl.load(context_lens_ptr + seq)", "context_len = tl.load(context_lens_ptr + seq) + 1"),
    ),
    kernel(
        "PA06",
        checks.a_decode_sees_its_whole_context,
        (
            'scores = tl.where(valid[None, :], scores, float("-inf"))',
            'scores += tl.where(valid[None, :], 0.0, float("-inf"))',
        ),
        ("mask=valid[:, None] & (dim < HEAD_DIM), other=0.0", "mask=dim < HEAD_DIM, other=0.0"),
        (
            "acc = tl.dot(weights.to(values.dtype), values,",
            "values = tl.where(values == values, values, 0.0)\n    acc = tl.dot(weights.to(values.dtype), values,",
        ),
    ),
    kernel("PA09", checks.every_head_is_right, ("head = kv_head * GROUP + lane", "head = kv_head + lane * 2")),
    kernel(
        "PA09",
        checks.every_head_is_right,
        ("kv_head = head // GROUP", "kv_head = head % (tl.num_programs(0) // GROUP)"),
    ),
    kernel(
        "PA12",
        checks.each_sequence_has_its_own_length,
        ("context_len = tl.load(context_lens_ptr + seq)", "context_len = tl.load(context_lens_ptr + 1)"),
        ("block_tables_ptr + seq.to", "block_tables_ptr + 0 * seq.to"),
    ),
    kernel(
        "PA13",
        checks.rows_are_placed_by_query,
        (
            'position[:, None], scores, float("-inf"))\n'
            "        acc, largest, total = online_softmax(scores, values, acc, largest, total)\n\n",
            'position[:, None], scores, float("-inf"))\n'
            "        acc, largest, total = online_softmax(scores, values, acc, largest, total)\n"
            "    for before in range(0, seq):\n"
            "        row += tl.load(context_lens_ptr + before)\n"
            "    row -= first_row\n",
        ),
    ),
    # ---- Triton ----
    kernel(
        "TK01",
        checks.every_head_is_right,
        ("*cache.keys.stride()[:3]", "cache.keys.stride(0), cache.keys.stride(2), cache.keys.stride(1)"),
    ),
    writer(
        "TK01",
        checks.tokens_go_to_their_slots_and_nothing_else_is_touched,
        ("*cache.keys.stride()[:3]", "cache.keys.stride(0), cache.keys.stride(2), cache.keys.stride(1)"),
    ),
    kernel(
        "TK02",
        checks.a_chunk_over_several_blocks_is_masked,
        ("position = context_len - query_len + index", "position = index"),
    ),
    kernel(
        "TK04",
        checks.a_decode_sees_its_whole_context,
        ("mask=valid[:, None] & (dim < HEAD_DIM), other=0.0", "mask=dim < HEAD_DIM, other=0.0"),
    ),
    kernel("TK08", checks.every_head_is_right, ("kv_head = head // GROUP", "kv_head = head")),
    kernel("TK09", checks.a_later_tile_may_hold_the_largest_score, ("acc * rescale[:, None]", "acc")),
    kernel("TK09", checks.a_later_tile_may_hold_the_largest_score, ("total = total * rescale +", "total = total +")),
    kernel(
        "TK11",
        checks.every_head_is_right,
        ("mask = (index < query_len)[:, None] & (", "mask = (index >= 0)[:, None] & ("),
    ),
    kernel("TK12", checks.every_head_is_right, ("mask = (lane < GROUP) & (", "mask = (lane < HEADS) & (")),
    kernel(
        "TK13",
        checks.far_blocks_are_read,
        ("return block.to(tl.int64)", "return block"),
    ),
    writer("TK13", checks.far_blocks_are_written, ("slots_ptr + row)", "slots_ptr + row).to(tl.int32)")),
    writer("TK13", checks.far_int8_blocks_are_written, ("tl.load(entry).to(tl.int64)", "tl.load(entry)")),
    kernel(
        "TK15",
        checks.every_head_is_right,
        ("out_ptr.dtype.element_ty), mask=mask)", "out_ptr.dtype.element_ty), mask=mask & (dim < HEAD_DIM // 2))"),
    ),
    kernel("TK17", checks.head_sizes_between_powers_of_two_are_right, ("(dim < HEAD_DIM)", "(dim < DIMS)")),
    kernel(
        "TK18",
        checks.each_sequence_has_its_own_row_of_the_table,
        ("block_tables.stride(0)", "-(-context_lens[0].item() // block_size)"),
    ),
    kernel("TK20", checks.every_head_is_right, ("*queries.stride()[:2]", "num_heads * head_dim, head_dim")),
    writer(
        "TK20",
        checks.tokens_go_to_their_slots_and_nothing_else_is_touched,
        ("*keys.stride()[:2], *values.stride()[:2]", "*(num_heads * head_dim, head_dim) * 2"),
    ),
    # ---- INT8 ----
    reference("Q801", checks.int8_rounds_to_nearest, ("steps.round()", "steps")),
    writer("Q801", checks.int8_rounds_to_nearest, ("(steps + 12582912.0 - 12582912.0)", "steps")),
    reference("Q802", checks.int8_saturates, (".clamp(-INT8_MAX, INT8_MAX)", "")),
    writer("Q802", checks.int8_saturates, ("steps = tl.minimum(tl.maximum(steps, -127.0), 127.0)", "pass")),
    reference(
        "Q805",
        checks.int8_keys_and_values_have_their_own_scales,
        ("_write_int8(values, cache.values, cache.value_scales", "_write_int8(values, cache.values, cache.key_scales"),
    ),
    writer(
        "Q805",
        checks.int8_keys_and_values_have_their_own_scales,
        ("cache_slot_stride, value_scales_ptr + scales", "cache_slot_stride, key_scales_ptr + scales"),
    ),
    kernel(
        "Q805",
        checks.int8_is_dequantised_by_head_and_block,
        ("values_ptr, value_scales_ptr, block", "values_ptr, key_scales_ptr, block"),
    ),
    reference("Q806", checks.int8_heads_have_their_own_scales, (".amax((0, 2))", ".amax().expand(tokens.shape[1])")),
    writer(
        "Q806",
        checks.int8_heads_have_their_own_scales,
        ("scales = block * scales_block_stride + head * scales_head_stride", "scales = block * scales_block_stride"),
    ),
    reference("Q807", checks.int8_growth_requantises, ("torch.where(grows[:, None], requantised, old)", "old")),
    writer("Q807", checks.int8_growth_requantises, ("range(0, first_slot, SLOTS)", "range(0, 0, SLOTS)")),
    reference(
        "Q808",
        checks.int8_stays_within_the_bound,
        (
            "requantised = _round(old * old_scale[:, None], scale)",
            "requantised = (old * old_scale[:, None] / scale[:, None]).to(torch.int8)",
        ),
    ),
    writer(
        "Q808",
        checks.int8_stays_within_the_bound,
        ("to_int8(old, step)", "(old / step).to(tl.int8)"),
    ),
    kernel(
        "Q811",
        checks.int8_is_dequantised_by_head_and_block,
        ("scales_block_stride + kv_head *", "scales_block_stride + tl.program_id(0) *"),
    ),
    reference(
        "Q812", checks.int8_is_dequantised_by_head_and_block, ("scales[blocks][:, None", "scales[blocks[-1:]][:, None")
    ),
    kernel(
        "Q812",
        checks.int8_is_dequantised_by_head_and_block,
        ("scales = block * scales", "scales = (0 * block + tl.max(block, 0)) * scales"),
    ),
    Plant(
        "Q816",
        "kv_cache",
        checks.the_dtype_reaches_the_tensors,
        (("head_dim, dtype=dtype, device=device", "head_dim, dtype=torch.float16, device=device"),),
    ),
    reference("Q817", checks.int8_rounds_half_to_even, ("steps.round()", "(steps + 0.5).floor()")),
    writer(
        "Q817",
        checks.int8_rounds_half_to_even,
        ("(steps + 12582912.0 - 12582912.0)", "tl.floor(steps + 0.5)"),
    ),
    reference(
        "Q818",
        checks.int8_forgets_the_last_owner_of_a_block,
        ("if num_old > 0 else torch.zeros_like(scales[block])", "+ 0"),
    ),
    writer(
        "Q818",
        checks.int8_forgets_the_last_owner_of_a_block,
        ("first_slot > 0, other=0.0", "first_slot >= 0, other=0.0"),
    ),
    writer(
        "Q818",
        checks.int8_counts_only_a_blocks_own_tokens,
        ("dim, mask=(row < count) & (", "dim, mask=(row < SLOTS) & ("),
    ),
]


@pytest.mark.parametrize("planted", PLANTS, ids=lambda planted: f"{planted.bug}-{planted.module}")
def test_a_planted_bug_is_found(planted: Plant, tmp_path: Path) -> None:
    part = plant(planted.module, planted.changes, tmp_path)
    with pytest.raises(AssertionError):
        planted.check(part)


# ---- what the interpreter cannot show, read from the source ----


def calls(source: str, name: str) -> list[dict[str, ast.expr]]:
    """Return the keyword arguments of every call of `tl.<name>`."""
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    found = [node for node in nodes if ast.unparse(node.func) == f"tl.{name}"]
    assert all(len(node.args) <= (1 if name == "load" else 3) for node in found), "masks and fills are named"
    return [{each.arg: each.value for each in node.keywords if each.arg} for node in found]


def masked_loads_name_their_fill(source: str) -> bool:
    """Without `other=` a masked lane holds anything on a GPU; the interpreter makes it 0."""
    loads = calls(source, "load")
    return bool(loads) and all("other" in each for each in loads if "mask" in each)


def products_are_exact(source: str) -> bool:
    """By default a GPU rounds float32 factors to TF32; the interpreter does not."""
    exact = [
        ast.unparse(each["input_precision"]) == "'ieee'" for each in calls(source, "dot") if "input_precision" in each
    ]
    return all(exact) and len(exact) == len(calls(source, "dot"))


def nothing_waits_for_the_gpu(source: str) -> bool:
    return not any(each in source for each in (".item(", ".tolist(", ".cpu(", "int(context", "synchronize"))


@pytest.mark.parametrize("module", TRITON)
def test_the_source_of_the_kernels(module: str) -> None:
    source = source_of(module)
    assert masked_loads_name_their_fill(source)
    assert products_are_exact(source)
    assert nothing_waits_for_the_gpu(source)


@pytest.mark.parametrize(
    ("check", "module", "change"),
    [
        (masked_loads_name_their_fill, "triton_attention", ("mask=position < limit, other=0", "mask=position < limit")),
        (masked_loads_name_their_fill, "triton_slot_write", ("first_slot > 0, other=0.0", "first_slot > 0")),
        (products_are_exact, "triton_attention", ('keys.T, input_precision="ieee"', "keys.T")),
        (nothing_waits_for_the_gpu, "triton_attention", ("max_query_len == 1:", "int(context_lens.max()) == 1:")),
    ],
    ids=["TK03-attention", "TK03-slot_write", "TK14", "host_wait"],
)
def test_a_planted_bug_is_seen_in_the_source(
    check: Callable[[str], bool], module: str, change: tuple[str, str]
) -> None:
    assert not check(planted_source(module, [change]))
