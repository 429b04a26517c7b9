"""What `kv-write-gather` promises."""

import random
from typing import Any

from course.judge.expect import expect

EMPTY = None  # what a slot holds that was never written


def writes_a_key_and_a_value(solution: Any) -> None:
    """One token with slot 0 puts its key and its value there, and leaves every other slot empty.

    Attention weighs tokens by their keys and reads their values: each has its own memory.
    """
    cache = solution.LayerCache(1, 2, 1, as_="cache")
    solution.write_kv([[[1.0]]], [[[10.0]]], cache, [0])
    expect(cache.keys, [[[[1.0]], EMPTY]])
    expect(cache.values, [[[[10.0]], EMPTY]])


def goes_by_the_slot(solution: Any) -> None:
    """With blocks of 4, slot 6 is in block 1 at offset 2, and slot 1 in block 0 at offset 1.

    Tokens of one step lie anywhere in the pool: the slot mapping says where.
    """
    cache = solution.LayerCache(2, 4, 1, as_="cache")
    solution.write_kv([[[1.0]], [[2.0]]], [[[10.0]], [[20.0]]], cache, [6, 1])
    expect(cache.keys, [[EMPTY, [[2.0]], EMPTY, EMPTY], [EMPTY, EMPTY, [[1.0]], EMPTY]])
    expect(cache.values, [[EMPTY, [[20.0]], EMPTY, EMPTY], [EMPTY, EMPTY, [[10.0]], EMPTY]])


def writes_every_kv_head(solution: Any) -> None:
    """A token with two KV heads of three numbers keeps both, in order.

    A slot holds one token, with all of its KV heads.
    """
    cache = solution.LayerCache(1, 1, 2, as_="cache")
    key, value = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[7.0, 8.0, 9.0], [10.0, 11.0, 12.0]]
    solution.write_kv([key], [value], cache, [0])
    expect(cache.keys, [[key]])
    expect(cache.values, [[value]])


def padding_writes_nothing(solution: Any) -> None:
    """Of two tokens with the slots 5 and -1 only the first is written: slots 0 and 15 keep what they hold.

    A batch of a fixed size has rows without a token. In Python `-1` is the last slot, which may be in use. So may be
    slot 0.
    """
    cache = solution.LayerCache(4, 4, 1, as_="cache")
    solution.write_kv([[[7.0]], [[8.0]]], [[[70.0]], [[80.0]]], cache, [0, 15])
    solution.write_kv([[[1.0]], [[99.0]]], [[[10.0]], [[990.0]]], cache, [5, -1])
    expect(cache.keys[3][3], [[8.0]], what="the key in slot 15")
    expect(cache.keys[0][0], [[7.0]], what="the key in slot 0")
    expect(cache.keys[1][1], [[1.0]], what="the key in slot 5")
    expect(cache.values[3][3], [[80.0]], what="the value in slot 15")


def padding_may_come_first(solution: Any) -> None:
    """A padding row before the real ones does not shift them: with the slots -1, 2 the second token goes to slot 2.

    A row and its slot belong together, whatever is left out.
    """
    cache = solution.LayerCache(1, 4, 1, as_="cache")
    solution.write_kv([[[99.0]], [[1.0]]], [[[990.0]], [[10.0]]], cache, [-1, 2])
    expect(cache.keys, [[EMPTY, EMPTY, [[1.0]], EMPTY]])
    expect(cache.values, [[EMPTY, EMPTY, [[10.0]], EMPTY]])


def a_later_step_adds_to_the_cache(solution: Any) -> None:
    """A second step writes its slots and leaves the others; a slot that is written again holds the new token.

    A freed block comes back with the keys of its last owner in it. Nobody clears it.
    """
    cache = solution.LayerCache(1, 4, 1, as_="cache")
    solution.write_kv([[[1.0]], [[2.0]]], [[[10.0]], [[20.0]]], cache, [0, 1])
    solution.write_kv([[[3.0]], [[4.0]]], [[[30.0]], [[40.0]]], cache, [2, 0])
    expect(cache.keys, [[[[4.0]], [[2.0]], [[3.0]], EMPTY]])
    expect(cache.values, [[[[40.0]], [[20.0]], [[30.0]], EMPTY]])


def gathers_one_token(solution: Any) -> None:
    """The context of one token, whose table is [1], is the first slot of block 1: a list of keys and a list of values.

    The table turns a position into a place.
    """
    cache = _cache(solution, 2, 4, range(8))
    expect(solution.gather_kv(cache, [1], 1), ([[[4.0]]], [[[40.0]]]))


