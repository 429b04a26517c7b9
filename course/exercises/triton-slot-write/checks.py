"""What `slot_write_kernel` promises."""

import math
import random
from typing import Any

from course.judge.expect import Failure, expect, expect_true

Token = list[list[float]]  # one vector for each head


def one_token_goes_to_its_slot(solution: Any) -> None:
    """One token with one head goes to slot 11: block 1, offset 3 with blocks of 8.

    What a slot means is decided once, in the engine; the kernel only follows it.
    """
    _expect_written(solution, _tokens(1, 1, 16), [11])


def every_token_has_a_slot_of_its_own(solution: Any) -> None:
    """Tokens 0 to 3 of a step go to the slots 12, 13, 30 and 0, in that order; nothing else is written.

    Neighbours in a batch are seldom neighbours in memory.
    """
    _expect_written(solution, _tokens(4, 1, 16), [12, 13, 30, 0])


def every_head_is_written(solution: Any) -> None:
    """With 4 heads, each head of a token lands in its own place of the slot.

    Swap two strides and head 0 of a block's first slot is still right.
    """
    _expect_written(solution, _tokens(3, 4, 16), [9, 2, 17])


def values_are_not_keys(solution: Any) -> None:
    """Keys go to the key cache and values to the value cache, read with their own strides.

    In a model with grouped heads the two come out of one projection, and lie apart in it.
    """
    keys, values = _tokens(2, 2, 16), _tokens(2, 2, 16, seed=5)
    fused = [[*_flat(key), *_flat(value)] for key, value in zip(keys, values, strict=True)]
    new = solution.tensor(fused, as_="kv")
    cache = _cache(solution, 2, 16)
    solution.write_kv(
        solution.view(new, (2, 2, 16), (64, 16, 1), as_="new_keys"),
        solution.view(new, (2, 2, 16), (64, 16, 1), 32, as_="new_values"),
        cache,
        solution.tensor([5, 24], "int64", as_="slots"),
    )
    _expect_cache(solution, cache.keys, keys, [5, 24], "keys")
    _expect_cache(solution, cache.values, values, [5, 24], "values")
    solution.start_over_()
    packed = solution.tensor(values, as_="new_values")
    wide = solution.tensor(fused, as_="kv")
    cache = _cache(solution, 2, 16)
    view = solution.view(wide, (2, 2, 16), (64, 16, 1), as_="new_keys")
    solution.write_kv(view, packed, cache, solution.tensor([5, 24], "int64", as_="slots"))
    _expect_cache(solution, cache.keys, keys, [5, 24], "keys")
    _expect_cache(solution, cache.values, values, [5, 24], "values")


def padding_is_not_written(solution: Any) -> None:
    """A token whose slot is negative leaves no trace.

    A captured graph runs a batch of a fixed size. The rows that nobody uses must not write over somebody's token.
    """
    _expect_written(solution, _tokens(3, 2, 16), [-1, 4, -1])


def heads_between_powers_of_two_are_masked(solution: Any) -> None:
    """With 3 heads of 48 numbers, nothing is read or written beside them, though the block has 4 heads of 64.

    What lies behind a token's last head is the next token's first: two programs would write to one address.
    """
    _expect_written(solution, _tokens(4, 3, 48), [7, 8, 9, 20])


def new_keys_may_be_a_view(solution: Any) -> None:
    """Keys and values may be slices of a wider tensor, the fused projection of queries, keys and values.

    A model multiplies once for all three. A copy to make them tight would cost more than this kernel does.
    """
    keys, values = _tokens(3, 2, 16), _tokens(3, 2, 16, seed=5)
    rows = [[None] * 64 + _flat(key) + _flat(value) for key, value in zip(keys, values, strict=True)]
    fused = solution.tensor(rows, as_="qkv")
    cache = _cache(solution, 2, 16)
    solution.write_kv(
        solution.view(fused, (3, 2, 16), (128, 16, 1), 64, as_="new_keys"),
        solution.view(fused, (3, 2, 16), (128, 16, 1), 96, as_="new_values"),
        cache,
        solution.tensor([3, 4, 31], "int64", as_="slots"),
    )
    _expect_cache(solution, cache.keys, keys, [3, 4, 31], "keys")
    _expect_cache(solution, cache.values, values, [3, 4, 31], "values")


