"""Operations element by element: arithmetic, comparison, logic, functions and casts, with Triton's types and rounding.

Each is computed in Python's numbers and then rounded to its type. A double is wide enough for float32 and narrower
that +, −, ×, / and √ come out as if they had been rounded once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from itertools import repeat
from typing import Any

from course.emulator.blocks import Block, Poison, aligned, broadcast, common_shape, merged, padded, poisoned, spread
from course.emulator.dtypes import (
    BOOLEAN,
    FLOATING,
    bfloat16,
    computation_type,
    dtype,
    float32,
    float64,
    int1,
    int64,
    pointer_type,
    promote_integers,
    round_to,
    type_of_number,
)
from course.emulator.errors import WouldNotCompile, not_offered

Number = bool | int | float


class constexpr:
    """A value known when the kernel is compiled: `tl.constexpr(5)`. In a kernel it acts as the value itself."""

    def __init__(self, value: Any) -> None:
        self.value = unwrap(value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        return operator.index(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __hash__(self) -> int:
        return hash(self.value)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self.value(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["value"], name)

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"


def _forward(name: str) -> None:
    function = getattr(operator, name.strip("_") + "_" if name in ("__and__", "__or__") else name.strip("_"), None)
    function = function or getattr(operator, name)

    def direct(self: constexpr, other: Any) -> Any:
        return function(self.value, unwrap(other))

    def reflected(self: constexpr, other: Any) -> Any:
        return function(unwrap(other), self.value)

    setattr(constexpr, name, direct)
    if name not in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
        setattr(constexpr, f"__r{name.strip('_')}__", reflected)


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"):
    _forward(f"__{_name}__")
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    _forward(f"__{_name}__")
constexpr.__neg__ = lambda self: -self.value  # type: ignore[attr-defined]
constexpr.__invert__ = lambda self: ~self.value  # type: ignore[attr-defined]


def unwrap(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


# ---- operands ----


def to_block(value: Any) -> Block:
    """Return a Python number as a scalar block of the type that Triton gives it; a block as it is."""
    value = unwrap(value)
    if isinstance(value, Block):
        return value
    if isinstance(value, Number):
        return constant(value, type_of_number(value))
    raise WouldNotCompile(f"{_describe(value)} cannot be computed with: it is neither a number nor a block")


def constant(value: Number, kind: dtype) -> Block:
    """Return a number as a scalar block. `WouldNotCompile` for an integer that does not fit."""
    if kind.kind == FLOATING:
        return Block(kind, (), round_to([float(value)], kind))
    if kind is int1:
        return Block(kind, (), [bool(value)])
    if isinstance(value, float) and value != int(value):
        raise WouldNotCompile(f"{value} is no integer of type {kind}")
    if not kind.lowest <= value <= kind.highest:
        raise WouldNotCompile(f"{value} is out of range for type {kind}")
    return Block(kind, (), [int(value)])


def _describe(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def operands(a: Any, b: Any, dividing: bool = False) -> tuple[Block, Block]:
    """Bring two operands to the type that they are computed in; numbers of Python join the other's type."""
    if type(a) is Block and type(b) is Block and a.dtype is b.dtype and not (dividing and a.dtype.kind == FLOATING):
        return a, b
    a, b = unwrap(a), unwrap(b)
    a_number, b_number = isinstance(a, Number), isinstance(b, Number)
    a_kind = type_of_number(a) if a_number else to_block(a).dtype
    b_kind = type_of_number(b) if b_number else to_block(b).dtype
    if isinstance(a_kind, pointer_type) or isinstance(b_kind, pointer_type):
        raise WouldNotCompile(f"{a_kind} and {b_kind} do not go together: integers can be added to a pointer, no more")
    kind = computation_type(a_kind, a_number, b_kind, b_number, dividing)
    return _to_kind(a, kind), _to_kind(b, kind)


def _to_kind(value: Any, kind: dtype) -> Block:
    return cast(value, kind) if isinstance(value, Block) else constant(value, kind)


def combine(kind: dtype, compute: Callable[[list[Any], list[Any]], list[Any]], a: Block, b: Block) -> Block:
    """Compute with two blocks, element by element."""
    if a.shape == b.shape and a.layout == b.layout and a.poison is None and b.poison is None:
        return Block(kind, a.shape, compute(a.data, b.data), None, a.layout)
    if not b.shape and b.poison is None:
        return Block(kind, a.shape, compute(a.data, b.data * len(a.data)), a.poison, a.layout)
    if not a.shape and a.poison is None:
        return Block(kind, b.shape, compute(a.data * len(b.data), b.data), b.poison, b.layout)
    shape, layout, (left, right), poison = aligned(a, b)
    return Block(kind, shape, compute(left, right), poison, layout)


