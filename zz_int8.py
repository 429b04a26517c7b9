"""INT8 and split decode attention on a GPU: first the truth, then time. One JSON line a measurement.

OUT=out python zz_int8.py          # about 4 minutes, compiling included
python zz_int8.py --dry            # on a CPU: the same paths in Triton's interpreter, tiny shapes
"""

from __future__ import annotations

import argparse
import functools
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

import torch
import torch.nn.functional as F

from solutions import split_kv, triton_attention
from tests.engine.attention_checks import TOLERANCE
from tests.engine.cases import make_case, relative_error
from tests.engine.gpu_kernels import GQA, MHA, Inputs, Shape

DEVICE = "cpu" if DRY else "cuda"
BANDWIDTH = 4.26e12
STARTED = time.time()
PROCESSES = 10
OUT = Path(os.environ.get("OUT", "."))
KEPT = split_kv.split_kernel, split_kv.num_splits, dict(split_kv.TILES), dict(triton_attention.DECODE_TILES)


def say(**line: Any) -> None:
    text = json.dumps(line)
    print(text, flush=True)
    with open(OUT / "int8.jsonl", "a", encoding="utf-8") as file:
        file.write(text + "\n")


def with_pdl() -> Any:
    """split_kv, whose second kernel is launched before the first one ends (programmatic dependent launch)."""
    source = Path(split_kv.__file__).read_text(encoding="utf-8")
    for old, new in (
        ("import triton.language as tl\n",
         "import triton.language as tl\nfrom triton.language.extra.cuda import gdc_launch_dependents, gdc_wait\n"),
        ("    kv_head = tl.program_id(0)\n    seq = tl.program_id(1)\n    split",
         "    gdc_launch_dependents()\n    kv_head = tl.program_id(0)\n    seq = tl.program_id(1)\n    split"),
        ("    head = tl.program_id(0)\n    seq = tl.program_id(1)\n    row",
         "    gdc_wait()\n    head = tl.program_id(0)\n    seq = tl.program_id(1)\n    row"),
        ("num_warps=1,\n", "num_warps=1, launch_pdl=True,\n"),
    ):  # fmt: skip
        assert source.count(old) == 1, f"{source.count(old)} times: {old}"
        source = source.replace(old, new)
    path = Path(tempfile.gettempdir()) / "split_kv_pdl.py"
    path.with_suffix(f".{os.getpid()}").write_text(source, encoding="utf-8")
    path.with_suffix(f".{os.getpid()}").replace(path)
    spec = importlib.util.spec_from_file_location("split_kv_pdl", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KEEP: list[Any] = []  # what graphs of the shape at hand read from and write to
PDL = None if DRY else with_pdl()


class Patched:
    """Launches a kernel with another last argument: whether to unpack with assembly."""

    def __init__(self, kernel: Any, asm: bool) -> None:
        self.kernel, self.asm = kernel, asm

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments, **options: self.kernel[grid](*arguments[:-1], self.asm, **options)


@dataclass(frozen=True)
class Variant:
    kind: str  # paged (decode_kernel), split, pdl, or sdpa
    cache: str
    splits: int = 1
    tile: tuple[Any, ...] | None = None
    asm: bool = True

    def call(self, inputs: Inputs, index: int) -> None:
        layer, shape = inputs.layers[index], inputs.shape
        lengths = (inputs.starts, inputs.context_lens, 1, shape.head_dim**-0.5)
        if self.kind == "paged":
            key = (2, shape.head_dim)
            triton_attention.DECODE_TILES[key] = self.tile or KEPT[3][key]
            triton_attention.paged_attention(inputs.queries, layer, inputs.block_tables, *lengths, out=inputs.out)
            return
        module = split_kv if self.kind == "split" else PDL
        key = (1 if self.cache == "int8" else 2, shape.head_dim)
        module.TILES[key] = self.tile or KEPT[2][key]
        module.num_splits = lambda *_: self.splits
        if self.kind == "split" and not DRY:
            module.split_kernel = Patched(KEPT[0], self.asm)
        module.paged_attention(inputs.queries, layer, inputs.block_tables, *lengths, out=inputs.out)


Plan = list[tuple[Shape, list[Variant]]]


def tiles_to_try(head_dim: int) -> list[Variant]:
    """INT8 at 32 x 8,192: tiles, warps, registers, splits."""

    def int8(splits: int, *tile: Any, asm: bool = True) -> Variant:
        return Variant("split", "int8", splits, tile, asm)

    if head_dim == 64:
        return [
            *(int8(splits, 64, 2, 5, 128) for splits in (1, 2, 3, 4, 8)),
            int8(2, 64, 2, 5, 128, asm=False), int8(4, 64, 2, 5, 128, asm=False),
            int8(2, 64, 2, 5, None), int8(2, 64, 2, 4, 128), int8(2, 64, 2, 7, 128),
            int8(1, 128, 4, 5, 128), int8(2, 128, 4, 5, 128), int8(1, 128, 4, 4, 128),
            int8(4, 32, 1, 5, 128), int8(5, 32, 1, 5, 128), int8(2, 128, 2, 4, None),
        ]  # fmt: skip
    return [
        *(int8(splits, 64, 2, 5, 168) for splits in (1, 2, 3, 4, 8)),
        int8(3, 64, 2, 5, 168, asm=False),
        int8(2, 64, 2, 5, None), int8(2, 64, 2, 4, 168), int8(3, 64, 2, 4, 168), int8(3, 64, 2, 4, 192),
        int8(1, 64, 4, 5, 128), int8(2, 64, 4, 5, 128),
        int8(1, 128, 4, 4, 168), int8(1, 128, 4, 5, 168), int8(2, 128, 4, 4, 168), int8(4, 32, 1, 4, None),
    ]  # fmt: skip


def plans() -> Plan:
    paged = [Variant("paged", "fp16"), Variant("paged", "int8")]
    if DRY:
        tiny = Shape(2, 1, 70, 2, 2, 64)
        return [(tiny, [*paged, *(Variant("split", cache, splits) for cache in ("fp16", "int8") for splits in (1, 3))])]
    found: Plan = []
    for heads in (MHA, GQA):
        float16 = [Variant("split", "fp16", splits) for splits in (1, 2, 3, 4)]
        wider = Variant("paged", "int8", 1, (128, 4, 5))
        found.append((Shape(32, 1, 8192, *heads), [*paged, wider, *float16, *tiles_to_try(heads[2])]))
    for heads, num_seqs, context_len, splits in (
        (MHA, 1, 512, (1, 2, 4, 8)), (MHA, 1, 8192, (1, 16, 32, 64)), (MHA, 32, 512, (1, 2, 4)),
        (MHA, 256, 512, (1, 2)), (MHA, 256, 64, (1,)), (GQA, 1, 512, (1, 4, 8)), (GQA, 1, 8192, (1, 32, 64)),
    ):  # fmt: skip
        split = [Variant("split", cache, each) for cache in ("fp16", "int8") for each in splits]
        pdl = [Variant("pdl", "fp16", each) for each in splits if each > 1 and num_seqs == 1]
        found.append((Shape(num_seqs, 1, context_len, *heads), [*paged, Variant("sdpa", "fp16"), *split, *pdl]))
    return found


# ---- the truth ----

LENGTHS = [1, 15, 16, 17, 63, 64, 65, 0, 193, 256, 257, 1023, 1500]
CHECKED = [
    (query, cache, heads, splits, asm)
    for query, cache in (("float16", "float16"), ("float16", "int8"), ("bfloat16", "int8"), ("float32", "int8"))
    for heads in ((12, 12, 64, 16), (32, 8, 128, 16), (9, 3, 80, 8))
    for splits in (1, 3)
    for asm in ((True, False) if (query, cache, splits) == ("float16", "int8", 1) else (True,))
]


def check(
    query: str, cache: str, heads: tuple[int, int, int, int], splits: int, asm: bool, part: Any = split_kv
) -> None:
    """Compare every row and head with float64; the rows around the output must stay."""
    lengths = LENGTHS[:6] if DRY else LENGTHS
    num_heads, num_kv_heads, head_dim, block_size = heads
    dtype = getattr(torch, query)
    case = make_case(
        lengths, [min(each, 1) for each in lengths], num_heads=num_heads, num_kv_heads=num_kv_heads, head_dim=head_dim,
        block_size=block_size, dtype=dtype, cache_dtype=getattr(torch, cache), device=DEVICE,
    )  # fmt: skip
    part.num_splits = lambda *_: splits
    if part is split_kv and not DRY:
        part.split_kernel = Patched(KEPT[0], asm)
    rows, *shape = case.queries.shape
    guarded = torch.full((rows + 20, *shape), -7.0, dtype=dtype, device=DEVICE)
    guarded[10 : 10 + rows] = float("nan")
    case.run(part, out=guarded[10 : 10 + rows])
    error = relative_error(guarded[10 : 10 + rows], case.expected)
    right = error <= TOLERANCE[dtype] and bool((guarded[:10] == -7).all() and (guarded[10 + rows :] == -7).all())
    say(what="check", query=query, cache=cache, heads=heads, splits=splits, asm=asm, error=error, right=right)
    assert right, f"wrong: {query} over {cache}, {heads}, {splits} splits, asm {asm}: error {error}"


def warm(index: int, count: int) -> None:
    """Check and compile one share of it all, so that processes side by side fill Triton's cache."""
    for arguments in CHECKED[index::count]:
        check(*arguments)
    if index == 0 and PDL is not None:
        check("float16", "float16", (12, 12, 64, 16), 3, True, PDL)
    jobs = [
        (replace(shape, context_len=min(shape.context_len, 256), cache=each.cache), each)
        for shape, variants in plans()
        for each in variants
        if each.kind != "sdpa"
    ]
    # Variants that differ in splits only share a kernel: a process takes neighbours.
    share = -(-len(jobs) // count)
    for shape, variant in jobs[index * share : (index + 1) * share]:
        try:
            variant.call(Inputs(shape, DEVICE), 0)
            torch.cuda.synchronize()
        except Exception as error:
            say(
                what="refused", **vars(shape), variant=str(variant), error=f"{type(error).__name__}: {str(error)[:300]}"
            )


# ---- time ----


@functools.lru_cache(2)
def inputs_of(shape: Shape) -> Inputs:
    return Inputs(shape, DEVICE)


def capture(shape: Shape, variant: Variant) -> tuple[Any, int, float]:
    inputs = inputs_of(replace(shape, cache=variant.cache))
    count = len(inputs.layers)
    calls: list[Any] = [lambda index=index: variant.call(inputs, index) for index in range(count)]
    if variant.kind == "sdpa":
        calls = inputs.sdpa_calls()
    for call in calls[:2]:
        call()
    floor = (inputs.cache_bytes + 2 * inputs.queries.nbytes) / BANDWIDTH * 1e6
    if DRY:
        return calls[0], 1, floor
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    KEEP.append((graph, inputs, calls))
    return graph, count, floor


def time_shape(shape: Shape, variants: list[Variant], rounds: int) -> None:
    """Replay the variants' graphs in turn. All are alive at once: their caches must fit side by side."""
    ready: list[tuple[Variant, Any, int, float]] = []
    for variant in variants:
        try:
            ready.append((variant, *capture(shape, variant)))
        except Exception as error:
            traceback.print_exc(limit=2)
            say(what="failed", **vars(shape), variant=str(variant), error=f"{type(error).__name__}: {str(error)[:300]}")
    times: list[list[float]] = [[] for _ in ready]
    for turn in range(rounds + 2):
        for index, (_, graph, count, _) in enumerate(ready):
            if DRY:
                before = time.perf_counter()
                graph()
                elapsed = (time.perf_counter() - before) * 1e6
            else:
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                graph.replay()
                end.record()
                end.synchronize()
                elapsed = start.elapsed_time(end) * 1e3
            if turn >= 2:
                times[index].append(elapsed / count)
    rows = []
    for (variant, _, _, floor), each in zip(ready, times, strict=True):
        each.sort()
        row = {
            "kind": variant.kind, "cache": variant.cache, "splits": variant.splits, "tile": variant.tile,
            "asm": variant.asm, "us": round(statistics.median(each), 2), "p10": round(each[len(each) // 10], 2),
            "p90": round(each[-1 - len(each) // 10], 2), "floor_us": round(floor, 2),
        }  # fmt: skip
        rows.append(row)
        say(what="decode", **(vars(shape) | row))
    float16 = {kind: min((r["us"] for r in rows if r["cache"] == "fp16" and r["kind"] == kind), default=None)
               for kind in ("paged", "split", "pdl", "sdpa")}  # fmt: skip
    int8 = sorted((r for r in rows if r["cache"] == "int8"), key=lambda r: r["us"])
    best = [{name: r[name] for name in ("kind", "splits", "tile", "asm", "us")} for r in int8[:4]]
    ratio = round(float16["paged"] / int8[0]["us"], 3) if int8 and float16["paged"] else None
    say(
        what="summary",
        shape=str(shape),
        fp16=float16,
        int8_best=best,
        int8_over_fp16=ratio,
        at_s=round(time.time() - STARTED),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dry", action="store_true")
    parser.add_argument("--warm", type=int, nargs=2)
    options = parser.parse_args()
    if options.warm:
        warm(*options.warm)
        return
    if DRY:
        for arguments in [each for each in CHECKED if each[0] != "bfloat16" and each[2][2] == 80]:
            check(*arguments)
    else:
        import triton

        say(what="gpu", name=torch.cuda.get_device_name(), torch=torch.__version__, triton=triton.__version__)
        children = [
            subprocess.Popen([sys.executable, __file__, "--warm", str(index), str(PROCESSES)])
            for index in range(PROCESSES)
        ]
        ends = []
        for child in children:
            try:
                ends.append(child.wait(timeout=max(1, 170 - (time.time() - STARTED))))
            except subprocess.TimeoutExpired:
                child.kill()
                ends.append("too slow")
        say(what="compiled", seconds=round(time.time() - STARTED), ends=ends)
        if any(end not in (0, "too slow") for end in ends):
            sys.exit("a check failed: nothing is timed; see the lines above")
        for _ in range(2):  # the first two captures of a process time differently
            capture(Shape(1, 1, 64, *MHA), Variant("paged", "fp16"))
    for shape, variants in plans():
        if time.time() - STARTED > 270:
            say(what="out of time", shape=str(shape))
            continue
        time_shape(shape, variants, 2 if DRY else 40)
        KEEP.clear()
        inputs_of.cache_clear()
        if not DRY:
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
