"""What `paged-attention-torch` promises."""

import itertools
import math
import random
from typing import Any

from course.judge.expect import expect, expect_true

Vector = list[float]
Token = list[Vector]  # one vector for each head

ANYTHING = 1_000_000_007  # the number of no block
NOBODY = math.nan  # what a slot holds that nobody has written


def a_decode_sees_the_whole_context(solution: Any) -> None:
    """One new token at the end of a context of 3 sees all three keys, its own among them: values 1, 10, 100 give 37.

    Its row in the batch is 0, and its position is 2. The mask is about positions.
    """
    cache = _cache(solution, [[1.0, 10.0, 100.0, 0.0]])
    expect(_zeros(solution, cache, [[0]], [0, 1], [3]), [37.0])


def a_prefill_is_causal(solution: Any) -> None:
    """Three new tokens of a context of 3 see one, two and three keys.

    The first sees itself. A row of the mask that hides everything gives NaN.
    """
    cache = _cache(solution, [[1.0, 10.0, 100.0, 0.0]])
    expect(_zeros(solution, cache, [[0]], [0, 3], [3]), [1.0, 5.5, 37.0])


def a_chunk_is_causal_and_sees_what_came_before(solution: Any) -> None:
    """The last two of 4 tokens see three and four keys; the last three of 9 see seven, eight and nine.

    Fewer queries than keys does not mean decoding: inside the chunk, no token sees its successors.
    """
    cache = _cache(solution, [[1.0, 2.0, 3.0, 10.0]])
    expect(_zeros(solution, cache, [[0]], [0, 2], [4]), [2.0, 4.0])
    solution.start_over_()
    cache = _cache(solution, [[5.0, 6.0, 7.0, 8.0], [9.0, 0.0, 0.0, 0.0], [1.0, 2.0, 3.0, 4.0]])
    expect(_zeros(solution, cache, [[2, 0, 1]], [0, 3], [9]), [4.0, 4.5, 5.0])


def unwritten_values_are_not_touched(solution: Any) -> None:
    """Three tokens in a block of 4, and NaN as the value in the fourth slot: the answer is still 37.

    Its weight is 0, and 0 times NaN is NaN.
    """
    cache = _cache(solution, [[1.0, 10.0, 100.0, NOBODY]], keys=[[0.0] * 4])
    expect(_zeros(solution, cache, [[0]], [0, 1], [3]), [37.0])


def unwritten_keys_are_not_touched(solution: Any) -> None:
    """NaN as the key in the fourth slot does not matter either.

    Minus infinity added to NaN is NaN: a mask that is added does not hide such a score.
    """
    cache = _cache(solution, [[1.0, 10.0, 100.0, 5.0]], keys=[[0.0, 0.0, 0.0, NOBODY]])
    expect(_zeros(solution, cache, [[0]], [0, 1], [3]), [37.0])


def weighs_by_the_scaled_score(solution: Any) -> None:
    """A score is the dot product of query and key, times the scale: with 0 and ln 3, the second key weighs thrice.

    The scale, 1 / sqrt(head_dim) in most models, keeps scores of long vectors from growing.
    """
    keys = solution.tensor([[[[0.0, 0.0]], [[1.0, 2.0]]]], as_="keys")
    values = solution.tensor([[[[0.0, 8.0]], [[4.0, 0.0]]]], as_="values")
    cache = solution.layer_cache(keys, values, as_="cache")
    queries = solution.tensor([[[math.log(3.0), math.log(3.0) / 2]]], as_="queries")
    out = solution.paged_attention(queries, cache, *_ints(solution, [[0]], [0, 1], [2]), 1, 0.5, as_="out")
    expect(_read(solution, out), [[[3.0, 2.0]]], what="out", within=1e-5)


def neighbouring_heads_share_a_kv_head(solution: Any) -> None:
    """With 4 query heads and 2 KV heads, heads 0 and 1 read KV head 0, and 2 and 3 read 1; with 2 and 2, each its own.

    The order 0 1 0 1 is right for the first head and the last. Divide by the query heads that share a KV head: with 4
    and 2 that is the number of KV heads too, by chance.
    """
    memory = solution.tensor([[[[10.0], [20.0]]]], as_="memory")
    cache = solution.layer_cache(memory, memory, as_="cache")
    queries = solution.tensor([[[0.0]] * 4], as_="queries")
    ints = _ints(solution, [[0]], [0, 1], [1])
    out = solution.paged_attention(queries, cache, *ints, 1, 1.0, as_="out")
    expect(_read(solution, out), [[[10.0], [10.0], [20.0], [20.0]]], what="out")
    solution.start_over_()
    memory = solution.tensor([[[[10.0], [20.0]]]], as_="memory")
    cache = solution.layer_cache(memory, memory, as_="cache")
    queries = solution.tensor([[[0.0]] * 2], as_="queries")
    ints = _ints(solution, [[0]], [0, 1], [1])
    out = solution.paged_attention(queries, cache, *ints, 1, 1.0, as_="out")
    expect(_read(solution, out), [[[10.0], [20.0]]], what="out")


