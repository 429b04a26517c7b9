"""One object a block, linked into a queue, as vLLM does it; returns tuples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Block:
    number: int
    owners: int = 0
    after: Block | None = None


class BlockPool:
    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 0:
            raise ValueError("negative size")
        self.blocks = [Block(number) for number in range(num_blocks)]
        self.first: Block | None = None
        self.last: Block | None = None
        for block in self.blocks:
            self._enqueue(block)

    def _enqueue(self, block: Block) -> None:
        block.after = None
        if self.last is None:
            self.first = block
        else:
            self.last.after = block
        self.last = block

    def _dequeue(self) -> Block:
        block = self.first
        self.first = block.after
        if self.first is None:
            self.last = None
        return block

    @property
    def num_free(self) -> int:
        return sum(block.owners == 0 for block in self.blocks)

    def ref_count(self, block: int) -> int:
        if type(block) is not int or block < 0:
            raise ValueError(f"not a block: {block}")
        try:
            return self.blocks[block].owners
        except IndexError as error:
            raise ValueError(f"not a block: {block}") from error

    def allocate(self, num_blocks: int):
        if num_blocks < 0:
            raise ValueError("negative")
        if num_blocks > self.num_free:
            return None
        taken = [self._dequeue() for _ in range(num_blocks)]
        for block in taken:
            block.owners += 1
        return tuple(block.number for block in taken)

    def share(self, blocks):
        for number in blocks:
            if self.ref_count(number) < 1:
                raise ValueError(f"{number} is free")
        for number in blocks:
            self.blocks[number].owners += 1

    def free(self, blocks):
        undo = []
        try:
            for number in blocks:
                if self.ref_count(number) < 1:
                    raise ValueError(f"{number} is already free")
                self.blocks[number].owners -= 1
                undo.append(number)
        except ValueError:
            for number in undo:
                self.blocks[number].owners += 1
            raise
        for number in dict.fromkeys(blocks):
            if self.blocks[number].owners == 0:
                self._enqueue(self.blocks[number])
