"""The paged prefill kernel on a GPU: right first, then timed against its former self, its variants and SDPA.

OUT=. python zz_prefill.py                    # 100 seconds at most
TRITON_INTERPRET=1 python zz_prefill.py --dry     # the variants' answers on a CPU, nothing timed
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

from solutions import triton_attention as now
from solutions.kv_cache import LayerCache
from solutions.triton_attention import LOG2_E, load_tile, locate, online_softmax, weighted_mean
from tests.engine.cases import Case, contiguous_attention, make_case, relative_error
from tests.engine.gpu_kernels import Inputs, Shape

BUDGET = 90.0  # seconds, then what is left is skipped
BEGAN = time.time()
TOLERANCE = 3e-3  # of fp16 in tests/engine
SHARES = 8
HEADS = {64: (12, 12), 128: (32, 8)}


@triton.jit
def old_locate(block_table_ptr, start, limit, BLOCK_SIZE: tl.constexpr, TILE: tl.constexpr):
    position = start + tl.arange(0, TILE)
    if BLOCK_SIZE >= TILE:
        block = tl.full([TILE], tl.load(block_table_ptr + start // BLOCK_SIZE), tl.int32)
    else:
        block = tl.load(block_table_ptr + position // BLOCK_SIZE, mask=position < limit, other=0)
    return block.to(tl.int64), position % BLOCK_SIZE


@triton.jit
def old_load_tile(
    cache_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
    HEAD_DIM: tl.constexpr, DIMS: tl.constexpr,
):  # fmt: skip
    vectors = block * block_stride + offset * slot_stride + kv_head * head_stride
    dim = tl.arange(0, DIMS)[None, :]
    return tl.load(cache_ptr + vectors[:, None] + dim, mask=valid[:, None] & (dim < HEAD_DIM), other=0.0)


@triton.jit
def old_kernel(
    out_ptr, queries_ptr, keys_ptr, values_ptr, key_scales_ptr, value_scales_ptr, block_tables_ptr,
    query_start_loc_ptr, context_lens_ptr, scale,
    out_row_stride, out_head_stride, query_row_stride, query_head_stride,
    block_stride, slot_stride, head_stride, scales_block_stride, scales_head_stride, table_stride,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    QUERIES: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """What was measured at 94.7 and 446.1 µs."""
    head = tl.program_id(0)
    kv_head = head // GROUP
    seq = tl.program_id(2)
    first_row = tl.load(query_start_loc_ptr + seq).to(tl.int64)
    query_len = tl.load(query_start_loc_ptr + seq + 1) - first_row.to(tl.int32)
    first_query = (tl.num_programs(1) - 1 - tl.program_id(1)) * QUERIES
    if first_query >= query_len:
        return
    context_len = tl.load(context_lens_ptr + seq)
    block_table_ptr = block_tables_ptr + seq.to(tl.int64) * table_stride
    index = first_query + tl.arange(0, QUERIES)
    position = context_len - query_len + index
    row = (first_row + index)[:, None]
    dim = tl.arange(0, DIMS)[None, :]
    mask = (index < query_len)[:, None] & (dim < HEAD_DIM)
    query = tl.load(queries_ptr + row * query_row_stride + head * query_head_stride + dim, mask=mask, other=0.0)
    acc = tl.zeros([QUERIES, DIMS], tl.float32)
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    first_position = context_len - query_len + first_query
    limit = tl.minimum(first_position + QUERIES, context_len)
    common = (first_position + 1) // TILE * TILE
    for diagonal in tl.static_range(2):
        for start in range(common if diagonal else 0, limit if diagonal else common, TILE):
            block, offset = old_locate(block_table_ptr, start, limit, BLOCK_SIZE, TILE)
            key_position = start + tl.arange(0, TILE)
            valid = key_position < limit
            keys = old_load_tile(
                keys_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride, HEAD_DIM, DIMS
            )
            values = old_load_tile(
                values_ptr, block, offset, kv_head, valid, block_stride, slot_stride, head_stride, HEAD_DIM, DIMS
            )
            scores = tl.dot(query, keys.T, input_precision="ieee") * scale
            if diagonal:
                scores = tl.where(key_position[None, :] <= position[:, None], scores, float("-inf"))
            acc, largest, total = online_softmax(scores, values, acc, largest, total)
    out = out_ptr + row * out_row_stride + head * out_head_stride + dim
    tl.store(out, weighted_mean(acc, total).to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def variant_kernel(
    out_ptr, queries_ptr, keys_ptr, values_ptr, key_scales_ptr, value_scales_ptr, block_tables_ptr,
    query_start_loc_ptr, context_lens_ptr, scale,
    out_row_stride, out_head_stride, query_row_stride, query_head_stride,
    block_stride: tl.constexpr, slot_stride: tl.constexpr, head_stride: tl.constexpr,
    scales_block_stride, scales_head_stride, table_stride,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    QUERIES: tl.constexpr, DIMS: tl.constexpr, TILE: tl.constexpr,
    FOLD: tl.constexpr, BY_SEQUENCE: tl.constexpr,
):  # fmt: skip
    """The shipped kernel, and what it might become.

    FOLD: the scale is multiplied in the exponent's FFMA, not before. BY_SEQUENCE: the longest tiles of one sequence
    first, not of all.
    """
    head = tl.program_id(0)
    kv_head = head // GROUP
    seq = tl.program_id(2 if BY_SEQUENCE else 1)
    first_row = tl.load(query_start_loc_ptr + seq).to(tl.int64)
    query_len = tl.load(query_start_loc_ptr + seq + 1) - first_row.to(tl.int32)
    context_len = tl.load(context_lens_ptr + seq)
    tile = tl.program_id(1 if BY_SEQUENCE else 2)
    first_query = (tl.num_programs(1 if BY_SEQUENCE else 2) - 1 - tile) * QUERIES
    if first_query >= query_len:
        return
    block_table_ptr = block_tables_ptr + seq.to(tl.int64) * table_stride
    common = context_len - query_len + first_query + 1
    limit = tl.minimum(common - 1 + QUERIES, context_len)
    block, offset = locate(block_table_ptr, 0, limit, BLOCK_SIZE, TILE)
    index = first_query + tl.arange(0, QUERIES)
    position = context_len - query_len + index
    row = (first_row + index)[:, None]
    dim = tl.arange(0, DIMS)[None, :]
    mask = (index < query_len)[:, None] & (dim < HEAD_DIM)
    query = tl.load(queries_ptr + row * query_row_stride + head * query_head_stride + dim, mask=mask, other=0.0)
    acc = tl.zeros([QUERIES, DIMS], tl.float32)
    largest = tl.full([QUERIES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES], tl.float32)
    for start in range(0, limit, TILE):
        key_position = start + tl.arange(0, TILE)
        valid = key_position < limit
        keys = load_tile(
            keys_ptr, None, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
            0, 0, HEAD_DIM, DIMS, query.dtype,
        )  # fmt: skip
        values = load_tile(
            values_ptr, None, block, offset, kv_head, valid, block_stride, slot_stride, head_stride,
            0, 0, HEAD_DIM, DIMS, query.dtype,
        )  # fmt: skip
        block, offset = locate(block_table_ptr, start + TILE, limit, BLOCK_SIZE, TILE)
        scores = tl.dot(query, keys.T, input_precision="ieee")
        if not FOLD:
            scores = scores * scale
        if start + TILE > common:
            scores = tl.where(key_position[None, :] <= position[:, None], scores, float("-inf"))
        if FOLD:
            new_largest = tl.maximum(largest, tl.max(scores, 1) * scale)
            weights = tl.exp2(scores * scale - new_largest[:, None])
        else:
            new_largest = tl.maximum(largest, tl.max(scores, 1))
            weights = tl.exp2(scores - new_largest[:, None])
        rescale = tl.exp2(largest - new_largest)
        total = total * rescale + tl.sum(weights, 1)
        largest = new_largest
        acc = tl.dot(weights.to(values.dtype), values, acc * rescale[:, None], input_precision="ieee")
    out = out_ptr + row * out_row_stride + head * out_head_stride + dim
    tl.store(out, weighted_mean(acc, total).to(out_ptr.dtype.element_ty), mask=mask)


@dataclass(frozen=True)
class Variant:
    """A kernel and its tiles. `kind`: old, now, or letters of variant_kernel's flags (f, s; - for none)."""

    kind: str
    queries: int
    tile: int
    warps: int
    stages: int
    maxnreg: int | None = None

    def __str__(self) -> str:
        return f"{self.kind}({self.queries},{self.tile},{self.warps},{self.stages},{self.maxnreg})"

    def launch(self, queries: Any, cache: Any, tables: Any, starts: Any, lens: Any, longest: int, out: Any) -> Any:
        heads, dim = queries.shape[1:]
        _, block_size, kv_heads, _ = cache.keys.shape
        arguments = (
            out, queries, cache.keys, cache.values, None, None, tables, starts, lens, dim**-0.5 * LOG2_E,
            *out.stride()[:2], *queries.stride()[:2], *cache.keys.stride()[:3], 0, 0, tables.stride(0),
            heads // kv_heads, dim, block_size, self.queries, triton.next_power_of_2(dim), self.tile,
        )  # fmt: skip
        tiles = triton.cdiv(longest, self.queries)
        options: dict[str, Any] = {"num_warps": self.warps, "num_stages": self.stages}
        if self.maxnreg and out.is_cuda:
            options["maxnreg"] = self.maxnreg
        if self.kind == "old":
            return old_kernel[(heads, tiles, len(lens))](*arguments, **options)
        if self.kind == "now":
            return now.prefill_kernel[(heads, len(lens), tiles)](*arguments, **options)
        fold, by_sequence = (letter in self.kind for letter in "fs")
        grid = (heads, tiles, len(lens)) if by_sequence else (heads, len(lens), tiles)
        return variant_kernel[grid](*arguments, fold, by_sequence, **options)