def mapped(function: Callable[[Any, Any], Any]) -> Callable[[list[Any], list[Any]], list[Any]]:
    return lambda left, right: list(map(function, left, right))


# ---- arithmetic ----


def _arithmetic(name: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Block]:
    compute = mapped(function)

    def operate(a: Any, b: Any) -> Block:
        a, b = operands(a, b)
        kind = a.dtype
        if kind is int1:
            raise not_offered(f"{name} of two booleans", "combine masks with & and |, or cast them: mask.to(tl.int32)")
        result = combine(kind, compute, a, b)
        result.data = round_to(result.data, kind)
        return result

    return operate


_add_numbers = _arithmetic("+", operator.add)
_subtract_numbers = _arithmetic("-", operator.sub)
multiply = _arithmetic("*", operator.mul)


def add(a: Any, b: Any) -> Block:
    a, b = unwrap(a), unwrap(b)
    if isinstance(a, Block) and isinstance(a.dtype, pointer_type):
        return _move(a, b, operator.add)
    if isinstance(b, Block) and isinstance(b.dtype, pointer_type):
        return _move(b, a, operator.add)
    return _add_numbers(a, b)


def subtract(a: Any, b: Any) -> Block:
    a, b = unwrap(a), unwrap(b)
    if isinstance(a, Block) and isinstance(a.dtype, pointer_type):
        return _move(a, b, operator.sub)
    return _subtract_numbers(a, b)


def _move(pointer: Block, offset: Any, function: Callable[[int, int], int]) -> Block:
    """Pointer arithmetic. Addresses have 64 bits, so nothing wraps here: what can wrap is the offset before."""
    offset = to_block(offset)
    if isinstance(offset.dtype, pointer_type):
        raise WouldNotCompile("two pointers cannot be added or subtracted")
    if offset.dtype.kind == FLOATING:
        raise WouldNotCompile(f"a pointer moves by integers, not by {offset.dtype}: use // where you divide")
    moved = combine(pointer.dtype, mapped(function), pointer, offset)
    moved.buffer = pointer.buffer
    return moved


def divide(a: Any, b: Any) -> Block:
    """`/`: integers are divided as float32, and fp16 too."""
    a, b = operands(a, b, dividing=True)
    if a.dtype.kind != FLOATING:
        a, b = cast(a, float32), cast(b, float32)
    result = combine(a.dtype, _quotients, a, b)
    result.data = round_to(result.data, a.dtype)
    return result


def _quotients(left: list[float], right: list[float]) -> list[float]:
    try:
        return list(map(operator.truediv, left, right))
    except ZeroDivisionError:
        return [x / y if y else _over_zero(x, y) for x, y in zip(left, right, strict=True)]


def _over_zero(x: float, y: float) -> float:
    if x == 0 or math.isnan(x):
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def floor_divide(a: Any, b: Any) -> Block:
    """`//` of integers: as in C, towards zero. A division by 0 gives poison."""
    a, b = operands(a, b, dividing=True)
    if a.dtype.kind == FLOATING:
        raise WouldNotCompile(f"// wants integers, not {a.dtype}: use / and tl.floor")
    return _integer_division(a, b, operator.floordiv, _c_quotient)


def remainder(a: Any, b: Any) -> Block:
    """`%`: as in C, of the dividend's sign. A division by 0 gives poison, of floats NaN."""
    a, b = operands(a, b, dividing=True)
    if a.dtype.kind == FLOATING:
        result = combine(a.dtype, mapped(_float_remainder), a, b)
        result.data = round_to(result.data, a.dtype)
        return result
    return _integer_division(a, b, operator.mod, _c_remainder)


def _integer_division(
    a: Block, b: Block, plain: Callable[[int, int], int], as_in_c: Callable[[int, int], int]
) -> Block:
    if a.dtype is int1:
        raise not_offered("a division of booleans", "cast them: mask.to(tl.int32)")
    if min(b.data) > 0 and min(a.data) >= 0:
        return combine(a.dtype, mapped(plain), a, b)  # C and Python agree
    shape, layout, (left, right), poison = aligned(a, b)
    if 0 in right:
        origin = poisoned("a division by 0")
        zero = [None if y else origin for y in right]
        poison = zero if poison is None else merged([poison, zero])
    data = [as_in_c(x, y) if y else 0 for x, y in zip(left, right, strict=True)]
    return Block(a.dtype, shape, round_to(data, a.dtype), poison, layout)


