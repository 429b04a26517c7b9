"""What each idea of the fused step gives: one undone at a time, at the best plans of the first lease, interleaved.

    OUT=out python3 zz_undo.py                        # on the GPU: about 1.5 minutes
    TRITON_INTERPRET=1 SIZES=1,8 python zz_undo.py --dry
"""

import json
import os
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("BUDGET", "400")
import torch
import zz_steps as z
from solutions.fused_decode import Attend, Cut, Norm, Plan  # noqa: F401 (eval of a plan's repr)

z.LOG = (z.OUT / "undo.jsonl").open("a")
_edited = z.edited
CACHE = {}


def edited(name, edits):
    if name not in CACHE:
        CACHE[name] = _edited(name, edits)
    return CACHE[name]


def without_pdl(plan):
    return plan._replace(**{name: getattr(plan, name)._replace(begin=0) for name in plan._fields})


def variants(size, plan):
    found = [("old", z.base, z.OLD(size)), ("best", z.new, plan), ("without PDL", z.new, without_pdl(plan))]
    for name, edits in {**z.UNDO, **({} if size == 1 else z.AHEAD)}.items():
        found.append((f"undone: {name}" if name in z.UNDO else name, edited(name, edits), plan))
    found.append(("attend fetches nothing ahead", z.new, plan._replace(attend=plan.attend._replace(ahead=0))))
    if size > 1:
        found.append(("TMA", edited("TMA", z.TMA["TMA"]), plan))
        if plan.proj.splits == 0:
            found.append(("proj by partial sums", z.new, plan._replace(proj=plan.proj._replace(splits=2))))
    return found


def compile_share(best, sizes, share, shares):
    torch.set_num_threads(1)
    jobs = [(size, each) for size in sizes for each in variants(size, best[size])]
    for size, (name, module, plan) in jobs[share::shares]:
        for kernel, grid, arguments, warps, begin in z.launches(module, size, [plan]):
            try:
                kernel.warmup(*arguments, grid=grid, num_warps=warps, **({"launch_pdl": True} if begin else {}))
            except Exception as error:
                print(f"does not compile: {size} {name}: {str(error)[:200]}", flush=True)
        torch.cuda.empty_cache()


def main():
    line = json.loads((Path(__file__).parent / "zz_best.jsonl").read_text())
    best = {int(size): eval(plan) for size, plan in line["plans"].items()}
    sizes = [int(each) for each in os.environ.get("SIZES", "1,8,32,256").split(",")]
    if "--compile" in sys.argv:
        at = sys.argv.index("--compile")
        return compile_share(best, sizes, int(sys.argv[at + 1]), int(sys.argv[at + 2]))
    if not z.DRY:
        workers = [subprocess.Popen([sys.executable, __file__, "--compile", str(i), "12"]) for i in range(12)]
        for each in workers:
            each.wait(120)
        z.say(what="compiled")
    context = 32 if z.DRY else 64
    if z.DRY:
        z.FLOORS.update({(n, c): 1.0 for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) for c in (32, 64)})
    warm = z.Scene(8, context)
    for _ in range(3):
        warm.run(z.new, best[8])
    for size in sizes:
        scene = z.Scene(size, context)
        found = variants(size, best[size])
        z.interleaved(scene, found, 5)
    if not z.DRY:
        one = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        two = torch.empty_like(one)
        times = []
        for _ in range(12):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            two.copy_(one)
            end.record()
            end.synchronize()
            times.append(2 * one.numel() / start.elapsed_time(end) / 1e9)
        z.say(what="copy", tb_per_second=sorted(times)[6], all=[round(each, 3) for each in times])
    z.say(what="end")


if __name__ == "__main__":
    main()
