"""With numpy, whose numbers come back instead of Python's."""

import numpy as np


def kv_bytes_per_token(num_layers, num_kv_heads, head_dim, bytes_per_value):
    return np.prod([2, num_layers, num_kv_heads, head_dim, bytes_per_value])


def reserved_utilization(context_lens, max_len):
    lengths = np.array(context_lens)
    if lengths.size == 0 or lengths.max() > max_len:
        raise ValueError(f"lengths {context_lens} do not fit")
    return np.mean(lengths / max_len)


def paged_utilization(context_lens, block_size):
    lengths = np.array(context_lens)
    if not lengths.size:
        raise ValueError("empty")
    return np.float64(lengths.sum() / (np.ceil(lengths / block_size).sum() * block_size))


def max_requests(kv_memory, bytes_per_token, context_len, block_size):
    return np.int64(kv_memory // (bytes_per_token * block_size * -(-context_len // block_size)))
