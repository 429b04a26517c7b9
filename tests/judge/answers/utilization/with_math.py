"""With the math module, numpy-free, other names for the parameters."""

import math


def kv_bytes_per_token(layers, heads, dim, width):
    per_layer = heads * dim * width
    return layers * (per_layer + per_layer)


def _blocks(length, size):
    return math.ceil(length / size)


def reserved_utilization(lengths, limit):
    if len(lengths) == 0:
        raise ValueError("no requests")
    for length in lengths:
        if length > limit:
            raise ValueError(f"too long: {length:>6}")
    return math.fsum(lengths) / limit / len(lengths)


def paged_utilization(lengths, size):
    try:
        return sum(lengths) / sum(_blocks(length, size) * size for length in lengths)
    except ZeroDivisionError:
        raise ValueError("no requests") from None


def max_requests(memory, token_bytes, length, size, *, reserve=0):
    blocks, _ = divmod(memory - reserve, token_bytes * size)
    return int(blocks / _blocks(length, size))
