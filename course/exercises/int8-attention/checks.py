"""What `int8-attention` promises."""

import math
import random
from collections.abc import Sequence
from typing import Any, NamedTuple

from course.judge.expect import expect, expect_true

BLOCK_SIZE = 8
UNWRITTEN = None
NO_BLOCK = 1_000_000_007  # in the entries of a block table that are not to be looked up


class Case(NamedTuple):
    """A batch. Sequence `i` has the blocks `tables[i]` and `contexts[i]` tokens, the last `query_lens[i]` of them new.

    `keys`, `values`: `[num_blocks][block_size][num_kv_heads][head_dim]`, written in the contexts' slots and nowhere
    else; scales `[num_blocks][num_kv_heads]`, or None for a cache of floats.
    """

    tables: Sequence[Sequence[int]]
    contexts: Sequence[int]
    query_lens: Sequence[int]
    queries: Any  # [num_tokens][num_heads][head_dim]
    keys: Any
    values: Any
    key_scales: Any
    value_scales: Any


def reads_floats_as_they_are(solution: Any) -> None:
    """A cache of floats without scales is read as before: of a single token, attention returns the value.

    The same kernels serve every kind of cache. What `scales_ptr` is says which it is.
    """
    case = _as_floats(_case([[0]], [1], [1], num_heads=1, num_kv_heads=1))
    _expect_attention(solution, case, cache_dtype="float32")


def an_integer_is_a_number_of_steps(solution: Any) -> None:
    """Of a single token in an INT8 cache, attention returns the value's integers, each times the scale.

    The cache holds steps. How long they are, the scale says: one for each row of the tile, whatever the column.
    """
    _expect_attention(solution, _case([[0]], [1], [1], num_heads=1, num_kv_heads=1))


def keys_are_dequantised_before_the_scores(solution: Any) -> None:
    """Five tokens are weighed by their dequantised keys.

    A softmax of scores that are 127 times too large looks at one key only.
    """
    _expect_attention(solution, _case([[0]], [5], [1], num_heads=1, num_kv_heads=1))


def every_block_has_its_own_scale(solution: Any) -> None:
    """A context in the blocks 3, 0 and 2 is read with three scales, the last block being partly filled.

    One tile of keys covers several blocks, so its rows have different scales.
    """
    _expect_attention(solution, _case([[3, 0, 2]], [19], [1], num_heads=1, num_kv_heads=1))


def every_kv_head_has_its_own_scale(solution: Any) -> None:
    """With 4 query heads over 2 KV heads, a loud one and a quiet one, each head reads with its own KV head's scale.

    Scales are kept for KV heads. There is none for a query head.
    """
    _expect_attention(solution, _case([[1, 0]], [11], [1], num_heads=4, num_kv_heads=2))


def a_chunk_reads_as_a_decode_does(solution: Any) -> None:
    """Three new tokens of a context of 13, with 4 query heads over 2 KV heads, see the same dequantised keys.

    Prefill has a kernel of its own, in which a program is one query head's, and both call `load_tile`.
    """
    _expect_attention(solution, _case([[2, 0]], [13], [3], num_heads=4, num_kv_heads=2))


def nothing_is_read_beyond_the_context(solution: Any) -> None:
    """Contexts of 7, 8 and 9 tokens in blocks of 8 end before memory that nobody has written, and do not see it.

    0 times NaN is NaN: a weight of 0 hides nothing. A scale that nobody has written may be NaN as well.
    """
    case = _case([[4], [5, NO_BLOCK], [1, 3]], [7, 8, 9], [1, 1, 1], num_heads=2, num_kv_heads=1)
    _expect_attention(solution, case)


def the_product_is_made_in_float32(solution: Any) -> None:
    """With fp16 queries, a value's scale of 3.06e-6 counts in full, though fp16 does not have that number.

    fp16 has steps of 6e-8 there. A scale that is rounded to it first is off, and so is all that it multiplies.
    """
    scale, steps = 3.06e-6, list(range(64, 96))
    case = _case([[0]], [1], [1], num_heads=1, num_kv_heads=1)
    values = [[[steps], *case.values[0][1:]], *case.values[1:]]
    case = case._replace(values=values, value_scales=[[scale], [UNWRITTEN]])
    [[numbers]] = _attention(solution, case, "float16", "int8")
    expect([each / scale for each in numbers], [float(each) for each in steps], what="the output in steps", within=1e-3)


