"""What needs a GPU is skipped where there is none, and says so; and a guard for memory that is allocated."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA GPU"))


@pytest.fixture
def guarded_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `new_empty` returns holds NaN and lies between spare numbers, which must stay."""
    spare, rooms = 512, []
    original = torch.Tensor.new_empty

    def new_empty(self: torch.Tensor, *size: Any, dtype: torch.dtype | None = None, **others: Any) -> torch.Tensor:
        if others:  # PyTorch's and Triton's own
            return original(self, *size, dtype=dtype, **others)
        (size,) = size
        room = torch.full((math.prod(size) + 2 * spare,), -7.0, dtype=dtype or self.dtype, device=self.device)
        rooms.append(room)
        return room[spare:-spare].fill_(float("nan")).view(size)

    monkeypatch.setattr(torch.Tensor, "new_empty", new_empty)
    yield
    for room in rooms:
        assert (room[:spare] == -7).all() and (room[-spare:] == -7).all(), "memory of nobody was written"
