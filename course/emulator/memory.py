"""Memory and the tensors that look at it. Every element knows whether anybody has written it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from course.emulator.dtypes import dtype, dtype_named, round_to
from course.emulator.errors import not_offered

LARGEST_LIST = 1 << 22  # elements


class Sparse(dict[int, Any]):
    """Numbers of a memory too large to have: a place that nobody has set holds `nothing`."""

    def __init__(self, nothing: Any) -> None:
        super().__init__()
        self.nothing = nothing

    def __missing__(self, place: int) -> Any:
        return self.nothing


class Memory:
    """One allocation: `size` numbers of one type.

    `written` holds a 1 for each element that was written, or is None when all were. `stored` and `storing` belong to
    the launch that runs: which program stored each element, and what the running program has stored.
    """

    def __init__(
        self, kind: dtype, size: int, values: list[Any] | Sparse, written: bytearray | Sparse | None = None
    ) -> None:
        self.dtype = kind
        self.size = size
        self.values = values
        self.written = written
        self.stored: dict[int, int] = {}
        self.storing: set[int] = set()


class Tensor:
    """A look at a memory: what a launcher is handed in place of PyTorch's tensor."""

    device = "cpu"
    is_cuda = False

    def __init__(self, memory: Memory, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> None:
        self.memory = memory
        self.shape = tuple(shape)
        self._strides = tuple(strides)
        self.offset = offset

    @property
    def dtype(self) -> dtype:
        return self.memory.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def size(self, axis: int | None = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def stride(self, axis: int | None = None) -> Any:
        """Return all strides, in elements, or the one of an axis."""
        return self._strides if axis is None else self._strides[axis]

    def numel(self) -> int:
        return math.prod(self.shape)

    def element_size(self) -> int:
        return self.dtype.itemsize

    def storage_offset(self) -> int:
        return self.offset

    def is_contiguous(self) -> bool:
        wanted = contiguous_strides(self.shape)
        return all(size == 1 or a == b for size, a, b in zip(self.shape, self._strides, wanted, strict=True))

    def new_empty(self, *shape: Any, dtype: Any = None, device: object = None) -> Tensor:
        """Return memory of this type that nobody has written."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        return unwritten(sizes, self.dtype if dtype is None else dtype)

    def extent(self) -> tuple[int, int]:
        """Return the first and the last place in the memory that belong to this look at it; of no elements, (0, -1)."""
        if 0 in self.shape:
            return 0, -1
        reaches = [(size - 1) * stride for size, stride in zip(self.shape, self._strides, strict=True)]
        low = self.offset + sum(each for each in reaches if each < 0)
        return low, self.offset + sum(each for each in reaches if each > 0)

    def places(self) -> list[int]:
        """Return where its elements are in the memory, the last axis running fastest."""
        if self.is_contiguous():
            return list(range(self.offset, self.offset + self.numel()))
        steps = [range(0, size * stride, stride) if stride else [0] * size for size, stride in self._axes()]
        return [self.offset + sum(each) for each in product(*steps)]

    def tolist(self) -> Any:
        """Return the elements as nested lists. What was never written is NaN, or None in a tensor of integers."""
        values, written = self.memory.values, self.memory.written
        nothing = math.nan if self.dtype.is_floating() else None
        places = self.places()
        flat = list(map(values.__getitem__, places))
        if written is not None:
            flat = [value if written[place] else nothing for place, value in zip(places, flat, strict=True)]
        return _nest(flat, self.shape)

    def _axes(self) -> zip[tuple[int, int]]:
        return zip(self.shape, self._strides, strict=True)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a tensor without axes has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"tensor({self.dtype.names[0]} [{', '.join(map(str, self.shape))}])"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise not_offered(f"a tensor's `{name}`", "a launcher needs shapes, strides and new_empty")


def tensor(values: Any, dtype: str | dtype = "float32") -> Tensor:
    """Return a contiguous tensor of nested lists of numbers, each rounded to the type; None is what nobody has written.

    `ValueError` for lists that are no rectangle, or an integer that does not fit.
    """
    kind = dtype_named(dtype)
    shape: list[int] = []
    flat: list[Any] = [values]
    while flat and not {list, tuple}.isdisjoint(map(type, flat)):
        sizes = {len(each) if isinstance(each, list | tuple) else -1 for each in flat}
        if len(sizes) != 1:
            raise ValueError(f"the lists at depth {len(shape)} are not all of one length")
        shape.append(sizes.pop())
        flat = list(chain.from_iterable(flat))
    written = None
    if None in flat:
        written = bytearray(each is not None for each in flat)
        nothing = math.nan if kind.is_floating() else 0
        flat = [nothing if each is None else each for each in flat]
    return Tensor(Memory(kind, len(flat), _as_kind(flat, kind), written), shape, contiguous_strides(shape))


def unwritten(shape: Sequence[int], dtype: str | dtype = "float32") -> Tensor:
    """Return a contiguous tensor of memory that nobody has written.

    It may be as large as a GPU's memory, so that offsets beyond 2³¹ can be tried: only what is written takes room.
    """
    kind = dtype_named(dtype)
    size = math.prod(shape)
    nothing = math.nan if kind.is_floating() else 0
    if size > LARGEST_LIST:
        memory = Memory(kind, size, Sparse(nothing), Sparse(0))
    else:
        memory = Memory(kind, size, [nothing] * size, bytearray(size))
    return Tensor(memory, shape, contiguous_strides(shape))


def view(tensor: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> Tensor:
    """Return another look at a tensor's memory. `offset` counts from the tensor's first element.

    `ValueError` when it would reach beyond the memory.
    """
    if len(shape) != len(strides):
        raise ValueError(f"{len(shape)} sizes and {len(strides)} strides")
    made = Tensor(tensor.memory, shape, strides, tensor.offset + offset)
    low, high = made.extent()
    if low < 0 or high >= tensor.memory.size:
        raise ValueError(f"a view from {low} to {high} of a memory of {tensor.memory.size} elements")
    return made


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _as_kind(flat: list[Any], kind: dtype) -> list[Any]:
    if kind.is_floating():
        return round_to(list(map(float, flat)), kind)
    if kind.is_bool():
        return list(map(bool, flat))
    if not {int, bool}.issuperset(map(type, flat)) or (
        flat and not kind.lowest <= min(flat) <= max(flat) <= kind.highest
    ):
        wrong = next(each for each in flat if not isinstance(each, int) or not kind.lowest <= each <= kind.highest)
        raise ValueError(f"{wrong!r} is not an integer of type {kind.names[0]}")
    return list(map(int, flat))


def _nest(flat: list[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return flat[0]
    if len(shape) == 1:
        return flat
    step = math.prod(shape[1:])
    return [_nest(flat[row * step : (row + 1) * step], shape[1:]) for row in range(shape[0])]


@dataclass
class Traffic:
    """Bytes that launches have moved, as far as masks let them through."""

    loaded: int = 0
    stored: int = 0


_traffic = Traffic()


def traffic() -> dict[str, int]:
    """Return the bytes `loaded` and `stored` by launches since the last call."""
    moved = {"loaded": _traffic.loaded, "stored": _traffic.stored}
    _traffic.loaded = _traffic.stored = 0
    return moved


def count(loaded: int = 0, stored: int = 0) -> None:
    _traffic.loaded += loaded
    _traffic.stored += stored