def head_sizes_between_powers_of_two(solution: Any) -> None:
    """With heads of 48 numbers, the tile's 64 columns end in zeros, not in the next head's numbers.

    Blocks of a kernel have sizes that are powers of two. Models do not always.
    """
    case = _case([[1]], [6], [1], num_heads=2, num_kv_heads=2, head_dim=48)
    _expect_attention(solution, case)
    solution.start_over_()
    _expect_attention(solution, _as_floats(case), cache_dtype="float32")


def scales_are_found_by_their_strides(solution: Any) -> None:
    """Scales that lie head by head in memory are read like those that lie block by block.

    An engine keeps the scales of all layers, keys and values in one tensor; a layer has a view of it.
    """
    _expect_attention(solution, _case([[2, 0]], [10], [1], num_heads=2, num_kv_heads=2), head_first=True)


def a_mixed_batch_is_right(solution: Any) -> None:
    """A decode, a prompt and a chunk in one launch are what float64 says.

    This is a step of the engine.
    """
    case = _case([[6, 1, 4, 9], [3], [0, 5]], [27, 4, 14], [1, 4, 6], num_heads=4, num_kv_heads=2)
    _expect_attention(solution, case)


def moves_about_half_the_bytes(solution: Any) -> None:
    """A decode over 32 tokens loads less than two thirds of the bytes that it loads from an fp16 cache.

    An integer is one byte. Scales and queries come on top, and would be less with longer heads.
    """
    case = _case([[1, 0, 2, 3]], [32], [1], num_heads=1, num_kv_heads=1)
    solution.traffic()
    _expect_attention(solution, case)
    int8 = solution.traffic()
    _attention(solution, case._replace(key_scales=None, value_scales=None), "float32", "float16")
    float16 = solution.traffic()
    if int8 is not None and float16 is not None:  # a GPU does not count
        expect_true(
            3 * int8["loaded"] < 2 * float16["loaded"],
            f"the INT8 cache made it load {int8['loaded']} bytes, the fp16 cache {float16['loaded']}",
            expected="less than two thirds",
        )