def sequences_do_not_see_each_other(solution: Any) -> None:
    """Two prefills of two tokens in one batch give 1, 2 and 10, 20: each row sees its own sequence only.

    One causal mask over all rows would let the second sequence look at the first.
    """
    cache = _cache(solution, [[10.0, 30.0], [1.0, 3.0]])
    expect(_zeros(solution, cache, [[1], [0]], [0, 2, 4], [2, 2]), [1.0, 2.0, 10.0, 20.0])


def rows_are_placed_by_the_queries(solution: Any) -> None:
    """A decode over 3 keys and a prefill of 2 fill the rows 0, and 1 and 2.

    Rows count queries. The lengths of the contexts place nothing.
    """
    cache = _cache(solution, [[21.0, 23.0, 0.0, 0.0], [9.0, 11.0, 13.0, 0.0]])
    expect(_zeros(solution, cache, [[1], [0]], [0, 1, 3], [3, 2]), [11.0, 21.0, 22.0])


def every_sequence_has_its_own_length(solution: Any) -> None:
    """A context of 2 and one of 5 decode in one batch: the short one does not read as far as the long one.

    Its table is filled up with 0, and block 0 belongs to the other.
    """
    cache = _cache(solution, [[5.0, 5.0, 5.0, 5.0], [7.0, 0.0, 0.0, 0.0], [1.0, 3.0, 0.0, 0.0]])
    expect(_zeros(solution, cache, [[2, 0], [0, 1]], [0, 1, 2], [2, 5]), [2.0, 5.4])


def further_entries_are_not_used(solution: Any) -> None:
    """Tables that go on with numbers of no block give the same as tables that end in time.

    An index out of range is an error on the CPU, and ends the whole process on a GPU.
    """
    cache = _cache(solution, [[1.0, 3.0], [5.0, 0.0]])
    tables = [[0, ANYTHING, -ANYTHING], [1, -ANYTHING, ANYTHING]]
    expect(_zeros(solution, cache, tables, [0, 1, 2], [2, 1]), [2.0, 5.0])


def a_sequence_without_new_tokens_has_no_row(solution: Any) -> None:
    """Between two decodes, a sequence with no new token takes no row.

    It waits; its context may be long or empty.
    """
    for waiting in (2, 0):
        solution.start_over_()
        cache = _cache(solution, [[1.0, 3.0], [8.0, 0.0]])
        expect(_zeros(solution, cache, [[0], [1], [1]], [0, 1, 1, 2], [2, waiting, 1]), [2.0, 8.0])


def rows_of_no_sequence_stay(solution: Any) -> None:
    """Rows behind the last sequence are zeros in a new output, and stay as they are in one that is given.

    A captured CUDA graph runs a batch of a fixed size into an output of its own.
    """
    cache = _cache(solution, [[5.0, 0.0]])
    expect(_zeros(solution, cache, [[0]], [0, 1], [1], num_rows=3), [5.0, 0.0, 0.0])
    solution.start_over_()
    cache = _cache(solution, [[5.0, 0.0]])
    queries = solution.tensor([[[0.0]]] * 3, as_="queries")
    out = solution.tensor([[[7.0]]] * 3, as_="out")
    result = solution.paged_attention(queries, cache, *_ints(solution, [[0]], [0, 1], [1]), 1, 1.0, out=out)
    expect(_read(solution, out), [[[5.0]], [[7.0]], [[7.0]]], what="out")
    expect(_read(solution, result), [[[5.0]], [[7.0]], [[7.0]]], what="what was returned")


def half_precision_is_computed_in_float32(solution: Any) -> None:
    """With float16 queries and keys whose products exceed 65,504, the answer is a number, in float16.

    Half precision is for memory. A score of 90,000 is infinity there, and a softmax over infinities is NaN.
    """
    keys = solution.tensor([[[[300.0]], [[299.0]]]], "float16", as_="keys")
    values = solution.tensor([[[[1.0]], [[2.0]]]], "float16", as_="values")
    queries = solution.tensor([[[300.0]]], "float16", as_="queries")
    cache = solution.layer_cache(keys, values, as_="cache")
    out = solution.paged_attention(queries, cache, *_ints(solution, [[0]], [0, 1], [2]), 1, 0.01, as_="out")
    weight = math.exp(-3.0)
    [[[number]]] = _read(solution, out)
    expect(number, (1 + 2 * weight) / (1 + weight), what="out", within=1e-3)
    expect(number * 1024 % 1, 0.0, what="out, which should be float16: 1024 times it, modulo 1,")


