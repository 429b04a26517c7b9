"""Batches for the attention tests, hostile on purpose, and the answer in float64 from contiguous keys and values.

Block tables are scrambled and padded with numbers of no block, unused memory holds NaN, and queries are a view into a
fused projection, as in the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from solutions import attention
from solutions.kv_cache import LayerCache

GARBAGE = 1_000_000_007


@dataclass(frozen=True)
class Case:
    """The arguments of `paged_attention`, and what it must return."""

    queries: torch.Tensor
    cache: LayerCache
    block_tables: torch.Tensor
    query_start_loc: torch.Tensor
    context_lens: torch.Tensor
    max_query_len: int
    scale: float
    expected: torch.Tensor  # float64 [num_tokens, num_heads, head_dim]
    slots: torch.Tensor  # of every token of every context, in order

    def run(self, part: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        """Call a module's `paged_attention`. The output starts as NaN, so an unwritten element shows."""
        out = torch.full_like(self.queries.contiguous(), float("nan")) if out is None else out
        arguments = (self.block_tables, self.query_start_loc, self.context_lens, self.max_query_len, self.scale)
        return part.paged_attention(self.queries, self.cache, *arguments, out=out)


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest ‖actual − expected‖ / ‖expected‖ of any row and head; NaN where one has a NaN."""
    actual, expected = actual.double(), expected.double()
    if actual.numel() == 0:
        return 0.0
    return float(((actual - expected).norm(dim=-1) / expected.norm(dim=-1).clamp_min(1e-30)).max())


def make_case(
    context_lens: Sequence[int],
    query_lens: Sequence[int],
    *,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 32,
    block_size: int = 16,
    dtype: torch.dtype = torch.float32,
    cache_dtype: torch.dtype | None = None,
    device: str = "cpu",
    seed: int = 0,
    block_major: bool = True,
) -> Case:
    """Return a batch with these contexts, of which the last `query_lens` tokens are new.

    `block_major=False` lays the cache out as `[num_blocks, num_kv_heads, block_size, head_dim]` in memory.
    """
    generator = torch.Generator(device).manual_seed(seed)
    cache_dtype = cache_dtype or dtype
    work = torch.float64 if dtype == torch.float64 else torch.float32
    num_tokens = sum(query_lens)
    fused = torch.randn(
        num_tokens, (num_heads + 2 * num_kv_heads) * head_dim, generator=generator, device=device, dtype=work
    ).to(dtype)
    queries = fused[:, : num_heads * head_dim].view(num_tokens, num_heads, head_dim)
    # Heads of different loudness: a scale or a head mixed up cannot go unnoticed.
    loudness = torch.linspace(0.5, 3, num_kv_heads, device=device, dtype=work)[:, None]
    keys, values = (
        (torch.randn(sum(context_lens), num_kv_heads, head_dim, generator=generator, device=device, dtype=work) * each)
        for each in (loudness, loudness.flip(0))
    )
    values = values + 0.5
    keys, values = keys.to(dtype), values.to(dtype)

    counts = [-(-length // block_size) for length in context_lens]
    num_blocks = sum(counts) + 3
    order = torch.randperm(num_blocks, generator=generator, device=device)
    width = max(counts, default=0) + 1
    tables = torch.full((len(counts), width), GARBAGE, dtype=torch.int32, device=device)
    tables[:, 1::2] *= -1
    slots = []
    used = 0
    for seq, (count, length) in enumerate(zip(counts, context_lens, strict=True)):
        blocks = order[used : used + count]
        tables[seq, :count] = blocks.int()
        used += count
        slots.append((blocks[:, None] * block_size + torch.arange(block_size, device=device)).flatten()[:length])
    slot_of = torch.cat(slots) if slots else torch.empty(0, dtype=torch.int64, device=device)
    cache = empty_cache(num_blocks, block_size, num_kv_heads, head_dim, cache_dtype, device, block_major)
    attention.write_kv(keys, values, cache, slot_of)
    if cache.key_scales is not None and cache.value_scales is not None:
        keys, values = (
            stored[slot_of // block_size, slot_of % block_size].double() * scales[slot_of // block_size][..., None]
            for stored, scales in ((cache.keys, cache.key_scales), (cache.values, cache.value_scales))
        )

    scale = head_dim**-0.5
    starts = [0]
    for query_len in query_lens:
        starts.append(starts[-1] + query_len)
    expected, first_key = [], 0
    for start, query_len, context_len in zip(starts, query_lens, context_lens, strict=False):
        rows = slice(first_key, first_key + context_len)
        expected.append(contiguous_attention(queries[start : start + query_len], keys[rows], values[rows], scale))
        first_key += context_len
    return Case(
        queries,
        cache,
        tables,
        torch.tensor(starts, dtype=torch.int32, device=device),
        torch.tensor(context_lens, dtype=torch.int32, device=device),
        max(query_lens, default=0),
        scale,
        torch.cat(expected) if expected else queries.double(),
        slot_of,
    )


def empty_cache(
    num_blocks: int,
    block_size: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype,
    device: str = "cpu",
    block_major: bool = True,
) -> LayerCache:
    """Return a layer's cache in which everything that can be NaN is NaN, as views into one allocation.

    There is spare memory on both sides: a planted bug that strays is wrong, and does not end the process.
    """
    integer = dtype == torch.int8
    shape = (num_blocks + 4, 2, *((block_size, num_kv_heads) if block_major else (num_kv_heads, block_size)), head_dim)
    data = torch.full(shape, 99 if integer else float("nan"), dtype=dtype, device=device)[2:-2]
    keys, values = (each if block_major else each.transpose(1, 2) for each in data.unbind(1))
    if not integer:
        return LayerCache(keys, values)
    scales = torch.full((num_blocks, 2, num_kv_heads), float("nan"), device=device)
    return LayerCache(keys, values, *scales.unbind(1))


def contiguous_attention(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
    """Return one sequence's attention in float64, head by head: nothing here is shared with what is tested."""
    queries, keys, values = queries.double(), keys.double(), values.double()
    query_len, num_heads, _ = queries.shape
    context_len, num_kv_heads, _ = keys.shape
    if query_len == 0:
        return torch.empty_like(queries)
    hidden = torch.ones(query_len, context_len, dtype=torch.bool, device=queries.device)
    hidden = hidden.triu(context_len - query_len + 1)
    outputs = []
    for head in range(num_heads):
        kv_head = head // (num_heads // num_kv_heads)
        scores = (queries[:, head] @ keys[:, kv_head].T * scale).masked_fill(hidden, float("-inf"))
        outputs.append(scores.softmax(-1) @ values[:, kv_head])
    return torch.stack(outputs, 1)
