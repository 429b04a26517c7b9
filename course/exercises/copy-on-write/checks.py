"""What `copy-on-write` promises."""

import random
from typing import Any

from course.judge.expect import expect, expect_error, expect_object, expect_true


def an_unshared_table_just_grows(solution: Any) -> None:
    """A table that shares nothing grows, and has nothing to copy.

    Most sequences never share a block. They must not pay for those that do.
    """
    pool = solution.BlockPool(4)
    table = solution.BlockTable(pool, 4)
    expect(table.append(6), [])
    expect(table.blocks, [0, 1])
    expect(table.num_tokens, 6)
    expect(table.append(1), [])
    expect(table.append(2), [])
    expect(table.blocks, [0, 1, 2])
    expect(table.num_tokens, 9)
    expect(pool.num_free, 1)


def a_shared_block_is_copied_before_the_write(solution: Any) -> None:
    """A child that writes into a shared, partly filled block 1 gets block 2 in its place, and the copy (1, 2) to make.

    Without the copy its token would land in its parent's text.
    """
    pool, table, child = _forked(solution, num_blocks=6, num_tokens=6)
    expect(child.append(1), [(1, 2)])
    expect(child.blocks, [0, 2])
    expect(child.num_tokens, 7)
    expect(table.blocks, [0, 1])
    expect(table.num_tokens, 6)
    expect(pool.num_free, 3)


def the_parent_copies_just_the_same(solution: Any) -> None:
    """When the parent is the first to write, it is the parent who gets a block of its own.

    Sharing knows no owner of higher rank.
    """
    _, table, child = _forked(solution, num_blocks=6, num_tokens=6)
    expect(table.append(1), [(1, 2)])
    expect(table.blocks, [0, 2])
    expect(child.blocks, [0, 1])


def the_old_block_loses_an_owner(solution: Any) -> None:
    """After the copy, the old block and the new one have one owner each, and the full block before them keeps two.

    An owner that is not taken off keeps the block from ever being free again.
    """
    pool, table, child = _forked(solution, num_blocks=4, num_tokens=6)
    expect(child.append(1), [(1, 2)])
    expect([pool.ref_count(block) for block in range(4)], [2, 1, 1, 0], what="the reference counts")
    table.free()
    child.free()
    expect(pool.num_free, 4)


def a_full_block_is_never_copied(solution: Any) -> None:
    """When the shared last block is full, the new token goes into a fresh block and nothing is copied.

    A full block is never written again, so its readers may share it for ever.
    """
    pool, table, child = _forked(solution, num_blocks=6, num_tokens=8)
    expect(child.append(1), [])
    expect(child.blocks, [0, 1, 2])
    expect(table.blocks, [0, 1])
    expect(pool.num_free, 3)
    expect([pool.ref_count(block) for block in range(3)], [2, 2, 1], what="the reference counts")


def the_last_owner_writes_in_place(solution: Any) -> None:
    """When the parent is gone, the child writes into the block where it is, even with no block free.

    What counts is how many owners there are now, not that there once was a fork.
    """
    pool, table, child = _forked(solution, num_blocks=2, num_tokens=6)
    table.free()
    expect(child.append(1), [])
    expect(child.blocks, [0, 1])
    expect(pool.num_free, 0)


def the_last_of_three_branches_writes_in_place(solution: Any) -> None:
    """Three branches that each write one token make two copies: the third is then the only owner of the old block.

    Read the count at every write, not once for all.
    """
    pool, table, child = _forked(solution, num_blocks=8, num_tokens=6)
    third = child.fork(as_="third")
    expect(table.append(1), [(1, 2)])
    expect(child.append(1), [(1, 3)])
    expect(third.append(1), [])
    expect(third.blocks, [0, 1])
    expect(pool.num_free, 4)


def refused_for_want_of_a_copy(solution: Any) -> None:
    """With no block free for the copy, `append` returns `None` and nothing has changed.

    The sequence will be tried again, or preempted. Both need a table that is still right.
    """
    pool, table, child = _forked(solution, num_blocks=2, num_tokens=6)
    expect(child.append(1), None)
    expect(child.blocks, [0, 1])
    expect(child.num_tokens, 6)
    expect(table.blocks, [0, 1])
    expect([pool.ref_count(0), pool.ref_count(1)], [2, 2], what="the owners of blocks 0 and 1")


def refused_for_want_of_growth(solution: Any) -> None:
    """With one block free but two needed, for the copy and to grow, `append` returns `None` and nothing has changed.

    A copy that is made and then forgotten loses a block; one that is announced and not made loses tokens.
    """
    pool, _, child = _forked(solution, num_blocks=3, num_tokens=6)
    expect(child.append(3), None)
    expect(child.blocks, [0, 1])
    expect(child.num_tokens, 6)
    expect(pool.num_free, 1)
    expect([pool.ref_count(block) for block in range(3)], [2, 2, 0], what="the reference counts")
    expect(child.append(2), [(1, 2)])


