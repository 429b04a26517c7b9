"""Blocks: what a kernel computes with. A scalar is a block of no axes.

A block keeps its numbers in one list, row by row. Axes along which it repeats itself are kept once: `layout` is `shape`
with 1 in their place, so that `tl.zeros([64, 64])` holds one number and a mask `valid[:, None]` as many as `valid`.

Beside the numbers a block may hold `poison`: for each of them, where the value that is not defined came from, or
None. There is no such list when all is well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain, repeat
from math import prod
from typing import Any

from course.emulator.dtypes import block_type, dtype
from course.emulator.errors import PoisonStored, Spot, WouldNotCompile, here, not_offered
from course.emulator.memory import Memory

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Buffer:
    """What a pointer points into: a kernel's parameter. Places `low` to `high` of the memory belong to it."""

    name: str
    memory: Memory
    start: int
    low: int
    high: int

    def address(self, place: int) -> str:
        """Return how a place in the memory is written in a message: `keys_ptr + 4`."""
        offset = place - self.start
        return f"{self.name} {'-' if offset < 0 else '+'} {abs(offset)}"


@dataclass(frozen=True)
class Origin:
    """Where poison comes from."""

    what: str
    spot: Spot | None

    def __str__(self) -> str:
        return self.what + ("" if self.spot is None else f", {self.spot.inline()}")


Poison = list[Origin | None] | None


class Block:
    """A block of numbers, or of pointers when its type is a pointer type: places in the memory of `buffer`."""

    __slots__ = ("buffer", "data", "dtype", "layout", "poison", "shape")

    def __init__(
        self,
        kind: dtype,
        shape: Shape,
        data: list[Any],
        poison: Poison = None,
        layout: Shape | None = None,
        buffer: Buffer | None = None,
    ) -> None:
        self.dtype = kind
        self.shape = shape
        self.data = data
        self.poison = poison
        self.layout = shape if layout is None else layout
        self.buffer = buffer

    @property
    def type(self) -> dtype | block_type:
        return block_type(self.dtype, self.shape) if self.shape else self.dtype

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def T(self) -> Block:
        turned: Block = _operators["T"](self)
        return turned

    def full(self) -> tuple[list[Any], Poison]:
        """Return every element, and its poison, with nothing left out for repeating itself."""
        if self.layout == self.shape:
            return self.data, self.poison
        poison = None if self.poison is None else spread(self.poison, self.layout, self.shape)
        return spread(self.data, self.layout, self.shape), poison

    def like(self, kind: dtype, data: list[Any], poison: Poison) -> Block:
        """Return a block of this shape and layout with other numbers."""
        return Block(kind, self.shape, data, poison, self.layout)

    def __getitem__(self, index: Any) -> Block:
        """Insert axes: `x[:, None]`. There is no other indexing in Triton."""
        shape: list[int] = []
        layout: list[int] = []
        axis = 0
        for each in index if isinstance(index, tuple) else (index,):
            if each is None:
                shape.append(1)
                layout.append(1)
            elif isinstance(each, slice) and each == slice(None) and axis < len(self.shape):
                shape.append(self.shape[axis])
                layout.append(self.layout[axis])
                axis += 1
            else:
                raise WouldNotCompile(
                    "a block can be indexed with `:` and `None` only, once for each of its axes",
                    f"it has the shape {list(self.shape)}; a part of it is read with tl.load, or chosen with tl.where",
                )
        shape += self.shape[axis:]
        layout += self.layout[axis:]
        return Block(self.dtype, tuple(shape), self.data, self.poison, tuple(layout), self.buffer)

    def __bool__(self) -> bool:
        if self.shape:
            raise WouldNotCompile(
                f"a block of shape {list(self.shape)} cannot decide a branch: it has many truth values",
                "use tl.where to choose element by element, and &, | and ~ in place of and, or and not",
            )
        if self.buffer is not None:
            return True  # a pointer that is None is no block
        if self.poison is not None:
            raise PoisonStored("a branch depends on a value that is not defined", f"it is {self.poison[0]}")
        return bool(self.data[0])

    def __call__(self, *args: Any) -> Any:
        raise WouldNotCompile("a block is not a function")

    def __iter__(self) -> Any:
        raise WouldNotCompile("a block cannot be taken apart: there is no iterating over its elements")

    def __len__(self) -> int:
        raise WouldNotCompile("len() of a block: ask for its .shape")

    def _must_be_constant(self) -> Any:
        raise WouldNotCompile("a value known only when the kernel runs is used where Triton wants a constexpr")

    __index__ = __int__ = __float__ = _must_be_constant

    def __setitem__(self, index: Any, value: Any) -> None:
        raise WouldNotCompile("an element of a block cannot be assigned: use tl.where or tl.store")

    def __getattr__(self, name: str) -> Any:
        if name in _operators:
            method = _operators[name]
            return lambda *args, **options: method(self, *args, **options)
        if name.startswith("__"):
            raise AttributeError(name)
        raise not_offered(f"a block's `{name}`")

    def __repr__(self) -> str:
        return f"<{self.type}>"

    __hash__ = object.__hash__