def _case(
    tables: Sequence[Sequence[int]],
    contexts: Sequence[int],
    query_lens: Sequence[int],
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int = 32,
) -> Case:
    """Return a batch over an INT8 cache with blocks of 8, whose heads and blocks differ in loudness."""
    rng = random.Random(7)
    used = {block for table in tables for block in table if block != NO_BLOCK}
    num_blocks = max(used) + 2

    def steps() -> Any:
        empty: Any = [[UNWRITTEN] * head_dim] * num_kv_heads
        side = [[empty] * BLOCK_SIZE for _ in range(num_blocks)]
        for table, context_len in zip(tables, contexts, strict=True):
            for position in range(context_len):
                vectors = [[rng.randint(-127, 127) for _ in range(head_dim)] for _ in range(num_kv_heads)]
                side[table[position // BLOCK_SIZE]][position % BLOCK_SIZE] = vectors
        return side

    def scales(loud_head: int) -> Any:
        """Return numbers that fp32 has exactly."""
        loudness = [8.0 if head % 2 == loud_head else 1.0 for head in range(num_kv_heads)]
        return [
            [rng.randint(40, 127) / 2**16 * each if block in used else UNWRITTEN for each in loudness]
            for block in range(num_blocks)
        ]

    # Numbers that fp16 has exactly.
    queries = [
        [[rng.randint(-128, 128) / 64 for _ in range(head_dim)] for _ in range(num_heads)]
        for _ in range(sum(query_lens))
    ]
    return Case(tables, contexts, query_lens, queries, steps(), steps(), scales(0), scales(1))


def _as_floats(case: Case) -> Case:
    """Return the same batch over a cache of floats, steps of 1/64."""

    def floats(nested: Any) -> Any:
        if isinstance(nested, list):
            return [floats(each) for each in nested]
        return nested if nested is UNWRITTEN else nested / 64

    return case._replace(keys=floats(case.keys), values=floats(case.values), key_scales=None, value_scales=None)


def _expect_attention(solution: Any, case: Case, cache_dtype: str = "int8", head_first: bool = False) -> None:
    out = _attention(solution, case, "float32", cache_dtype, head_first)
    for row, heads in enumerate(_in_float64(case)):
        for head, numbers in enumerate(heads):
            for dim, wanted in enumerate(numbers):
                what = f"number {dim} of row {row}, head {head} of the output"
                expect(out[row][head][dim], wanted, what=what, within=1e-5)


def _attention(solution: Any, case: Case, dtype: str, cache_dtype: str, head_first: bool = False) -> Any:
    """Have the answer compute attention, and return it as nested lists."""
    queries = solution.tensor(case.queries, dtype, as_="queries")
    parts = [
        solution.tensor(case.keys, cache_dtype, as_="keys"),
        solution.tensor(case.values, cache_dtype, as_="values"),
    ]
    if case.key_scales is not None:
        parts += [
            _scales(solution, case.key_scales, head_first, "key_scales"),
            _scales(solution, case.value_scales, head_first, "value_scales"),
        ]
    width = max(map(len, case.tables))
    block_tables = [[*table, *[NO_BLOCK] * (width - len(table))] for table in case.tables]
    starts = [sum(case.query_lens[:seq]) for seq in range(len(case.query_lens) + 1)]
    out = solution.paged_attention(
        queries,
        solution.layer_cache(*parts, as_="cache"),
        solution.tensor(block_tables, "int32", as_="block_tables"),
        solution.tensor(starts, "int32", as_="query_start_loc"),
        solution.tensor(list(case.contexts), "int32", as_="context_lens"),
        max(case.query_lens),
        len(case.queries[0][0]) ** -0.5,
        as_="out",
    )
    return solution.read(out)


def _scales(solution: Any, scales: Any, head_first: bool, name: str) -> Any:
    """Return scales `[num_blocks, num_kv_heads]`, a view of what lies block by block, or head by head."""
    num_blocks, num_heads = len(scales), len(scales[0])
    if not head_first:
        return solution.tensor(scales, "float32", as_=name)
    turned = solution.tensor([list(column) for column in zip(*scales, strict=True)], "float32", as_=f"{name}_by_head")
    return solution.view(turned, [num_blocks, num_heads], [1, num_blocks], as_=name)


def _in_float64(case: Case) -> list[list[list[float]]]:
    """Return causal attention over the dequantised contexts, number by number."""
    out, rows = [], iter(case.queries)
    for table, context_len, query_len in zip(case.tables, case.contexts, case.query_lens, strict=True):
        for num_keys in range(context_len - query_len + 1, context_len + 1):
            slots = [(table[each // BLOCK_SIZE], each % BLOCK_SIZE) for each in range(num_keys)]
            out.append(_row_in_float64(case, next(rows), slots))
    return out


def _row_in_float64(case: Case, row: Any, slots: Sequence[tuple[int, int]]) -> list[list[float]]:
    group = len(row) // len(case.keys[0][0])
    heads = []
    for head, query in enumerate(row):
        keys = [_dequantised(case.keys, case.key_scales, slot, head // group) for slot in slots]
        values = [_dequantised(case.values, case.value_scales, slot, head // group) for slot in slots]
        scores = [math.fsum(map(float.__mul__, query, key)) * len(query) ** -0.5 for key in keys]
        weights = [math.exp(score - max(scores)) for score in scores]
        total = math.fsum(weights)
        heads.append([math.fsum(map(float.__mul__, weights, column)) / total for column in zip(*values, strict=True)])
    return heads


def _dequantised(stored: Any, scales: Any, slot: tuple[int, int], kv_head: int) -> list[float]:
    block, offset = slot
    scale = 1.0 if scales is None else scales[block][kv_head]
    return [number * scale for number in stored[block][offset][kv_head]]
