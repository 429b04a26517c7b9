"""Triton's types: their names, how two of them combine, and how a list of Python numbers is rounded to one of them.

The rules of combination are those of `triton/language/semantic.py`.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Sequence
from typing import Any

from course.emulator.errors import WouldNotCompile, not_offered

BOOLEAN, INTEGRAL, FLOATING = range(3)


class dtype:
    """A scalar type. `names` are PyTorch's, the one in Triton's signatures (`fp16`, `i32`), and what else is usual."""

    def __init__(self, name: str, bits: int, kind: int, signed: bool, names: tuple[str, ...]) -> None:
        self.name = name
        self.primitive_bitwidth = bits
        self.kind = kind
        self.signed = signed
        self.names = names
        self.itemsize = max(1, bits // 8)
        if kind != FLOATING:
            self.int_bitwidth = bits
            self.lowest = -(1 << bits - 1) if signed else 0
            self.highest = (1 << bits - signed) - 1

    @property
    def scalar(self) -> dtype:
        return self

    @property
    def signature(self) -> str:
        """Return how Triton's signatures name the type."""
        return self.names[1]

    def is_floating(self) -> bool:
        return self.kind == FLOATING

    is_standard_floating = is_floating

    def is_int(self) -> bool:
        return self.kind != FLOATING

    def is_int_signed(self) -> bool:
        return self.kind != FLOATING and self.signed

    def is_int_unsigned(self) -> bool:
        return self.kind != FLOATING and not self.signed

    def is_bool(self) -> bool:
        return self.kind == BOOLEAN

    def is_ptr(self) -> bool:
        return False

    def is_block(self) -> bool:
        return False

    def is_fp64(self) -> bool:
        return self is float64

    def is_fp32(self) -> bool:
        return self is float32

    def is_fp16(self) -> bool:
        return self is float16

    def is_bf16(self) -> bool:
        return self is bfloat16

    def is_int1(self) -> bool:
        return self is int1

    def is_int8(self) -> bool:
        return self is int8

    def is_int16(self) -> bool:
        return self is int16

    def is_int32(self) -> bool:
        return self is int32

    def is_int64(self) -> bool:
        return self is int64

    def is_fp8(self) -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise not_offered(f"dtype.{name}")

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        return self.names[0]


class pointer_type(dtype):
    """A pointer to elements of one type."""

    def __init__(self, element_ty: dtype) -> None:
        super().__init__(f"pointer<{element_ty}>", 64, INTEGRAL, False, (f"*{element_ty.signature}",) * 2)
        self.element_ty = element_ty

    def is_ptr(self) -> bool:
        return True

    def is_int(self) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, pointer_type) and other.element_ty is self.element_ty

    def __hash__(self) -> int:
        return hash(self.name)


class block_type:
    """The type of a block: the type of its elements, and its shape."""

    def __init__(self, element_ty: dtype, shape: Sequence[int]) -> None:
        self.element_ty = element_ty
        self.shape = tuple(shape)

    @property
    def scalar(self) -> dtype:
        return self.element_ty

    def is_block(self) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, block_type) and (other.element_ty, other.shape) == (self.element_ty, self.shape)

    def __hash__(self) -> int:
        return hash((self.element_ty, self.shape))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise not_offered(f"block_type.{name}")

    def __repr__(self) -> str:
        return f"{self.element_ty}[{', '.join(map(str, self.shape))}]"


float64 = dtype("fp64", 64, FLOATING, True, ("float64", "fp64", "double"))
float32 = dtype("fp32", 32, FLOATING, True, ("float32", "fp32", "float"))
float16 = dtype("fp16", 16, FLOATING, True, ("float16", "fp16", "half"))
bfloat16 = dtype("bf16", 16, FLOATING, True, ("bfloat16", "bf16"))
int64 = dtype("int64", 64, INTEGRAL, True, ("int64", "i64", "long"))
int32 = dtype("int32", 32, INTEGRAL, True, ("int32", "i32", "int"))
int16 = dtype("int16", 16, INTEGRAL, True, ("int16", "i16"))
int8 = dtype("int8", 8, INTEGRAL, True, ("int8", "i8"))
uint64 = dtype("uint64", 64, INTEGRAL, False, ("uint64", "u64"))
uint32 = dtype("uint32", 32, INTEGRAL, False, ("uint32", "u32"))
uint16 = dtype("uint16", 16, INTEGRAL, False, ("uint16", "u16"))
uint8 = dtype("uint8", 8, INTEGRAL, False, ("uint8", "u8"))
int1 = dtype("int1", 1, BOOLEAN, False, ("int1", "u1", "bool"))

DTYPES = (float64, float32, float16, bfloat16, int64, int32, int16, int8, uint64, uint32, uint16, uint8, int1)
_BY_NAME = {name: each for each in DTYPES for name in each.names}


