"""`triton.language` as the emulator offers it. What Triton has and this has not raises `NotOffered` by its name."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from typing import Any

from course.emulator import arithmetic, functions, logic, matrices, program, reductions, shapes
from course.emulator.access import atomic_add, load, store
from course.emulator.blocks import Block, attach, broadcast, common_shape
from course.emulator.constants import constexpr, unwrap
from course.emulator.dtypes import DTYPES, block_type, dtype, int32, pointer_type
from course.emulator.errors import AssertionFailed, WouldNotCompile, not_offered
from course.emulator.operands import cast, constant, to_block, widest_integer
from course.emulator.operators import OPERATORS


def program_id(axis: Any) -> Block:
    return Block(int32, (), [program.current().program[_grid_axis(axis)]])


def num_programs(axis: Any) -> Block:
    return Block(int32, (), [program.current().grid[_grid_axis(axis)]])


def _grid_axis(axis: Any) -> int:
    axis = unwrap(axis)
    if axis not in (0, 1, 2):
        raise WouldNotCompile(f"the axis of a grid is 0, 1 or 2, not {axis!r}")
    return int(axis)


def arange(start: Any, end: Any) -> Block:
    start, end = unwrap(start), unwrap(end)
    if not isinstance(start, int) or not isinstance(end, int):
        raise WouldNotCompile(
            "tl.arange wants constexpr bounds: the compiler has to know the size of the block",
            "declare the parameter as `NAME: tl.constexpr`, or the variable as `name: tl.constexpr = …`",
        )
    size = end - start
    if size <= 0 or size & (size - 1):
        raise WouldNotCompile(
            f"tl.arange({start}, {end}) has {max(size, 0)} elements: it must be a power of two",
            "take the next power of two, and mask what is too much",
        )
    return Block(int32, (size,), list(range(start, end)))


def full(shape: Any, value: Any, dtype: Any) -> Block:
    value, kind = unwrap(value), unwrap(dtype)
    if isinstance(value, Block):
        if value.shape:
            raise WouldNotCompile(f"tl.full wants one number, not a block of shape {list(value.shape)}")
        return broadcast(cast(value, kind), shapes.as_shape(shape))
    return broadcast(constant(value, kind), shapes.as_shape(shape))


def zeros(shape: Any, dtype: Any) -> Block:
    return full(shape, 0, dtype)


def zeros_like(input: Any) -> Block:
    input = to_block(input)
    return broadcast(constant(0, input.dtype), input.shape)


def to(input: Any, dtype: Any, fp_downcast_rounding: Any = None, bitcast: Any = False) -> Block:
    if unwrap(bitcast):
        raise not_offered("a bitcast", "cast the value: x.to(tl.float32)")
    if unwrap(fp_downcast_rounding) not in (None, "rtne"):
        raise not_offered(f"rounding by {fp_downcast_rounding!r}", "a cast rounds to nearest even")
    kind = unwrap(dtype)
    if not isinstance(kind, dtype_class):
        raise WouldNotCompile(f"a cast wants a type such as tl.float32, not {kind!r}")
    return cast(to_block(input), kind)


dtype_class = dtype


def broadcast_blocks(input: Any, other: Any) -> tuple[Block, Block]:
    input, other = to_block(input), to_block(other)
    shape = common_shape([input.shape, other.shape])
    return broadcast(input, shape), broadcast(other, shape)


def cdiv(x: Any, div: Any) -> Any:
    x, div = unwrap(x), unwrap(div)
    return (x + div - 1) // div


def multiple_of(input: Any, values: Any) -> Any:
    """A promise to the compiler. Nothing is made of it here."""
    return input


max_contiguous = max_constancy = multiple_of


def assume(cond: Any) -> None:
    if isinstance(cond, Block) and not all(cond.data):
        raise AssertionFailed("tl.assume of what is not so: the compiler would build on it")


def static_assert(cond: Any, msg: Any = "") -> None:
    cond = unwrap(cond)
    if isinstance(cond, Block):
        raise WouldNotCompile("tl.static_assert wants a constexpr")
    if not cond:
        raise WouldNotCompile(f"tl.static_assert fails: {unwrap(msg)}" if msg else "tl.static_assert fails")


def device_assert(cond: Any, msg: Any = "", mask: Any = None) -> None:
    cond = to_block(cond)
    if mask is not None:
        cond = logic.bit_or(cond, logic.invert(to_block(mask)))
    if not all(cond.data):
        raise AssertionFailed(f"an assertion does not hold: {unwrap(msg)}" if msg else "an assertion does not hold")


def static_print(*values: Any, sep: str = " ", end: str = "\n") -> None:
    print(*map(unwrap, values), sep=sep, end=end)


def device_print(prefix: Any, *values: Any, hex: Any = False) -> None:
    """Print a line a call: the program, the text, and each block's numbers."""
    shown = " ".join(
        str(to_block(each).full()[0] if to_block(each).shape else to_block(each).data[0]) for each in values
    )
    print(f"program {program.current().program}: {unwrap(prefix)} {shown}".rstrip())


def debug_barrier() -> None:
    """Programs run one after the other here: there is nothing to wait for."""


