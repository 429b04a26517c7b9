"""The block pool and the block table, beyond what the exercises' checks ask."""

import random
import sys
import types
from collections.abc import Callable

import pytest

from solutions.block_pool import BlockPool
from solutions.block_table import BlockTable, slot_mapping


def test_the_chapters_pool_of_8() -> None:
    pool = BlockPool(8)
    first = pool.allocate(3)
    assert (first, pool.num_free) == ([0, 1, 2], 5)
    pool.allocate(2)
    pool.free(first)
    assert pool.allocate(4) == [5, 6, 7, 0]


def test_the_chapters_slots() -> None:
    assert slot_mapping([5, 6, 7, 0], 4, 14, 14) == [*range(20, 32), 0, 1]


def test_the_chapters_three_requests_take_blocks_in_turn() -> None:
    """Contexts of 37, 5 and 20 tokens in blocks of 4, one block each in turn."""
    pool = BlockPool(17)
    tables = [BlockTable(pool, 4) for _ in range(3)]
    wanted = [37, 5, 20]
    while any(table.num_tokens < length for table, length in zip(tables, wanted, strict=True)):
        for table, length in zip(tables, wanted, strict=True):
            if table.num_tokens < length:
                assert table.append(min(4, length - table.num_tokens)) == []
    assert [table.blocks for table in tables] == [[0, 3, 6, 8, 10, 12, 13, 14, 15, 16], [1, 4], [2, 5, 7, 9, 11]]


@pytest.mark.parametrize("seed", range(20))
def test_no_history_loses_a_block(seed: int) -> None:
    """Free blocks and owned blocks together are the pool, after every call, and counts equal the owners."""
    rng = random.Random(seed)
    num_blocks = rng.randint(1, 24)
    pool = BlockPool(num_blocks)
    tables: list[BlockTable] = [BlockTable(pool, rng.choice([1, 3, 4, 16]))]
    for _ in range(400):
        table = rng.choice(tables)
        match rng.choice(["append", "append", "append", "fork", "free", "new"]):
            case "append":
                table.append(rng.randint(0, 9))
            case "fork":
                tables.append(table.fork())
            case "free":
                table.free()
                if len(tables) > 1:
                    tables.remove(table)
            case "new":
                tables.append(BlockTable(pool, table.block_size))
        owners = [sum(table.blocks.count(block) for table in tables) for block in range(num_blocks)]
        assert [pool.ref_count(block) for block in range(num_blocks)] == owners, f"seed {seed}"
        assert pool.num_free == owners.count(0), f"seed {seed}"
        for table in tables:
            assert len(table.blocks) == -(-table.num_tokens // table.block_size), f"seed {seed}"


def test_the_work_does_not_grow_with_the_pool() -> None:
    """A pool a thousand times larger executes the same lines: counted, not timed."""

    def history(pool: BlockPool) -> None:
        table = BlockTable(pool, 4)
        table.append(30)
        child = table.fork()
        child.append(3)
        table.free()
        child.free()

    small, large = BlockPool(20), BlockPool(20_000)
    assert _lines_executed(lambda: history(small)) == _lines_executed(lambda: history(large))


def _lines_executed(call: Callable[[], None]) -> int:
    lines = 0

    def trace(frame: types.FrameType, event: str, arg: object) -> object:
        nonlocal lines
        lines += event == "line"
        return trace

    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(None)
    return lines