def dtype_named(name: str | dtype) -> dtype:
    """Return a type by one of its names, `float16` or `fp16`. `ValueError` when there is no such type."""
    if isinstance(name, dtype):
        return name
    if name not in _BY_NAME:
        raise ValueError(f"no dtype {name!r}: choose one of {', '.join(each.names[0] for each in DTYPES)}")
    return _BY_NAME[name]


# ---- how types combine ----


def type_of_number(value: bool | int | float) -> dtype:
    """Return the type that Triton gives a Python number."""
    if isinstance(value, bool):
        return int1
    if isinstance(value, int):
        for candidate in (int32, uint32, int64, uint64):
            if candidate.lowest <= value <= candidate.highest:
                return candidate
        raise WouldNotCompile(f"{value} does not fit 64 bits")
    size = abs(value)
    plain = size == 0 or math.isinf(size) or math.isnan(size) or 2.0**-126 <= size <= (2 - 2**-23) * 2.0**127
    return float32 if plain else float64


def promote_integers(a: dtype, b: dtype) -> dtype:
    """C's usual arithmetic conversions."""
    if a.signed == b.signed:
        return a if a.primitive_bitwidth > b.primitive_bitwidth else b
    unsigned, signed = (b, a) if a.signed else (a, b)
    return unsigned if unsigned.primitive_bitwidth >= signed.primitive_bitwidth else signed


def computation_type(a: dtype, a_is_number: bool, b: dtype, b_is_number: bool, dividing: bool = False) -> dtype:
    """Return the type that an operation on `a` and `b` is computed in.

    A Python number takes part only if its kind is the higher one (bool < integer < float): fp16 × 0.5 stays fp16.
    """
    if a_is_number != b_is_number:
        number, other = (a, b) if a_is_number else (b, a)
        if number.kind <= other.kind:
            a = b = other
    if a is float64 or b is float64:
        return float64
    floating = a.kind == FLOATING or b.kind == FLOATING
    if floating and dividing:
        return float32
    if a is float32 or b is float32:
        return float32
    if a is float16 or b is float16:
        return float16
    if floating:
        return bfloat16 if a is bfloat16 and b is bfloat16 else float32
    if dividing and a.signed != b.signed:
        raise WouldNotCompile(f"/, // and % want operands that are both signed or both unsigned, not {a} and {b}")
    return promote_integers(a, b)


# ---- rounding ----


def round_to(data: list[Any], kind: dtype) -> list[Any]:
    """Round what an operation has computed: floats to the nearest number, ties to even; integers wrap around.

    `data` holds floats for a floating type, integers else. The list may be returned as it is.
    """
    rounded: list[Any] = _ROUND[kind](data)
    return rounded


def _float32(data: list[float]) -> list[float]:
    return array("f", data).tolist()


def _float16(data: list[float]) -> list[float]:
    layout = f"{len(data)}e"
    try:
        packed = struct.pack(layout, *data)
    except OverflowError:
        packed = struct.pack(layout, *[math.copysign(math.inf, x) if abs(x) >= 65520.0 else x for x in data])
    return list(struct.unpack(layout, packed))


def _bfloat16(data: list[float]) -> list[float]:
    bits = array("I", array("f", data).tobytes())
    rounded = array(
        "I",
        [
            (x | 0x400000) & 0xFFFF0000 if x & 0x7FFFFFFF > 0x7F800000 else (x + 0x7FFF + (x >> 16 & 1)) & 0xFFFF0000
            for x in bits
        ],
    )
    return array("f", rounded.tobytes()).tolist()


def tfloat32(data: list[float]) -> list[float]:
    """Round float32 numbers to TF32, which keeps 10 bits of the mantissa: to nearest, ties away from 0."""
    bits = array("I", array("f", data).tobytes())
    rounded = array("I", [x if x & 0x7F800000 == 0x7F800000 else (x + 0x1000) & 0xFFFFE000 for x in bits])
    return array("f", rounded.tobytes()).tolist()


def _wrapper(kind: dtype, code: str) -> Any:
    """Return a function that wraps integers around. An array of the type's own size tells fast whether it must."""
    mask, low = (1 << kind.primitive_bitwidth) - 1, kind.lowest

    def wrap(data: list[int]) -> list[int]:
        try:
            array(code, data)
        except OverflowError:
            return [(x - low & mask) + low for x in data]
        return data

    return wrap


_ROUND: dict[dtype, Any] = {
    float64: lambda data: data,
    float32: _float32,
    float16: _float16,
    bfloat16: _bfloat16,
    int1: lambda data: data,
}
_ROUND |= {
    kind: _wrapper(kind, code)
    for kind, code in zip((int64, int32, int16, int8, uint64, uint32, uint16, uint8), "qihbQIHB", strict=True)
}
