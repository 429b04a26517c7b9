"""INT8 and split decode attention on a GPU: first the truth, then time. One JSON line a measurement.

OUT=out python zz_int8.py          # at most 2 minutes, compiling included
python zz_int8.py --dry            # on a CPU: the same paths in Triton's interpreter, tiny shapes
"""

from __future__ import annotations

import functools
import gc
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

DRY = "--dry" in sys.argv
if DRY:
    os.environ["TRITON_INTERPRET"] = "1"

import torch  # noqa: E402
import triton  # noqa: E402

from solutions import split_kv, triton_attention  # noqa: E402
from tests.engine.attention_checks import TOLERANCE  # noqa: E402
from tests.engine.cases import make_case, relative_error  # noqa: E402
from tests.engine.gpu_kernels import GQA, MHA, Inputs, Shape  # noqa: E402

DEVICE = "cpu" if DRY else "cuda"
STARTED = time.time()
BUDGET = 110.0  # seconds, then what is left is skipped
PROCESSES = 8
OUT = Path(os.environ.get("OUT", "."))
KERNEL, TILES = split_kv.split_kernel, dict(triton_attention.DECODE_TILES)


def say(**line: Any) -> None:
    text = json.dumps({**line, "at": round(time.time() - STARTED, 1)})
    print(text, flush=True)
    with open(OUT / "int8.jsonl", "a", encoding="utf-8") as file:
        file.write(text + "\n")


class Patched:
    """Launches the kernel with another last argument, whether to unpack with assembly, and other options."""

    def __init__(self, asm: bool, maxnreg: int | None) -> None:
        self.asm, self.options = asm, {"maxnreg": maxnreg} if maxnreg else {}

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments, **options: KERNEL[grid](*arguments[:-1], self.asm, **options, **self.options)


@dataclass(frozen=True)
class Variant:
    """`tile`: keys, warps, stages, and most registers; None for what ships. `row`: bytes, 128 for KV heads in pairs."""

    kind: str  # paged (decode_kernel), split, pairs (split of floats in pairs), auto (split_kv as it ships), or sdpa
    cache: str
    splits: int = 1
    tile: tuple[Any, ...] | None = None
    asm: bool = True
    row: int = 128

    def call(self, inputs: Inputs, index: int) -> None:
        layer, shape = inputs.layers[index], inputs.shape
        lengths = (inputs.starts, inputs.context_lens, 1, shape.head_dim**-0.5)
        part: Any = triton_attention
        if self.kind != "paged":
            part = patch(self)
        part.paged_attention(inputs.queries, layer, inputs.block_tables, *lengths, out=inputs.out)


SHIPPED = split_kv.num_splits
INT8_TILE = split_kv.INT8_TILE


