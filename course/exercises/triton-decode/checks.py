"""What `locate`, `online_softmax` and `decode_kernel` promise."""

import math
import random
from typing import Any

from course.judge.expect import expect, expect_true
from course.judge.paged import dot, expect_attention, make_case, plain_case, run

NOTHING = -math.inf
BIG = 276_480  # elements of a block of a large model: 480 tokens of 576 numbers


def positions_are_located_by_the_table(solution: Any) -> None:
    """With blocks of 4 and the table [5, 6, 7], positions 0 to 11 are in blocks 5, 6 and 7, at offsets 0 to 3 of each.

    This is the slot arithmetic of the block table, for a tile of 16 positions at once. Positions 12 to 15 are beyond
    the limit of 12, and the table has no entry for them.
    """
    _expect_located(solution, [5, 6, 7], 0, 12, 4)


def a_tile_may_start_anywhere(solution: Any) -> None:
    """With blocks of 8, a tile of 16 that starts at position 16 uses entries 2 and 3 of the table.

    The second tile of a context is not the first one again.
    """
    _expect_located(solution, [9, 8, 3, 11, 4], 16, 32, 8)


def a_tile_may_lie_in_one_block(solution: Any) -> None:
    """With blocks of 32, the tile from 48 to 63 is the second half of entry 1; so is what is left of it up to 51.

    The entry is then one number for the whole tile, which may be read once.
    """
    _expect_located(solution, [9, 2], 48, 64, 32)
    solution.start_over_()
    _expect_located(solution, [9, 2], 48, 51, 32)


def blocks_are_64_bits_wide(solution: Any) -> None:
    """Block 7768 times a block's 276,480 elements is 2,147,696,640, and not a negative number.

    It is more than 2³¹. In 32 bits the product wraps around, and the kernel reads another process's memory or none.
    """
    products = _locate(solution, [7768], 0, 3, 8)[2]
    expect(solution.read(products)[:3], [7768 * BIG] * 3, what="block * 276480")


def a_softmax_of_equal_scores_is_the_mean(solution: Any) -> None:
    """Three keys of one score, with the values 1, 10 and 100, give 37; keys with the score −∞ count for nothing.

    A masked key is a key with the score −∞.
    """
    scores = [[3.0, 3.0, 3.0, *[NOTHING] * 13]] * 16
    values = [1.0, 10.0, 100.0, *[5.0] * 13]
    _expect_softmax(solution, scores, [[value] * 16 for value in values], [[37.0] * 16] * 16)


def a_later_tile_may_hold_the_largest_score(solution: Any) -> None:
    """Four keys with the score 0 and the value 1, then in the next tile one with the score 2 and the value 9, give 5.

    2² = 4, so the last key weighs as much as the other four. What was summed before is scaled down, numerator and
    denominator alike.
    """
    scores = [[*[0.0] * 4, *[NOTHING] * 12, 2.0, *[NOTHING] * 15]] * 16
    values = [*[1.0] * 16, *[9.0] * 16]
    _expect_softmax(solution, scores, [[value] * 16 for value in values], [[5.0] * 16] * 16)


def large_scores_do_not_overflow(solution: Any) -> None:
    """Scores of 1000, 2000 and 999 in three tiles give the value of the second.

    2¹⁰⁰⁰ is no float32. Subtract the largest score so far, and every weight is at most 1.
    """
    scores = [[1000.0, *[NOTHING] * 15, 2000.0, *[NOTHING] * 15, 999.0, *[NOTHING] * 15]] * 16
    values = [*[1.0] * 16, *[2.0] * 16, *[3.0] * 16]
    _expect_softmax(solution, scores, [[value] * 16 for value in values], [[2.0] * 16] * 16)


def every_row_has_its_own_softmax(solution: Any) -> None:
    """16 queries over three tiles of random scores give what one softmax over all 48 keys gives, to 0.00002.

    A row is a query. Its largest score and its total are its own. Products in TF32, a GPU's default for float32, are
    a hundred times less exact than this.
    """
    rng = random.Random(0)
    scores = [[round(rng.uniform(-6, 6), 4) for _ in range(48)] for _ in range(16)]
    values = [[round(rng.uniform(-1.5, 1.5), 4) for _ in range(16)] for _ in range(48)]
    weights = [[2.0**score for score in row] for row in scores]
    columns = list(zip(*values, strict=True))
    wanted = [[dot(row, column) / sum(row) for column in columns] for row in weights]
    _expect_softmax(solution, scores, values, wanted, within=2e-5)


def one_key_gives_its_value(solution: Any) -> None:
    """A context of one token: the answer is that token's value, whatever the query.

    A softmax over one number is 1.
    """
    case = make_case([1], [1], num_heads=1, num_kv_heads=1)
    expect_attention(case, run(solution, case))


def a_decode_sees_its_whole_context(solution: Any) -> None:
    """Three keys of one score with the values 1, 10 and 100 give 37, though nobody has written the block's other slots.

    The one query is row 0 of the batch, and the last of its context. A mask by the row shows it the first key only.
    """
    case = plain_case([[1.0, 10.0, 100.0]], [1])
    expect_attention(case, run(solution, case))


def a_query_finds_its_key(solution: Any) -> None:
    """Four keys at right angles, and a query along the third: of the values 1, 10, 100 and 1000, the third comes out.

    A score is a query times a key, number by number: a row of queries with a row of keys. `tl.dot` takes rows with
    columns, so the tile of keys is turned round.
    """
    case = plain_case([[1.0, 10.0, 100.0, 1000.0]], [1])
    keys = [[_along(2 * position + 5, 8.0)] for position in range(4)]
    case = case._replace(queries=[[_along(9, 64.0)]], keys=[keys])
    expect_attention(case, run(solution, case))


