"""CUDA graphs: what takes the host many launches is recorded once and repeated with one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Graphs:
    """Records calls. All compute in the same memory, so no two of them may run at once.

    With `enabled` false, or on a device that has no graphs, a call stays a call.
    """

    def __init__(self, device: torch.device, *, enabled: bool = True) -> None:
        self.enabled = enabled and device.type == "cuda"
        self._memory: Any = None

    def record(self, call: Callable[[], None], kept: torch.Tensor) -> Callable[[], None]:
        """Return what does the same as `call`, on the same tensors.

        It runs once now, to compile what is not yet; whatever else it changes, `kept` is as before afterwards.
        """
        if not self.enabled:
            return call
        before = kept.clone()
        call()
        kept.copy_(before)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._memory):
            call()
        self._memory = graph.pool()
        replay: Callable[[], None] = graph.replay
        return replay
