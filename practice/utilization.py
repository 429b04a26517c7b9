"""How much memory a KV cache needs, and how much of it holds tokens.

Everything here is arithmetic on counts: no tensor is made. Memory is in bytes, lengths are in tokens.
"""

from collections.abc import Sequence


def kv_bytes_per_token(num_layers: int, num_kv_heads: int, head_dim: int, bytes_per_value: int) -> int:
    """Return the bytes that one token's keys and values take, over all layers.

    Each layer keeps one key and one value vector of `head_dim` numbers for each KV head. With grouped-query attention
    (GQA) there are fewer KV heads than query heads, and only the KV heads are stored.
    """
    raise NotImplementedError("kv-bytes: kv_bytes_per_token is not written yet")


def reserved_utilization(context_lens: Sequence[int], max_len: int) -> float:
    """Return the share of reserved memory that holds tokens when every request reserves `max_len` tokens.

    The result lies between 0 and 1. `ValueError` when there is no request, or when one is longer than `max_len`.
    """
    raise NotImplementedError("utilization: reserved_utilization is not written yet")


def paged_utilization(context_lens: Sequence[int], block_size: int) -> float:
    """Return the share of allocated memory that holds tokens when every request takes whole blocks.

    A request takes as many blocks of `block_size` tokens as it needs and no more; only its last block can be partly
    empty. The result lies between 0 and 1. `ValueError` when there is no request.
    """
    raise NotImplementedError("utilization: paged_utilization is not written yet")


def max_requests(kv_memory: int, bytes_per_token: int, context_len: int, block_size: int) -> int:
    """Return how many requests of `context_len` tokens fit into `kv_memory` bytes, paged by `block_size` tokens.

    Memory is cut into whole blocks first, and no two requests share a block. To reserve is to page with one block as
    long as the longest request allowed, so `block_size=max_len` gives the reserving figure.
    """
    raise NotImplementedError("concurrency: max_requests is not written yet")
