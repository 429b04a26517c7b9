"""A joint search for the plans of the fused decode step, on one GPU: from the best plans known, by size.

    BUDGET=420 OUT=out python3 zz_search.py --sizes 1,4,8,16     # another process takes 32,64,128,256
    TRITON_INTERPRET=1 BUDGET=60 python zz_search.py --dry --sizes 8

For each size: where kernels let the next begin, two neighbours at a time; each kernel's other cuts; neighbours again;
then 1 to 3 random changes at a time. A plan is judged by the mean of its times at contexts 64 and 112, after its
results were held against float64. Then attend's cut at context 512, ideas as edits of the text, and `final` lines.
Other processes compile what is about to be measured.
"""

import json, os, random, re, statistics, subprocess, sys, time
from concurrent.futures import CancelledError, ProcessPoolExecutor, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import torch
import triton

import zz_steps as steps
from zz_steps import DEVICE, DRY, HEADS, LAYERS, VOCABULARY, WIDTH, Attend, Cut, KVCache, Norm, Plan, base, new, row, say, slices, tiles

BEGIN, BUDGET = time.perf_counter(), float(os.environ.get("BUDGET", 420))
SIZES = [int(size) for size in (sys.argv[sys.argv.index("--sizes") + 1] if "--sizes" in sys.argv else "8,1,32,256,4,16,64,128").split(",")]
SHARES = {1: 1.5, 4: 0.8, 8: 1.5, 16: 0.8, 32: 1.4, 64: 0.8, 128: 0.7, 256: 1.5}
POSITIONS = 128 if DRY else 1024
CONTEXTS = (32, 48) if DRY else (64, 112)
LONG_CONTEXT = 64 if DRY else 512
RANDOM = random.Random(0)
for size in SHARES:
    for context in (32, 48, 64, 112, 512):
        steps.FLOORS[size, context] = (247.3e6 + size * context * 12 * 768 * 4) / 4.26e12 * 1e6


def left():
    return BUDGET - (time.perf_counter() - BEGIN)


# ---- the best plans known ----
START = {
    1: Plan(row(16, 8, 2), Attend(128, 4, False, 3), row(8, 4, 1, True), row(8, 4), row(8, 8, 1, True), Norm(4, 1), row(32, 8)),
    8: Plan(
        tiles(16, 64, 1, 256, 3, 3, swap=True), Attend(64, 2, True, 3), slices(8, 16, 2, 2, 2, 1), slices(8, 16, 1, 2, 2, 3), slices(8, 32, 4, 2, 2, 2),
        Norm(8, 1), tiles(16, 128, 1, 128, 3),
    ),
    32: Plan(
        tiles(32, 32, 1, 128, 4), Attend(64, 2, True, 3), tiles(32, 32, 4, 64, 3, 1), tiles(32, 32, 1, 128, 4), tiles(32, 64, 4, 256, 3, 3, swap=True),
        Norm(8, 2), tiles(32, 128, 1, 64, 4),
    ),
    64: Plan(
        tiles(64, 32, 1, 128, 3, 3), Attend(64, 1, True, 1), tiles(64, 32, 2, 128, 3, 1), tiles(32, 64, 1, 128, 4, swap=True), tiles(32, 64, 4, 256, 3, 3, swap=True),
        Norm(8, 2), tiles(64, 128, 1, 64, 4, 1),
    ),
    256: Plan(
        tiles(64, 64, 1, 128, 3), Attend(32, 1, True, 3, 0, 3), tiles(64, 64, 0, 128, 4, 1), tiles(64, 64, 1, 128, 3), tiles(64, 64, 2, 128, 4, 3),
        Norm(8, 1), tiles(128, 256, 1, 64, 4, warps=8),
    ),
}  # fmt: skip
START[4] = START[8]
START[16] = START[32]._replace(head=tiles(32, 128, 1, 64, 4))
START[128] = START[256]
LONG_START = {
    1: (Attend(512, 8, False, 3, 0), 1), 4: (Attend(128, 4, True, 1, 3), 1), 8: (Attend(128, 4, True, 1, 3), 1), 16: (Attend(128, 4, True, 1, 3), 3),
    32: (Attend(128, 4, True, 1, 3), 3), 64: (Attend(128, 4, True, 1, 3), 3), 128: (Attend(64, 1, True, 3, 0, 3), 2), 256: (Attend(64, 1, True, 3, 0, 3), 2),
}  # fmt: skip