# One question a line. SHIPPED is what `PREFILL_TILES` holds on the branch.
NOW = {
    64: [
        *((128, 64, 8, 3), (128, 64, 8, 2), (128, 64, 8, 4), (128, 64, 4, 3), (128, 64, 4, 2), (128, 128, 8, 2)),
        *((64, 64, 4, 3), (64, 64, 4, 2), (64, 64, 4, 4), (64, 128, 4, 2), (64, 32, 4, 3), (128, 32, 4, 4)),
    ],
    128: [
        *((128, 64, 8, 2), (128, 64, 8, 2, 128), (128, 64, 8, 3), (128, 128, 8, 2), (128, 128, 8, 3)),
        *((64, 64, 4, 2), (64, 64, 4, 3), (64, 128, 4, 2), (128, 32, 8, 3), (128, 32, 8, 3, 128)),
    ],
}
FEW = {
    64: [(128, 64, 8, 3), (128, 64, 4, 3), (64, 64, 4, 3), (64, 64, 4, 2)],
    128: [(128, 64, 8, 2), (128, 64, 8, 2, 128), (128, 64, 8, 3), (128, 128, 8, 2), (64, 64, 4, 2)],
}
VARIANTS = {
    dim: [
        Variant("old", *((128, 64, 8, 5) if dim == 64 else (64, 64, 4, 3))),
        *(Variant("now", *tiles) for tiles in NOW[dim]),
        *(Variant(kind, *tiles) for kind in ("f", "s", "fs") for tiles in FEW[dim]),
    ]
    for dim in NOW
}
DRY = [Variant(kind, 32, 16, 4, 2) for kind in ("old", "now", "-", "f", "s", "fs")]