def _c_quotient(x: int, y: int) -> int:
    quotient = abs(x) // abs(y)
    return quotient if (x < 0) == (y < 0) else -quotient


def _c_remainder(x: int, y: int) -> int:
    return abs(x) % abs(y) if x >= 0 else -(abs(x) % abs(y))


def _float_remainder(x: float, y: float) -> float:
    try:
        return math.fmod(x, y)
    except ValueError:
        return math.nan


def negate(a: Block) -> Block:
    if isinstance(a.dtype, pointer_type) or a.dtype is int1:
        raise WouldNotCompile(f"no - of {a.dtype}")
    return a.like(a.dtype, round_to(list(map(operator.neg, a.data)), a.dtype), a.poison)


# ---- comparison and logic ----


def _comparison(function: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Block]:
    compute = mapped(function)

    def compare(a: Any, b: Any) -> Block:
        a, b = operands(a, b)
        return combine(int1, compute, a, b)

    return compare


less, less_equal = _comparison(operator.lt), _comparison(operator.le)
greater, greater_equal = _comparison(operator.gt), _comparison(operator.ge)
equal, not_equal = _comparison(operator.eq), _comparison(operator.ne)


def _logic(name: str, function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Block]:
    compute = mapped(function)

    def operate(a: Any, b: Any) -> Block:
        a, b = operands(a, b)
        if a.dtype.kind == FLOATING:
            raise WouldNotCompile(f"{name} of floats ({a.dtype}): compare first, as in x > 0")
        if a.dtype is int1:
            for this, other in ((a, b), (b, a)):
                if name == "&" and other.poison is None and all(other.data):  # masks are mostly all true
                    return broadcast(this, common_shape([a.shape, b.shape]))
        return combine(a.dtype, compute, a, b)

    return operate


bit_and, bit_or, bit_xor = _logic("&", operator.and_), _logic("|", operator.or_), _logic("^", operator.xor)


def invert(a: Block) -> Block:
    if a.dtype is int1:
        return a.like(int1, list(map(operator.not_, a.data)), a.poison)
    if a.dtype.kind == FLOATING or isinstance(a.dtype, pointer_type):
        raise WouldNotCompile(f"~ wants a mask or integers, not {a.dtype}")
    return a.like(a.dtype, round_to(list(map(operator.invert, a.data)), a.dtype), a.poison)


def _shift(name: str, function: Callable[[int, int], int]) -> Callable[[Any, Any], Block]:
    def operate(a: Any, b: Any) -> Block:
        a, b = operands(a, b)
        if a.dtype.kind == FLOATING or a.dtype is int1:
            raise WouldNotCompile(f"{name} wants integers, not {a.dtype}")
        bits = a.dtype.primitive_bitwidth
        shape, layout, (left, right), poison = aligned(a, b)
        if not 0 <= min(right) <= max(right) < bits:
            origin = poisoned(f"a shift by {next(y for y in right if not 0 <= y < bits)} of {bits} bits")
            outside = [None if 0 <= y < bits else origin for y in right]
            poison = outside if poison is None else merged([poison, outside])
            right = [y if 0 <= y < bits else 0 for y in right]
        return Block(a.dtype, shape, round_to(list(map(function, left, right)), a.dtype), poison, layout)

    return operate


shift_left, shift_right = _shift("<<", operator.lshift), _shift(">>", operator.rshift)


# ---- choosing ----


def _larger(left: list[Any], right: list[Any]) -> list[Any]:
    return [x if x >= y or y != y else y for x, y in zip(left, right, strict=True)]  # of a number and NaN, the number


def _smaller(left: list[Any], right: list[Any]) -> list[Any]:
    return [x if x <= y or y != y else y for x, y in zip(left, right, strict=True)]


def maximum(a: Any, b: Any) -> Block:
    a, b = operands(a, b)
    return combine(a.dtype, _larger, a, b)


def minimum(a: Any, b: Any) -> Block:
    a, b = operands(a, b)
    return combine(a.dtype, _smaller, a, b)


