"""Loads and stores: every address is checked against its buffer, every read against what was written."""

from __future__ import annotations

from itertools import compress, repeat
from typing import Any, NoReturn

from course.emulator import program
from course.emulator.blocks import Block, Buffer, Origin, Poison, Shape, aligned, broadcast, common_shape, index_text
from course.emulator.constants import unwrap
from course.emulator.dtypes import int1, pointer_type, round_to
from course.emulator.errors import InvalidAccess, PoisonStored, WouldNotCompile, WriteConflict, here
from course.emulator.memory import count
from course.emulator.operands import cast, to_block


def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    cache_modifier: Any = "",
    eviction_policy: Any = "",
    volatile: Any = False,
) -> Block:
    """Read the elements that the mask lets through; the rest is `other`, or poison where there is no `other`."""
    pointer, mask, other = _pointer("tl.load", pointer), unwrap(mask), unwrap(other)
    buffer = pointer.buffer
    kind = pointer.dtype.element_ty
    if mask is None:
        if other is not None:
            raise WouldNotCompile("tl.load with `other` wants a mask")
        return _read(pointer, buffer, kind, pointer.data, None, pointer.poison)
    mask = _mask("tl.load", pointer, mask)
    if other is not None:
        other = cast(to_block(other), kind)
        _no_larger("tl.load", pointer, "other", other)
    # An address is formed for every element of the shape, so pointers are laid out with their mask.
    pointer = broadcast(pointer, common_shape([pointer.shape, mask.shape]))
    if mask.poison is None and all(mask.data):
        return _read(pointer, buffer, kind, pointer.data, None, pointer.poison)
    wanted = (pointer, mask) if other is None else (pointer, mask, other)
    shape, layout, lists, _ = aligned(*wanted)
    places, through = lists[:2]
    _check_mask("tl.load", mask)
    addresses = Block(pointer.dtype, shape, places, _laid_out(pointer, shape, layout), layout, buffer)
    values = lists[2] if other is not None else [_filler(kind)] * len(places)
    inherited = None if other is None or other.poison is None else _laid_out(other, shape, layout)
    return _read_some(addresses, through, values, inherited, other is None)


def _filler(kind: Any) -> Any:
    return 0.0 if kind.is_floating() else False if kind is int1 else 0


def _laid_out(block: Block, shape: Shape, layout: Shape) -> Poison:
    if block.poison is None:
        return None
    return aligned(block, Block(int1, shape, [True] * _size(layout), None, layout))[3]


def _size(layout: Shape) -> int:
    size = 1
    for each in layout:
        size *= each
    return size


def _read(pointer: Block, buffer: Buffer, kind: Any, places: list[int], mask: Any, poison: Poison) -> Block:
    """Read every element."""
    if poison is not None:
        _poisoned_address("tl.load", pointer, None)
    if min(places) < buffer.low or max(places) > buffer.high:
        _outside("tl.load", pointer, None)
    memory = buffer.memory
    program.current().check_reads(buffer, places)
    origins: Poison = None
    if memory.written is not None:
        origins = _unwritten(buffer, places, [True] * len(places))
    data = list(map(memory.values.__getitem__, places))
    count(loaded=_repeats(pointer) * len(data) * kind.itemsize)
    return Block(kind, pointer.shape, data, origins, pointer.layout)


def _repeats(block: Block) -> int:
    """How many elements each element of the list stands for."""
    return _size(block.shape) // len(block.data)


def _read_some(pointer: Block, through: list[bool], values: list[Any], inherited: Poison, bare: bool) -> Block:
    """Read the elements that the mask lets through; `values` has the others."""
    buffer = pointer.buffer
    assert buffer is not None
    kind = pointer.dtype.element_ty
    places = list(compress(pointer.data, through))
    origins = inherited
    if places:
        if pointer.poison is not None and any(compress(pointer.poison, through)):
            _poisoned_address("tl.load", pointer, through)
        if min(places) < buffer.low or max(places) > buffer.high:
            _outside("tl.load", pointer, through)
        memory = buffer.memory
        program.current().check_reads(buffer, places)
        stored = memory.values
        values = [
            stored[place] if ok else value for place, ok, value in zip(pointer.data, through, values, strict=True)
        ]
        if inherited is not None:
            origins = [None if ok else each for ok, each in zip(through, inherited, strict=True)]
        if memory.written is not None:
            unwritten = _unwritten(buffer, pointer.data, through)
            if unwritten is not None:
                origins = [a or b for a, b in zip(unwritten, origins or repeat(None), strict=False)]
        count(loaded=_repeats(pointer) * len(places) * kind.itemsize)
    if bare:
        spot = here()
        hole = Origin(f"the masked load of {buffer.name} without `other`", spot)
        origins = [a or (None if ok else hole) for a, ok in zip(origins or repeat(None), through, strict=False)]
    if origins is not None and not any(origins):
        origins = None
    return Block(kind, pointer.shape, values, origins, pointer.layout)