def float32_is_multiplied_as_float32(solution: Any) -> None:
    """In float32, with scores that spread over several tens, the answer is right to 0.0003.

    A GPU's default for float32 is TF32, with 10 bits behind the point instead of 23: of a score of 40, the hundredths
    are wrong.
    """
    case = make_case([9], [1], num_heads=4, num_kv_heads=1, scale=4.0)
    expect_attention(case, run(solution, case), within=3e-4)


def every_head_is_right(solution: Any) -> None:
    """With 4 query heads over 4 KV heads, every head gives what attention over its own keys and values gives.

    Swap the strides of slots and heads, and head 0 of the first token is still right.
    """
    case = make_case([11], [1], num_heads=4, num_kv_heads=4)
    expect_attention(case, run(solution, case))


def contexts_end_anywhere(solution: Any) -> None:
    """Contexts of 15, 16 and 17 tokens with blocks of 16 are right, and so are 31, 32, 33 and 65.

    A context ends within a block, at its end, or one token into the next; with tiles it is the same.
    """
    case = make_case([15, 16, 17, 31, 32, 33, 65], [1] * 7, num_heads=1, num_kv_heads=1, block_size=16)
    expect_attention(case, run(solution, case))


def query_heads_share_a_kv_head(solution: Any) -> None:
    """With 6 query heads over 2 KV heads, heads 0 to 2 read KV head 0, and heads 3 to 5 read KV head 1.

    Three is no power of two: the lanes that fill it up belong to the next group, which another program writes.
    """
    case = make_case([11, 3], [1, 1], num_heads=6, num_kv_heads=2)
    expect_attention(case, run(solution, case))


def head_sizes_between_powers_of_two_are_masked(solution: Any) -> None:
    """With heads of 48 numbers, held in blocks of 64, nothing beside a head is read or written.

    The 16 numbers behind a head are the next head's.
    """
    case = make_case([10], [1], head_dim=48)
    expect_attention(case, run(solution, case))


def sequences_have_their_own_rows_and_tables(solution: Any) -> None:
    """In a batch with contexts of 20, 3, 0 and 9, where the third has no query, each reads its own row of the tables.

    Tables are as wide as the longest and wider; what stands in the rest is the number of no block. A sequence without a
    query has no row: the rows behind it move up.
    """
    case = make_case([20, 3, 0, 9], [1, 1, 0, 1])
    expect_attention(case, run(solution, case))


def half_precision_is_summed_in_float32(solution: Any) -> None:
    """In float16, scores are sums of products in float32, and so is the running softmax; the answer is float16.

    Half precision is for memory.
    """
    case = make_case([70], [1], num_heads=4, num_kv_heads=1, dtype="float16", block_size=16)
    expect_attention(case, run(solution, case))


def keys_and_values_are_read_once(solution: Any) -> None:
    """With 8 query heads over 2 KV heads and a context of 60, each key and each value is loaded once, not four times.

    Decoding does little arithmetic. The time goes into reading the cache, so whoever reads it once for all the heads
    that share it takes a quarter of the time.
    """
    case = make_case([60], [1], num_heads=8, num_kv_heads=2, dtype="float16", block_size=16)
    solution.traffic()
    expect_attention(case, run(solution, case))
    moved = solution.traffic()
    if moved is not None:
        cached = 2 * 60 * 2 * 32 * 2  # keys and values, 60 tokens, 2 heads of 32, 2 bytes
        small = 2 * 8 * 32 * 2 + 1024  # queries, and numbers that say where
        text = f"bytes loaded: {moved['loaded']}"
        expect_true(
            moved["loaded"] <= cached + small, text, expected=f"the cache's {cached}, and {small} at most beside"
        )
        expect(moved["stored"], 8 * 32 * 2, what="bytes stored")


def _along(axis: int, length: float) -> list[float]:
    return [length if each == axis else 0.0 for each in range(32)]


def _locate(solution: Any, table: list[int], start: int, limit: int, block_size: int) -> tuple[Any, Any, Any]:
    blocks, offsets, products = (
        solution.unwritten((16,), "int64", as_=name) for name in ("blocks", "offsets", "products")
    )
    block_table = solution.tensor(table, "int32", as_="block_table")
    solution.launch_locate(blocks, offsets, products, block_table, start, limit, BIG, block_size, 16)
    return blocks, offsets, products


def _expect_located(solution: Any, table: list[int], start: int, limit: int, block_size: int) -> None:
    blocks, offsets, _ = _locate(solution, table, start, limit, block_size)
    positions = range(start, limit)
    count = len(positions)
    expect(solution.read(blocks)[:count], [table[each // block_size] for each in positions], what="blocks")
    expect(solution.read(offsets)[:count], [each % block_size for each in positions], what="offsets")


def _expect_softmax(
    solution: Any,
    scores: list[list[float]],
    values: list[list[float]],
    wanted: list[list[float]],
    within: float = 1e-5,
) -> None:
    out = solution.unwritten((16, 16), as_="out")
    scores_, values_ = solution.tensor(scores, as_="scores"), solution.tensor(values, as_="values")
    solution.launch_softmax(out, scores_, values_, len(values) // 16)
    for row, (numbers, expected) in enumerate(zip(solution.read(out), wanted, strict=True)):
        expect(numbers, expected, what=f"row {row} of acc / total", within=within)
