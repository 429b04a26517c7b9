"""Batches for the reference kernels on the emulator, hostile on purpose, and the answer in double precision.

Block tables are scrambled and padded with numbers of no block, memory that no token belongs to was never written, and
queries are a view into a fused projection. Nothing here needs more than Python.
"""

from __future__ import annotations

import importlib.util
import math
import random
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from course import emulator

SOLUTIONS = Path(__file__).parents[2] / "solutions"
GARBAGE = 1_000_000_007


def load(path: Path) -> ModuleType:
    """Load a kernel file on the emulator."""
    emulator.install()
    spec = importlib.util.spec_from_file_location(f"emulated_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Batch:
    """The arguments of `paged_attention`, and what it must return: `[token][head][dim]`."""

    queries: emulator.Tensor
    cache: Any
    block_tables: emulator.Tensor
    query_start_loc: emulator.Tensor
    context_lens: emulator.Tensor
    max_query_len: int
    scale: float
    expected: list[list[list[float]]]

    def run(self, attention: Any) -> list[list[list[float]]]:
        out = attention.paged_attention(
            self.queries, self.cache, self.block_tables, self.query_start_loc, self.context_lens, self.max_query_len,
            self.scale,
        )  # fmt: skip
        result: list[list[list[float]]] = out.tolist()
        return result


def make_batch(
    writer: Any,
    context_lens: Sequence[int],
    query_lens: Sequence[int],
    *,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 32,
    block_size: int = 16,
    dtype: str = "float32",
    cache_dtype: str | None = None,
    seed: int = 0,
) -> Batch:
    """Return a batch with these contexts, of which the last `query_lens` tokens are new; `writer` fills its cache."""
    rng = random.Random(seed)
    cache_dtype = cache_dtype or dtype

    def vector(loudness: float, middle: float, width: int = head_dim) -> list[float]:
        return [rounded(rng.gauss(middle, loudness), dtype) for _ in range(width)]

    counts = [-(-length // block_size) for length in context_lens]
    num_blocks = sum(counts) + 3
    order = list(range(num_blocks))
    rng.shuffle(order)
    width = max(counts, default=0) + 1
    tables, slots, keys, values = [], [], [], []
    for count, length in zip(counts, context_lens, strict=True):
        blocks, order = order[:count], order[count:]
        tables.append(blocks + [GARBAGE] * (width - count))
        slots.append([blocks[place // block_size] * block_size + place % block_size for place in range(length)])
        # Heads of different loudness: a scale or a head mixed up cannot go unnoticed.
        keys.append([[vector(0.5 + head, 0.0) for head in range(num_kv_heads)] for _ in range(length)])
        values.append([[vector(1.0, 2.0 * head) for head in range(num_kv_heads)] for _ in range(length)])
    cache = empty_cache(num_blocks, block_size, num_kv_heads, head_dim, cache_dtype)
    for sequence, (new_keys, new_values) in enumerate(zip(keys, values, strict=True)):
        write(writer, cache, new_keys, new_values, slots[sequence], block_size, dtype)
    if cache_dtype == "int8":
        keys = _dequantised(cache.keys, cache.key_scales, slots, block_size)
        values = _dequantised(cache.values, cache.value_scales, slots, block_size)

    num_tokens, fused_width = sum(query_lens), (num_heads + 2 * num_kv_heads) * head_dim
    fused = [vector(1.0, 0.0, fused_width) for _ in range(num_tokens)]
    queries = emulator.view(
        emulator.tensor(fused, dtype), (num_tokens, num_heads, head_dim), (fused_width, head_dim, 1)
    )
    starts = [sum(query_lens[:each]) for each in range(len(query_lens) + 1)]
    expected = []
    for sequence, query_len in enumerate(query_lens):
        for index in range(query_len):
            seen = context_lens[sequence] - query_len + index + 1
            row = fused[starts[sequence] + index]
            expected.append([
                attend(
                    row[head * head_dim : (head + 1) * head_dim],
                    [each[head * num_kv_heads // num_heads] for each in keys[sequence][:seen]],
                    [each[head * num_kv_heads // num_heads] for each in values[sequence][:seen]],
                )
                for head in range(num_heads)
            ])  # fmt: skip
    return Batch(
        queries, cache, emulator.tensor(tables, "int32"), emulator.tensor(starts, "int32"),
        emulator.tensor(list(context_lens), "int32"), max(query_lens, default=0), head_dim**-0.5, expected,
    )  # fmt: skip


def rounded(number: float, dtype: str) -> float:
    code = {"float16": "e", "float32": "f"}[dtype]
    return float(struct.unpack(code, struct.pack(code, number))[0])


def empty_cache(num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: str) -> Any:
    """Return a layer's cache that nobody has written."""
    shape, scales = (num_blocks, block_size, num_kv_heads, head_dim), (num_blocks, num_kv_heads)
    quantised = dtype == "int8"
    return SimpleNamespace(
        keys=emulator.unwritten(shape, dtype),
        values=emulator.unwritten(shape, dtype),
        key_scales=emulator.unwritten(scales) if quantised else None,
        value_scales=emulator.unwritten(scales) if quantised else None,
    )


def write(
    writer: Any, cache: Any, keys: Any, values: Any, slots: Sequence[int], block_size: int, dtype: str = "float32"
) -> None:
    """Write tokens of one sequence, one after the other, to their slots."""
    touched: list[list[int]] = []
    for row, slot in enumerate(slots):
        if touched and touched[-1][0] == slot // block_size:
            touched[-1][2] += 1
        else:
            touched.append([slot // block_size, slot % block_size, 1, row])
    writer.write_kv(
        emulator.tensor(keys, dtype), emulator.tensor(values, dtype), cache, emulator.tensor(list(slots), "int64"),
        emulator.tensor(touched, "int32"),
    )  # fmt: skip


def _dequantised(part: Any, scales: Any, slots: Sequence[Sequence[int]], block_size: int) -> Any:
    stored, steps = part.tolist(), scales.tolist()
    return [
        [
            [[number * steps[slot // block_size][head] for number in row]
             for head, row in enumerate(stored[slot // block_size][slot % block_size])]
            for slot in sequence
        ]
        for sequence in slots
    ]  # fmt: skip


def attend(query: Sequence[float], keys: Sequence[Sequence[float]], values: Sequence[Sequence[float]]) -> list[float]:
    """Return the attention of one query and head."""
    scores = [math.fsum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)) for key in keys]
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    total = math.fsum(weights)
    return [
        math.fsum(w * value[dim] for w, value in zip(weights, values, strict=True)) / total for dim in range(len(query))
    ]


def largest_error(actual: Any, expected: Any) -> float:
    """Return the largest difference of two nested lists; NaN is infinitely far."""
    if isinstance(expected, list):
        assert len(actual) == len(expected)
        return max((largest_error(a, b) for a, b in zip(actual, expected, strict=True)), default=0.0)
    return math.inf if math.isnan(actual) else abs(actual - expected)
