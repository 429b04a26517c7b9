"""CUDA graphs: what takes the host many launches is recorded once and repeated with one.

A graph reads and writes the same tensors each time. `Staged` brings it the numbers of a step in one copy, as they come:
laying them out is a kernel's work, since the host's time counts until the first token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
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


class Staged:
    """Up to `most` numbers that the host sends and graphs read.

    They are written to memory that the GPU can fetch by itself, in two places in turn: it may have to fetch the numbers
    of one turn still while the host writes those of the next.
    """

    def __init__(self, most: int, device: torch.device) -> None:
        self.there = torch.zeros(most, dtype=torch.int32, device=device)
        self._buffers = [_PinnedBuffer(self.there) for _ in range(2)]

    def send(self, numbers: Sequence[int]) -> None:
        """Start the copy of the numbers to the beginning of `there`. What follows them is left over from others."""
        self._buffers.reverse()
        self._buffers[0].send(numbers)


class _PinnedBuffer:
    """Memory of the host to copy from, cut beforehand by powers of two.

    Slicing a tensor costs the host more than copying up to twice the numbers.
    """

    def __init__(self, there: torch.Tensor) -> None:
        here = torch.zeros(len(there), dtype=there.dtype, pin_memory=there.device.type == "cuda")
        self._numbers: npt.NDArray[np.int32] = here.numpy()
        self._copies = [(there[: 1 << power], here[: 1 << power]) for power in range(len(there).bit_length() + 1)]

    def send(self, numbers: Sequence[int]) -> None:
        self._numbers[: len(numbers)] = numbers
        there, here = self._copies[len(numbers).bit_length()]
        there.copy_(here, non_blocking=True)
