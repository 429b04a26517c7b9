"""Time the kernels on a GPU: one line of JSON a measurement.

    python -m tests.engine.gpu_kernels            # the table: decode, prefill, writing, block sizes, layouts
    python -m tests.engine.gpu_kernels --sweep decode     # other tile sizes, to choose those of `triton_attention`
    python -m tests.engine.gpu_kernels --sweep prefill

A measurement is a CUDA graph of calls, replayed; each call reads another layer's cache, so that together they outgrow
the L2 cache, as in a model (`cold` says whether they do). `us` is the time of one call, the median over the replays,
`p10` and `p90` its spread. `floor_us` is the time in which a large copy, measured first, moves the bytes that must be
moved. `sdpa_us` is PyTorch's scaled_dot_product_attention on contiguous keys and values, by the backend that PyTorch
chooses, `flash_us` by its flash backend. Rows called "decode" and "prefill" are of the kernels that chapter 5
teaches, "engine" of what the engine uses for decode: the same, or a context split over more programs, and INT8 read
two numbers at a time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel

from course.bench.workers.truth import copy_bandwidth
from solutions import split_kv, triton_attention, triton_slot_write
from solutions.kv_cache import KVCache

L2_BYTES = 3 * 50 * 2**20
REPLAYS = 30


@dataclass(frozen=True)
class Shape:
    """A batch of `num_seqs` equal sequences; `query_len` of each one's `context_len` tokens are new."""

    num_seqs: int
    query_len: int
    context_len: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    dtype: str = "fp16"
    cache: str = "fp16"
    block_size: int = 16
    block_major: bool = True


DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "int8": torch.int8}
MHA, GQA = (12, 12, 64), (32, 8, 128)