# ---- what to try in each place; `begin` is the place's own ----
NORMS = [Norm(4, 1), Norm(8, 1), Norm(16, 1)]
A = Attend
SKINNY = {
    "attend": [A(64, 2, True, 3), A(64, 1, True, 3), A(128, 4, True, 3), A(128, 4, False, 3), A(64, 2, True, 3, 0), A(128, 2, True, 3), A(32, 1, True, 3), A(64, 4, True, 3), A(128, 8, True, 3)],
    "qkv": [
        slices(8, 32, 1, 4, 4), slices(8, 16, 1, 2, 2), slices(8, 32, 1, 2, 2), slices(8, 32, 1, 4, 8), slices(8, 16, 1, 2, 4), slices(8, 64, 1, 4, 8),
        *(tiles(rows, 64, 1, step, stages, swap=True) for rows in (8, 16) for step, stages in ((256, 3), (256, 2), (128, 4), (128, 6), (64, 6))),
        tiles(8, 128, 1, 128, 4, warps=8, swap=True), tiles(16, 16, 1, 256, 3), tiles(16, 32, 1, 256, 3), tiles(16, 32, 1, 128, 4),
    ],
    "proj": [
        slices(8, 16, 2, 2, 2), slices(8, 8, 1, 2, 2), slices(8, 8, 2, 2, 2), slices(8, 32, 2, 2, 2), slices(8, 16, 1, 2, 2), slices(8, 32, 3, 2, 2), slices(8, 16, 3, 2, 2),
        slices(8, 16, 3, 1, 1), slices(8, 16, 1, 4, 4), slices(8, 16, 2, 4, 4), slices(8, 32, 3, 4, 4),
        tiles(8, 64, 3, 256, 2, swap=True), tiles(8, 64, 2, 128, 3, swap=True), tiles(16, 16, 1, 256, 3), tiles(16, 16, 2, 128, 3),
    ],
    "down": [
        slices(8, 16, 4, 2, 2), slices(8, 32, 4, 2, 2), slices(8, 32, 4, 4, 4), slices(8, 32, 4, 4, 8), slices(8, 64, 4, 4, 8), slices(8, 32, 6, 2, 2), slices(8, 16, 6, 2, 2), slices(8, 32, 6, 4, 4),
        slices(8, 16, 4, 4, 4), slices(8, 16, 3, 4, 4), slices(8, 16, 2, 4, 4), slices(8, 32, 8, 2, 2),
        *(tiles(8, 64, splits, 256, stages, swap=True) for splits, stages in ((4, 3), (3, 3), (3, 4), (6, 2))), tiles(8, 64, 8, 128, 3, swap=True), tiles(8, 64, 4, 128, 6, swap=True), tiles(16, 16, 4, 256, 3),
    ],
    "norm": NORMS,
    "head": [
        tiles(16, 128, 1, 128, 3), tiles(16, 128, 1, 64, 4), tiles(16, 256, 1, 64, 4, warps=8), tiles(16, 256, 1, 64, 3, warps=8), tiles(16, 128, 1, 128, 2), tiles(16, 128, 1, 256, 2), tiles(16, 64, 1, 256, 3),
        tiles(8, 128, 1, 128, 3, swap=True), tiles(8, 64, 1, 256, 2, swap=True), tiles(8, 128, 1, 64, 4, swap=True), tiles(8, 64, 1, 128, 4, swap=True), tiles(8, 128, 1, 128, 3, warps=8, swap=True),
        slices(8, 32, 1, 4, 8), slices(8, 32, 1, 4, 4), slices(8, 64, 1, 4, 8),
    ],
}  # fmt: skip
SKINNY["up"] = SKINNY["qkv"]


def tiled(rows):
    """16 and 32 rows."""
    half, product = max(16, rows // 2), [
        *(tiles(rows, 32, 1, step, stages) for step, stages in ((128, 4), (128, 5), (128, 6), (128, 3), (256, 2), (256, 3), (64, 6), (64, 4))),
        tiles(rows, 32, 1, 128, 4, warps=2), tiles(rows, 32, 1, 128, 4, warps=8), tiles(rows, 64, 1, 128, 4), tiles(rows, 64, 1, 128, 4, warps=8), tiles(rows, 16, 1, 256, 3), tiles(rows, 64, 1, 256, 2),
        *(tiles(rows, 64, 1, step, stages, swap=True) for step, stages in ((128, 4), (128, 6), (256, 3), (256, 2), (64, 6))), tiles(rows, 128, 1, 128, 4, warps=8, swap=True),
    ]
    return {
        "attend": [A(64, 2, True, 3), A(64, 4, True, 3), A(128, 8, True, 3), A(128, 4, True, 3), A(128, 2, True, 3), A(64, 1, True, 3), A(64, 2, True, 3, 0), A(64, 2, True, 3, 1), A(32, 2, True, 3), A(32, 1, True, 3)],
        "qkv": [*product, *([slices(16, 16, 1, 2, 2), slices(16, 32, 1, 4, 4), tiles(32, 32, 1, 128, 4)] if rows == 16 else [tiles(16, 32, 1, 128, 4), tiles(16, 64, 1, 128, 4, swap=True), tiles(16, 64, 1, 256, 3, swap=True)])],
        "up": product,
        "proj": [
            *(tiles(rows, 32, splits, step, stages) for splits, step, stages in ((4, 64, 3), (3, 128, 2), (3, 256, 2), (3, 64, 4), (2, 128, 3), (6, 128, 2), (6, 64, 2))),
            tiles(rows, 32, 4, 64, 3, warps=2), tiles(rows, 32, 3, 128, 2, warps=2), tiles(rows, 64, 4, 64, 3), tiles(rows, 64, 3, 128, 2), tiles(rows, 16, 2, 128, 3), tiles(rows, 16, 4, 64, 3), tiles(rows, 16, 1, 256, 3),
            tiles(half, 32, 4, 64, 3), tiles(rows, 64, 3, 128, 2, swap=True), *([slices(16, 16, 2, 2, 2), slices(16, 16, 3, 2, 2)] if rows == 16 else []),
        ],
        "down": [
            *(tiles(rows, 64, splits, step, stages, swap=True) for splits, step, stages in ((4, 256, 3), (4, 256, 2), (4, 128, 6), (4, 128, 5), (3, 256, 3), (3, 256, 4), (6, 128, 4), (6, 256, 2), (8, 128, 3))),
            tiles(rows, 32, 4, 256, 3), tiles(rows, 32, 4, 128, 4), tiles(rows, 64, 4, 128, 5), tiles(rows, 64, 4, 256, 3), tiles(rows, 64, 4, 256, 3, warps=8), tiles(half, 64, 4, 256, 3, swap=True), tiles(rows, 128, 6, 128, 4, warps=8, swap=True),
            *([slices(16, 32, 4, 4, 4), slices(16, 32, 4, 2, 2), tiles(32, 64, 4, 256, 3, swap=True)] if rows == 16 else []),
        ],
        "norm": NORMS,
        "head": [
            tiles(rows, 128, 1, 64, 4), tiles(rows, 128, 1, 128, 3), tiles(rows, 128, 1, 128, 2), tiles(rows, 128, 1, 64, 5), tiles(rows, 128, 1, 64, 3), tiles(rows, 256, 1, 64, 4, warps=8), tiles(rows, 256, 1, 64, 3, warps=8),
            tiles(rows, 128, 1, 64, 4, swap=True), tiles(rows, 128, 1, 128, 3, swap=True), tiles(rows, 64, 1, 128, 4), tiles(rows, 128, 1, 64, 4, warps=8),
        ],
    }  # fmt: skip


