"""What `paged-attention` promises."""

import math
import random
from collections.abc import Sequence
from typing import Any

from course.judge.expect import expect

Vector = list[float]
Token = list[Vector]  # one vector for each head

ANYTHING = 1_000_000  # the number of no block


def attends_to_one_key(solution: Any) -> None:
    """Over one token the answer is that token's value, whatever the query.

    With one key there is nothing to weigh.
    """
    cache = _cache(solution, 2, 1, {1: 7.0})
    expect(solution.attend([3.0], cache, [1], 1, 0, 1.0), [7.0])


def weighs_by_the_scaled_score(solution: Any) -> None:
    """A score is the dot product of query and key, times the scale: with 0 and ln 3, the second key weighs thrice.

    The scale, 1 / sqrt(head_dim) in most models, keeps scores of long vectors from growing.
    """
    cache = solution.LayerCache(1, 2, 1, as_="cache")
    solution.write_kv([[[0.0, 0.0]], [[1.0, 2.0]]], [[[0.0, 8.0]], [[4.0, 0.0]]], cache, [0, 1])
    third = math.log(3.0) / 2
    expect(solution.attend([third * 2, third], cache, [0], 2, 0, 0.5), [3.0, 2.0])


def reads_block_after_block(solution: Any) -> None:
    """A sequence of 6 tokens with the table [2, 0] is in block 2, and then in the first half of block 0.

    A query of zeros weighs all keys alike, so the answer is the mean of the right six values.
    """
    cache = _cache(solution, 3, 4, {slot: float(2**slot) for slot in range(12)})
    expect(solution.attend([0.0], cache, [2, 0], 6, 0, 1.0), [(256 + 512 + 1024 + 2048 + 1 + 2) / 6])


def stops_after_the_last_key(solution: Any) -> None:
    """Over the first 3 tokens of 5, in blocks of 2, the other two have no part in the answer.

    They are the query's future, or a stranger's past.
    """
    cache = _cache(solution, 3, 2, {0: 1.0, 1: 10.0, 2: 100.0, 3: 1000.0, 4: 10_000.0})
    expect(solution.attend([0.0], cache, [0, 1, 2], 3, 0, 1.0), [37.0])


def unwritten_slots_are_not_touched(solution: Any) -> None:
    """Three tokens in a block of 4: the fourth slot was never written, and neither its key nor its value is used.

    On a GPU that slot holds whatever was there, perhaps NaN. Neither a weight of 0 nor adding minus infinity hides it.
    """
    cache = _cache(solution, 1, 4, {0: 1.0, 1: 10.0, 2: 100.0})
    expect(solution.attend([0.0], cache, [0], 3, 0, 1.0), [37.0])