class Inputs:
    """Random tensors of a shape, with a scrambled block table and as many layers of cache as outgrow the L2 cache."""

    def __init__(self, shape: Shape, device: str = "cuda") -> None:
        self.shape = shape
        generator = torch.Generator(device).manual_seed(0)
        width = -(-shape.context_len // shape.block_size)
        num_blocks = shape.num_seqs * width
        sizes = (shape.block_size, shape.num_kv_heads, shape.head_dim, DTYPES[shape.cache])
        self.cache_bytes = num_blocks * KVCache.bytes_per_block(1, *sizes)
        num_layers = max(1, min(48, -(-L2_BYTES // self.cache_bytes)))
        cache = KVCache(num_layers, num_blocks, *sizes, device=device)
        if shape.cache == "int8":
            cache.data.random_(-127, 128, generator=generator)
            assert cache.scales is not None
            cache.scales.fill_(2 / 127)
        else:
            cache.data.normal_(generator=generator)
        if not shape.block_major:  # the same tensors, heads before slots in memory
            cache.data = cache.data.transpose(3, 4).contiguous().transpose(3, 4)
        self.layers = [
            cache.layer(index)._replace(keys=cache.data[index, 0], values=cache.data[index, 1])
            for index in range(num_layers)
        ]
        self.cold = num_layers * self.cache_bytes >= L2_BYTES
        num_tokens = shape.num_seqs * shape.query_len
        dtype = DTYPES[shape.dtype]
        self.queries = torch.randn(num_tokens, shape.num_heads, shape.head_dim, device=device).to(dtype)
        self.new = torch.randn(2, num_tokens, shape.num_kv_heads, shape.head_dim, device=device).to(dtype)
        blocks = torch.randperm(num_blocks, generator=generator, device=device).view(shape.num_seqs, width)
        self.block_tables = blocks.int()
        positions = torch.arange(shape.context_len - shape.query_len, shape.context_len, device=device)
        block_of = blocks[:, positions // shape.block_size]
        self.slots = (block_of * shape.block_size + positions % shape.block_size).flatten()
        self.touched = touched_of(self.slots.tolist(), shape.block_size).to(device)
        self.starts = torch.arange(shape.num_seqs + 1, device=device, dtype=torch.int32) * shape.query_len
        self.context_lens = torch.full((shape.num_seqs,), shape.context_len, dtype=torch.int32, device=device)
        self.out = torch.empty_like(self.queries)

    def attention_calls(self, attend: Callable[..., Any] = triton_attention.paged_attention) -> list[Callable[[], Any]]:
        lengths = (self.starts, self.context_lens, self.shape.query_len, self.shape.head_dim**-0.5)
        return [
            lambda layer=layer: attend(  # type: ignore[misc]
                self.queries, layer, self.block_tables, *lengths, out=self.out
            )
            for layer in self.layers
        ]

    def write_calls(self) -> list[Callable[[], Any]]:
        return [
            lambda layer=layer: triton_slot_write.write_kv(  # type: ignore[misc]
                self.new[0], self.new[1], layer, self.slots, self.touched
            )
            for layer in self.layers
        ]

    def sdpa_calls(self) -> list[Callable[[], Any]]:
        """PyTorch's attention over the same numbers of keys and values, contiguous, one per layer."""
        shape = self.shape
        queries = self.queries.view(shape.num_seqs, shape.query_len, shape.num_heads, shape.head_dim).transpose(1, 2)
        size = (len(self.layers), 2, shape.num_seqs, shape.num_kv_heads, shape.context_len, shape.head_dim)
        contiguous = torch.randn(size, device=queries.device, dtype=queries.dtype)
        options = {"is_causal": shape.query_len > 1, "enable_gqa": shape.num_heads != shape.num_kv_heads}
        return [
            lambda kv=kv: F.scaled_dot_product_attention(queries, kv[0], kv[1], **options)  # type: ignore[misc]
            for kv in contiguous
        ]


def touched_of(slots: Sequence[int], block_size: int) -> torch.Tensor:
    """Return `write_kv`'s `touched` for packed rows in these slots."""
    entries: list[list[int]] = []
    for row, slot in enumerate(slots):
        if entries and entries[-1][0] == slot // block_size:
            entries[-1][2] += 1
        else:
            entries.append([slot // block_size, slot % block_size, 1, row])
    return torch.tensor(entries, dtype=torch.int32)


def measure(calls: Sequence[Callable[[], Any]], replays: int = REPLAYS) -> dict[str, float]:
    """Return the time of one call in microseconds: median and spread over replays of a graph of all calls."""
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    for _ in range(3):
        graph.replay()
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(replays)]
    for start, end in events:
        start.record()
        graph.replay()
        end.record()
    torch.cuda.synchronize()
    times = sorted(start.elapsed_time(end) * 1000 / len(calls) for start, end in events)
    spread = {"p10": times[replays // 10], "p90": times[-1 - replays // 10]}
    return {name: round(value, 2) for name, value in {"us": statistics.median(times), **spread}.items()}


def report(what: str, shape: Shape | None, **values: Any) -> None:
    """Print a measurement with what it is a measurement of."""
    line = {"what": what, **(vars(shape) if shape else {}), **values}
    if "floor_us" in line:
        line["times_floor"] = round(line["us"] / line["floor_us"], 2)
        line["floor_us"] = round(line["floor_us"], 3)
    if "sdpa_us" in line:
        line["times_sdpa"] = round(line["us"] / line["sdpa_us"], 2)
    print(json.dumps(line), flush=True)


def attention_row(what: str, shape: Shape, bandwidth: float, sdpa: bool = True) -> None:
    inputs = Inputs(shape)
    moved = inputs.cache_bytes + 2 * inputs.queries.nbytes
    attend = split_kv.paged_attention if what == "engine" else triton_attention.paged_attention
    values: dict[str, Any] = {**measure(inputs.attention_calls(attend)), "floor_us": moved / bandwidth * 1e6}
    values["cold"] = inputs.cold
    if shape.query_len > 1:
        seen = shape.query_len * (2 * shape.context_len - shape.query_len + 1) / 2
        flops = 4 * shape.num_seqs * shape.num_heads * shape.head_dim * seen
        values["tflops"] = round(flops / values["us"] / 1e6, 1)
    if sdpa:
        values["sdpa_us"] = measure(inputs.sdpa_calls())["us"]
        if shape.query_len > 1 and shape.dtype != "fp32":
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                values["flash_us"] = measure(inputs.sdpa_calls())["us"]
    report(what, shape, **values)


def decode_shapes() -> Iterator[Shape]:
    for heads in (MHA, GQA):
        for num_seqs, context_len in ((32, 8192), (1, 8192), *itertools.product((1, 32, 256), (64, 512))):
            yield Shape(num_seqs, 1, context_len, *heads)


def table(bandwidth: float) -> None:
    for shape in decode_shapes():
        attention_row("decode", shape, bandwidth)
        attention_row("engine", shape, bandwidth, sdpa=False)
        for what in ("decode", "engine"):
            attention_row(what, Shape(**{**vars(shape), "cache": "int8"}), bandwidth, sdpa=False)
    for heads in (MHA, GQA):
        attention_row("prefill", Shape(4, 2048, 2048, *heads), bandwidth)
        attention_row("prefill", Shape(4, 2048, 2048, *heads, cache="int8"), bandwidth, sdpa=False)
        attention_row("prefill", Shape(4, 512, 2048, *heads), bandwidth, sdpa=False)
        attention_row("fp32", Shape(4, 1024, 1024, *heads, dtype="fp32", cache="fp32"), bandwidth)
        attention_row("fp32", Shape(32, 1, 512, *heads, dtype="fp32", cache="fp32"), bandwidth)
    for block_size in (8, 16, 32, 64, 128, 256):
        attention_row("block_size", Shape(32, 1, 4096, *MHA, block_size=block_size), bandwidth, sdpa=False)
    for heads, num_seqs, context_len in itertools.product((MHA, GQA), (1, 32), (512, 8192)):
        attention_row("heads_first", Shape(num_seqs, 1, context_len, *heads, block_major=False), bandwidth, sdpa=False)
    for num_seqs, query_len, cache in itertools.product((1, 32, 256), (1,), ("fp16", "int8")):
        write_row(Shape(num_seqs, query_len, 64, *MHA, cache=cache), bandwidth)
    for cache in ("fp16", "int8"):
        write_row(Shape(4, 2048, 2048, *MHA, cache=cache), bandwidth)


def write_row(shape: Shape, bandwidth: float) -> None:
    inputs = Inputs(shape)
    moved = inputs.new.nbytes + inputs.new.numel() * DTYPES[shape.cache].itemsize
    report("write", shape, **measure(inputs.write_calls()), floor_us=moved / bandwidth * 1e6)


DECODE_CANDIDATES = [*itertools.product((32, 64, 128), (2, 4), (3, 5)), (16, 1, 5), (64, 1, 5), (64, 8, 5), (128, 8, 5)]
PREFILL_CANDIDATES = [
    *((128, 64, 4, 3), (128, 64, 8, 3), (128, 64, 8, 5), (64, 64, 4, 3), (64, 64, 4, 5), (128, 128, 8, 3)),
    *((128, 32, 4, 3), (128, 32, 8, 3), (128, 32, 8, 5), (64, 32, 4, 5)),
]


def sweep(kind: str) -> None:
    """Time other tiles; what does not compile or does not fit is left out."""
    if kind == "prefill":
        for heads in (MHA, GQA):
            sweep_one(Shape(4, 2048, 2048, *heads), triton_attention.PREFILL_TILES, PREFILL_CANDIDATES)
        return
    for heads in (MHA, GQA):
        for batch in ((1, 1, 64), (1, 1, 512), (32, 1, 512), (256, 1, 512), (32, 1, 8192)):
            sweep_one(Shape(*batch, *heads), triton_attention.DECODE_TILES, DECODE_CANDIDATES)
    sweep_one(Shape(32, 1, 512, *MHA, cache="int8"), triton_attention.DECODE_TILES, DECODE_CANDIDATES)


def sweep_one(shape: Shape, tiles: dict[Any, Any], candidates: Sequence[tuple[int, ...]]) -> None:
    key = (DTYPES[shape.dtype].itemsize, triton.next_power_of_2(shape.head_dim))
    inputs, before = Inputs(shape), tiles[key]
    found: list[tuple[float, str]] = []
    refused: list[str] = []
    for candidate in candidates:
        tiles[key] = candidate
        try:
            found.append((measure(inputs.attention_calls(), 20)["us"], str(candidate)))
        except triton.runtime.errors.TritonError as error:
            refused.append(f"{candidate}: {type(error).__name__}")
    tiles[key] = before
    report("sweep", shape, shipped=str(before), found=sorted(found), refused=refused)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweep", choices=["decode", "prefill"])
    options = parser.parse_args()
    print(json.dumps({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__}))
    if options.sweep:
        sweep(options.sweep)
    else:
        bandwidth = copy_bandwidth()
        report("copy", None, bytes_per_second=round(bandwidth))
        table(bandwidth)


if __name__ == "__main__":
    main()