def where(condition: Any, a: Any, b: Any) -> Block:
    """Choose element by element. Poison that is not chosen is gone."""
    condition = cast(to_block(condition), int1)
    a, b = unwrap(a), unwrap(b)
    buffer = None
    if any(isinstance(each, Block) and isinstance(each.dtype, pointer_type) for each in (a, b)):
        if not (isinstance(a, Block) and isinstance(b, Block) and a.dtype == b.dtype and a.buffer is b.buffer):
            raise not_offered("tl.where between pointers into different buffers", "choose between what you load")
        buffer = a.buffer
    else:
        a, b = operands(a, b)
    shape = common_shape([condition.shape, a.shape, b.shape])
    if condition.poison is None and all(condition.data):
        return broadcast(a, shape)
    layouts = [padded(each.layout, len(shape)) for each in (condition, a, b)]
    layout = tuple(map(max, *layouts))
    chosen, left, right = (spread(each.data, own, layout) for each, own in zip((condition, a, b), layouts, strict=True))
    data = [x if flag else y for flag, x, y in zip(chosen, left, right, strict=True)]
    poison = _chosen_poison(condition, a, b, layouts, layout, chosen)
    return Block(a.dtype, shape, data, poison, layout, buffer)


def _chosen_poison(condition: Block, a: Block, b: Block, layouts: Any, layout: Any, chosen: list[bool]) -> Poison:
    if condition.poison is None and a.poison is None and b.poison is None:
        return None
    own = [
        list(repeat(None, len(chosen))) if each.poison is None else spread(each.poison, its, layout)
        for each, its in zip((condition, a, b), layouts, strict=True)
    ]
    result = [by or (x if flag else y) for flag, by, x, y in zip(chosen, *own, strict=True)]
    return result if any(result) else None


# ---- functions ----


def _function(
    name: str, fast: Callable[[float], float], careful: Callable[[float], float], narrow: bool = False
) -> Callable[[Any], Block]:
    def apply(a: Any) -> Block:
        a = to_block(a)
        if a.dtype is not float32 and a.dtype is not float64 and not (narrow and a.dtype.kind == FLOATING):
            raise WouldNotCompile(f"{name} wants fp32 or fp64, not {a.dtype}", "cast it first: x.to(tl.float32)")
        try:
            data = list(map(fast, a.data))
        except (OverflowError, ValueError, ZeroDivisionError):
            data = list(map(careful, a.data))
        return a.like(a.dtype, round_to(data, a.dtype), a.poison)

    return apply


def _guarded(function: Callable[[float], float], at_zero: float) -> Callable[[float], float]:
    """A function of non-negative numbers: NaN below 0, `at_zero` at 0."""
    return lambda x: function(x) if x > 0 else at_zero if x == 0 else math.nan


def _growing(function: Callable[[float], float]) -> Callable[[float], float]:
    def careful(x: float) -> float:
        try:
            return function(x)
        except OverflowError:
            return math.inf

    return careful