def _unwritten(buffer: Buffer, places: list[int], through: Any) -> Poison:
    """Return where poison was read: memory that nobody has written."""
    written = buffer.memory.written
    assert written is not None
    if all(map(written.__getitem__, compress(places, through))):
        return None
    spot = here()
    return [
        None if not ok or written[place]
        else Origin(f"the load of {buffer.address(place)}, which nobody has written", spot)
        for place, ok in zip(places, through, strict=False)
    ]  # fmt: skip


def store(pointer: Any, value: Any, mask: Any = None, cache_modifier: Any = "", eviction_policy: Any = "") -> None:
    """Write the elements that the mask lets through."""
    pointer, value = _pointer("tl.store", pointer), cast(to_block(value), _element(pointer))
    _no_larger("tl.store", pointer, "value", value)
    places, values, _ = _to_write("tl.store", pointer, value, mask)
    if not places:
        return
    buffer = pointer.buffer
    memory = buffer.memory
    _check_lanes(pointer, places, mask)
    program.current().note_stores(buffer, places)
    stored = memory.values
    for place, each in zip(places, values, strict=True):
        stored[place] = each
    if memory.written is not None:
        for place in places:
            memory.written[place] = 1
    count(stored=len(places) * _element(pointer).itemsize)


def atomic_add(pointer: Any, value: Any, mask: Any = None, sem: Any = None, scope: Any = None) -> Block:
    """Add to the elements that the mask lets through, one after the other, and return what was there before.

    Of elements that the mask holds back the result is poison.
    """
    pointer, value = _pointer("tl.atomic_add", pointer), to_block(value)
    kind = _element(pointer)
    if kind.primitive_bitwidth < 16 or kind.name in ("int16", "uint16"):
        raise WouldNotCompile(f"tl.atomic_add does not support {kind}")
    _no_larger("tl.atomic_add", pointer, "value", value)
    value = cast(value, kind)
    places, values, through = _to_write("tl.atomic_add", pointer, value, mask)
    buffer = pointer.buffer
    written = buffer.memory.written
    if written is not None and not all(written[place] for place in places):
        first = next(place for place in places if not written[place])
        raise PoisonStored(
            f"tl.atomic_add to {buffer.address(first)}, which nobody has written: there is no sum",
            "zero the buffer before the launch",
        )
    held_back = Origin(f"tl.atomic_add to {buffer.name} where its mask is False", here())
    before = iter([_add_in_place(buffer, place, each, kind) for place, each in zip(places, values, strict=True)])
    count(loaded=len(places) * kind.itemsize, stored=len(places) * kind.itemsize)
    data = [next(before) if ok else _filler(kind) for ok in through]
    return Block(kind, pointer.shape, data, None if all(through) else [None if ok else held_back for ok in through])


def _add_in_place(buffer: Buffer, place: int, value: Any, kind: Any) -> Any:
    before = buffer.memory.values[place]
    buffer.memory.values[place] = round_to([before + value], kind)[0]
    return before


def _to_write(name: str, pointer: Block, value: Block, mask: Any) -> tuple[list[int], list[Any], list[bool]]:
    """Check what is written and where; return the places, the values, and the mask over every element."""
    mask = unwrap(mask)
    every = Block(int1, (), [True]) if mask is None else _mask(name, pointer, mask)
    _check_mask(name, every)
    shape = common_shape([pointer.shape, value.shape, every.shape])
    if shape != pointer.shape:
        raise WouldNotCompile(
            f"{name}: the pointers' shape {list(pointer.shape)} must be that of all, which is {list(shape)}"
        )
    places, address_poison = pointer.full()
    values, value_poison = broadcast(value, shape).full()
    through, _ = broadcast(every, shape).full()
    buffer = pointer.buffer
    assert buffer is not None
    chosen = places if all(through) else list(compress(places, through))
    if not chosen:
        return [], [], through
    if address_poison is not None and any(compress(address_poison, through)):
        _poisoned_address(name, pointer, through)
    if min(chosen) < buffer.low or max(chosen) > buffer.high:
        _outside(name, pointer, None if mask is None else through)
    if value_poison is not None and any(compress(value_poison, through)):
        at = next(at for at, ok in enumerate(through) if ok and value_poison[at])
        raise PoisonStored(
            f"{name} writes a value that is not defined to {buffer.address(places[at])}",
            f"it comes from {value_poison[at]}",
            _element_text(at, shape, None if mask is None else True),
        )
    return chosen, values if chosen is places else list(compress(values, through)), through


