"""What any implementation of `write_kv` and `paged_attention` must do: each check takes a module that has them.

They hold for the PyTorch reference, for the Triton kernels in the interpreter, and for the same kernels on a GPU. The
tests also run them on versions with a planted bug, and there they must fail.
"""

from __future__ import annotations

import functools
import mmap
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from solutions import attention
from solutions.kv_cache import LayerCache
from tests.engine.cases import GARBAGE, Case, contiguous_attention, empty_cache, make_case, relative_error

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
# Per row and head, ‖error‖ / ‖answer‖: sums of a few hundred terms, rounded once more for the output.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 5e-6, torch.float16: 3e-3, torch.bfloat16: 2e-2}

Check = Callable[[Any], None]


def assert_right(part: Any, case: Case, tolerance: float | None = None) -> None:
    """Compare every row and head with float64, and see that nothing outside the batch's rows was written."""
    rows, *shape = case.queries.shape
    guarded = torch.full((rows + 300, *shape), -7.0, dtype=case.queries.dtype, device=case.queries.device)
    guarded[100 : 100 + rows] = float("nan")
    case.run(part, out=guarded[100 : 100 + rows])
    error = relative_error(guarded[100 : 100 + rows], case.expected)
    assert error <= (tolerance or TOLERANCE[case.queries.dtype]), f"relative error {error}"
    assert (guarded[:100] == -7).all() and (guarded[100 + rows :] == -7).all(), "rows of nobody were written"