def gathers_in_order_of_position(solution: Any) -> None:
    """With the table [2, 0] and blocks of 4, six tokens are in block 2, all of it, and then in block 0.

    Where a block lies says nothing about its place in the sequence.
    """
    cache = _cache(solution, 3, 4, range(12))
    keys = [[[8.0]], [[9.0]], [[10.0]], [[11.0]], [[0.0]], [[1.0]]]
    values = [[[80.0]], [[90.0]], [[100.0]], [[110.0]], [[0.0]], [[10.0]]]
    expect(solution.gather_kv(cache, [2, 0], 6), (keys, values))


def stops_at_the_context(solution: Any) -> None:
    """A context of 3 in a block of 4 has three keys, whether the fourth slot was never written or holds an old token.

    What lies behind the context is another sequence's past.
    """
    cache = _cache(solution, 1, 4, range(3))
    expect(solution.gather_kv(cache, [0], 3), ([[[0.0]], [[1.0]], [[2.0]]], [[[0.0]], [[10.0]], [[20.0]]]))
    solution.start_over_()
    cache = _cache(solution, 1, 4, range(4))
    expect(solution.gather_kv(cache, [0], 3), ([[[0.0]], [[1.0]], [[2.0]]], [[[0.0]], [[10.0]], [[20.0]]]))


def a_full_block_needs_no_next_one(solution: Any) -> None:
    """A context that fills its blocks exactly is gathered from those: 4 tokens from one block, 8 from two.

    At the block's edge an entry too many is soon read.
    """
    cache = _cache(solution, 2, 4, range(8))
    expect(
        solution.gather_kv(cache, [1], 4),
        ([[[4.0]], [[5.0]], [[6.0]], [[7.0]]], [[[40.0]], [[50.0]], [[60.0]], [[70.0]]]),
    )
    keys, values = solution.gather_kv(cache, [1, 0], 8)
    expect([len(keys), len(values)], [8, 8], what="the numbers of keys and values")
    expect(keys[4], [[0.0]], what="the key at position 4")


def further_entries_are_not_looked_at(solution: Any) -> None:
    """A table that goes on with -1 or with a block that does not exist gives the same as one that ends in time.

    In a batch all tables are rows of one tensor, and the short ones are filled up with anything.
    """
    cache = _cache(solution, 2, 2, range(4))
    expect(solution.gather_kv(cache, [1, -1, 1_000_000], 2), ([[[2.0]], [[3.0]]], [[[20.0]], [[30.0]]]))


def a_context_of_nothing_is_empty(solution: Any) -> None:
    """A context of 0 tokens gives two empty lists, with a table or without one.

    A request that waits has a row in the batch, and nothing in the cache.
    """
    cache = _cache(solution, 1, 2, range(2))
    expect(solution.gather_kv(cache, [0], 0), ([], []))
    expect(solution.gather_kv(cache, [], 0), ([], []))


def what_was_written_comes_back(solution: Any) -> None:
    """Three sequences that write in turns, into scrambled blocks of 1, 3 or 4 tokens, each read back their own tokens.

    This is all that paging asks of attention: write by slot, read by table.
    """
    for block_size in (4, 1, 3):
        rng = random.Random(block_size)
        solution.start_over_()
        lengths = [rng.randint(1, 9) for _ in range(3)]
        counts = [-(-length // block_size) for length in lengths]
        blocks = rng.sample(range(sum(counts) + 2), sum(counts))
        tables = [[blocks.pop() for _ in range(count)] for count in counts]
        cache = solution.LayerCache(sum(counts) + 2, block_size, 1, as_="cache")
        for position in range(max(lengths)):
            step = [seq for seq, length in enumerate(lengths) if position < length]
            tokens = [[[100.0 * seq + position]] for seq in step]
            slots = [tables[seq][position // block_size] * block_size + position % block_size for seq in step]
            solution.write_kv(tokens, [[[-vector[0]] for vector in token] for token in tokens], cache, slots)
        for seq, length in enumerate(lengths):
            keys = [[[100.0 * seq + position]] for position in range(length)]
            values = [[[-100.0 * seq - position]] for position in range(length)]
            expect(solution.gather_kv(cache, tables[seq], length), (keys, values))


def _cache(solution: Any, num_blocks: int, block_size: int, slots: range) -> Any:
    """Return a cache of one KV head in which each of `slots` holds its own number as key, and ten times it as value."""
    cache = solution.LayerCache(num_blocks, block_size, 1, as_="cache")
    solution.write_kv([[[float(slot)]] for slot in slots], [[[10.0 * slot]] for slot in slots], cache, list(slots))
    return cache