def the_cache_may_have_any_layout(solution: Any) -> None:
    """A cache that keeps a block's heads apart, `[block][head][slot]`, and values behind keys, is written right too.

    The launcher passes three strides. Whoever uses them need not know the layout.
    """
    keys, values = _tokens(3, 2, 16), _tokens(3, 2, 16, seed=5)
    memory = solution.unwritten((4, 2, 2, 8, 16), as_="memory")  # block, keys or values, head, slot, number
    strides = (2 * 2 * 8 * 16, 16, 8 * 16, 1)
    cache = solution.layer_cache(
        solution.view(memory, (4, 8, 2, 16), strides, as_="keys"),
        solution.view(memory, (4, 8, 2, 16), strides, 2 * 8 * 16, as_="values"),
        as_="cache",
    )
    new_keys, new_values = solution.tensor(keys, as_="new_keys"), solution.tensor(values, as_="new_values")
    solution.write_kv(new_keys, new_values, cache, solution.tensor([11, 8, 30], "int64", as_="slots"))
    _expect_cache(solution, cache.keys, keys, [11, 8, 30], "keys")
    _expect_cache(solution, cache.values, values, [11, 8, 30], "values")


def the_cache_may_be_of_another_type(solution: Any) -> None:
    """Keys in float32 go into a cache in float16, rounded to it.

    The cache is the larger part of the memory; a model that computes in float32 may keep it in half.
    """
    keys, values = _tokens(2, 2, 16), _tokens(2, 2, 16, seed=5)
    cache = _cache(solution, 2, 16, "float16")
    new_keys, new_values = solution.tensor(keys, as_="new_keys"), solution.tensor(values, as_="new_values")
    solution.write_kv(new_keys, new_values, cache, solution.tensor([1, 15], "int64", as_="slots"))
    _expect_cache(solution, cache.keys, keys, [1, 15], "keys", within=2e-3)
    _expect_cache(solution, cache.values, values, [1, 15], "values", within=2e-3)


def nothing_is_moved_twice(solution: Any) -> None:
    """Each number is read once and written once; of a row of padding, only the slot is read.

    This kernel computes nothing. The bytes that it moves are its whole cost.
    """
    new_keys, new_values = (solution.tensor(_tokens(5, 3, 48), as_=name) for name in ("new_keys", "new_values"))
    cache = _cache(solution, 3, 48)
    slots = solution.tensor([-1, 6, 7, 8, -1], "int64", as_="slots")
    solution.traffic()
    solution.write_kv(new_keys, new_values, cache, slots)
    moved = solution.traffic()
    if moved is not None:
        numbers = 3 * 2 * 3 * 48 * 4  # three tokens, keys and values, three heads of 48, four bytes
        expect(moved["stored"], numbers, what="bytes stored")
        text = f"bytes loaded: {moved['loaded']}"
        expect_true(moved["loaded"] <= numbers + 5 * 8, text, expected=f"{numbers + 5 * 8}, the five slots included")


def _tokens(count: int, num_heads: int, head_dim: int, seed: int = 0) -> list[Token]:
    rng = random.Random(seed)
    return [[[rng.randint(-96, 96) / 64 for _ in range(head_dim)] for _ in range(num_heads)] for _ in range(count)]


def _flat(token: Token) -> list[float]:
    return [number for head in token for number in head]


def _cache(solution: Any, num_heads: int, head_dim: int, dtype: str = "float32") -> Any:
    """Return a cache of 4 blocks of 8 that nobody has written."""
    shape = (4, 8, num_heads, head_dim)
    return solution.layer_cache(
        solution.unwritten(shape, dtype, as_="keys"), solution.unwritten(shape, dtype, as_="values"), as_="cache"
    )


def _expect_written(solution: Any, keys: list[Token], slots: list[int]) -> None:
    values = [[[number + 8 for number in head] for head in token] for token in keys]
    cache = _cache(solution, len(keys[0]), len(keys[0][0]))
    new_keys, new_values = solution.tensor(keys, as_="new_keys"), solution.tensor(values, as_="new_values")
    solution.write_kv(new_keys, new_values, cache, solution.tensor(slots, "int64", as_="slots"))
    _expect_cache(solution, cache.keys, keys, slots, "keys")
    _expect_cache(solution, cache.values, values, slots, "values")


def _expect_cache(
    solution: Any, stored: Any, tokens: list[Token], slots: list[int], what: str, within: float = 1e-9
) -> None:
    """Fail unless the slots hold the tokens' heads, and nothing else was written."""
    owners = {slot: row for row, slot in enumerate(slots) if slot >= 0}
    for block, tokens_of_block in enumerate(solution.read(stored)):
        for offset, heads in enumerate(tokens_of_block):
            slot = block * len(tokens_of_block) + offset
            for head, numbers in enumerate(heads):
                place = f"the {what} in slot {slot} (block {block}, offset {offset}), head {head}"
                if slot in owners:
                    wanted = tokens[owners[slot]][head]
                    expect([_shown(each) for each in numbers], wanted, what=place, within=within)
                elif not all(map(math.isnan, numbers)):
                    raise Failure(f"{place} were written: {numbers[:4]} …", "nothing: no token has this slot")


def _shown(number: float) -> Any:
    return "not written" if math.isnan(number) else number