def double_precision_is_kept(solution: Any) -> None:
    """With float64 queries, keys and values the answer is right to twelve digits.

    A reference for other kernels has to be better than they are.
    """
    _compare(
        solution, random.Random(64), [6], [2], block_size=4, heads=(2, 1), head_dim=4, dtype="float64", within=1e-12
    )


def tensors_may_be_views(solution: Any) -> None:
    """Queries may be a part of a fused projection, and a cache may lie in memory with its heads first.

    In the engine both do. A stride that is assumed instead of asked for reads a neighbour.
    """
    rng = random.Random(11)
    keys, values = _slots(rng, 3, 2, 2, 4), _slots(rng, 3, 2, 2, 4)
    caches = []
    for slots, name in ((keys, "keys"), (values, "values")):
        by_head = [[[block[offset][head] for offset in range(2)] for head in range(2)] for block in slots]
        memory = solution.tensor(by_head, as_=f"{name}_by_head")
        caches.append(solution.view(memory, [3, 2, 2, 4], [16, 4, 8, 1], as_=name))
    fused = [[round(rng.uniform(-2, 2), 2) for _ in range(24)] for _ in range(2)]
    projection = solution.tensor(fused, as_="fused")
    queries = solution.view(projection, [2, 2, 4], [24, 4, 1], as_="queries")
    cache = solution.layer_cache(*caches, as_="cache")
    out = solution.paged_attention(queries, cache, *_ints(solution, [[2, 0]], [0, 2], [3]), 2, 0.5, as_="out")
    rows = [[row[:4], row[4:8]] for row in fused]
    expected = [_row(rows[0], keys, values, [2, 0], 2, 0.5), _row(rows[1], keys, values, [2, 0], 3, 0.5)]
    expect(_read(solution, out), expected, what="out", within=1e-5)


def is_right_at_the_edge_of_a_block(solution: Any) -> None:
    """Contexts of 3, 4 and 5 tokens in blocks of 4, as a decode, a chunk and a whole prefill, agree with plain lists.

    One less than a block, a block, and one more.
    """
    for context_len in (3, 4, 5):
        for new in (1, 2, context_len):
            _compare(solution, random.Random(context_len), [context_len], [new], block_size=4, heads=(2, 2), head_dim=4)


def matches_the_chapter(solution: Any) -> None:
    """Contexts of 37, 5 and 20 with 1, 5 and 8 new tokens, and 8 heads over 2 KV heads, agree with plain lists.

    A decode, a whole prefill and the second half of a chunk, in one batch: a step of a real engine.
    """
    _compare(solution, random.Random(37), [37, 5, 20], [1, 5, 8], block_size=4, heads=(8, 2), head_dim=16)


def matches_attention_over_plain_lists(solution: Any) -> None:
    """Random batches over scrambled blocks agree with attention over plain lists, computed in float64.

    Slots of no context hold NaN, and tables go on with numbers of no block.
    """
    rng = random.Random(5)
    for block_size, heads in ((2, (2, 2)), (3, (4, 2)), (1, (3, 1)), (16, (6, 3)), (8, (4, 1))):
        lengths = [rng.randint(1, 20) for _ in range(rng.randint(1, 5))]
        new = [rng.randint(0, length) for length in lengths]
        _compare(solution, rng, lengths, new, block_size=block_size, heads=heads, head_dim=8)


def _cache(solution: Any, values: list[Vector], keys: list[Vector] | None = None) -> Any:
    """Return a cache of one KV head with vectors of one number, from a list of numbers for each block."""
    keys = [[float(slot) for slot in block] for block in values] if keys is None else keys
    memories = [
        solution.tensor([[[[number]] for number in block] for block in each], as_=name)
        for each, name in ((keys, "keys"), (values, "values"))
    ]
    return solution.layer_cache(*memories, as_="cache")


def _ints(solution: Any, tables: list[list[int]], starts: list[int], lengths: list[int]) -> list[Any]:
    width = max((len(table) for table in tables), default=0)
    padded = [[*table, *[0] * (width - len(table))] for table in tables]
    named = (("block_tables", padded), ("query_start_loc", starts), ("context_lens", lengths))
    return [solution.tensor(numbers, "int32", as_=name) for name, numbers in named]


