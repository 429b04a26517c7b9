"""CUDA graphs: what takes the host many launches is recorded once and repeated with one.

A graph reads and writes the same tensors each time. `Staged` brings it the numbers of a step in one copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Integers = npt.NDArray[np.integer[Any]]


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
    """A tensor of numbers that the host writes and graphs read.

    They are written to memory that the GPU can fetch by itself, in two places in turn: it may have to fetch the numbers
    of one turn still while the host writes those of the next.
    """

    def __init__(self, *shape: int, dtype: torch.dtype, device: torch.device) -> None:
        self.there = torch.zeros(shape, dtype=dtype, device=device)
        self._here = [torch.zeros(shape, dtype=dtype, pin_memory=device.type == "cuda") for _ in range(2)]

    def begin(self) -> Integers:
        """Return where the numbers of the next turn are to be written. It holds those of an earlier one."""
        self._here.reverse()
        here: Integers = self._here[0].numpy()
        return here

    def send(self, count: int) -> None:
        """Start the copy of the first `count`, along the first dimension, of what was written since `begin`."""
        self.there[:count].copy_(self._here[0][:count], non_blocking=True)


def flatten(lists: Sequence[Sequence[int]]) -> tuple[Integers, Integers, Integers]:
    """Return the numbers of all lists one after the other, and for each the list it is from and its index there."""
    lengths = np.fromiter(map(len, lists), np.int64, len(lists))
    ends = lengths.cumsum()
    source = np.arange(len(lists)).repeat(lengths)
    index = np.arange(len(source)) - (ends - lengths).repeat(lengths)
    return np.fromiter(itertools.chain.from_iterable(lists), np.int64, len(source)), source, index