def float_pairs() -> Any:
    """split_kv, where floats are read as INT8 is: several KV heads in a row."""
    source = Path(split_kv.__file__).read_text(encoding="utf-8")
    assert source.count(" if int8 and cache") == 1
    path = Path(tempfile.gettempdir()) / f"split_kv_pairs_{os.getpid()}.py"
    path.write_text(source.replace(" if int8 and cache", " if cache"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("split_kv_pairs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.split_kernel = KERNEL  # type: ignore[attr-defined]  # the same: compiled once
    return module


FLOAT_PAIRS = float_pairs()


def patch(variant: Variant) -> Any:
    tile, maxnreg = (variant.tile[:3], variant.tile[3]) if variant.tile else (None, None)
    module: Any = FLOAT_PAIRS if variant.kind == "pairs" else split_kv
    module.DECODE_TILES = {key: tile if tile and key[0] == 2 else kept for key, kept in TILES.items()}
    module.INT8_TILE = tile or INT8_TILE
    module.num_splits = SHIPPED if variant.kind == "auto" else lambda *_: variant.splits
    module.ROW = variant.row
    module.split_kernel = KERNEL if DRY else Patched(variant.asm, maxnreg)
    return module


def int8(splits: int, *tile: Any, **options: Any) -> Variant:
    return Variant("split", "int8", splits, tile or None, **options)


PAGED = Variant("paged", "fp16")
SDPA = Variant("sdpa", "fp16")
# Programs are 192 a split; slots are 132 times what fits by registers and shared memory: best are whole multiples.
PAIRS = [  # 12 x 64: two heads a row
    *(int8(splits, 32, 1, 5, None) for splits in (4, 5, 6, 8, 11)), *(int8(5, 32, 1, stages, None) for stages in (4, 6, 7)),
    int8(5, 32, 1, 5, 168), int8(5, 32, 1, 5, 128), int8(11, 32, 1, 7, None), int8(11, 32, 1, 6, None),
    *(int8(splits, 16, 1, stages, None) for splits in (5, 11) for stages in (5, 7)),
    int8(8, 64, 2, 5, None), int8(4, 128, 4, 5, None), int8(5, 32, 1, 5, None, asm=False),
]  # fmt: skip
WIDE = [  # 32/8 x 128: 256 programs a split
    *(int8(splits, 32, 1, 5, None) for splits in (2, 3, 4, 5, 6)), *(int8(4, 32, 1, stages, None) for stages in (4, 6, 7)),
    int8(1, 128, 4, 5, None), int8(2, 64, 2, 5, None), int8(4, 32, 1, 5, None, asm=False),
]  # fmt: skip


def plans() -> list[tuple[Shape, list[Variant]]]:
    if DRY:
        variants = [
            PAGED,
            Variant("pairs", "fp16", 2),
            int8(1),
            int8(3),
            int8(2, 32, 1, 2, None, row=64),
            Variant("auto", "fp16"),
        ]
        return [(Shape(2, 1, 70, 2, 2, 64), [*variants, Variant("split", "fp16", 3), Variant("auto", "int8")])]
    found = [(Shape(32, 1, 8192, *heads), [PAGED, SDPA, Variant("paged", "int8"), *variants, Variant("auto", "int8")])
             for heads, variants in ((MHA, PAIRS), (GQA, WIDE))]  # fmt: skip
    found[0][1].extend(Variant("pairs", "fp16", each, (64, warps, 5, None)) for each in (2, 3) for warps in (2, 4))
    # Few sequences: how many parts?
    for heads in (MHA, GQA):
        for num_seqs, context_len in ((1, 512), (1, 8192), (4, 2048), (8, 1024), (16, 1024), (32, 1024)):
            split = [PAGED, SDPA, Variant("auto", "fp16"), Variant("auto", "int8")]
            split += [Variant("pairs", "fp16", each) for each in (8, 16, 32) if heads == MHA]
            found.append((Shape(num_seqs, 1, context_len, *heads), split))
        for num_seqs, context_len, splits in (
            (1, 512, (4, 8)), (1, 8192, (32, 64, 128)), (8, 1024, (4, 8, 16)), (32, 512, (1, 2, 4)), (256, 512, (1, 2)),
            (256, 64, (1,)),
        ):  # fmt: skip
            split = [Variant("split", "int8", each) for each in splits]
            split += [Variant("split", "int8", splits[-1], (64, 2, 5, None))]
            found.append((Shape(num_seqs, 1, context_len, *heads), [PAGED, *split, Variant("auto", "int8")]))
    return found


# ---- the truth ----

LENGTHS = [1, 15, 16, 17, 63, 64, 65, 0, 193, 256, 257, 1023, 1500]
HEADS = ((12, 12, 64, 16), (32, 8, 128, 16), (9, 3, 80, 8), (8, 4, 32, 16), (12, 6, 48, 8), (25, 25, 64, 32))
CHECKED = [
    (query, cache, heads, splits, asm)
    for query, cache in (("float16", "float16"), ("float16", "int8"), ("bfloat16", "int8"), ("float32", "int8"))
    for heads in HEADS
    for splits in (1, 3)
    for asm in ((True, False) if (query, cache, splits) == ("float16", "int8", 1) else (True,))
    if not (cache == "float16" and splits == 1)
]


def check(query: str, cache: str, heads: tuple[int, int, int, int], splits: int, asm: bool) -> None:
    """Compare every row and head with float64; the rows around the output must stay."""
    lengths = LENGTHS[:6] if DRY else LENGTHS
    num_heads, num_kv_heads, head_dim, block_size = heads
    dtype = getattr(torch, query)
    case = make_case(
        lengths, [min(each, 1) for each in lengths], num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim,
        block_size=block_size, dtype=dtype, cache_dtype=getattr(torch, cache), device=DEVICE,
    )  # fmt: skip
    patch(Variant("split", cache, splits, asm=asm))
    rows, *shape = case.queries.shape
    guarded = torch.full((rows + 20, *shape), -7.0, dtype=dtype, device=DEVICE)
    guarded[10 : 10 + rows] = float("nan")
    case.run(split_kv, out=guarded[10 : 10 + rows])
    error = relative_error(guarded[10 : 10 + rows], case.expected)
    right = error <= TOLERANCE[dtype] and bool((guarded[:10] == -7).all() and (guarded[10 + rows :] == -7).all())
    what = "check" if right else "WRONG check"
    say(what=what, query=query, cache=cache, heads=heads, splits=splits, asm=asm, error=error)


def release() -> None:
    gc.collect()
    if not DRY:
        torch.cuda.empty_cache()


def warm(index: int, count: int) -> None:
    """Check and compile one share of it all, so that processes side by side fill Triton's cache."""
    checks = [functools.partial(check, *arguments) for arguments in CHECKED]
    # Variants that differ only in splits or context length share a kernel.
    kernels = {
        (shape.num_heads, each.cache, each.tile, each.asm, each.row, each.splits > 1, each.kind): (shape, each)
        for shape, variants in plans()
        for each in variants
        if each.kind in ("paged", "split", "pairs")
    }

    def compile_one(shape: Shape, variant: Variant) -> None:
        variant.call(Inputs(replace(shape, num_seqs=2, context_len=256, cache=variant.cache), DEVICE), 0)
        torch.cuda.synchronize()

    jobs = [functools.partial(compile_one, *each) for each in kernels.values()] + checks
    for job in jobs[index::count]:
        try:
            job()
        except Exception as error:
            say(what="refused", job=str(job.args), error=f"{type(error).__name__}: {str(error)[:300]}")
        release()


def ended(children: list[Any], seconds: float) -> list[Any]:
    ends: list[Any] = []
    for child in children:
        try:
            ends.append(child.wait(timeout=max(1.0, seconds - (time.time() - STARTED))))
        except subprocess.TimeoutExpired:
            child.kill()
            ends.append("too slow")
    return ends


# ---- time ----

KEEP: list[Any] = []  # what graphs of the shape at hand read from and write to


@functools.lru_cache(2)
def inputs_of(shape: Shape) -> Inputs:
    return Inputs(shape, DEVICE)


def expected_of(inputs: Inputs) -> torch.Tensor:
    Variant("paged", inputs.shape.cache).call(inputs, 0)
    return inputs.out.clone()


def capture(shape: Shape, variant: Variant) -> tuple[Any, int]:
    inputs = inputs_of(replace(shape, cache=variant.cache))
    count = len(inputs.layers)
    calls: list[Any] = [lambda index=index: variant.call(inputs, index) for index in range(count)]
    if variant.kind == "sdpa":
        calls = inputs.sdpa_calls()
    else:
        expected = expected_of(inputs)
        inputs.out.fill_(float("nan"))
        calls[0]()
        error = relative_error(inputs.out, expected)
        if not error < 1e-2:
            raise RuntimeError(f"WRONG: {error} from the paged kernel's answer")
    if DRY:
        return calls[0], 1
    for call in calls[:2]:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    KEEP.append((graph, inputs, calls))
    return graph, count


def replay(graph: Any) -> float:
    """Return the microseconds of one replay."""
    if DRY:
        before = time.perf_counter()
        graph()
        return (time.perf_counter() - before) * 1e6
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end) * 1e3)


def time_shape(shape: Shape, variants: list[Variant], bandwidth: float, rounds: int) -> None:
    """Replay the variants' graphs in turn. All are alive at once: their caches must fit side by side."""
    ready: list[tuple[Variant, Any, int]] = []
    for variant in variants:
        try:
            ready.append((variant, *capture(shape, variant)))
        except Exception as error:
            traceback.print_exc(limit=2)
            say(what="failed", **vars(shape), variant=str(variant), error=f"{type(error).__name__}: {str(error)[:300]}")
            if "CUDA error" in str(error):
                sys.exit("nothing works in this process from here on")
    times: list[list[float]] = [[] for _ in ready]
    for turn in range(rounds + 2):
        for index, (_, graph, count) in enumerate(ready):
            elapsed = replay(graph)
            if turn >= 2:
                times[index].append(elapsed / count)
    paged = next((statistics.median(times[i]) for i, (each, *_) in enumerate(ready) if each == PAGED), None)
    rows = []
    for (variant, _, _), each in zip(ready, times, strict=True):
        each.sort()
        inputs = inputs_of(replace(shape, cache=variant.cache))
        floor = (inputs.cache_bytes + 2 * inputs.queries.nbytes) / bandwidth * 1e6
        us = statistics.median(each)
        row = vars(variant) | {
            "us": round(us, 2), "p10": round(each[len(each) // 10], 2), "p90": round(each[-1 - len(each) // 10], 2),
            "floor_us": round(floor, 2), "paged_over_it": paged and round(paged / us, 3),
        }  # fmt: skip
        rows.append(row)
        say(what="decode", **(vars(shape) | row))
    rows.sort(key=lambda row: row["us"])
    best = [(r["kind"], r["cache"], r["splits"], r["tile"], r["asm"], r["us"], r["paged_over_it"]) for r in rows[:5]]
    say(what="summary", shape=str(shape), paged=paged, best=best)


def copy_bandwidth() -> float:
    """Return the bytes a second that a copy of 1 GB on the device moves, read and written."""
    source = torch.zeros(1 << 30, dtype=torch.int8, device=DEVICE)
    target = torch.empty_like(source)
    times = []
    for _ in range(20):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return 2 * source.nbytes / statistics.median(times[5:])


def main() -> None:
    if "--warm" in sys.argv:
        warm(*map(int, sys.argv[-2:]))
        return
    bandwidth = 4.26e12
    if DRY:
        for arguments in [each for each in CHECKED if each[0] != "bfloat16" and each[2][2] in (80, 32, 48)]:
            check(*arguments)
    else:
        say(what="gpu", name=torch.cuda.get_device_name(), torch=torch.__version__, triton=triton.__version__)
        children = [
            subprocess.Popen([sys.executable, __file__, "--warm", str(index), str(PROCESSES)])
            for index in range(PROCESSES)
        ]
        say(what="compiled", ends=ended(children, 60))
        bandwidth = copy_bandwidth()
        release()
        say(what="copy", bytes_a_second=bandwidth)
        for _ in range(2):  # the first two captures of a process time differently
            capture(Shape(1, 1, 64, *MHA), PAGED)
    for shape, variants in plans():
        if time.time() - STARTED > BUDGET:
            say(what="out of time", shape=str(shape))
            continue
        time_shape(shape, variants, bandwidth, 2 if DRY else 40)
        KEEP.clear()
        inputs_of.cache_clear()
        release()


if __name__ == "__main__":
    main()
