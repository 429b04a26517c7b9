"""Serves one system to the benchmark: `python serve.py FILE`, where FILE has a class `System`.

It runs in the interpreter that has the system, so it imports the standard library alone. Each line of the standard
input is a task: its method's name as `task`, and that method's arguments. `load` makes the system. Each line of the
standard output answers one: {"done": …}, {"absent": why} when the system is not to be had here, or {"failed": why}.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import sys
import traceback
from typing import Any


def main(path: str) -> None:
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # what a system prints is no answer
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != here]
    system: Any = None
    for line in requests:
        job = json.loads(line)
        task = job.pop("task")
        try:
            if task == "load":
                module = _load(path)
                why = module.missing(**job) if hasattr(module, "missing") else None
                system = None if why else module.System(**job)
                answer = {"absent": why} if why else {"done": system.about()}
            elif task == "profile":
                answer = {"done": profile(system.round, job)}
            else:
                gc.collect()  # so that no round has to
                answer = {"done": getattr(system, task)(**job)}
        except ModuleNotFoundError as error:
            answer = {"absent": str(error)}
        except BaseException as error:  # whatever it is, the parent is told
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
        replies.write(json.dumps(answer) + "\n")
        replies.flush()


def profile(run: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Return for how many seconds of a round the GPU was busy, by PyTorch's profiler, or why that is not to be had."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return {"why": "this process runs nothing on a GPU that PyTorch's profiler sees"}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        run(**job)
        torch.cuda.synchronize()
    on_gpu = torch.autograd.DeviceType.CUDA
    spans = [event.time_range for event in profiler.events() if event.device_type == on_gpu]
    if not spans:
        return {"why": "the GPU's work is done by another process of the system's"}
    return {"busy_seconds": covered([(span.start, span.end) for span in spans]) / 1e6}


def covered(spans: list[tuple[float, float]]) -> float:
    """Return the length of time that is in at least one of the spans: what runs side by side is busy once."""
    total, end = 0.0, float("-inf")
    for begin, stop in sorted(spans):
        total += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    return total


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location("system", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1])
