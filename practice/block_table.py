"""The block table: where one sequence's tokens live in the block pool.

Position p of a sequence is stored in its table's entry `p // block_size`, at offset `p % block_size` of that block.
A table takes its blocks from the pool that it is handed; an operation that raises an error or is refused has changed
neither the table nor the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Pool(Protocol):
    """What a block table asks of its pool; see `block_pool.BlockPool`."""

    def ref_count(self, block: int) -> int: ...
    def allocate(self, num_blocks: int) -> list[int] | None: ...
    def share(self, blocks: Sequence[int]) -> None: ...
    def free(self, blocks: Sequence[int]) -> None: ...


def blocks_needed(num_tokens: int, block_size: int) -> int:
    """Return how many blocks of `block_size` tokens hold `num_tokens` tokens."""
    raise NotImplementedError("block-table: blocks_needed is not written yet")


def slot_mapping(blocks: Sequence[int], block_size: int, context_len: int, num_new: int) -> list[int]:
    """Return the slots of the last `num_new` positions of a context of `context_len` tokens, in order of position.

    `blocks` is the sequence's block table; it may hold more blocks than the context fills. Slot
    `block * block_size + offset` is the row of the KV tensors that a token's key and value are written to.
    `ValueError` when the context is shorter than `num_new` or does not fit into the blocks.
    """
    raise NotImplementedError("slot-mapping: slot_mapping is not written yet")


class BlockTable:
    """The blocks of one sequence, in order of position, and how many tokens they hold."""

    def __init__(self, pool: Pool, block_size: int) -> None:
        self.pool = pool
        self.block_size = block_size
        self.blocks: list[int] = []
        self.num_tokens = 0

    def missing_blocks(self, num_new: int) -> int:
        """Return how many blocks the table lacks to hold `num_new` more tokens."""
        raise NotImplementedError("block-table: BlockTable.missing_blocks is not written yet")

    def grow(self, num_new: int) -> bool:
        """Make room for `num_new` more tokens, taking from the pool the blocks that are missing and no more.

        Return `False`, with nothing changed, when the pool has too few. `ValueError` when `num_new` is negative.
        """
        raise NotImplementedError("block-table: BlockTable.grow is not written yet")

    def fork(self) -> BlockTable:
        """Return a second table over the same blocks: no token is copied, each block gains an owner."""
        raise NotImplementedError("fork: BlockTable.fork is not written yet")

    def append(self, num_new: int) -> list[tuple[int, int]] | None:
        """Make room for `num_new` more tokens that are about to be written, and say what must be copied first.

        Copy-on-write: when the first new token goes into a block that others own too, a block of this table's own takes
        its place. The result lists the copies `(from block, to block)` to make before the write: one, or none. A full
        block is never written again, so it is never copied. Return `None`, with nothing changed, when the pool has too
        few blocks. `ValueError` when `num_new` is negative.
        """
        raise NotImplementedError("copy-on-write: BlockTable.append is not written yet")

    def free(self) -> None:
        """Give every block back to the pool and forget the tokens."""
        self.pool.free(self.blocks)
        self.blocks = []
        self.num_tokens = 0