def is_right_at_the_edge_of_a_block(solution: Any) -> None:
    """One token less than a block, exactly a block, and one more: each time the mean of that many values.

    A full last block needs no further entry of the table, and the token after it does.
    """
    for num_keys in (3, 4, 5, 8):
        solution.start_over_()
        cache = _cache(solution, 2, 4, {(4 + position) % 8: float(2**position) for position in range(num_keys)})
        table = [1, 0][: -(-num_keys // 4)]
        expect(solution.attend([0.0], cache, table, num_keys, 0, 1.0), [(2**num_keys - 1) / num_keys])


def further_entries_are_not_looked_at(solution: Any) -> None:
    """A table that goes on with numbers of no block gives the same as one that ends in time.

    In a batch the tables are rows of one tensor, filled up with anything.
    """
    cache = _cache(solution, 2, 2, {2: 1.0, 3: 3.0})
    expect(solution.attend([0.0], cache, [1, ANYTHING, -ANYTHING], 2, 0, 1.0), [2.0])


def reads_its_own_kv_head(solution: Any) -> None:
    """With two KV heads, head 0 and head 1 read keys and values of their own.

    A wrong head gives numbers that look right: they are attention, of another head.
    """
    cache = solution.LayerCache(1, 2, 2, as_="cache")
    keys = [[[1.0], [-1.0]], [[0.0], [0.0]]]
    values = [[[10.0], [30.0]], [[20.0], [60.0]]]
    solution.write_kv(keys, values, cache, [0, 1])
    near, far = math.exp(1.0), math.exp(-1.0)
    expect(solution.attend([1.0], cache, [0], 2, 0, 1.0), [(10 * near + 20) / (near + 1)])
    expect(solution.attend([1.0], cache, [0], 2, 1, 1.0), [(30 * far + 60) / (far + 1)])


def survives_large_scores(solution: Any) -> None:
    """Scores of several hundred and more are no error: only their differences count.

    `exp(800)` is too large for a float.
    """
    cache = solution.LayerCache(1, 2, 1, as_="cache")
    solution.write_kv([[[800.0]], [[801.0]]], [[[1.0]], [[2.0]]], cache, [0, 1])
    weight = math.exp(-1.0)
    expect(solution.attend([1.0], cache, [0], 2, 0, 1.0), [(weight + 2.0) / (weight + 1.0)])


def a_decode_sees_the_whole_context(solution: Any) -> None:
    """One new token at the end of a context of 3 sees all three keys, its own among them.

    Its row in the batch is 0, and its position is 2. The mask is about positions.
    """
    cache = _cache(solution, 1, 4, {0: 1.0, 1: 10.0, 2: 100.0})
    expect(solution.paged_attention([[[0.0]]], cache, [[0]], [0, 1], [3], 1.0), [[[37.0]]])


def a_prefill_is_causal(solution: Any) -> None:
    """Three new tokens of a context of 3 see one, two and three keys.

    The first sees itself. A token that does not see itself divides by nothing.
    """
    cache = _cache(solution, 1, 4, {0: 1.0, 1: 10.0, 2: 100.0})
    expect(solution.paged_attention([[[0.0]]] * 3, cache, [[0]], [0, 3], [3], 1.0), [[[1.0]], [[5.5]], [[37.0]]])


def a_chunk_is_causal_and_sees_what_came_before(solution: Any) -> None:
    """The last two of 4 tokens see three and four keys; the last three of 9 see seven, eight and nine.

    Fewer queries than keys does not mean decoding: inside the chunk, no token sees its successors.
    """
    cache = _cache(solution, 1, 4, {0: 1.0, 1: 2.0, 2: 3.0, 3: 10.0})
    expect(solution.paged_attention([[[0.0]]] * 2, cache, [[0]], [0, 2], [4], 1.0), [[[2.0]], [[4.0]]])
    solution.start_over_()
    cache = _cache(solution, 3, 4, {(8 + position) % 12: position + 1.0 for position in range(9)})
    answer = solution.paged_attention([[[0.0]]] * 3, cache, [[2, 0, 1]], [0, 3], [9], 1.0)
    expect(answer, [[[4.0]], [[4.5]], [[5.0]]])


def neighbouring_heads_share_a_kv_head(solution: Any) -> None:
    """With 4 query heads and 2 KV heads, heads 0 and 1 read KV head 0, and 2 and 3 read 1; with 3 and 1, all read 0.

    Grouped-query attention (GQA): fewer KV heads, a smaller cache. The order 0 1 0 1 is wrong in two heads of four.
    """
    cache = solution.LayerCache(1, 1, 2, as_="cache")
    solution.write_kv([[[0.0], [0.0]]], [[[10.0], [20.0]]], cache, [0])
    answer = solution.paged_attention([[[0.0]] * 4], cache, [[0]], [0, 1], [1], 1.0)
    expect(answer, [[[10.0], [10.0], [20.0], [20.0]]])
    solution.start_over_()
    cache = solution.LayerCache(1, 1, 1, as_="cache")
    solution.write_kv([[[0.0]]], [[[10.0]]], cache, [0])
    expect(solution.paged_attention([[[0.0]] * 3], cache, [[0]], [0, 1], [1], 1.0), [[[10.0]] * 3])


def sequences_do_not_see_each_other(solution: Any) -> None:
    """Two prefills of two tokens in one batch give 1, 2 and 10, 20: each row sees its own sequence only.

    One causal mask over all rows would let the second sequence look at the first.
    """
    cache = _cache(solution, 2, 2, {2: 1.0, 3: 3.0, 0: 10.0, 1: 30.0})
    answer = solution.paged_attention([[[0.0]]] * 4, cache, [[1], [0]], [0, 2, 4], [2, 2], 1.0)
    expect(answer, [[[1.0]], [[2.0]], [[10.0]], [[20.0]]])


def every_sequence_has_its_own_length(solution: Any) -> None:
    """A context of 2 and one of 5 decode in one batch: the short one does not read as far as the long one.

    The short table is filled up with 0, and block 0 belongs to somebody.
    """
    values = {8: 1.0, 9: 3.0, 0: 5.0, 1: 5.0, 2: 5.0, 3: 5.0, 4: 7.0}
    cache = _cache(solution, 3, 4, values)
    answer = solution.paged_attention([[[0.0]]] * 2, cache, [[2, 0], [0, 1]], [0, 1, 2], [2, 5], 1.0)
    expect(answer, [[[2.0]], [[5.4]]])


def rows_are_placed_by_the_queries(solution: Any) -> None:
    """A decode over 3 keys and a prefill of 2 fill the rows 0, and 1 and 2.

    Rows count queries. The contexts are longer, and their lengths place nothing.
    """
    cache = _cache(solution, 2, 4, {4: 9.0, 5: 11.0, 6: 13.0, 0: 21.0, 1: 23.0})
    answer = solution.paged_attention([[[0.0]]] * 3, cache, [[1], [0]], [0, 1, 3], [3, 2], 1.0)
    expect(answer, [[[11.0]], [[21.0]], [[22.0]]])


def a_sequence_without_new_tokens_has_no_row(solution: Any) -> None:
    """Between two decodes, a sequence with no new token takes no row, and its context is not read.

    It waits: its table may be empty and its blocks may be anywhere.
    """
    cache = _cache(solution, 2, 2, {2: 1.0, 3: 3.0, 0: 8.0})
    answer = solution.paged_attention([[[0.0]]] * 2, cache, [[1], [], [0]], [0, 1, 1, 2], [2, 5, 1], 1.0)
    expect(answer, [[[2.0]], [[8.0]]])


def rows_of_no_sequence_are_zeros(solution: Any) -> None:
    """A batch of 4 rows of which one is in use gives three rows of zeros, and a batch without a sequence only zeros.

    A batch of a fixed size is padded at its end.
    """
    cache = _cache(solution, 1, 2, {0: 5.0})
    answer = solution.paged_attention([[[1.0]]] * 4, cache, [[0]], [0, 1], [1], 1.0)
    expect(answer, [[[5.0]], [[0.0]], [[0.0]], [[0.0]]])
    expect(solution.paged_attention([[[1.0], [1.0]]], cache, [], [0], [], 1.0), [[[0.0], [0.0]]])


def matches_the_chapter(solution: Any) -> None:
    """Contexts of 37, 5 and 20 with 1, 5 and 8 new tokens, in blocks of 4, agree with attention over plain lists.

    A decode, a whole prefill and the second half of a chunk, in one batch: a step of a real engine.
    """
    tables = [[0, 3, 6, 8, 10, 12, 13, 14, 15, 16], [1, 4], [2, 5, 7, 9, 11]]
    _compare(solution, random.Random(37), tables, [37, 5, 20], [1, 5, 8], block_size=4, heads=(4, 2), head_dim=2)


def matches_attention_over_plain_lists(solution: Any) -> None:
    """Random batches, in blocks of 1, 2, 3 and 5 tokens scattered over the pool, agree with attention over plain lists.

    Slots that no context uses hold old numbers or nothing, and tables go on with numbers of no block.
    """
    rng = random.Random(5)
    for block_size, heads in ((2, (2, 2)), (3, (4, 2)), (1, (3, 1)), (5, (6, 3)), (2, (4, 1)), (3, (1, 1))):
        lengths = [rng.randint(1, 9) for _ in range(rng.randint(1, 4))]
        new = [rng.randint(0, length) for length in lengths]
        counts = [-(-length // block_size) for length in lengths]
        blocks = rng.sample(range(sum(counts) + 2), sum(counts))
        tables = [[blocks.pop() for _ in range(count)] for count in counts]
        _compare(solution, rng, tables, lengths, new, block_size=block_size, heads=heads, head_dim=2)


def _cache(solution: Any, num_blocks: int, block_size: int, values: dict[int, float]) -> Any:
    """Return a cache of one KV head with vectors of one number: each slot's value, and keys that are all different."""
    cache = solution.LayerCache(num_blocks, block_size, 1, as_="cache")
    keys = [[[0.5 * slot]] for slot in values]
    solution.write_kv(keys, [[[value]] for value in values.values()], cache, list(values))
    return cache


def _compare(
    solution: Any,
    rng: random.Random,
    tables: list[list[int]],
    lengths: list[int],
    new: list[int],
    *,
    block_size: int,
    heads: tuple[int, int],
    head_dim: int,
) -> None:
    """Hold one batch of random numbers against `_attention`."""
    solution.start_over_()
    num_heads, num_kv_heads = heads
    num_blocks = max(block for table in tables for block in table) + 2
    cache = solution.LayerCache(num_blocks, block_size, num_kv_heads, as_="cache")
    contexts = [
        ([_token(rng, num_kv_heads, head_dim) for _ in range(length)], tables[seq])
        for seq, length in enumerate(lengths)
    ]
    old = [slot for slot in range(num_blocks * block_size) if rng.random() < 0.5]
    solution.write_kv(
        [_token(rng, num_kv_heads, head_dim) for _ in old],
        [_token(rng, num_kv_heads, head_dim) for _ in old],
        cache,
        old,
    )
    all_values = []
    for keys, table in contexts:
        values = [_token(rng, num_kv_heads, head_dim) for _ in keys]
        slots = [table[position // block_size] * block_size + position % block_size for position in range(len(keys))]
        solution.write_kv(keys, values, cache, slots)
        all_values.append(values)
    queries = [_token(rng, num_heads, head_dim) for _ in range(sum(new))]
    starts = [sum(new[:seq]) for seq in range(len(new) + 1)]
    expected = []
    for (keys, _), values, length, count, start in zip(contexts, all_values, lengths, new, starts, strict=False):
        for index in range(count):
            seen = length - count + index + 1
            row = queries[start + index]
            expected.append(
                [
                    _attention(row[head], keys[:seen], values[:seen], head // (num_heads // num_kv_heads), 0.7)
                    for head in range(num_heads)
                ]
            )
    padded = [[*table, ANYTHING, -ANYTHING] for table in tables]
    expect(solution.paged_attention(queries, cache, padded, starts, lengths, 0.7), expected)


def _token(rng: random.Random, num_heads: int, head_dim: int) -> Token:
    return [[round(rng.uniform(-2, 2), 2) for _ in range(head_dim)] for _ in range(num_heads)]


def _attention(query: Vector, keys: Sequence[Token], values: Sequence[Token], head: int, scale: float) -> Vector:
    """Return the attention of one query over contiguous keys and values, in two passes."""
    scores = [scale * sum(q * k for q, k in zip(query, key[head], strict=True)) for key in keys]
    weights = [math.exp(score - max(scores)) for score in scores]
    total = math.fsum(weights)
    return [
        math.fsum(weight * value[head][i] for weight, value in zip(weights, values, strict=True)) / total
        for i in range(len(query))
    ]