class Loop:
    """What a `for` runs over. `range` and `tl.range` count at run time, `tl.static_range` in the compiler."""

    def __init__(self, bounds: tuple[Any, ...], static: bool) -> None:
        if not 1 <= len(bounds) <= 3:
            raise WouldNotCompile(f"a range has one to three bounds, not {len(bounds)}")
        bounds = tuple(map(unwrap, bounds))
        if len(bounds) == 1:
            bounds = (0, *bounds)
        self.start, self.end, self.step = (*bounds, 1)[:3]
        self.static = static
        if static and any(isinstance(each, Block) for each in bounds):
            raise WouldNotCompile("tl.static_range wants constexpr bounds: use range, or tl.range")

    def __iter__(self) -> Iterator[Any]:
        if self.static:
            yield from range(self.start, self.end, self.step)
            return
        start, end, step = (to_block(each) for each in (self.start, self.end, self.step))
        if any(each.shape for each in (start, end, step)):
            raise WouldNotCompile("the bounds of a loop must be scalars")
        kind = widest_integer(widest_integer(start.dtype, end.dtype), step.dtype)
        for each in (start, end, step):
            bool(each)  # reports poison
        if step.data[0] == 0 or (isinstance(self.step, Block) and step.data[0] < 0):
            raise WouldNotCompile("the step of a loop must be positive when it is known at run time only")
        for value in range(start.data[0], end.data[0], step.data[0]):
            yield Block(kind, (), [value])


def static_range(*bounds: Any, **options: Any) -> Loop:
    return Loop(_bounds(bounds, options), static=True)


def dynamic_range(*bounds: Any, **options: Any) -> Loop:
    """`tl.range`: the options say how to compile it, and change no result."""
    return Loop(_bounds(bounds, options), static=False)


def _bounds(bounds: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    return (*bounds, options["step"]) if "step" in options else bounds


class Module(types.ModuleType):
    """A module that names what it does not offer."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)  # whoever looks for Triton finds one without a loader

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise not_offered(f"{self.__name__.replace('triton.language', 'tl')}.{name}")


_MATH: dict[str, Callable[..., Any]] = {
    "exp": functions.exp, "exp2": functions.exp2, "log": functions.log, "log2": functions.log2,
    "sqrt": functions.sqrt, "sqrt_rn": functions.sqrt, "rsqrt": functions.rsqrt, "sin": functions.sin,
    "cos": functions.cos, "erf": functions.erf, "floor": functions.floor, "ceil": functions.ceil,
    "abs": arithmetic.absolute, "fma": arithmetic.fma, "div_rn": arithmetic.div_rn,
}  # fmt: skip

# What is a function of the language and a method of blocks as well.
_BOTH: dict[str, Callable[..., Any]] = {
    **{name: function for name, function in _MATH.items() if name not in ("fma", "div_rn")},
    "sum": reductions.sum_, "max": reductions.max_, "min": reductions.min_, "argmax": reductions.argmax,
    "argmin": reductions.argmin, "cumsum": reductions.cumsum, "trans": shapes.transpose,
    "permute": shapes.transpose, "reshape": shapes.reshape, "view": shapes.reshape,
    "expand_dims": shapes.expand_dims, "broadcast_to": shapes.broadcast_to, "cast": to, "cdiv": cdiv,
    "sigmoid": functions.sigmoid, "store": store, "atomic_add": atomic_add,
}  # fmt: skip

_FUNCTIONS: dict[str, Any] = {
    **_BOTH,
    "fma": arithmetic.fma, "div_rn": arithmetic.div_rn, "where": logic.where, "maximum": logic.maximum,
    "minimum": logic.minimum, "clamp": logic.clamp, "add": arithmetic.add, "sub": arithmetic.subtract,
    "mul": arithmetic.multiply, "fdiv": lambda x, y, ieee_rounding=False: arithmetic.divide(x, y),
    "dot": matrices.dot, "load": load, "program_id": program_id, "num_programs": num_programs, "arange": arange,
    "full": full, "zeros": zeros, "zeros_like": zeros_like, "broadcast": broadcast_blocks, "multiple_of": multiple_of,
    "max_contiguous": max_contiguous, "max_constancy": max_constancy, "assume": assume, "static_assert": static_assert,
    "device_assert": device_assert, "static_print": static_print, "device_print": device_print,
    "debug_barrier": debug_barrier, "static_range": static_range, "range": dynamic_range, "to_tensor": to_block,
    "constexpr": constexpr, "tensor": Block, "dtype": dtype, "pointer_type": pointer_type, "block_type": block_type,
}  # fmt: skip

OFFERED = sorted(_FUNCTIONS)

attach(OPERATORS, {**_BOTH, "to": to, "T": shapes.transpose})


def language_module() -> types.ModuleType:
    """Return a new `triton.language`."""
    language, mathematics = Module("triton.language"), Module("triton.language.math")
    vars(mathematics).update(_MATH)
    vars(language).update(_FUNCTIONS)
    vars(language).update({kind.names[0]: kind for kind in DTYPES}, math=mathematics)
    return language