_operators: dict[str, Callable[..., Any]] = {}


def attach(operators: dict[str, Callable[..., Block]], methods: dict[str, Callable[..., Any]]) -> None:
    """Give blocks their operators (`__add__` …) and methods (`sum` …), which other modules define."""
    for name, operator in operators.items():
        setattr(Block, name, operator)
    _operators.update(methods)


def scalar(kind: dtype, value: Any, poison: Origin | None = None) -> Block:
    return Block(kind, (), [value], None if poison is None else [poison])


def poisoned(what: str) -> Origin:
    """Return poison that begins on the running line of the kernel."""
    return Origin(what, here())


# ---- shapes ----


def spread(data: list[Any], layout: Shape, target: Shape) -> list[Any]:
    """Repeat elements so that a list laid out as `layout` is laid out as `target`; they differ where `layout` has 1."""
    if layout == target:
        return data
    if len(data) == 1:
        return data * prod(target)
    inner = 1
    for have, want in zip(reversed(layout), reversed(target), strict=True):
        if have != want:
            if inner == len(data):
                data = data * want
            elif inner == 1:
                data = list(chain.from_iterable(map(repeat, data, repeat(want))))
            else:
                rows = [data[start : start + inner] * want for start in range(0, len(data), inner)]
                data = list(chain.from_iterable(rows))
        inner *= want
    return data


def common_shape(shapes: list[Shape], what: str = "shapes") -> Shape:
    """Return the shape that all broadcast to. Shorter ones get axes of 1 in front."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = tuple(map(max, *padded)) if len(padded) > 1 else padded[0]
    for shape in padded:
        if any(size not in (1, wanted) for size, wanted in zip(shape, result, strict=True)):
            shown = " and ".join(str(list(each)) for each in shapes)
            raise WouldNotCompile(
                f"the {what} {shown} do not fit together",
                "two axes fit when they have one size or one of them is 1: x[:, None] makes a column, x[None, :] a row",
            )
    return result


def padded(layout: Shape, rank: int) -> Shape:
    return layout if len(layout) == rank else (1,) * (rank - len(layout)) + layout


def broadcast(block: Block, shape: Shape) -> Block:
    """Return the block at a shape that it broadcasts to; nothing is copied."""
    if block.shape == shape:
        return block
    return Block(block.dtype, shape, block.data, block.poison, padded(block.layout, len(shape)), block.buffer)


def aligned(*blocks: Block) -> tuple[Shape, Shape, list[list[Any]], Poison]:
    """Bring blocks together: return the shape, the least layout for all, their numbers in it, and all the poison."""
    first = blocks[0]
    if all(each.shape == first.shape and each.layout == first.layout for each in blocks):
        shape, layout = first.shape, first.layout
        lists = [each.data for each in blocks]
        poisons = [each.poison for each in blocks if each.poison is not None]
    else:
        shape = common_shape([each.shape for each in blocks])
        layouts = [padded(each.layout, len(shape)) for each in blocks]
        layout = tuple(map(max, *layouts))
        lists = [spread(each.data, own, layout) for each, own in zip(blocks, layouts, strict=True)]
        poisons = [
            spread(each.poison, own, layout)
            for each, own in zip(blocks, layouts, strict=True)
            if each.poison is not None
        ]
    return shape, layout, lists, merged(poisons)


def merged(poisons: list[list[Origin | None]]) -> Poison:
    """Poison spreads: an element is poisoned when any of its operands is. Of several origins, the first is kept."""
    if not poisons:
        return None
    result = poisons[0]
    for each in poisons[1:]:
        result = [a or b for a, b in zip(result, each, strict=True)]
    return result


def index_text(position: int, shape: Shape) -> str:
    """Return an element's index for a message: `[3, 0]`."""
    index = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return f"[{', '.join(map(str, reversed(index)))}]"