def averages(
    part: Any, contexts: Sequence[Sequence[float]], query_lens: Sequence[int], padding: int = GARBAGE
) -> list[float]:
    """Return one number a query: with queries of 0 every key weighs the same, and attention is the mean of the values.

    All of a value vector is the one number given; slots that are not written hold NaN, as keys and as values.
    """
    block_size, head_dim = 8, 32
    cache = empty_cache(12, block_size, 1, head_dim, torch.float32, DEVICE)
    tables = torch.full((len(contexts), 3), padding, dtype=torch.int32, device=DEVICE)
    free = iter((7, 2, 9, 4, 11, 0, 5))
    for seq, context in enumerate(contexts):
        for first in range(0, len(context), block_size):
            block = tables[seq, first // block_size] = next(free)
            numbers = torch.tensor(context[first : first + block_size], device=DEVICE)
            cache.values[block, : len(numbers), 0] = numbers[:, None]
            cache.keys[block, : len(numbers), 0] = 1.0
    queries = torch.zeros(sum(query_lens), 2, head_dim, device=DEVICE)
    rows = slice(20, 20 + len(queries))
    guarded = torch.full((len(queries) + 300, 2, head_dim), float("nan"), device=DEVICE)
    out = guarded[rows]
    starts = torch.tensor([0, *torch.tensor(query_lens).cumsum(0).tolist()], dtype=torch.int32, device=DEVICE)
    lengths = torch.tensor([len(each) for each in contexts], dtype=torch.int32, device=DEVICE)
    part.paged_attention(queries, cache, tables, starts, lengths, max(query_lens), 1.0, out=out)
    assert (out == out[:, :1, :1]).all(), "one number in, one number out, in every head and dimension"
    return [float(each) for each in out[:, 0, 0]]


def a_decode_sees_its_whole_context(part: Any) -> None:
    assert averages(part, [[1, 10, 100]], [1]) == pytest.approx([37])


def a_decode_sees_no_more_than_its_context(part: Any) -> None:
    assert averages(part, [[2], [1, 10, 100], [1, 2, 3, 4, 5, 6, 7, 80]], [1, 1, 1]) == pytest.approx([2, 37, 13.5])


def a_chunk_is_masked(part: Any) -> None:
    assert averages(part, [[1, 2, 3, 10]], [2]) == pytest.approx([2, 4])


def a_chunk_over_several_blocks_is_masked(part: Any) -> None:
    assert averages(part, [[1, 2, 3, 4, 5, 6, 7, 8, 9]], [3]) == pytest.approx([4, 4.5, 5])


def each_sequence_has_its_own_length(part: Any) -> None:
    assert averages(part, [[1, 3], [5, 5, 5, 5, 7]], [1, 1]) == pytest.approx([2, 5.4])


def each_sequence_has_its_own_row_of_the_table(part: Any) -> None:
    assert averages(part, [[10] * 8 + [19], [40] * 4], [1, 1], padding=3) == pytest.approx([11, 40])


def packed_sequences_do_not_see_each_other(part: Any) -> None:
    assert averages(part, [[1, 3], [10, 30]], [2, 2]) == pytest.approx([1, 2, 10, 20])


def rows_are_placed_by_query(part: Any) -> None:
    assert averages(part, [[11, 11, 11], [21, 23]], [1, 2]) == pytest.approx([11, 21, 22])


def every_head_is_right(part: Any) -> None:
    for group in (2, 3):
        heads = {"num_heads": 2 * group, "num_kv_heads": 2}
        assert_right(part, make_case([9, 33, 16], [1, 1, 1], block_size=8, device=DEVICE, **heads))
        assert_right(part, make_case([9, 33, 16], [3, 20, 1], block_size=8, device=DEVICE, **heads))


def head_sizes_between_powers_of_two_are_right(part: Any) -> None:
    assert_right(part, make_case([9, 33], [1, 1], head_dim=48, device=DEVICE))
    assert_right(part, make_case([9, 33], [2, 33], head_dim=48, device=DEVICE))


def a_later_tile_may_hold_the_largest_score(part: Any) -> None:
    for query_len in (1, 40):
        case = make_case([200], [query_len], device=DEVICE)
        keys = case.cache.keys[case.slots // 16, case.slots % 16]
        keys = keys * torch.linspace(0.1, 4, 200, device=DEVICE)[:, None, None]
        values = case.cache.values[case.slots // 16, case.slots % 16]
        attention.write_kv(keys, values, case.cache, case.slots)
        expected = contiguous_attention(case.queries, keys, values, case.scale)
        assert relative_error(case.run(part), expected) < TOLERANCE[torch.float32]


def int8_is_dequantised_by_head_and_block(part: Any) -> None:
    for lengths, query_lens in (([9, 33, 16], [1, 1, 1]), ([9, 33, 16], [3, 20, 1])):
        case = make_case(
            lengths, query_lens, num_heads=6, block_size=8, cache_dtype=torch.int8, head_dim=48, device=DEVICE
        )
        assert_right(part, case)


@functools.cache
def _address_space(num_bytes: int) -> torch.Tensor:
    """Return memory that costs nothing until it is written to: zeros, int8."""
    no_reserve = 0x4000  # Linux's MAP_NORESERVE, which Python names from 3.13 on
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve
    return torch.frombuffer(mmap.mmap(-1, num_bytes, flags=flags), dtype=torch.int8)


def far_cache(dtype: torch.dtype, block_size: int = 16, num_heads: int = 2, head_dim: int = 32) -> LayerCache:
    """Return a cache of 3 blocks, so far apart that block 2 starts more than 2³¹ elements after block 0.

    What a 32-bit offset would reach, 2³¹ elements before, is memory too: such a bug reads or writes the wrong place.
    """
    stride = 2**30 + 2**20
    before = 0 if DEVICE == "cuda" else 2**31
    total = before + 2 * stride + 2**20
    if DEVICE == "cuda":
        data = torch.zeros(total, dtype=dtype, device=DEVICE)
    else:
        data = _address_space(total * dtype.itemsize).view(dtype)
    shape, strides = (3, block_size, num_heads, head_dim), (stride, num_heads * head_dim, head_dim, 1)
    size = block_size * num_heads * head_dim
    keys, values = (data.as_strided(shape, strides, before + offset) for offset in (0, size))
    if dtype != torch.int8:
        return LayerCache(keys, values)
    return LayerCache(keys, values, *torch.zeros(2, 3, num_heads, device=DEVICE).unbind())


def far_blocks_are_read(part: Any) -> None:
    for query_len in (1, 5):
        case = make_case([20], [query_len], cache_dtype=torch.int8, device=DEVICE)
        cache = far_cache(torch.int8)
        blocks = case.block_tables[0, :2].long()
        far = torch.tensor([2, 0], device=DEVICE)
        for to, source in zip(cache, case.cache, strict=True):
            assert to is not None and source is not None
            to[far] = source[blocks]
        out = torch.full_like(case.queries.contiguous(), float("nan"))
        arguments = (case.query_start_loc, case.context_lens, case.max_query_len, case.scale)
        part.paged_attention(case.queries, cache, far[None].int(), *arguments, out=out)
        assert relative_error(out, case.expected) < TOLERANCE[torch.float32]


# ---- the cache, and writing ----


def the_dtype_reaches_the_tensors(part: Any) -> None:
    """An int8 cache that is float16 would be right in every accuracy test: 2 blocks of 8 tokens, 2 heads of 32."""
    keys = part.KVCache(1, 2, 8, 2, 32, torch.int8, DEVICE).layer(0).keys
    assert (keys.dtype, keys.nbytes) == (torch.int8, 2 * 8 * 2 * 32)


def touched_blocks(slots: Sequence[int], block_size: int) -> torch.Tensor:
    """Return `touched` for these slots: int32 `[num_touched, 4]`, neighbouring rows of one block in one entry."""
    entries: list[list[int]] = []
    for row, slot in enumerate(slots):
        if slot < 0:
            continue
        block, offset = divmod(slot, block_size)
        if entries and entries[-1][0] == block and row == entries[-1][3] + entries[-1][2]:
            entries[-1][2] += 1
        else:
            entries.append([block, offset, 1, row])
    return torch.tensor(entries, dtype=torch.int32, device=DEVICE).view(-1, 4)


def write(part: Any, cache: LayerCache, keys: torch.Tensor, values: torch.Tensor, slots: Sequence[int]) -> None:
    """Call a module's `write_kv` with slots given as numbers."""
    keys, values = keys.to(DEVICE), values.to(DEVICE)
    touched = touched_blocks(slots, cache.keys.shape[1])
    part.write_kv(keys, values, cache, torch.tensor(slots, device=DEVICE), touched)


def tokens_go_to_their_slots_and_nothing_else_is_touched(part: Any) -> None:
    # bfloat16 from bfloat16: Triton's interpreter does not round to it, it cuts.
    float32, float16, bfloat16 = torch.float32, torch.float16, torch.bfloat16
    cases = [
        (float32, float32, 3, 48),
        (float32, float16, 2, 32),
        (float16, float32, 1, 80),
        (bfloat16, bfloat16, 12, 64),
    ]
    for given, dtype, num_heads, head_dim in cases:
        fused = torch.randn(5, 3, num_heads, head_dim).to(DEVICE, given)
        keys, values = fused[:, 1], fused[:, 2]
        for block_major in (True, False):
            cache = empty_cache(4, 8, num_heads, head_dim, dtype, DEVICE, block_major)
            slots = [26, -1, 9, 8, -1]
            write(part, cache, keys, values, slots)
            for stored, new in ((cache.keys, keys), (cache.values, values)):
                expected = torch.full_like(stored, float("nan"))
                for row, slot in enumerate(slots):
                    if slot >= 0:
                        expected[slot // 8, slot % 8] = new[row].to(dtype)
                torch.testing.assert_close(stored, expected, rtol=0, atol=0, equal_nan=True)


def far_blocks_are_written(part: Any) -> None:
    cache = far_cache(torch.float16)
    keys, values = torch.randn(2, 1, 2, 32).half()
    write(part, cache, keys, values, [2 * 16 + 3])
    assert torch.equal(cache.keys[2, 3], keys[0].to(DEVICE)) and torch.equal(cache.values[2, 3], values[0].to(DEVICE))


def far_int8_blocks_are_written(part: Any) -> None:
    cache = far_cache(torch.int8)
    cache.keys[2], cache.values[2] = 0, 0
    keys, values = torch.randn(2, 1, 2, 32)
    write(part, cache, keys, values, [2 * 16])
    assert cache.keys[2, 0].abs().max() == 127 and cache.values[2, 0].abs().max() == 127


def int8_write(
    part: Any, steps: Sequence[tuple[Sequence[float], Sequence[int]]], head_dim: int = 32
) -> tuple[list[float], list[int]]:
    """Write single numbers to block 1 of an INT8 cache, a step `(numbers, offsets)` at a time; they head vectors of 0.

    Keys are the numbers, values their negatives. Return the keys read back from the slots written, and their integers.
    """
    cache = empty_cache(3, 8, 1, head_dim, torch.int8, DEVICE)
    written: list[int] = []
    for numbers, offsets in steps:
        new = torch.zeros(len(numbers), 1, head_dim)
        new[:, 0, 0] = torch.tensor(numbers)
        write(part, cache, new, -new, [8 + offset for offset in offsets])
        written += offsets
    assert cache.key_scales is not None and cache.value_scales is not None
    integers = cache.keys[1, written, 0, 0].long()
    assert torch.equal(-integers, cache.values[1, written, 0, 0].long()), "keys and values are rounded alike"
    assert torch.equal(cache.key_scales[1], cache.value_scales[1])
    return (integers * cache.key_scales[1]).tolist(), integers.tolist()


def int8_rounds_to_nearest(part: Any) -> None:
    assert int8_write(part, [([1.0, 0.606, -0.606], [0, 1, 2])])[1] == [127, 77, -77]


def int8_rounds_half_to_even(part: Any) -> None:
    # The scale is exactly 1, so these are exact halves.
    assert int8_write(part, [([127, 1.5, 2.5, -1.5, -2.5, 0.5], range(6))])[1] == [127, 2, 2, -2, -2, 0]


def int8_saturates(part: Any) -> None:
    # Of numbers this small the scale is 1.5 times the smallest float, rounded down to it: 190 steps do not fit.
    smallest = 2.0**-149
    assert int8_write(part, [([190 * smallest, -190 * smallest], [0, 1])])[1] == [127, -127]


def int8_keys_and_values_have_their_own_scales(part: Any) -> None:
    cache = empty_cache(2, 8, 1, 32, torch.int8, DEVICE)
    write(part, cache, torch.full((1, 1, 32), 1.0), torch.full((1, 1, 32), 10.0), [8])
    assert cache.key_scales is not None and cache.value_scales is not None
    assert float(cache.keys[1, 0, 0, 0] * cache.key_scales[1, 0]) == pytest.approx(1)
    assert float(cache.values[1, 0, 0, 0] * cache.value_scales[1, 0]) == pytest.approx(10)


def int8_heads_have_their_own_scales(part: Any) -> None:
    cache = empty_cache(2, 8, 2, 32, torch.int8, DEVICE)
    new = torch.tensor([100, 0.1])[None, :, None].expand(1, 2, 32).contiguous()
    write(part, cache, new, new, [8])
    assert cache.key_scales is not None
    assert (cache.keys[1, 0, :, 0] * cache.key_scales[1]).tolist() == pytest.approx([100, 0.1])


def int8_growth_requantises(part: Any) -> None:
    numbers, integers = int8_write(part, [([1.0], [0]), ([2.0], [1])])
    assert integers == [64, 127]  # 63.5 is half-way, and 64 is even
    assert numbers == pytest.approx([1.0079, 2.0], abs=1e-4)


def int8_without_growth_changes_nothing_before(part: Any) -> None:
    _, integers = int8_write(part, [([0.3, 0.9], [0, 1]), ([0.5], [2]), ([-0.9], [3])])
    assert integers == [42, 127, 71, -127]


def int8_stays_within_the_bound(part: Any) -> None:
    """Half a step times (growths + 1), in steps of the final scale: tokens that rise in small steps, and by chance."""
    rising = torch.linspace(0.05, 1, 32)[None, None] * torch.linspace(1, 1.02, 16)[:, None, None]
    random = torch.randn(16, 1, 32, generator=torch.Generator().manual_seed(0))
    for tokens in (rising, random):
        cache = empty_cache(2, 16, 1, 32, torch.int8, DEVICE)
        growths, largest = -1, 0.0
        for row, token in enumerate(tokens):
            write(part, cache, token[None], token[None], [16 + row])
            growths += float(token.abs().max()) > largest
            largest = max(largest, float(token.abs().max()))
        assert cache.key_scales is not None
        scale = float(cache.key_scales[1, 0])
        assert scale == pytest.approx(largest / 127)
        error = (cache.keys[1].cpu() * scale - tokens).abs().max() / scale
        assert float(error) <= (growths + 1) / 2 + 1e-3


def int8_forgets_the_last_owner_of_a_block(part: Any) -> None:
    """A block that is started anew takes its scale from its new tokens only, be they loud, quiet or all 0."""
    cache = empty_cache(2, 8, 1, 32, torch.int8, DEVICE)
    for loudness in (1.0, 100.0, 0.01, 0.0):
        new = torch.full((2, 1, 32), loudness)
        write(part, cache, new, new, [8, 9])
        assert cache.key_scales is not None and cache.value_scales is not None
        assert float(cache.key_scales[1, 0]) == float(cache.value_scales[1, 0]) == pytest.approx(loudness / 127)
        assert (cache.keys[1, :2] == (127 if loudness else 0)).all()
    assert (cache.keys[1, 2:] == 99).all() and (cache.keys[0] == 99).all(), "slots of nobody were written"


def int8_counts_only_a_blocks_own_tokens(part: Any) -> None:
    """Packed rows of other blocks, and padding, are next to a block's rows and do not count."""
    tokens = torch.ones(5, 1, 48) * torch.tensor([3.0, 1000.0, 1.0, 2.0, 1000.0])[:, None, None]
    cache = empty_cache(4, 8, 1, 48, torch.int8, DEVICE)
    write(part, cache, tokens, -tokens, [15, -1, 24, 25, 8])
    assert cache.key_scales is not None
    assert float(cache.key_scales[3, 0]) == pytest.approx(2 / 127)
    assert cache.keys[3, :2, 0, 0].tolist() == [64, 127]


def int8_equals_the_reference(part: Any) -> None:
    """Bit for bit, over a history of chunks and decodes in several blocks."""
    caches = [empty_cache(6, 16, 2, 80, torch.int8, DEVICE) for _ in range(2)]
    generator = torch.Generator().manual_seed(3)
    for slots in (
        [32, 33, 34, *range(64, 80), *range(16, 21)],
        [35, 21],
        [36, -1, 22],
        [*range(37, 48), *range(80, 96)],
    ):
        new = torch.randn(len(slots), 2, 3, 80, generator=generator).exp().half()  # a wide range of sizes
        for each, cache in zip((attention, part), caches, strict=True):
            write(each, cache, new[:, :, 0], new[:, :, 2], slots)
    for expected, actual in zip(*caches, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


ATTENTION_CHECKS: list[Check] = [
    a_decode_sees_its_whole_context,
    a_decode_sees_no_more_than_its_context,
    a_chunk_is_masked,
    a_chunk_over_several_blocks_is_masked,
    each_sequence_has_its_own_length,
    each_sequence_has_its_own_row_of_the_table,
    packed_sequences_do_not_see_each_other,
    rows_are_placed_by_query,
    every_head_is_right,
    head_sizes_between_powers_of_two_are_right,
    a_later_tile_may_hold_the_largest_score,
    int8_is_dequantised_by_head_and_block,
    far_blocks_are_read,
]
WRITE_CHECKS: list[Check] = [
    tokens_go_to_their_slots_and_nothing_else_is_touched,
    far_blocks_are_written,
    far_int8_blocks_are_written,
    int8_rounds_to_nearest,
    int8_rounds_half_to_even,
    int8_saturates,
    int8_keys_and_values_have_their_own_scales,
    int8_heads_have_their_own_scales,
    int8_growth_requantises,
    int8_without_growth_changes_nothing_before,
    int8_stays_within_the_bound,
    int8_forgets_the_last_owner_of_a_block,
    int8_counts_only_a_blocks_own_tokens,
    int8_equals_the_reference,
]
