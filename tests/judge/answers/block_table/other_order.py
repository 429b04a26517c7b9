"""Grows first and copies after, with helpers of its own, and takes blocks one by one after asking how many are free."""

import copy
import math


def blocks_needed(num_tokens, block_size):
    return math.ceil(num_tokens / block_size)


def slot_mapping(blocks, block_size, context_len, num_new):
    if num_new < 0 or num_new > context_len or context_len > block_size * len(blocks):
        raise ValueError("these positions are not in the table")
    slots = []
    for position in range(context_len)[context_len - num_new :]:
        entry, offset = divmod(position, block_size)
        slots.append(blocks[entry] * block_size + offset)
    return tuple(slots)


class BlockTable:
    def __init__(self, pool, block_size):
        self.pool = pool
        self.block_size = block_size
        self.blocks = []
        self.num_tokens = 0

    def missing_blocks(self, num_new):
        room = len(self.blocks) * self.block_size - self.num_tokens
        return max(0, math.ceil((num_new - room) / self.block_size))

    def grow(self, num_new):
        if num_new < 0:
            raise ValueError("negative")
        missing = self.missing_blocks(num_new)
        if self.pool.num_free < missing:
            return False
        for _ in range(missing):
            self.blocks.extend(self.pool.allocate(1))
        self.num_tokens = self.num_tokens + num_new
        return True

    def fork(self):
        other = copy.copy(self)
        other.blocks = self.blocks[:]
        self.pool.share(other.blocks)
        return other

    def _shared_tail(self, num_new):
        if num_new == 0 or self.num_tokens % self.block_size == 0:
            return None
        last = self.blocks[-1]
        return last if self.pool.ref_count(last) > 1 else None

    def append(self, num_new):
        if num_new < 0:
            raise ValueError("negative")
        tail = self._shared_tail(num_new)
        if self.pool.num_free < self.missing_blocks(num_new) + (tail is not None):
            return None
        where = len(self.blocks) - 1
        self.grow(num_new)
        if tail is None:
            return []
        (fresh,) = self.pool.allocate(1)
        self.blocks[where] = fresh
        self.pool.free([tail])
        return [(tail, fresh)]

    def free(self):
        self.pool.free(self.blocks)
        self.blocks = []
        self.num_tokens = 0