def refused_without_sharing(solution: Any) -> None:
    """A table that shares nothing is refused with `None` too, unchanged.

    `append` must not answer `[]` when there is no room: that means "go on and write".
    """
    pool = solution.BlockPool(1)
    table = solution.BlockTable(pool, 4)
    expect(table.append(4), [])
    expect(table.append(1), None)
    expect(table.blocks, [0])
    expect(table.num_tokens, 4)


def copies_and_grows_in_one_call(solution: Any) -> None:
    """A child with 6 tokens that appends 7 replaces the shared block and grows by two more.

    The copy stands where the shared block stood: the order of blocks is the order of positions.
    """
    pool, table, child = _forked(solution, num_blocks=8, num_tokens=6)
    copies = child.append(7)
    expect_true(
        isinstance(copies, list) and len(copies) == 1,
        f"child.append(7) gave {copies!r}",
        expected="one copy, from block 1",
    )
    blocks = child.blocks
    expect(copies, [(1, blocks[1])])
    expect(blocks[0], 0, what="the child's first block")
    expect(sorted(blocks[1:]), [2, 3, 4], what="the child's new blocks")
    expect(child.num_tokens, 13)
    expect(pool.num_free, 3)
    expect(table.blocks, [0, 1])


def appending_nothing_copies_nothing(solution: Any) -> None:
    """`append(0)` copies nothing, also from a shared block, and works with no block free.

    Nothing is written, so nothing is in danger.
    """
    pool, _, child = _forked(solution, num_blocks=2, num_tokens=6)
    expect(child.append(0), [])
    expect(child.blocks, [0, 1])
    expect(pool.ref_count(1), 2)


def refuses_a_negative_number(solution: Any) -> None:
    """`append(-1)` is a `ValueError` and changes nothing, shared or not.

    A length that shrinks is a mistake of the caller's.
    """
    pool, table, child = _forked(solution, num_blocks=4, num_tokens=6)
    expect_error(ValueError, child.append, -1)
    expect(child.blocks, [0, 1])
    expect(child.num_tokens, 6)
    child.free()
    expect_error(ValueError, table.append, -1)
    expect(table.num_tokens, 6)
    expect(pool.num_free, 2)


def every_branch_reads_what_it_wrote(solution: Any) -> None:
    """Branches that fork, write and end in any order each read back their own tokens, and no block is lost.

    Wrong sharing does not crash. It writes one answer's words into another's.
    """
    for seed in range(8):
        _random_branches(solution, random.Random(seed), num_blocks=6 + seed // 2, num_calls=8 + 3 * seed)


def _forked(solution: Any, num_blocks: int, num_tokens: int) -> tuple[Any, Any, Any]:
    """Return a pool, a table of `num_tokens` tokens in blocks of 4, and its child."""
    pool = solution.BlockPool(num_blocks)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(num_tokens), True)
    return pool, table, table.fork(as_="child")


def _random_branches(solution: Any, rng: random.Random, num_blocks: int, num_calls: int) -> None:
    """Play a random story of branches over a simulated KV memory of one number a slot."""
    solution.start_over_()
    block_size = 3
    pool = solution.BlockPool(num_blocks)
    memory: dict[int, int] = {}
    branches: list[tuple[Any, list[int]]] = [(solution.BlockTable(pool, block_size), [])]
    for call in range(num_calls):
        table, tokens = branches[rng.randrange(len(branches))]
        action = rng.choice(["append", "append", "append", "fork", "free"])
        if action == "append":
            _write(table, tokens, rng.randint(1, 4), call, memory, block_size)
        elif action == "fork" and len(branches) < 4:
            child = table.fork()
            expect_object(child, "BlockTable")
            branches.append((child, list(tokens)))
        elif action == "free":
            expect(_read(table, memory, block_size)[: len(tokens)], tokens, what=f"the tokens of {table!r}")
            table.free()
            tokens.clear()
    for table, tokens in branches:
        expect(_read(table, memory, block_size)[: len(tokens)], tokens, what=f"the tokens of {table!r}")
    for table, _ in branches:
        table.free()
    expect(pool.num_free, num_blocks)


def _write(table: Any, tokens: list[int], num_new: int, call: int, memory: dict[int, int], block_size: int) -> None:
    copies = table.append(num_new)
    if copies is None:
        return
    expect_true(
        isinstance(copies, list) and all(isinstance(copy, tuple | list) and len(copy) == 2 for copy in copies),
        f"the copies were {copies!r}",
        expected="a list of pairs (from block, to block)",
    )
    for source, target in copies:
        for offset in range(block_size):
            memory[target * block_size + offset] = memory.get(source * block_size + offset, 0)
    start = len(tokens)
    tokens += [100 * call + index for index in range(num_new)]
    expect(table.num_tokens, len(tokens))
    blocks = table.blocks
    expect(len(blocks), -(-len(tokens) // block_size), what=f"the number of blocks for {len(tokens)} tokens")
    for position in range(start, len(tokens)):
        memory[blocks[position // block_size] * block_size + position % block_size] = tokens[position]


def _read(table: Any, memory: dict[int, int], block_size: int) -> list[int]:
    return [memory.get(block * block_size + offset, 0) for block in table.blocks for offset in range(block_size)]