def _finite(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: function(x) if math.isfinite(x) else math.nan


def _integral(function: Callable[[float], float]) -> Callable[[float], float]:
    """`math.floor` gives integers, and keeps neither infinities nor the sign of a zero."""
    return lambda x: math.copysign(function(x), x) if math.isfinite(x) else x


exp = _function("tl.exp", math.exp, _growing(math.exp))
exp2 = _function("tl.exp2", math.exp2, _growing(math.exp2))
log = _function("tl.log", math.log, _guarded(math.log, -math.inf))
log2 = _function("tl.log2", math.log2, _guarded(math.log2, -math.inf))
sqrt = _function("tl.sqrt", math.sqrt, _guarded(math.sqrt, 0.0))
rsqrt = _function("tl.rsqrt", lambda x: 1.0 / math.sqrt(x), _guarded(lambda x: 1.0 / math.sqrt(x), math.inf))
sin = _function("tl.sin", math.sin, _finite(math.sin))
cos = _function("tl.cos", math.cos, _finite(math.cos))
erf = _function("tl.erf", math.erf, math.erf)
floor = _function("tl.floor", _integral(math.floor), _integral(math.floor))
ceil = _function("tl.ceil", _integral(math.ceil), _integral(math.ceil))


def absolute(a: Any) -> Block:
    a = to_block(a)
    if isinstance(a.dtype, pointer_type) or a.dtype is int1:
        raise WouldNotCompile(f"no absolute value of {a.dtype}")
    return a.like(a.dtype, round_to(list(map(abs, a.data)), a.dtype), a.poison)


def sigmoid(a: Any) -> Block:
    return divide(1.0, add(1.0, exp(negate(to_block(a)))))


def fma(a: Any, b: Any, c: Any) -> Block:
    """`a × b + c`, rounded once."""
    blocks = [unwrap(each) for each in (a, b, c)]
    kinds = [to_block(each).dtype for each in blocks if isinstance(each, Block)]
    kind = kinds[0] if kinds else float32
    for each in kinds[1:]:
        kind = computation_type(kind, False, each, False)
    for each in blocks:
        if isinstance(each, Number):
            kind = computation_type(kind, False, type_of_number(each), True)
    shape, layout, (x, y, z), poison = aligned(*(_to_kind(each, kind) for each in blocks))
    data = [p * q + r for p, q, r in zip(x, y, z, strict=True)]
    return Block(kind, shape, round_to(data, kind), poison, layout)


def clamp(a: Any, low: Any, high: Any) -> Block:
    return minimum(maximum(a, low), high)


def div_rn(a: Any, b: Any) -> Block:
    """Division of float32, rounded to nearest as IEEE says; on a GPU `/` may be an approximation."""
    for each in (a, b):
        if isinstance(each, Block) and each.dtype is not float32:
            raise WouldNotCompile(f"tl.math.div_rn wants fp32, not {each.dtype}")
    return divide(a, b)


# ---- casts ----


def cast(a: Block, kind: dtype) -> Block:
    """Return the block in another type: floats rounded to nearest even, integers cut to their low bits.

    A float that does not fit an integer type gives poison: what a GPU makes of it depends on the GPU.
    """
    own = a.dtype
    if own is kind or own == kind:
        return a
    if isinstance(own, pointer_type) or isinstance(kind, pointer_type):
        raise not_offered(f"a cast from {own} to {kind}")
    data, poison = a.data, a.poison
    if kind is int1:
        return a.like(kind, [x != 0 for x in data], poison)
    if kind.kind == FLOATING:
        if own.kind == FLOATING:
            wider = own is bfloat16 and kind is float32 or own.primitive_bitwidth < kind.primitive_bitwidth
            return a.like(kind, data if wider else round_to(data, kind), poison)
        return a.like(kind, round_to(list(map(float, data)), kind), poison)
    if own.kind == BOOLEAN:
        return a.like(kind, list(map(int, data)), poison)
    if own.kind != FLOATING:
        return a.like(kind, round_to(data, kind), poison)
    return _float_to_integer(a, kind)


def _float_to_integer(a: Block, kind: dtype) -> Block:
    try:
        data = list(map(int, a.data))
        if kind.lowest <= min(data) and max(data) <= kind.highest:
            return a.like(kind, data, a.poison)
    except (ValueError, OverflowError):
        pass
    fits = [math.isfinite(x) and kind.lowest <= int(x) <= kind.highest for x in a.data]
    first = next(x for x, ok in zip(a.data, fits, strict=True) if not ok)
    origin = poisoned(f"{first:g} does not fit {kind}, what it becomes is not defined")
    outside = [None if ok else origin for ok in fits]
    poison = outside if a.poison is None else merged([a.poison, outside])
    return a.like(kind, [int(x) if ok else 0 for x, ok in zip(a.data, fits, strict=True)], poison)


def widest_integer(a: dtype, b: dtype) -> dtype:
    """Return the type of a loop's variable that runs from one integer to another."""
    if a.kind == FLOATING or b.kind == FLOATING:
        raise WouldNotCompile(f"the bounds of a loop must be integers, not {a} and {b}")
    return promote_integers(a, b)


_PAIRS: dict[str, Callable[[Any, Any], Block]] = {
    "add": add, "sub": subtract, "mul": multiply, "truediv": divide, "floordiv": floor_divide, "mod": remainder,
    "and": bit_and, "or": bit_or, "xor": bit_xor, "lshift": shift_left, "rshift": shift_right,
}  # fmt: skip


def _reflected(function: Callable[[Any, Any], Block]) -> Callable[[Any, Any], Block]:
    return lambda self, other: function(other, self)


OPERATORS: dict[str, Callable[..., Block]] = {
    **{f"__{name}__": function for name, function in _PAIRS.items()},
    **{f"__r{name}__": _reflected(function) for name, function in _PAIRS.items()},
    "__lt__": less, "__le__": less_equal, "__gt__": greater, "__ge__": greater_equal,
    "__eq__": equal, "__ne__": not_equal, "__neg__": negate, "__invert__": invert, "__pos__": lambda self: self,
    "__abs__": absolute,
}  # fmt: skip

__all__ = [name for name in dir() if not name.startswith("_")] + ["int64"]