Graphs = dict[str, tuple[Any, int]]  # a CUDA graph and the number of calls in it
_kept: list[Any] = []  # what graphs read
_file: Any = None


def tell(**line: Any) -> None:
    text = json.dumps({**line, "at": round(time.time() - BEGAN, 1)})
    print(text, flush=True)
    if _file is not None:
        print(text, file=_file, flush=True)


def late() -> bool:
    return time.time() - BEGAN > BUDGET


def hostile(dim: int, device: str, dry: bool) -> Case:
    """Scrambled tables, NaN in unused memory, lengths around the sizes of blocks and tiles; strides as in `Inputs`."""
    heads, kv_heads = (4, 2) if dry else HEADS[dim]
    lens = [1, 15, 16, 17, 31, 32, 33, 63, 64, 65] + ([] if dry else [127, 128, 129, 191, 255, 256, 257, 500])
    news = [1, 15, 5, 17, 1, 32, 2, 62, 64, 33] + ([] if dry else [127, 128, 129, 1, 64, 255, 257, 131])
    dtype = torch.float32 if dry else torch.float16
    case = make_case(lens, news, num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, dtype=dtype, device=device)
    cache = LayerCache(case.cache.keys.contiguous(), case.cache.values.contiguous())
    width = -(-case.block_tables.shape[1] // 16) * 16
    tables = F.pad(case.block_tables, (0, width - case.block_tables.shape[1]), value=1_000_000_007)
    return Case(**{**vars(case), "cache": cache, "block_tables": tables})


def error_of(variant: Variant, case: Case) -> float:
    out = torch.full_like(case.queries.contiguous(), float("nan"))
    lengths = (case.block_tables, case.query_start_loc, case.context_lens, case.max_query_len)
    variant.launch(case.queries, case.cache, *lengths, out)
    return relative_error(out, case.expected)


def large_case(inputs: Inputs) -> Case:
    """The last sequence of the timed batch by itself, with its answer in float64."""
    shape, cache = inputs.shape, inputs.layers[0]
    table = inputs.block_tables[-1:].contiguous()
    offsets = torch.arange(shape.block_size, device=table.device)
    slots = (table[0].long()[:, None] * shape.block_size + offsets).flatten()[: shape.context_len]
    keys, values = (each.flatten(0, 1)[slots] for each in (cache.keys, cache.values))
    queries = inputs.queries[-shape.query_len :]
    scale = shape.head_dim**-0.5
    expected = torch.cat(
        [  # a KV head at a time: less memory
            contiguous_attention(each, keys[:, [index]], values[:, [index]], scale)
            for index, each in enumerate(queries.split(shape.num_heads // shape.num_kv_heads, 1))
        ],
        1,
    )
    start, lens = inputs.starts[:2], inputs.context_lens[-1:]
    return Case(queries, cache, table, start, lens, shape.query_len, scale, expected, slots)


def correct(variants: list[Variant], case: Case, dim: int, what: str, bound: float) -> list[Variant]:
    """Return the variants that compile and are right; tell of the others."""
    right = []
    for variant in variants:
        if late():
            break
        try:
            error = error_of(variant, case)
        except Exception as failure:  # one that does not compile or does not fit is left out
            tell(what="refused", dim=dim, variant=str(variant), error=f"{type(failure).__name__}: {failure}"[:300])
            if "CUDA error" in str(failure):
                sys.exit(f"{variant} with heads of {dim}: {failure}")  # nothing works in this process from here on
            continue
        tell(what=what if error <= bound else f"WRONG {what}", dim=dim, variant=str(variant), error=error)
        if error <= bound:
            right.append(variant)
    return right


def graph_of(calls: list[Any]) -> torch.cuda.CUDAGraph:
    _kept.append(calls)
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def timed(graphs: Graphs, rounds: int = 6, replays: int = 6) -> dict[str, list[float]]:
    """Return for each graph the time of one of its calls in microseconds, sorted; graphs take turns."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for turn in range(rounds + 1):
        for name, (graph, count) in graphs.items():
            events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(replays)]
            graph.replay()
            for start, end in events:
                start.record()
                graph.replay()
                end.record()
            torch.cuda.synchronize()
            if turn:  # the first captures of a process time differently
                times[name] += [start.elapsed_time(end) * 1000 / count for start, end in events]
    return {name: sorted(each) for name, each in times.items()}


def sdpa_graphs(inputs: Inputs) -> Graphs:
    """PyTorch's choice, its flash kernel and cuDNN's; the GQA heads repeated where a backend does not take them."""
    found = {}
    backends = {"default": None, "flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    for name, backend in backends.items():
        try:
            if backend is None:
                calls = inputs.sdpa_calls()
                found[f"sdpa {name}"] = (graph_of(calls), len(calls))
            else:
                with sdpa_kernel(backend):
                    calls = inputs.sdpa_calls()
                    found[f"sdpa {name}"] = (graph_of(calls), len(calls))
        except Exception as failure:
            tell(what="refused", dim=inputs.shape.head_dim, variant=f"sdpa {name}", error=str(failure)[:300])
    return found


def kernel_names(call: Any) -> list[str]:
    """Return the kernels that a call launches: which backend PyTorch chose."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    return sorted({event.name[:120] for event in profile.events() if event.device_type.name == "CUDA"})


def calls_of(variant: Variant, inputs: Inputs) -> list[Any]:
    lengths = (inputs.block_tables, inputs.starts, inputs.context_lens, inputs.shape.query_len)
    return [
        lambda layer=layer: variant.launch(inputs.queries, layer, *lengths, inputs.out)  # type: ignore[misc]
        for layer in inputs.layers
    ]


def compare(dim: int, variants: list[Variant]) -> None:
    inputs = Inputs(Shape(4, 2048, 2048, *HEADS[dim], dim))
    variants = correct(variants, large_case(inputs), dim, "large", TOLERANCE)
    graphs = sdpa_graphs(inputs)
    sdpa = list(graphs)
    for variant in variants:
        calls = calls_of(variant, inputs)
        graphs[str(variant)] = (graph_of(calls), len(calls))
    times = timed(graphs)
    median = {name: statistics.median(each) for name, each in times.items()}
    flops = 4 * 4 * HEADS[dim][0] * dim * 2048 * 2049 / 2
    floor = (inputs.cache_bytes + 2 * inputs.queries.nbytes) / 4.26e12 * 1e6
    for name, each in sorted(times.items(), key=lambda item: median[item[0]]):
        tell(
            what="prefill", dim=dim, variant=name, us=round(median[name], 2), p10=round(each[len(each) // 10], 2),
            p90=round(each[-1 - len(each) // 10], 2), tflops=round(flops / median[name] / 1e6, 1),
            floor_us=round(floor, 2),
            **{f"times_{other.split()[1]}": round(median[name] / median[other], 3) for other in sdpa},
        )  # fmt: skip
    try:
        tell(what="kernels", dim=dim, sdpa=kernel_names(inputs.sdpa_calls()[0]))
    except Exception as failure:
        tell(what="kernels", dim=dim, error=str(failure)[:200])


def forget() -> None:
    _kept.clear()
    gc.collect()
    torch.cuda.empty_cache()


BLOCK_SIZES = (8, 16, 32, 64, 128, 256)
CURVES = ((64, 2048), (64, 1), (128, 2048), (128, 1))


def curve_shape(dim: int, query_len: int, block_size: int) -> Shape:
    num_seqs, context_len = (4, 2048) if query_len > 1 else (32, 4096)
    return Shape(num_seqs, query_len, context_len, *HEADS[dim], dim, block_size=block_size)


def curve(dim: int, query_len: int) -> None:
    """The block sizes' curve of the shipped kernels, by the launcher."""
    graphs, kept = {}, []
    for block_size in BLOCK_SIZES:
        inputs = Inputs(curve_shape(dim, query_len, block_size))
        kept.append(inputs)
        calls = inputs.attention_calls()
        graphs[f"{block_size}"] = (graph_of(calls), len(calls))
    times = timed(graphs, 5)
    median = {name: statistics.median(each) for name, each in times.items()}
    best = min(median, key=lambda name: median[name])
    tell(
        what="block_size_16", dim=dim, query_len=query_len, best=best, times_best=round(median["16"] / median[best], 3)
    )
    for name, each in times.items():
        tell(
            what="block_size", dim=dim, query_len=query_len, block_size=int(name), us=round(statistics.median(each), 2),
            p10=round(each[len(each) // 10], 2), p90=round(each[-1 - len(each) // 10], 2),
        )  # fmt: skip


def compile_share(share: int) -> None:
    """Compile some of the variants into Triton's cache, in a process of its own."""
    jobs = [(dim, variant) for dim in VARIANTS for variant in VARIANTS[dim]]
    for dim in VARIANTS:
        case = hostile(dim, "cuda", False)
        for variant in [variant for at, variant in jobs[share::SHARES] if at == dim]:
            with contextlib.suppress(Exception):  # the main process tells
                error_of(variant, case)
    for size in [(*each, block_size) for each in CURVES for block_size in BLOCK_SIZES][share::SHARES]:
        with contextlib.suppress(Exception):
            Inputs(replace(curve_shape(*size), num_seqs=1)).attention_calls()[0]()
        forget()


def dry() -> None:
    for dim in (32, 80):
        correct(DRY, hostile(dim, "cpu", True), dim, "hostile", 1e-5)
        inputs = Inputs(Shape(2, 70, 70, 4, 2, dim, "fp32", "fp32"), "cpu")
        correct(DRY, large_case(inputs), dim, "large", 1e-5)
        broken = large_case(inputs)
        broken.expected[3, 1] *= 1.01
        assert not error_of(DRY[1], broken) < 1e-3, "a wrong answer would pass"
        calls_of(DRY[1], inputs)[0]()
        assert relative_error(inputs.out[-70:], large_case(inputs).expected) < 1e-5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dry", action="store_true", help="on a CPU, with TRITON_INTERPRET=1")
    parser.add_argument("--share", type=int, help="compile this share of the variants, nothing more")
    options = parser.parse_args()
    if options.dry:
        dry()
    elif options.share is not None:
        compile_share(options.share)
    else:
        on_gpu()


def on_gpu() -> None:
    global _file
    _file = open(os.path.join(os.environ.get("OUT", "."), "prefill.jsonl"), "w", encoding="utf-8")  # noqa: SIM115
    tell(gpu=torch.cuda.get_device_name(), torch=torch.__version__, triton=triton.__version__)
    children = [subprocess.Popen([sys.executable, __file__, "--share", str(share)]) for share in range(SHARES)]
    for child in children:
        try:
            child.wait(max(1.0, 40 - (time.time() - BEGAN)))
        except subprocess.TimeoutExpired:
            child.kill()
    tell(what="compiled", codes=[child.poll() for child in children])
    for dim in VARIANTS:
        compare(dim, correct(VARIANTS[dim], hostile(dim, "cuda", False), dim, "hostile", TOLERANCE))
        forget()
    for dim, query_len in CURVES:
        if not late():
            curve(dim, query_len)
            forget()
    tell(what="end")


if __name__ == "__main__":
    main()
