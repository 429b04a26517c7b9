"""GPT-2 on a paged KV cache, in plain Python: the arithmetic of `solutions/gpt2.py`, one list of numbers a row."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from operator import mul
from typing import Any, NamedTuple

from course.page_engine.lanes import Matrix, Row, pack, weighted_sum
from course.page_engine.safetensors import Tensor, read_tensors

Numbers = Sequence[float]

if sys.version_info >= (3, 12):
    from math import sumprod as dot
else:

    def dot(p: Numbers, q: Numbers, /) -> float:
        return math.fsum(map(mul, p, q))


class UnwrittenSlot(Exception):
    """A sequence looks into a slot of the cache that nobody has written: (sequence's place in the step, slot)."""


class Part(NamedTuple):
    """One sequence's part in a step: its new `tokens` are the last of a context of `context_len`.

    `write_slots` has a slot for each new token; `blocks` is the block table, by which all of the context is read.
    """

    tokens: Sequence[int]
    context_len: int
    blocks: Sequence[int]
    write_slots: Sequence[int]
    samples: bool


class Norm(NamedTuple):
    """A layer norm's weight and bias, and its epsilon."""

    weight: Numbers
    bias: Numbers
    epsilon: float

    def apply(self, x: Numbers) -> list[float]:
        mean = sum(x) / len(x)
        centred = [number - mean for number in x]
        scale = 1 / math.sqrt(dot(centred, centred) / len(x) + self.epsilon)
        return [
            number * scale * weight + bias for number, weight, bias in zip(centred, self.weight, self.bias, strict=True)
        ]


class Layer(NamedTuple):
    ln_1: Norm
    attn_c_attn: Matrix
    attn_c_proj: Matrix
    ln_2: Norm
    mlp_c_fc: Matrix
    mlp_c_proj: Matrix


class LayerCache:
    """One layer's keys and values by slot, for each head. A slot that nobody has written holds None."""

    def __init__(self, num_slots: int, num_heads: int) -> None:
        self.keys: list[list[Numbers | None]] = [[None] * num_slots for _ in range(num_heads)]
        self.values: list[list[Row | None]] = [[None] * num_slots for _ in range(num_heads)]

    def copy_slots(self, source: range, target: range) -> None:
        stores: list[list[Any]] = [*self.keys, *self.values]
        for store in stores:
            store[target.start : target.stop] = store[source.start : source.stop]


class GPT2:
    """The model. `config` and `data` are the texts of `config.json` and `model.safetensors`.

    `ValueError`, which names the tensor, when one is missing or of another shape.
    """

    def __init__(self, config: str, data: bytes) -> None:
        sizes = json.loads(config)
        self.num_layers: int = sizes["n_layer"]
        self.num_heads: int = sizes["n_head"]
        self.width: int = sizes["n_embd"]
        self.max_len: int = sizes["n_positions"]
        self.vocab_size: int = sizes["vocab_size"]
        self.head_dim = self.width // self.num_heads
        tensors = _Tensors(read_tensors(data), sizes["layer_norm_epsilon"])
        width = self.width
        self.wte = tensors.take("wte.weight", self.vocab_size, width).rows()
        self.wpe = tensors.take("wpe.weight", self.max_len, width).rows()
        self.layers = [
            Layer(
                tensors.norm(f"h.{index}.ln_1", width),
                tensors.matrix(f"h.{index}.attn.c_attn", width, 3 * width),
                tensors.matrix(f"h.{index}.attn.c_proj", width, width),
                tensors.norm(f"h.{index}.ln_2", width),
                tensors.matrix(f"h.{index}.mlp.c_fc", width, 4 * width),
                tensors.matrix(f"h.{index}.mlp.c_proj", 4 * width, width),
            )
            for index in range(self.num_layers)
        ]
        self.ln_f = tensors.norm("ln_f", width)
        self.head = Matrix(list(zip(*self.wte, strict=True)))

    def new_cache(self, num_slots: int) -> list[LayerCache]:
        """Return an empty cache of `num_slots` slots for every layer."""
        return [LayerCache(num_slots, self.num_heads) for _ in self.layers]

    def next_tokens(self, parts: Sequence[Part], caches: Sequence[LayerCache], block_size: int) -> list[int]:
        """Compute a step and return the greedy next token of each sequence that samples. Errors as for `forward`."""
        hidden = self.forward(parts, caches, block_size)
        tokens, last = [], -1
        for part in parts:
            last += len(part.tokens)
            if part.samples:
                logits = self.head.apply(self.ln_f.apply(hidden[last]))
                tokens.append(logits.index(max(logits)))
        return tokens

    def forward(self, parts: Sequence[Part], caches: Sequence[LayerCache], block_size: int) -> list[list[float]]:
        """Compute a step: write the new tokens' keys and values, and return every row's last hidden state.

        `UnwrittenSlot` when a block table leads to a slot that was never written.
        """
        hidden = [
            _add(self.wte[number], self.wpe[position])
            for part in parts
            for position, number in enumerate(part.tokens, part.context_len - len(part.tokens))
        ]
        read_slots = [_slots(part.blocks, block_size)[: part.context_len] for part in parts]
        for layer, cache in zip(self.layers, caches, strict=True):
            heads = self._attend(layer, cache, hidden, parts, read_slots)
            hidden = [_add(row, layer.attn_c_proj.apply(head)) for row, head in zip(hidden, heads, strict=True)]
            hidden = [_add(row, self._mlp(layer, row)) for row in hidden]
        return hidden

    def _attend(
        self,
        layer: Layer,
        cache: LayerCache,
        hidden: list[list[float]],
        parts: Sequence[Part],
        read_slots: list[list[int]],
    ) -> list[list[float]]:
        """Write the new keys and values, and return every row's heads, one after the other."""
        rows = [layer.attn_c_attn.apply(layer.ln_1.apply(row)) for row in hidden]
        slots = [slot for part in parts for slot in part.write_slots]
        size, width = self.head_dim, self.width
        for qkv, slot in zip(rows, slots, strict=True):
            for head in range(self.num_heads):
                first = width + head * size
                cache.keys[head][slot] = qkv[first : first + size]
                cache.values[head][slot] = pack(qkv[first + width : first + width + size])
        heads: list[list[float]] = [[] for _ in rows]
        for head in range(self.num_heads):
            last = 0
            for place, (part, context) in enumerate(zip(parts, read_slots, strict=True)):
                keys, values = _look_up(cache.keys[head], context, place), _look_up(cache.values[head], context, place)
                units, lanes = [value.unit for value in values], [value.lanes for value in values]
                first, last = last, last + len(part.tokens)
                for row, seen in enumerate(range(part.context_len - len(part.tokens) + 1, part.context_len + 1), first):
                    query = rows[row][head * size : (head + 1) * size]
                    heads[row] += _attention(query, keys[:seen], units, lanes[:seen])
        return heads

    def _mlp(self, layer: Layer, row: Numbers) -> list[float]:
        return layer.mlp_c_proj.apply(_gelu(layer.mlp_c_fc.apply(layer.ln_2.apply(row))))


def _attention(query: Numbers, keys: Sequence[Numbers], units: Numbers, lanes: Sequence[int]) -> list[float]:
    """Return one head's output for one query over the keys and packed values that it sees."""
    scale = len(query) ** -0.5
    scores = [dot(query, key) * scale for key in keys]
    largest = max(scores)
    shares = [math.exp(score - largest) for score in scores]
    total = sum(shares)
    weights = [share * unit / total for share, unit in zip(shares, units, strict=False)]
    return weighted_sum(weights, lanes, len(query))


def _slots(blocks: Sequence[int], block_size: int) -> list[int]:
    """Return all slots of a block table, in order of position."""
    return [slot for block in blocks for slot in range(block * block_size, (block + 1) * block_size)]


def _look_up(store: list[Any], slots: Sequence[int], place: int) -> list[Any]:
    found = [store[slot] for slot in slots]
    if None in found:
        raise UnwrittenSlot(place, slots[found.index(None)])
    return found


def _add(x: Numbers, y: Numbers) -> list[float]:
    return [a + b for a, b in zip(x, y, strict=True)]


def _gelu(numbers: Numbers, tanh: Callable[[float], float] = math.tanh) -> list[float]:
    """GPT-2's GELU, the tanh form."""
    return [0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))) for x in numbers]


class _Tensors:
    """A checkpoint's tensors, each asked for by name and shape."""

    def __init__(self, tensors: dict[str, Tensor], epsilon: float) -> None:
        self._tensors = tensors
        self._epsilon = epsilon

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ValueError(f"the checkpoint has no tensor {name}")
        if tensor.shape != shape:
            raise ValueError(f"tensor {name} has shape {tensor.shape}; the config asks for {shape}")
        return tensor

    def norm(self, name: str, width: int) -> Norm:
        weight, bias = self.take(f"{name}.weight", width), self.take(f"{name}.bias", width)
        return Norm(weight.numbers, bias.numbers, self._epsilon)

    def matrix(self, name: str, height: int, width: int) -> Matrix:
        return Matrix(self.take(f"{name}.weight", height, width).rows(), self.take(f"{name}.bias", width).numbers)
