"""The block pool: which blocks of KV memory are free, and how many owners each block in use has.

The pool deals in block numbers only; the tensors that the numbers point into live elsewhere. Every operation costs the
same however large the pool is, and an operation that raises an error or is refused has changed nothing.
"""

from collections.abc import Sequence


class BlockPool:
    """Blocks `0 … num_blocks - 1`, handed out first in, first out.

    A block is free (reference count 0) or has owners (reference count 1 and up). Source of the idea: vLLM's block
    manager (Kwon et al., 2023, "Efficient Memory Management for Large Language Model Serving with PagedAttention").
    """

    def __init__(self, num_blocks: int) -> None:
        """Make a pool whose blocks are all free, block 0 at the front of the queue.

        `ValueError` when `num_blocks` is negative.
        """
        raise NotImplementedError("block-pool: BlockPool.__init__ is not written yet")

    @property
    def num_free(self) -> int:
        """The number of free blocks."""
        raise NotImplementedError("block-pool: BlockPool.num_free is not written yet")

    def ref_count(self, block: int) -> int:
        """Return the number of owners of `block`: 0 when it is free.

        `ValueError` when the pool has no such block (negative numbers included).
        """
        raise NotImplementedError("block-pool: BlockPool.ref_count is not written yet")

    def allocate(self, num_blocks: int) -> list[int] | None:
        """Take `num_blocks` blocks from the front of the queue and return their numbers, in that order.

        All or nothing: `None` when fewer blocks are free. Each block handed out has one owner.
        `ValueError` when `num_blocks` is negative.
        """
        raise NotImplementedError("block-pool: BlockPool.allocate is not written yet")

    def share(self, blocks: Sequence[int]) -> None:
        """Give each of `blocks` one more owner.

        `ValueError`, before anything changes, when a block is free or not in this pool.
        """
        raise NotImplementedError("block-pool: BlockPool.share is not written yet")

    def free(self, blocks: Sequence[int]) -> None:
        """Take one owner from each of `blocks`; a block without owners goes to the end of the queue.

        Blocks join the queue in the order given. `ValueError`, before anything changes, when a block is not in this
        pool or is given back more often than it has owners.
        """
        raise NotImplementedError("block-pool: BlockPool.free is not written yet")
