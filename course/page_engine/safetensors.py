"""Reads the tensors of a safetensors file, float32 or float16, with the standard library alone.

Format: https://github.com/huggingface/safetensors (an 8-byte length, a JSON header, the tensors' bytes).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from typing import NamedTuple

FORMATS = {"F32": "f", "F16": "e"}


class Tensor(NamedTuple):
    """A tensor's shape and its numbers, the last dimension's next to each other."""

    shape: tuple[int, ...]
    numbers: tuple[float, ...]

    def rows(self) -> list[tuple[float, ...]]:
        """Return the numbers of a matrix, row by row."""
        height, width = self.shape
        return [self.numbers[row * width : (row + 1) * width] for row in range(height)]


def read_tensors(data: bytes) -> dict[str, Tensor]:
    """Return every tensor by its name. `ValueError`, which says what, when the bytes are no such file."""
    return dict(_tensors(data))


def _tensors(data: bytes) -> Iterator[tuple[str, Tensor]]:
    start = 8 + int.from_bytes(data[:8], "little")
    if len(data) < 8 or start > len(data):
        raise ValueError(f"this is no safetensors file, or it is cut off inside its header ({len(data)} bytes)")
    for name, entry in json.loads(data[8:start]).items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in FORMATS:
            raise ValueError(f"tensor {name} is {entry['dtype']}; this engine reads {' and '.join(FORMATS)}")
        first, end = (start + offset for offset in entry["data_offsets"])
        if end > len(data):
            raise ValueError(f"the file is cut off: tensor {name} lacks {end - len(data)} bytes")
        letter = FORMATS[entry["dtype"]]
        numbers = struct.unpack(f"<{(end - first) // struct.calcsize(letter)}{letter}", data[first:end])
        yield name.removeprefix("transformer."), Tensor(tuple(entry["shape"]), numbers)