def wide(size):
    """64 to 256 rows."""
    product = [
        *(tiles(64, 64, 1, step, stages) for step, stages in ((128, 3), (128, 2), (64, 4), (64, 5), (64, 6), (128, 4), (256, 2))),
        tiles(64, 64, 1, 128, 3, warps=8), tiles(64, 128, 1, 64, 4), tiles(128, 64, 1, 64, 4), tiles(128, 64, 1, 64, 4, warps=8), tiles(128, 128, 1, 64, 3, warps=8),
        tiles(64, 32, 1, 128, 3), tiles(64, 32, 1, 128, 4), *([tiles(64, 32, 1, 64, 6), tiles(64, 32, 1, 256, 2), tiles(32, 64, 1, 128, 4, swap=True), tiles(32, 32, 1, 128, 4), tiles(32, 64, 1, 128, 4), tiles(64, 64, 1, 128, 3, swap=True)] if size == 64 else [tiles(64, 128, 1, 128, 3), tiles(64, 128, 1, 64, 5, warps=8)]),
    ]
    return {
        "attend": [A(64, 1, True, 3, 0), A(64, 2, True, 3, 0), A(32, 1, True, 3, 0), A(32, 1, True, 3, 0, 3), A(64, 1, True, 3, 0, 3), A(16, 1, True, 3, 0, 3), A(32, 2, True, 3, 0, 3), A(64, 1, True, 3, 0, 1), A(32, 1, True, 3, 0, 1), A(128, 4, True, 3, 0), A(128, 2, True, 3, 0), *([A(64, 1, True, 1), A(64, 2, True, 3)] if size == 64 else [])],
        "qkv": product,
        "up": product,
        "proj": [
            *(tiles(64, 64, 0, step, stages) for step, stages in ((128, 3), (128, 4), (128, 5), (64, 6), (256, 2))), tiles(64, 64, 0, 128, 4, warps=8), tiles(64, 32, 0, 128, 4), tiles(64, 32, 0, 256, 3), tiles(64, 32, 0, 128, 6), tiles(64, 32, 1, 256, 3),
            tiles(64, 64, 2, 128, 3), tiles(64, 32, 2, 128, 3), tiles(64, 64, 3, 128, 2), tiles(64, 32, 4, 64, 3), tiles(64, 32, 3, 128, 2), *([tiles(32, 32, 4, 64, 3), tiles(32, 32, 2, 128, 3), tiles(32, 32, 0, 128, 4)] if size == 64 else [tiles(128, 64, 0, 64, 4)]),
        ],
        "down": [
            *(tiles(64, 64, splits, step, stages) for splits, step, stages in ((2, 128, 4), (2, 128, 3), (3, 128, 4), (3, 128, 3), (4, 128, 4), (4, 128, 3), (2, 64, 6), (4, 64, 6), (4, 256, 2), (6, 128, 4), (0, 128, 4))),
            tiles(64, 64, 2, 128, 4, warps=8), tiles(64, 32, 2, 256, 3), tiles(64, 32, 0, 256, 3), tiles(64, 128, 4, 64, 4), tiles(64, 128, 4, 128, 3, warps=8),
            *([tiles(32, 64, 4, 256, 3, swap=True), tiles(64, 32, 4, 128, 4), tiles(64, 32, 4, 256, 3), tiles(64, 32, 3, 256, 3)] if size == 64 else [tiles(128, 64, 4, 64, 4), tiles(128, 64, 3, 64, 4)]),
        ],
        "norm": NORMS,
        "head": [
            *([tiles(64, 128, 1, 64, 4), tiles(64, 128, 1, 64, 5), tiles(64, 128, 1, 128, 3), tiles(64, 256, 1, 64, 3, warps=8)] if size == 64 else [tiles(128, 256, 1, 64, 3, warps=8), tiles(128, 256, 1, 64, 4, warps=8), tiles(128, 128, 1, 64, 4), tiles(128, 128, 1, 64, 5, warps=8), tiles(128, 128, 1, 128, 3, warps=8), tiles(256, 128, 1, 64, 4, warps=8), tiles(128, 256, 1, 128, 2, warps=8)]),
            tiles(64, 256, 1, 64, 4, warps=8), tiles(64, 256, 1, 64, 4),
        ],
    }  # fmt: skip


