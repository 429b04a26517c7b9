"""A ring buffer of numpy integers: block numbers are numpy's, and come back in a numpy array."""

import numpy as np


class BlockPool:
    def __init__(self, num_blocks):
        if num_blocks < 0:
            raise ValueError(num_blocks)
        self.ring = np.arange(num_blocks, dtype=np.int64)
        self.head = 0
        self.count = np.int32(num_blocks)
        self.refs = np.zeros(num_blocks, dtype=np.int16)

    @property
    def num_free(self):
        return self.count

    def ref_count(self, block):
        if not (0 <= block < len(self.refs)):
            raise ValueError(f"unknown block {block}")
        return self.refs[block]

    def allocate(self, num_blocks):
        if num_blocks < 0:
            raise ValueError("negative")
        if num_blocks > self.count:
            return None
        places = (self.head + np.arange(num_blocks)) % max(len(self.ring), 1)
        self.head = (self.head + num_blocks) % max(len(self.ring), 1)
        self.count -= num_blocks
        blocks = self.ring[places]
        self.refs[blocks] = 1
        return blocks

    def share(self, blocks):
        for block in blocks:
            if not self.ref_count(block):
                raise ValueError(f"block {block} is free")
        np.add.at(self.refs, np.array(blocks, dtype=int), 1)

    def free(self, blocks):
        wanted = np.array(blocks, dtype=np.int64)
        for block in wanted:
            if self.ref_count(block) < np.count_nonzero(wanted == block):
                raise ValueError(f"block {block} freed too often")
        for block in wanted:
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.ring[(self.head + self.count) % len(self.ring)] = block
                self.count += 1