def _zeros(
    solution: Any,
    cache: Any,
    tables: list[list[int]],
    starts: list[int],
    lengths: list[int],
    num_rows: int | None = None,
) -> Vector:
    """Return the answer, a number for each row, to queries of one head that are 0, so that all keys weigh alike."""
    queries = solution.tensor([[[0.0]]] * (starts[-1] if num_rows is None else num_rows), as_="queries")
    longest = max(end - start for start, end in itertools.pairwise(starts))
    out = solution.paged_attention(queries, cache, *_ints(solution, tables, starts, lengths), longest, 1.0, as_="out")
    rows = _read(solution, out)
    return [round(row[0][0], 5) for row in rows]


def _read(solution: Any, out: Any) -> Any:
    expect_true(hasattr(out, "class_"), f"paged_attention gave {out!r}", expected="a tensor")
    return solution.read(out)


def _compare(
    solution: Any,
    rng: random.Random,
    lengths: list[int],
    new: list[int],
    *,
    block_size: int,
    heads: tuple[int, int],
    head_dim: int,
    dtype: str = "float32",
    within: float = 1e-5,
) -> None:
    """Hold one batch of random numbers over scrambled blocks against `_row`."""
    solution.start_over_()
    num_heads, num_kv_heads = heads
    counts = [-(-length // block_size) for length in lengths]
    num_blocks = sum(counts) + 2
    blocks = rng.sample(range(num_blocks), sum(counts))
    tables = [[blocks.pop() for _ in range(count)] for count in counts]
    keys = _slots(rng, num_blocks, block_size, num_kv_heads, head_dim)
    values = _slots(rng, num_blocks, block_size, num_kv_heads, head_dim)
    used = {
        (table[position // block_size], position % block_size)
        for table, length in zip(tables, lengths, strict=True)
        for position in range(length)
    }
    for block in range(num_blocks):
        for offset in range(block_size):
            if (block, offset) not in used:
                keys[block][offset] = values[block][offset] = [[NOBODY] * head_dim] * num_kv_heads
    queries = [_token(rng, num_heads, head_dim) for _ in range(sum(new))]
    starts = [sum(new[:seq]) for seq in range(len(new) + 1)]
    expected = [
        _row(queries[starts[seq] + index], keys, values, tables[seq], lengths[seq] - new[seq] + index + 1, 0.4)
        for seq in range(len(lengths))
        for index in range(new[seq])
    ]
    width = max(counts) + 1
    padded = [[*table, *[ANYTHING] * (width - len(table))] for table in tables]
    memories = solution.tensor(keys, dtype, as_="keys"), solution.tensor(values, dtype, as_="values")
    cache = solution.layer_cache(*memories, as_="cache")
    asked = solution.tensor(queries, dtype, as_="queries") if queries else solution.unwritten([0, num_heads, head_dim])
    out = solution.paged_attention(asked, cache, *_ints(solution, padded, starts, lengths), max(new), 0.4, as_="out")
    expect(_read(solution, out), expected, what="out", within=within)


def _row(
    query: Token, keys: list[list[Token]], values: list[list[Token]], table: list[int], seen: int, scale: float
) -> Token:
    """Return the attention of one token's heads over the first `seen` tokens of a table, in two passes."""
    block_size, num_kv_heads = len(keys[0]), len(keys[0][0])
    places = [(table[position // block_size], position % block_size) for position in range(seen)]
    row = []
    for head, vector in enumerate(query):
        kv_head = head // (len(query) // num_kv_heads)
        scores = [
            scale * sum(q * k for q, k in zip(vector, keys[block][offset][kv_head], strict=True))
            for block, offset in places
        ]
        weights = [math.exp(score - max(scores)) for score in scores]
        total = math.fsum(weights)
        row.append(
            [
                math.fsum(
                    w * values[block][offset][kv_head][i] for w, (block, offset) in zip(weights, places, strict=True)
                )
                / total
                for i in range(len(vector))
            ]
        )
    return row


def _slots(rng: random.Random, num_blocks: int, block_size: int, num_heads: int, head_dim: int) -> list[list[Token]]:
    return [[_token(rng, num_heads, head_dim) for _ in range(block_size)] for _ in range(num_blocks)]


def _token(rng: random.Random, num_heads: int, head_dim: int) -> Token:
    return [[round(rng.uniform(-2, 2), 2) for _ in range(head_dim)] for _ in range(num_heads)]