TRY = {
    1: {
        "attend": [A(128, 4, False, 3), A(128, 8, False, 3), A(128, 4, True, 3), A(64, 4, False, 3), A(128, 4, False, 3, 0), A(128, 2, True, 3), A(64, 2, True, 3), A(64, 8, False, 3), A(256, 8, False, 3)],
        "qkv": [row(8, 4), row(16, 8), row(16, 4), row(32, 8), row(8, 8), row(32, 16), row(16, 16), row(64, 16)],
        "proj": [row(o, w, adds=True) for o, w in ((8, 4), (16, 8), (16, 4), (8, 8), (4, 4), (4, 8), (4, 2), (8, 2))],
        "up": [row(8, 4), row(16, 8), row(16, 4), row(32, 8), row(32, 16), row(16, 16), row(8, 2)],
        "down": [row(o, w, adds=True) for o, w in ((8, 8), (16, 8), (4, 8), (8, 16), (4, 4), (16, 16), (8, 4), (2, 4))],
        "head": [row(32, 8), row(16, 4), row(64, 8), row(32, 4), row(64, 16), row(16, 8), row(128, 16), row(32, 16)],
    },
    4: SKINNY, 8: SKINNY, 16: tiled(16), 32: tiled(32), 64: wide(64), 128: wide(128), 256: wide(256),
}  # fmt: skip
LONG = {
    1: [A(512, 8, False, 3, 0), A(512, 8, False, 3, 0, 1), A(512, 16, False, 3, 0), A(256, 8, False, 3, 1), A(256, 8, False, 3, 7), A(256, 16, False, 3, 1), A(512, 8, True, 3, 0), A(512, 16, True, 3, 0), A(256, 8, True, 3, 3), A(128, 4, True, 3, 7)],
    8: [A(128, 4, True, 3, t, s) for t in (3, 7) for s in (1, 2, 3)] + [A(256, 8, True, 3, t, s) for t in (1, 3) for s in (1, 2, 3)] + [A(128, 8, True, 3, 3), A(256, 4, True, 3, 3), A(512, 8, True, 3, 0), A(512, 16, True, 3, 0), A(64, 4, True, 3, 7, 3), A(128, 4, True, 3, 0), A(128, 4, True, 3, 1)],
    256: [A(t, 1, True, 3, 0, s) for t in (16, 32, 64) for s in (1, 2, 3, 4)] + [A(64, 2, True, 3, 0, 3), A(64, 2, True, 3, 0), A(128, 4, True, 3, 0, 3), A(128, 4, True, 3, 0), A(128, 2, True, 3, 0, 2), A(64, 1, True, 3, 1, 3), A(32, 2, True, 3, 0, 3)],
}  # fmt: skip
LONG[4], LONG[16], LONG[32] = LONG[8], LONG[8], [*LONG[8], A(64, 2, True, 3, 3, 3), A(64, 2, True, 3, 0, 3)]
LONG[64] = LONG[128] = [*LONG[256], *LONG[8]]
if DRY:
    TRY = {size: {name: cuts[:2] for name, cuts in TRY[size].items() if name in ("attend", "norm")} for size in SIZES}
    LONG = {size: cuts[:1] for size, cuts in LONG.items()}


