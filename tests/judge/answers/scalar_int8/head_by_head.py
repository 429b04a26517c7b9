"""Each head by itself: a column of the block is taken out, rescaled, and put back."""

import math

INT8_MAX = 127


class Int8Cache:
    def __init__(self, num_blocks, block_size):
        self.block_size = block_size
        self.keys = [[None] * block_size for _ in range(num_blocks)]
        self.values = [[None] * block_size for _ in range(num_blocks)]
        self.key_scales = [None] * num_blocks
        self.value_scales = [None] * num_blocks


def quantise(vector, scale):
    if scale == 0:
        return [0 for _ in vector]
    quotients = [min(127.0, max(-127.0, number / scale)) for number in vector]
    # The IEEE remainder is what is left after rounding half to even.
    return [int(quotient - math.remainder(quotient, 1.0)) for quotient in quotients]


def loudest(column):
    return max((abs(number) for vector in column for number in vector), default=0.0)


def append(old, scales, new):
    if not old:
        scales = [0.0] * len(new[0])
    columns, results = [], []
    for head, scale in enumerate(scales):
        before, joining = ([token[head] for token in tokens] for tokens in (old, new))
        needed = loudest(joining) / INT8_MAX
        if needed > scale:
            before = [quantise([scale * step for step in vector], needed) for vector in before]
            scale = needed
        columns.append([*before, *(quantise(vector, scale) for vector in joining)])
        results.append(scale)
    return tuple(zip(*columns, strict=True)), results


def write_kv(keys, values, cache, slots):
    by_block = {}
    for row, slot in enumerate(slots):
        if slot < 0:
            continue
        block, offset = divmod(slot, cache.block_size)
        by_block.setdefault(block, []).append((offset, row))
    for block, places in by_block.items():
        first = places[0][0]
        for name, new in (("key", keys), ("value", values)):
            stored = getattr(cache, name + "s")[block]
            scales = getattr(cache, name + "_scales")
            tokens, scales[block] = append(stored[:first], scales[block], [new[row] for _, row in places])
            for (offset, _), token in zip(places, tokens[first:], strict=True):
                stored[offset] = token
            for offset in range(first):
                stored[offset] = tokens[offset]
