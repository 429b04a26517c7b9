"""What `fork` promises."""

from typing import Any

from course.judge.expect import expect, expect_object


def the_child_has_the_same_blocks(solution: Any) -> None:
    """The child of a table over blocks [0, 1] with 6 tokens has the blocks [0, 1] and 6 tokens.

    The prompt's keys and values are there already. The child only needs to know where.
    """
    pool = solution.BlockPool(8)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(6), True)
    child = table.fork(as_="child")
    expect_object(child, "BlockTable")
    expect(child.blocks, [0, 1])
    expect(child.num_tokens, 6)
    expect(child.block_size, 4)
    expect(table.blocks, [0, 1])
    expect(table.num_tokens, 6)


def forking_takes_no_block(solution: Any) -> None:
    """A fork takes no block from the pool, so it works when none is free.

    Ten answers to one prompt cost the memory of one prompt.
    """
    pool = solution.BlockPool(2)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(8), True)
    child = table.fork(as_="child")
    expect_object(child, "BlockTable")
    expect(pool.num_free, 0)
    expect(child.blocks, [0, 1])


def every_block_gains_an_owner(solution: Any) -> None:
    """After a fork every block of the table has two owners, and after a fork of the child three.

    The count is what keeps a block alive until its last reader is done.
    """
    pool = solution.BlockPool(4)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(6), True)
    child = table.fork(as_="child")
    expect_object(child, "BlockTable")
    expect([pool.ref_count(0), pool.ref_count(1)], [2, 2], what="the owners of blocks 0 and 1")
    expect(pool.ref_count(2), 0)
    expect_object(child.fork(as_="grandchild"), "BlockTable")
    expect([pool.ref_count(0), pool.ref_count(1)], [3, 3], what="the owners of blocks 0 and 1")


def the_child_outlives_its_parent(solution: Any) -> None:
    """When the parent is freed, the child keeps every block; when the child is freed too, all are free.

    Whoever asked first may be answered first.
    """
    pool = solution.BlockPool(4)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(6), True)
    child = table.fork(as_="child")
    expect_object(child, "BlockTable")
    table.free()
    expect(pool.num_free, 2)
    expect(child.blocks, [0, 1])
    expect([pool.ref_count(0), pool.ref_count(1)], [1, 1], what="the owners of blocks 0 and 1")
    child.free()
    expect(pool.num_free, 4)


def the_tables_grow_apart(solution: Any) -> None:
    """When one of the two grows, the other's blocks and tokens stay as they were.

    Two sequences that share a past have different futures.
    """
    pool = solution.BlockPool(4)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(4), True)
    child = table.fork(as_="child")
    expect_object(child, "BlockTable")
    expect(child.grow(1), True)
    expect(child.blocks, [0, 1])
    expect(table.blocks, [0])
    expect(table.num_tokens, 4)
    expect(table.grow(5), True)
    expect(table.blocks, [0, 2, 3])
    expect(child.blocks, [0, 1])
    expect(child.num_tokens, 5)


def an_empty_table_forks_too(solution: Any) -> None:
    """The child of an empty table is an empty table, which can grow.

    A request may be split before its prompt has been looked at.
    """
    pool = solution.BlockPool(2)
    table = solution.BlockTable(pool, 4)
    child = table.fork(as_="child")
    expect_object(child, "BlockTable")
    expect(child.blocks, [])
    expect(child.num_tokens, 0)
    expect(child.grow(1), True)
    expect(table.blocks, [])
    expect(pool.num_free, 1)