# ---- compiling, in other processes ----
def load(path):
    """The module that lies at `path`: one object a process and path, as a variant's PLANS belong to it."""
    if path not in MODULES:
        import importlib.util

        spec = importlib.util.spec_from_file_location(Path(path).stem, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[Path(path).stem] = module
        spec.loader.exec_module(module)
        MODULES[path] = module
    return MODULES[path]


MODULES = {new.__file__: new, base.__file__: base}


def variant(name, edits):
    text = Path(new.__file__).read_text()
    for before, after in edits:
        assert text.count(before) == 1, (name, before)
        text = text.replace(before, after)
    path = steps.FOLDER / f"variant_{''.join(c if c.isalnum() else '_' for c in name)}.py"
    path.write_text(text)
    return load(str(path))


def compile_one(path, kernel, grid, arguments, warps, begin):
    torch.set_num_threads(1)
    getattr(load(path), kernel).warmup(*arguments, grid=grid, num_warps=warps, **({"launch_pdl": True} if begin else {}))


class Compiler:
    """Worker processes that fill Triton's cache; each kernel once."""

    def __init__(self):
        self.futures, self.failed, self.pool, self.trusted = {}, 0, None, False
        if not DRY:
            cores = len(os.sched_getaffinity(0))
            self.pool = ProcessPoolExecutor(max(2, min(14, cores // max(1, torch.cuda.device_count()) - 1)), get_context("spawn"))

    def submit(self, module, size, plans):
        """Begin to compile what these plans need; return the futures."""
        if self.pool is None:
            return []
        decoder, found = decoder_of(module), []

        def note(kernel, grid, warps, begin, *arguments):
            arguments = tuple(a.dtype if isinstance(a, torch.Tensor) else a for a in (*arguments, begin))
            found.append((module.__file__, kernel.__name__, grid, arguments, warps, begin))

        decoder._launch = note
        before = module.PLANS
        try:
            for plan in plans:
                module.PLANS = {size: plan}
                decoder._step(size)
        finally:
            del decoder._launch
            module.PLANS = before
        futures = []
        for job in dict.fromkeys(found):
            key = (job[0], job[1], *job[3:])
            if key not in self.futures:
                try:
                    self.futures[key] = self.pool.submit(compile_one, *job)
                except Exception as error:
                    say(what="no compiling in other processes", error=str(error)[:200])
                    self.pool = None
                    return futures
            futures.append(self.futures[key])
        return futures

    def wait(self, futures, timeout=25):
        """Wait for kernels; return whether they may be launched: one that did not compile there will not do so here."""
        end, fine = time.perf_counter() + timeout, True
        for future in futures:
            try:
                future.result(max(0.01, end - time.perf_counter()))
                self.trusted = True
            except Exception as error:
                fine = fine and (not self.trusted or isinstance(error, (TimeoutError, BrokenProcessPool, CancelledError)))
                if not hasattr(future, "reported"):
                    future.reported = True
                    self.failed += 1
                    say(what="not compiled", error=f"{type(error).__name__}: {str(error)[-160:]}")
        return fine

    def close(self):
        if self.pool is not None:
            processes = list((self.pool._processes or {}).values())
            self.pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()


# ---- scenes: all sizes and contexts share the decoders and weights ----
DECODERS = {}


def decoder_of(module):
    if module not in DECODERS:
        config = steps.GPT2Config(vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS)
        if "weights" not in steps.SHARED:
            torch.manual_seed(0)
            steps.SHARED["weights"] = steps.varied(steps.random_weights(config, 0, torch.float16, DEVICE))
        cache = KVCache(LAYERS, 8, 16, HEADS, WIDTH // HEADS, torch.float16, DEVICE)
        DECODERS[module] = module.FusedDecoder(config, steps.SHARED["weights"], cache, max_rows=256, max_steps=64)
    return DECODERS[module]


class Scene(steps.Scene):
    def __init__(self, size, context):
        self.size, self.context = size, context
        self.config = replace(decoder_of(new).config, n_positions=context)  # a step's position stays the last
        self.weights = steps.SHARED["weights"]
        torch.manual_seed(size + context)
        width = -(-context // 16)
        self.cache = KVCache(LAYERS, size * width, 16, HEADS, WIDTH // HEADS, torch.float16, DEVICE)
        self.cache.data.normal_()
        self.blocks = torch.randperm(size * width, device=DEVICE).view(size, width)
        self.tokens = torch.randint(0, VOCABULARY, (size,), device=DEVICE)
        self.slots = (self.blocks[:, :, None] * 16 + torch.arange(16, device=DEVICE)).flatten(1)[:, :context]
        self.wanted, self.wanted_kv = self.reference()

    def decoder(self, module):
        decoder = decoder_of(module)
        decoder.config, decoder.cache = self.config, self.cache
        return decoder

    def enter(self, decoder):
        decoder.config = self.config
        super().enter(decoder)

    def plain(self, decoder, replay, rounds=5, replays=30):
        decoder.config, decoder.cache = self.config, self.cache
        return self.time(decoder, replay, replays, rounds)["us"]


# ---- the search ----
PLACES = ("qkv", "attend", "proj", "norm", "up", "down", "head")
PAIRS = (("qkv", "attend"), ("attend", "proj"), ("proj", "norm"), ("norm", "up"), ("proj", "up"), ("up", "down"), ("down", "norm"), ("norm", "qkv"), ("down", "qkv"), ("down", "head"), ("head", "qkv"))


def valid(size, name, cut):
    if name == "attend":
        return cut.tile >= 16 and 1 <= cut.warps <= 16 and 1 <= cut.stages <= 5 and cut.tile * 64 // (cut.warps * 32) <= 256
    if name == "norm":
        return cut.warps in (2, 4, 8, 16)
    width = 3072 if name == "down" else 768
    outputs = {"qkv": 2304, "up": 3072, "head": 50432}.get(name, 768)
    depth = width // max(1, cut.splits)
    part = depth // 3 if depth % 3 == 0 else depth
    if outputs % cut.outputs or width % max(1, cut.splits) or cut.splits > 8 or name in ("qkv", "up", "head") and cut.splits != 1 or not 1 <= cut.warps <= 16:
        return False
    if cut.rows > min(256, 2 * max(size, 16)) or name == "head" and cut.outputs < 16:
        return False
    if cut.step == 0:
        return not part & (part - 1) and part % cut.slices == 0 and cut.outputs * depth // (cut.warps * 32) <= 400 and (cut.rows == 1) == (size == 1) and part // cut.slices >= 16
    return size > 1 and (cut.rows + cut.outputs) * cut.step * 2 * (cut.stages - 1) <= 232448 and depth % cut.step == 0 and cut.step >= 32 and 2 <= cut.stages <= 8 and cut.rows * cut.outputs // (cut.warps * 32) <= 256 and not (cut.swap and cut.outputs < 64)


def neighbours(size, name, cut):
    """Cuts one number away."""
    fields = {"attend": ("tile", "warps", "stages", "ahead", "dot"), "norm": ("warps",)}.get(name, ("outputs", "warps", "step", "stages", "splits", "slices", "rows"))
    for field in fields:
        now = getattr(cut, field)
        if field == "dot":
            values = [not now]
        elif field == "ahead":
            values = [0, 1, 3, 7]
        elif field == "stages":
            values = [now - 1, now + 1]
        elif field == "splits":
            values = [0, 1, 2, 3, 4, 6, 8] if size > 1 else []
        elif field == "rows":
            values = [now * 2, now // 2] if now > 1 else []
        else:
            values = [now * 2, now // 2]
        for value in values:
            if value != now and (value or field in ("ahead", "dot", "splits")):
                other = cut._replace(**{field: value})
                if other != cut and valid(size, name, other):
                    yield other


class Search:
    def __init__(self, compiler, size, deadline):
        self.compiler, self.size, self.deadline = compiler, size, deadline
        self.scenes = [Scene(size, context) for context in CONTEXTS]
        self.places = [name for name in PLACES if size > 1 or name != "norm"]
        self.seen, self.held, self.plan, self.best, self.runs, self.dead = {}, None, None, None, 0, set()

    def out_of_time(self):
        return time.perf_counter() > self.deadline

    def measure(self, plan):
        """Time and check a plan; return its mean time, None where it fails or is far behind."""
        if plan in self.seen:
            return self.seen[plan]
        if self.dead and any((name, getattr(plan, name)) in self.dead for name in self.places):
            return None
        self.seen[plan] = None
        if not self.compiler.wait(self.compiler.submit(new, self.size, [plan])):
            changed = [name for name in self.places if self.plan and getattr(plan, name) != getattr(self.plan, name)]
            self.dead |= {(name, getattr(plan, name)) for name in changed} if len(changed) == 1 else set()
            return None
        self.runs += 1
        times, result = [], {}
        for scene in self.scenes:
            result = scene.run(new, plan, 20, 3)
            if "us" not in result:
                break
            times.append(result["us"])
            if self.best and times[0] > self.best[1][0] * 1.015 and len(times) == 1:
                break
        mean = statistics.mean(times) if len(times) == len(self.scenes) else None
        changed = {name: str(tuple(getattr(plan, name))) for name in self.places if self.plan and getattr(plan, name) != getattr(self.plan, name)}
        say(what="try", size=self.size, changed=changed, us=times, gain=None if mean is None or not self.best else round(self.best[0] - mean, 2), **({k: v for k, v in result.items() if k in ("error", "eager", "replayed")}))
        if "error" in result and len(changed) == 1 and "race" not in result["error"] and "wrong" not in result["error"]:
            self.dead |= {(name, getattr(plan, name)) for name in changed}  # does not compile, or does not fit
        self.seen[plan] = mean
        return mean

    def hold(self, plan):
        """Record a plan's graphs, to be timed against others."""
        return [(scene, *scene.capture(new, plan)[:2]) for scene in self.scenes]

    def against(self, held, rounds=5):
        """Time held graphs against the best's, in turn; return both lists of times."""
        found = [[[] for _ in self.scenes] for _ in range(2)]
        for _ in range(rounds):
            for which, graphs in enumerate((self.held, held)):
                for index, (scene, decoder, replay) in enumerate(graphs):
                    found[which][index].append(scene.plain(decoder, replay, 1))
        return [[statistics.median(times) for times in one] for one in found]

    def begin(self, plan):
        first = None
        for _ in range(1 if DRY else 3):  # the first captures of a process time differently
            self.seen.clear()
            first = self.measure(plan)
        if first is None:
            return False
        self.plan, self.held = plan, self.hold(plan)
        times = self.against(self.held)[0]
        self.best = (statistics.mean(times), times)
        say(what="start", size=self.size, us=times)
        return True

    def consider(self, plan):
        """Measure a plan and take it if it is faster by more than 0.2 %, measured twice."""
        mean = self.measure(plan)
        if mean is None or mean > self.best[0] * 0.998 or plan == self.plan:
            return False
        held = self.hold(plan)
        old, now = self.against(held)
        if statistics.mean(now) > statistics.mean(old) * 0.998:
            self.best = (statistics.mean(old), old)
            return False
        changed = {name: str(tuple(getattr(plan, name))) for name in self.places if getattr(plan, name) != getattr(self.plan, name)}
        self.plan, self.held, self.best = plan, held, (statistics.mean(now), now)
        say(what="better", size=self.size, us=[round(each, 2) for each in now], was=[round(each, 2) for each in old], changed=changed)
        return True

    def each(self, plans):
        """Consider plans, or functions that change the plan that is the best by then."""
        plans = list(plans)
        made = [change(self.plan) for change in plans]
        self.compiler.submit(new, self.size, made)
        for change in plans:
            if self.out_of_time():
                return
            self.consider(change(self.plan))

    def pairs(self):
        def change(values):
            return lambda plan: plan._replace(**{name: getattr(plan, name)._replace(begin=begin) for name, begin in values.items()})

        for pair in PAIRS:
            if all(name in self.places for name in pair):
                self.each([change({pair[0]: a, pair[1]: b}) for a in (1, 2, 3) for b in (1, 2, 3)])

    def cuts(self, wide=True):
        """Every cut of each place; where it lets the next begin is tried for the near ones."""
        for name in self.places:
            here = getattr(self.plan, name)
            cuts = list(dict.fromkeys([*(cut._replace(begin=here.begin) for cut in (TRY[self.size].get(name, []) if wide else [])), *neighbours(self.size, name, here)]))
            change = lambda cut, name=name: lambda plan: plan._replace(**{name: cut._replace(begin=getattr(plan, name).begin)})
            self.each([change(cut) for cut in cuts])
            means = sorted((self.seen.get(self.plan._replace(**{name: cut._replace(begin=getattr(self.plan, name).begin)})) or 1e9, i) for i, cut in enumerate(cuts))
            near = [cuts[i] for mean, i in means[:5] if mean < self.best[0] * 1.012]
            self.each([lambda plan, cut=cut, begin=begin, name=name: plan._replace(**{name: cut._replace(begin=begin)}) for cut in near for begin in (1, 2, 3)])

    def random_change(self):
        plan = self.plan
        for name in RANDOM.sample(self.places, RANDOM.choice((1, 2, 2, 3, 3))):
            cut, dice = getattr(plan, name), RANDOM.random()
            if dice < 0.45:
                cut = cut._replace(begin=RANDOM.choice((1, 2, 3)))
            elif dice < 0.75 and TRY[self.size].get(name):
                good = [each for each in TRY[self.size][name] if (name, each._replace(begin=cut.begin)) not in self.dead]
                cut = RANDOM.choice(good)._replace(begin=cut.begin)
            else:
                cut = RANDOM.choice(list(neighbours(self.size, name, cut)) or [cut])
            plan = plan._replace(**{name: cut})
        return plan

    def random(self):
        def batch():
            plans = [self.random_change() for _ in range(16)]
            self.compiler.submit(new, self.size, plans)
            return plans

        now = batch()
        while not self.out_of_time():
            ahead = batch()
            for plan in now:
                if self.out_of_time():
                    return
                self.consider(plan)
            now = ahead

    def run(self, plan):
        if not self.begin(plan):
            return plan
        if self.size > 1:
            self.each([lambda _, other=other: other for size, other in BEST.items() if size > 1])
        alone = [(name, getattr(plan, name)._replace(begin=begin)) for name in self.places for begin in (1, 2, 3)]
        alone += [(name, cut._replace(begin=getattr(plan, name).begin)) for name in self.places for cut in TRY[self.size].get(name, [])]
        self.compiler.submit(new, self.size, [plan._replace(**{name: cut}) for name, cut in alone])  # while begins are tried
        for name, part in (("begins", self.pairs), ("cuts", self.cuts), ("begins again", self.pairs), ("near cuts", lambda: self.cuts(False)), ("random", self.random)):
            part()
            say(what="stage", size=self.size, stage=name, us=[round(each, 2) for each in self.best[1]], runs=self.runs, compiled=len(self.compiler.futures), failed=self.compiler.failed, plan=short(self.plan))
            if self.out_of_time():
                break
        return self.plan


def short(plan):
    """As in the source: fields by place, without those that are their defaults."""
    parts = []
    for part in plan:
        values, defaults = list(part), type(part)._field_defaults
        while values and part._fields[len(values) - 1] in defaults and values[-1] == defaults[part._fields[len(values) - 1]]:
            values.pop()
        parts.append(f"{type(part).__name__}({', '.join(map(str, values))})")
    return f"Plan({', '.join(parts)})"


def long_context(compiler, size, plan, deadline):
    """Choose attend's cut at context 512, and where it and the kernel before it let the next begin."""
    scene, best, found = Scene(size, LONG_CONTEXT), None, plan
    fixed = {}
    first, begin = LONG_START[size]
    choices = [plan, plan._replace(attend=first), plan._replace(attend=first, qkv=plan.qkv._replace(begin=begin))]
    choices += [lambda now, cut=cut: now._replace(attend=cut._replace(begin=now.attend.begin)) for cut in LONG[size]]
    choices += [lambda now, a=a, b=b: now._replace(attend=now.attend._replace(begin=a), qkv=now.qkv._replace(begin=b)) for a in (1, 2, 3) for b in (1, 2, 3)]
    choices += [lambda now, ahead=ahead: now._replace(attend=now.attend._replace(ahead=ahead)) for ahead in (0, 1, 3)]
    compiler.submit(new, size, [each(choices[1]) if callable(each) else each for each in choices])
    for choice in choices:
        if time.perf_counter() > deadline:
            break
        each = choice(found) if callable(choice) else choice
        if each in fixed:
            continue
        compiler.wait(compiler.submit(new, size, [each]))
        got = fixed[each] = scene.run(new, each, 20, 3)
        say(what="long", size=size, context=LONG_CONTEXT, attend=str(tuple(each.attend)), qkv_begin=each.qkv.begin, **got)
        if "us" in got and (best is None or got["us"] < best * 0.998):
            best, found = got["us"], each
    only = {each: got["us"] for each, got in fixed.items() if "us" in got and each.qkv == plan.qkv}
    alone = min(only, key=only.get) if only else plan
    say(what="long best", size=size, us=best, attend=str(tuple(found.attend)), qkv_begin=found.qkv.begin, alone=str(tuple(alone.attend)), alone_us=only.get(alone))
    return found, alone


# ---- ideas, as edits ----
IDEAS = {
    "no weights ahead": (steps.AHEAD["no weights ahead"], (8, 16, 32, 64, 256)),
    "head's weights ahead": (steps.AHEAD["head's weights ahead"], (32, 256)),
}
KV_AHEAD = [
    (
        "    M, N, epsilon, K: tl.constexpr, DEPTH: tl.constexpr, PART: tl.constexpr,\n",
        "    kv_ptr, positions_ptr, entries_ptr, entry_stride, block_stride, slot_stride, value_offset, KV: tl.constexpr,\n    M, N, epsilon, K: tl.constexpr, DEPTH: tl.constexpr, PART: tl.constexpr,\n",
    ),
    (
        "    if not PARTIAL:\n        bias = tl.load(bias_ptr + output)\n",
        """    if KV and PDL:  # the qkv product: this layer's keys and values beyond the first tile, to the L2 cache
        programs = tl.num_programs(0) * tl.num_programs(1)
        for each_row in range(tl.program_id(0) * tl.num_programs(1) + tl.program_id(1), M * KV, programs):
            at = each_row // KV
            limit = tl.load(positions_ptr + at)
            token = FIRST + each_row % KV * 8 + tl.arange(0, 8)
            block = tl.load(entries_ptr + at * entry_stride + 3 + token // 16, mask=token < limit, other=0).to(tl.int64)
            line = kv_ptr + (block * block_stride + token % 16 * slot_stride)[:, None] + (tl.arange(0, 16) * 64 % 768)[None, :]
            prefetch(line)
            prefetch(line + value_offset)
    if not PARTIAL:
        bias = tl.load(bias_ptr + output)
""",
    ),
    ("            self._multiply(qkv, normed, self.qkv, size, cut)\n", "            self._layer, self._kv = self.cache.layer(index), KV_UNITS\n            self._multiply(qkv, normed, self.qkv, size, cut)\n            self._kv = 0\n"),
    (
        "            cut.begin, x, *linear, out, self.squares, self.best_tokens, size,\n",
        "            cut.begin, x, *linear, out, self.squares, self.best_tokens,\n            self._layer.keys, self.positions, self.entries, self.entries.stride(0), *self._layer.keys.stride()[:2], self._layer.values.data_ptr() // 2 - self._layer.keys.data_ptr() // 2, self._kv, size,\n",
    ),
    ("LOG2_E = tl.constexpr(1.4426950408889634)\n", "LOG2_E = tl.constexpr(1.4426950408889634)\nFIRST = tl.constexpr(128)\nKV_UNITS = 0\n"),
]


def interleaved(compiler, scene, choices, rounds=5):
    for _, module, plan in choices:
        compiler.submit(module, scene.size, [plan])
    for _, module, plan in choices:
        compiler.wait(compiler.submit(module, scene.size, [plan]))
    steps.interleaved(scene, choices, rounds)


def ideas(compiler, size, plan, long):
    for name, (edits, sizes) in IDEAS.items():
        if size in sizes:
            module = variant(name, edits)
            for context in CONTEXTS[:1]:
                interleaved(compiler, Scene(size, context), [("best", new, plan), (name, module, plan)], 3)
    if size in (1, 8, 32):
        for context, each in ((CONTEXTS[0], plan), (CONTEXTS[1], plan), (LONG_CONTEXT, long)):
            interleaved(compiler, Scene(size, context), [("best", new, each), ("attend ahead 0", new, each._replace(attend=each.attend._replace(ahead=0)))], 3)
    if size in (32, 256) and left() > 10:
        scene = Scene(size, LONG_CONTEXT)
        for first, units in ((128, 16), (128, 32), (64, 24)) if size == 32 else ((64, 4), (64, 8)):
            module = variant(f"kv ahead {first} {units}", [*KV_AHEAD[:4], (KV_AHEAD[4][0], KV_AHEAD[4][1].replace("128", str(first)).replace("KV_UNITS = 0", f"KV_UNITS = {units}"))])
            interleaved(compiler, scene, [("best", new, long), (f"kv ahead of the qkv product, {units * 8} positions from {first}", module, long)], 3)


def machine():
    say(what="machine", gpu="dry" if DRY else torch.cuda.get_device_name(), torch=torch.__version__, triton=triton.__version__, cores=len(os.sched_getaffinity(0)), sizes=SIZES, budget=BUDGET)
    if DRY:
        return
    source = torch.empty(2**29, dtype=torch.int16, device="cuda")
    target = torch.empty_like(source)
    times = []
    for _ in range(30):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        target.copy_(source)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    say(what="copy", gb_a_second=round(2 * 2**30 / statistics.median(times) / 1e6, 1), best=round(2 * 2**30 / min(times) / 1e6, 1))
    clocks()


def clocks():
    try:
        uuid = str(torch.cuda.get_device_properties(0).uuid)
        query = "clocks.sm,clocks.mem,power.draw,temperature.gpu"
        got = subprocess.run(["nvidia-smi", f"--query-gpu=uuid,{query}", "--format=csv,noheader"], capture_output=True, text=True, timeout=10).stdout
        say(what="clocks", query=query, found=[line for line in got.splitlines() if uuid in line] or got.splitlines())
    except Exception as error:
        say(what="clocks", error=str(error)[:200])


def prototype():
    """The prototype's best, in this run; in a process of its own as it compiles by itself."""
    import zz_prototype as p

    model = p.Model()
    for rows in (1, 8, 32, 256):
        try:
            state = p.State(model, rows, 64, res=p.BEST[rows].get("res", torch.float32))
            print(json.dumps({"what": "prototype", "size": rows, "context": 64, "us": round(p.time_cfg(model, state, p.BEST[rows], reps=5)[0], 2)}), flush=True)
        except Exception as error:
            print(json.dumps({"what": "prototype", "size": rows, "error": str(error)[:200]}), flush=True)


def one_size(compiler, size, start, deadline):
    search = Search(compiler, size, deadline - (0 if DRY else 13 + 0.04 * size))
    best = search.run(start)
    BEST[size] = best
    old = steps.OLD(size)
    for scene in search.scenes:
        interleaved(compiler, scene, [("old", base, old), ("start", new, START[size]), ("best", new, best)])
    clocks() if not DRY else None
    search.held = None
    del search
    long, alone = long_context(compiler, size, best, deadline)
    interleaved(compiler, Scene(size, LONG_CONTEXT), [("old", base, old), ("start", new, START[size]), ("best", new, best), ("best, attend for long", new, alone), ("best, attend and qkv's begin for long", new, long)], 3)
    LONGS[size] = (tuple(long.attend), long.qkv.begin)
    say(what="size done", size=size, plan=short(best), long=str(LONGS[size]), alone=str(tuple(alone.attend)))


BEST, LONGS = {}, {}


def again(compiler, remaining, size):
    """After a CUDA error nothing works in this process: go on in a new one, from what was found, without this size."""
    compiler.close()
    rest = [each for each in remaining if each != size]
    if rest and left() > 20:
        os.environ["BUDGET"] = str(left())
        say(what="a new process goes on", sizes=rest)
        os.execv(sys.executable, [sys.executable, __file__, "--sizes", ",".join(map(str, rest))])


def main():
    steps.LOG = (steps.OUT / f"search_{'_'.join(map(str, SIZES))}.jsonl").open("a")
    machine()
    compiler = Compiler()
    decoder_of(new)
    try:
        total = sum(SHARES[size] for size in SIZES)
        end = BEGIN + BUDGET - (0 if DRY else min(60, 0.12 * BUDGET))
        compiler.submit(new, SIZES[0], [START[SIZES[0]]])
        begun = time.perf_counter()
        clock = begun
        for index, size in enumerate(SIZES):
            clock += (end - begun) * SHARES[size] / total
            try:
                one_size(compiler, size, START[size], clock)
            except Exception as error:
                if "CUDA error" in str(error) or "illegal" in str(error):
                    raise SystemExit(3) from error
                say(what="failed", size=size, error=f"{type(error).__name__}: {str(error)[:300]}")
            torch.cuda.empty_cache() if not DRY else None
        for size in SIZES:
            if left() > 5 and size in LONGS:
                attend, begin = LONGS[size]
                long = BEST[size]._replace(attend=Attend(*attend), qkv=BEST[size].qkv._replace(begin=begin))
                try:
                    ideas(compiler, size, BEST[size], long)
                except Exception as error:
                    say(what="failed", size=size, where="ideas", error=f"{type(error).__name__}: {str(error)[:300]}")
        say(what="done", plans={size: short(plan) for size, plan in BEST.items()}, long={size: str(each) for size, each in LONGS.items()})
    except SystemExit:
        say(what="so far", plans={size: short(plan) for size, plan in BEST.items()}, long={size: str(each) for size, each in LONGS.items()})
        again(compiler, [each for each in SIZES if each not in LONGS], size)
    finally:
        compiler.close()


if __name__ == "__main__":
    if "--prototype" in sys.argv:
        prototype()
    else:
        main()
