"""What `block-table` promises."""

from typing import Any

from course.judge.expect import expect, expect_error


def rounds_up_to_whole_blocks(solution: Any) -> None:
    """With blocks of 4: 0 tokens need no block, 1 to 4 need one, 5 need two.

    One block too few and the last token has no place; one too many and memory is wasted.
    """
    for num_tokens, blocks in ((0, 0), (1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)):
        expect(solution.blocks_needed(num_tokens, 4), blocks)
    expect(solution.blocks_needed(7, 1), 7)


def an_empty_table_lacks_all_its_blocks(solution: Any) -> None:
    """A new table lacks one block for 1 to 4 tokens, two for 5, none for 0; asking changes nothing.

    The scheduler asks before it admits a request, and may then decide not to.
    """
    pool = solution.BlockPool(8)
    table = solution.BlockTable(pool, 4)
    for num_new, missing in ((0, 0), (1, 1), (4, 1), (5, 2)):
        expect(table.missing_blocks(num_new), missing)
    expect(table.blocks, [])
    expect(pool.num_free, 8)


def grows_into_the_first_blocks(solution: Any) -> None:
    """A table with blocks of 4 that grows by 5 tokens takes two blocks.

    The prompt of a new request arrives all at once.
    """
    pool = solution.BlockPool(8)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(5), True)
    expect(table.blocks, [0, 1])
    expect(table.num_tokens, 5)
    expect(pool.num_free, 6)


def uses_the_room_of_its_last_block(solution: Any) -> None:
    """A table takes no new block while its last one has room, and takes one for the first token past it.

    One block for every `block_size` tokens is what makes paging cheap: most steps take none.
    """
    pool = solution.BlockPool(8)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(2), True)
    expect(table.missing_blocks(2), 0)
    expect(table.missing_blocks(3), 1)
    expect(table.grow(2), True)
    expect(table.blocks, [0])
    expect(table.grow(1), True)
    expect(table.blocks, [0, 1])
    expect(table.num_tokens, 5)


def growing_by_nothing_always_works(solution: Any) -> None:
    """`grow(0)` returns `True` and takes nothing, also when no block is free.

    Needing nothing is not the same as being refused.
    """
    pool = solution.BlockPool(1)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(0), True)
    expect(table.blocks, [])
    expect(table.grow(1), True)
    expect(table.grow(0), True)
    expect(table.num_tokens, 1)


def grows_in_its_last_block_when_the_pool_is_empty(solution: Any) -> None:
    """A table whose last block has room grows although no block is free.

    In a full pool, most running sequences can still take a step.
    """
    pool = solution.BlockPool(1)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(1), True)
    expect(table.grow(3), True)
    expect(table.blocks, [0])
    expect(table.grow(1), False)


def a_refused_table_has_not_changed(solution: Any) -> None:
    """When the pool has too few blocks, `grow` returns `False` and neither table nor pool has changed.

    The scheduler then makes room or lets the sequence wait, and tries again with the same table.
    """
    pool = solution.BlockPool(3)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(6), True)
    expect(table.grow(7), False)
    expect(table.blocks, [0, 1])
    expect(table.num_tokens, 6)
    expect(pool.num_free, 1)
    expect(table.grow(6), True)
    expect(table.blocks, [0, 1, 2])


def refuses_to_shrink(solution: Any) -> None:
    """`grow(-1)` is a `ValueError` and changes nothing.

    A negative length is a mistake of the caller's; blocks are given back with `free`.
    """
    pool = solution.BlockPool(4)
    table = solution.BlockTable(pool, 4)
    expect(table.grow(6), True)
    expect_error(ValueError, table.grow, -1)
    expect(table.num_tokens, 6)
    expect_error(ValueError, table.grow, -2)
    expect(table.num_tokens, 6)
    expect(table.blocks, [0, 1])
    expect(pool.num_free, 2)


def tables_take_turns(solution: Any) -> None:
    """Two tables that grow in turn have blocks from the whole pool, in the order in which they grew.

    A sequence's blocks are not neighbours in memory. The table is what remembers their order.
    """
    pool = solution.BlockPool(6)
    first = solution.BlockTable(pool, 2, as_="first")
    second = solution.BlockTable(pool, 2, as_="second")
    for _ in range(3):
        expect(first.grow(2), True)
        expect(second.grow(2), True)
    expect(first.blocks, [0, 2, 4])
    expect(second.blocks, [1, 3, 5])
    expect(second.grow(1), False)
    first.free()
    expect(second.grow(3), True)
    expect(second.blocks, [1, 3, 5, 0, 2])
