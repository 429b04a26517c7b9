"""A list for a queue, a dictionary for the owners, extra methods and attributes."""


class PoolError(ValueError):
    pass


class BlockPool:
    version = "mine"

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 0:
            raise PoolError(num_blocks)
        self.size = num_blocks
        self.queue = list(range(num_blocks))
        self.owners = {}

    def __len__(self):
        return self.size

    def __repr__(self):
        return f"<{self.num_free} of {self.size}>"

    @property
    def num_free(self):
        return len(self.queue)

    def _known(self, block):
        if block not in range(self.size):
            raise PoolError(f"no such block: {block}")

    def ref_count(self, block):
        self._known(block)
        return self.owners.get(block, 0)

    def allocate(self, n):
        if n < 0:
            raise PoolError(n)
        if n > len(self.queue):
            return None
        taken, self.queue = self.queue[:n], self.queue[n:]
        self.owners.update(dict.fromkeys(taken, 1))
        return taken

    def share(self, blocks):
        if bad := [block for block in blocks if self.ref_count(block) == 0]:
            raise PoolError(f"free: {bad[0]}")
        for block in blocks:
            self.owners[block] += 1

    def free(self, blocks):
        after = dict(self.owners)
        back = []
        for block in blocks:
            self._known(block)
            if block not in after:
                raise PoolError(f"block {block} has no owner")
            after[block] -= 1
            if not after[block]:
                del after[block]
                back.append(block)
        self.owners = after
        self.queue.extend(back)
