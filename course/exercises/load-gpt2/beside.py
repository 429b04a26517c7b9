"""What the checks of `load-gpt2` need beside the answer: checkpoints in folders, and a look at what was loaded."""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path
from typing import Any

import torch

from course.judge.executors.pytorch import tensor

answer: Any = None  # the learner's module: the judge puts it here


class Checkpoint:
    """A folder with a model's files, written byte by byte; it is gone when the check is over.

    `tensors` are nested lists by name; each of n `files` has every n-th of them. `cut` bytes are missing at the end of
    the last file, and `cut_header` says that it ends inside its header.
    """

    def __init__(
        self, tensors: dict[str, Any], files: int = 1, dtype: str = "F32", cut: int = 0, cut_header: bool = False
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="course-")
        self.path = Path(self._folder.name)
        (self.path / "config.json").write_text('{"model_type": "gpt2"}', "utf-8")
        names = list(tensors)
        for number in range(files):
            data = _safetensors({name: tensors[name] for name in names[number::files]}, dtype)
            if number == files - 1:
                data = data[:20] if cut_header else data[: len(data) - cut]
            (self.path / f"model-{number + 1:05}-of-{files:05}.safetensors").write_bytes(data)


class Loaded:
    """The weights that the answer has loaded."""

    def __init__(self, weights: Any) -> None:
        self._weights = weights

    def _tensor(self, name: str) -> torch.Tensor:
        place, _, rest = name.partition(".")
        if place == "h":
            index, _, rest = rest.partition(".")
            return getattr(self._weights.layers[int(index)], rest.replace(".", "_"))
        return getattr(self._weights, place if place != "ln_f" else name.replace(".", "_"))

    def values(self, name: str) -> Any:
        """Return a tensor's numbers, by its name in a checkpoint."""
        return self._tensor(name).double().tolist()

    def dtypes(self) -> set[str]:
        """Return the types of all tensors."""
        weights = self._weights
        every = [weights.wte, weights.wpe, weights.ln_f_weight, weights.ln_f_bias]
        every += [each for layer in weights.layers for each in layer]
        return {str(each.dtype).removeprefix("torch.") for each in every}

    def num_layers(self) -> int:
        return len(self._weights.layers)


def load_weights(checkpoint: Checkpoint | str, sizes: dict[str, Any], dtype: str = "float32") -> Loaded:
    """Call the answer's `load_weights` for a checkpoint (or an empty folder), and keep what it returns."""
    config = answer.GPT2Config(**sizes)
    device = tensor([0]).device
    if isinstance(checkpoint, Checkpoint):
        return Loaded(answer.load_weights(checkpoint.path, config, getattr(torch, dtype), device))
    with tempfile.TemporaryDirectory(prefix="course-") as empty:
        return Loaded(answer.load_weights(Path(empty), config, getattr(torch, dtype), device))


def _safetensors(tensors: dict[str, Any], dtype: str) -> bytes:
    """Return a file in the safetensors format: the header's length, the header as JSON, the numbers."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, values in tensors.items():
        shape, flat = _flatten(values)
        packed = struct.pack(f"<{len(flat)}{'f' if dtype == 'F32' else 'e'}", *flat)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
        data += packed
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data


def _flatten(values: Any) -> tuple[list[int], list[float]]:
    if not isinstance(values, list):
        return [], [values]
    parts = [_flatten(each) for each in values]
    return [len(values), *parts[0][0]], [number for _, flat in parts for number in flat]