def _element(pointer: Block) -> Any:
    return pointer.dtype.element_ty


def _pointer(name: str, pointer: Any) -> Block:
    pointer = unwrap(pointer)
    if pointer is None:
        raise WouldNotCompile(f"{name} through a pointer that is None", "ask first: if scales_ptr is not None:")
    if not isinstance(pointer, Block) or not isinstance(pointer.dtype, pointer_type):
        given = pointer.type if isinstance(pointer, Block) else type(pointer).__name__
        raise WouldNotCompile(
            f"{name} wants pointers, not {given}", "a pointer is a parameter plus an offset: x_ptr + i"
        )
    return pointer


def _mask(name: str, pointer: Block, mask: Any) -> Block:
    block = to_block(mask)
    if block.dtype is not int1:
        raise WouldNotCompile(f"the mask of {name} must be boolean, not {block.dtype}: compare, as in mask=x < n")
    _no_larger(name, pointer, "mask", block)
    return block


def _no_larger(name: str, pointer: Block, what: str, given: Block) -> None:
    if given.shape and not pointer.shape:
        raise WouldNotCompile(
            f"{name} through one pointer, with a {what} of shape {list(given.shape)}",
            "add a block of offsets to the pointer: x_ptr + tl.arange(0, N)",
        )
    if len(common_shape([pointer.shape, given.shape], "shapes of pointers and " + what)) > len(pointer.shape):
        raise WouldNotCompile(f"{name}: the {what} has more axes than the pointers")


# ---- what is reported ----


def _element_text(at: int, shape: Shape, mask: bool | None) -> str:
    which = f"element {index_text(at, shape)} of {list(shape)}" if shape else "a scalar"
    return which + (", no mask" if mask is None else f", the mask there is {mask}")


def _outside(name: str, pointer: Block, through: list[bool] | None) -> NoReturn:
    buffer = pointer.buffer
    assert buffer is not None
    places = pointer.full()[0]
    laid_out = through if through is None or len(through) == len(places) else None
    if through is not None and laid_out is None:
        laid_out = broadcast(Block(int1, pointer.shape, through, None, pointer.layout), pointer.shape).full()[0]
    wrong = [
        at
        for at, place in enumerate(places)
        if not buffer.low <= place <= buffer.high and (laid_out is None or laid_out[at])
    ]
    at = wrong[0]
    size = buffer.high - buffer.low + 1
    first, last = buffer.low - buffer.start, buffer.high - buffer.start
    holds = f"the buffer holds {size} elements, {first} to {last}" if size else "the buffer holds no elements"
    others = f"; {len(wrong)} of {len(places)} elements are outside" if len(places) > 1 else ""
    details = [_element_text(at, pointer.shape, None if laid_out is None else True) + others]
    if places[at] - buffer.start < -(1 << 29):
        details.append(
            "an offset computed in 32 bits wraps around at 2**31: widen the number first, as in block.to(tl.int64)"
        )
    raise InvalidAccess(f"{name} of {buffer.address(places[at])}: {holds}", *details)


def _check_mask(name: str, mask: Block) -> None:
    if mask.poison is not None and any(mask.poison):
        at = next(at for at, each in enumerate(mask.poison) if each)
        raise PoisonStored(
            f"the mask of {name} depends on a value that is not defined", f"it comes from {mask.poison[at]}"
        )


def _poisoned_address(name: str, pointer: Block, through: list[bool] | None) -> NoReturn:
    poison = pointer.poison or []
    at = next(
        at for at, each in enumerate(poison) if each and (through is None or len(through) != len(poison) or through[at])
    )
    buffer = pointer.buffer
    assert buffer is not None
    raise PoisonStored(
        f"the address of {name} in {buffer.name} depends on a value that is not defined",
        f"it comes from {poison[at]}",
    )


def _check_lanes(pointer: Block, places: list[int], mask: Any) -> None:
    if len(set(places)) == len(places):
        return
    seen: set[int] = set()
    twice = next(place for place in places if place in seen or seen.add(place))  # type: ignore[func-returns-value]
    buffer = pointer.buffer
    assert buffer is not None
    at = [at for at, place in enumerate(pointer.full()[0]) if place == twice]
    raise WriteConflict(
        f"tl.store writes {buffer.address(twice)} more than once: which value stays is not defined",
        f"elements {index_text(at[0], pointer.shape)} and {index_text(at[-1], pointer.shape)} of {list(pointer.shape)} "
        "have one address" + ("; no mask" if mask is None else ""),
    )
