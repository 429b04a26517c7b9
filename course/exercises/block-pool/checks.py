"""What `block-pool` promises."""

import random
from typing import Any

from course.judge.expect import expect, expect_error
from solutions.block_pool import BlockPool


def starts_with_every_block_free(solution: Any) -> None:
    """A new pool has all its blocks free.

    The scheduler admits requests by this number.
    """
    expect(solution.BlockPool(1).num_free, 1)
    expect(solution.BlockPool(8).num_free, 8)
    expect(solution.BlockPool(0).num_free, 0)


def hands_out_blocks_from_the_front(solution: Any) -> None:
    """`allocate(3)` on a new pool of 8 returns `[0, 1, 2]` and leaves 5 free.

    Block tables are lists of these numbers, so a block must never be handed out twice.
    """
    pool = solution.BlockPool(8)
    expect(pool.allocate(3), [0, 1, 2])
    expect(pool.num_free, 5)
    expect(pool.allocate(2), [3, 4])


def can_hand_out_everything(solution: Any) -> None:
    """A request for exactly the blocks that are free is met.

    A pool that always keeps one block back wastes memory that was paid for.
    """
    pool = solution.BlockPool(4)
    expect(pool.allocate(4), [0, 1, 2, 3])
    expect(pool.num_free, 0)
    expect(pool.allocate(1), None)


def allocates_zero_blocks(solution: Any) -> None:
    """`allocate(0)` returns `[]`, also when no block is free.

    A sequence whose last block has room asks for 0 more blocks. That request cannot fail.
    """
    pool = solution.BlockPool(1)
    expect(pool.allocate(0), [])
    expect(pool.allocate(1), [0])
    expect(pool.allocate(0), [])
    expect(pool.num_free, 0)


def refusal_takes_nothing(solution: Any) -> None:
    """When too few blocks are free, `allocate` returns `None` and takes none of them.

    Blocks taken for a request that is then refused belong to nobody: nobody will ever give them back.
    """
    pool = solution.BlockPool(3)
    expect(pool.allocate(2), [0, 1])
    expect(pool.allocate(2), None)
    expect(pool.num_free, 1)
    expect(pool.ref_count(2), 0)
    expect(pool.allocate(1), [2])


def counts_one_owner_after_allocating(solution: Any) -> None:
    """A block that was just allocated has one owner, a free block none.

    The count decides when a block goes back to the queue. One that starts at 0 never comes back.
    """
    pool = solution.BlockPool(2)
    expect(pool.ref_count(0), 0)
    expect(pool.allocate(1), [0])
    expect(pool.ref_count(0), 1)
    expect(pool.ref_count(1), 0)


def freed_blocks_are_free_again(solution: Any) -> None:
    """A block whose only owner gives it back is free, and can be handed out again.

    A pool that loses blocks serves fewer requests each hour, and one day none.
    """
    pool = solution.BlockPool(4)
    expect(pool.allocate(2), [0, 1])
    pool.free([0, 1])
    expect(pool.num_free, 4)
    expect(pool.ref_count(0), 0)
    expect(pool.allocate(4), [2, 3, 0, 1])


def freed_blocks_join_the_end(solution: Any) -> None:
    """Blocks that are given back go to the end of the queue, in the order given.

    The block freed longest ago is reused first. A prefix cache (chapter 10) lives on that: what was used a moment ago
    survives longest.
    """
    pool = solution.BlockPool(8)
    expect(pool.allocate(3), [0, 1, 2])
    expect(pool.allocate(2), [3, 4])
    pool.free([0, 1, 2])
    expect(pool.allocate(4), [5, 6, 7, 0])
    pool.free([7, 5])
    expect(pool.allocate(4), [1, 2, 7, 5])


def frees_out_of_order(solution: Any) -> None:
    """Blocks come back in any order, and no block in use is handed out.

    Requests end when they end, not in the order in which they came.
    """
    pool = solution.BlockPool(6)
    expect(pool.allocate(2), [0, 1])
    expect(pool.allocate(2), [2, 3])
    expect(pool.allocate(1), [4])
    pool.free([2, 3])
    expect(pool.allocate(3), [5, 2, 3])
    expect(pool.num_free, 0)


def shared_block_is_free_when_the_last_owner_leaves(solution: Any) -> None:
    """A block with three owners is free only after all three gave it back.

    Three answers to one prompt share its blocks. The first to finish must not take the memory from the others.
    """
    pool = solution.BlockPool(4)
    expect(pool.allocate(1), [0])
    pool.share([0])
    expect(pool.ref_count(0), 2)
    pool.share([0])
    expect(pool.ref_count(0), 3)
    pool.free([0])
    expect(pool.ref_count(0), 2)
    pool.free([0])
    expect(pool.num_free, 3)
    expect(pool.ref_count(0), 1)
    pool.free([0])
    expect(pool.num_free, 4)


def several_owners_leave_in_one_call(solution: Any) -> None:
    """`free([0, 0])` takes two owners from block 0, and so does `share([0, 0])` give two.

    When two tables end in the same step, their blocks may come back in one list.
    """
    pool = solution.BlockPool(2)
    expect(pool.allocate(1), [0])
    pool.share([0, 0])
    expect(pool.ref_count(0), 3)
    pool.free([0, 0])
    expect(pool.ref_count(0), 1)
    expect(pool.num_free, 1)
    pool.free([0])
    expect(pool.num_free, 2)


def refuses_a_negative_count(solution: Any) -> None:
    """`allocate(-1)` and `BlockPool(-1)` are a `ValueError`.

    A count that slips below zero somewhere else must be seen here, not as a pool that grows.
    """
    pool = solution.BlockPool(4)
    expect_error(ValueError, pool.allocate, -1)
    expect(pool.num_free, 4)
    expect_error(ValueError, solution.BlockPool, -1)


def refuses_to_free_twice(solution: Any) -> None:
    """Giving back a free block is a `ValueError` that names the block.

    A block that stands in the queue twice is handed to two requests, and each overwrites the other's tokens.
    """
    pool = solution.BlockPool(12)
    expect(pool.allocate(11), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    pool.free([10])
    expect_error(ValueError, pool.free, [10], names=10)
    expect(pool.num_free, 2)
    expect_error(ValueError, pool.free, [11], names=11)
    expect(pool.num_free, 2)


def refuses_foreign_blocks(solution: Any) -> None:
    """A block that the pool does not have is a `ValueError` that names it, in `ref_count`, `share` and `free`.

    Python counts negative indices from the end: block -1 would quietly mean the last block.
    """
    pool = solution.BlockPool(4)
    expect(pool.allocate(4), [0, 1, 2, 3])
    for block in (4, -1, -4, 100):
        expect_error(ValueError, pool.ref_count, block, names=block)
        expect_error(ValueError, pool.share, [block], names=block)
        expect_error(ValueError, pool.free, [block], names=block)
    expect(pool.num_free, 0)
    expect([pool.ref_count(block) for block in range(4)], [1, 1, 1, 1], what="the reference counts after the errors")


def refuses_to_share_a_free_block(solution: Any) -> None:
    """Sharing a free block is a `ValueError` that names it.

    A free block may be handed to somebody else at any moment.
    """
    pool = solution.BlockPool(4)
    expect_error(ValueError, pool.share, [3], names=3)
    expect(pool.ref_count(3), 0)
    expect(pool.num_free, 4)


def changes_nothing_when_it_refuses(solution: Any) -> None:
    """A call that ends in an error has changed nothing, whichever of its blocks was at fault.

    The engine refuses one bad request and goes on. It cannot go on with a pool that is half changed.
    """
    pool = solution.BlockPool(4)
    expect(pool.allocate(2), [0, 1])
    expect_error(ValueError, pool.free, [0, 9], names=9)
    expect(pool.ref_count(0), 1)
    expect_error(ValueError, pool.free, [0, 0], names=0)
    expect(pool.ref_count(0), 1)
    expect_error(ValueError, pool.share, [1, 3], names=3)
    expect(pool.ref_count(1), 1)
    expect(pool.num_free, 2)
    expect(pool.allocate(2), [2, 3])


def leaks_nothing_in_any_order(solution: Any) -> None:
    """Any history of allocating, sharing and freeing leaves every block free or owned, and in the right order.

    Real traffic is one long random history.
    """
    for seed in range(12):
        _random_history(solution, random.Random(seed), num_blocks=2 + seed // 2, num_calls=4 + 2 * seed)


def _random_history(solution: Any, rng: random.Random, num_blocks: int, num_calls: int) -> None:
    """Play one history on the answer and on the reference, then give everything back."""
    solution.start_over_()
    pool, model = solution.BlockPool(num_blocks), BlockPool(num_blocks)
    owned: list[int] = []
    for _ in range(num_calls):
        action = rng.choice(["allocate", "allocate", "share", "free", "free"])
        if action == "allocate":
            count = rng.randint(0, num_blocks)
            blocks = model.allocate(count)
            expect(pool.allocate(count), blocks)
            owned += blocks or []
            continue
        rng.shuffle(owned)
        # Each block once: where a block stands in the queue that one call frees twice is not promised.
        some = list(dict.fromkeys(owned[: rng.randint(0, len(owned))]))
        getattr(model, action)(some)
        getattr(pool, action)(some)
        for block in some:
            if action == "share":
                owned.append(block)
            else:
                owned.remove(block)
    pool.free(owned)
    expect(pool.num_free, num_blocks)
