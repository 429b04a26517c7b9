"""What the checks of `packed-forward` need beside the answer: models of given weights, batches, caches, a witness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from course.judge.executors import LayerCache
from course.judge.executors.pytorch import tensor, unwritten
from solutions.attention import paged_attention, write_kv
from solutions.batch import Batch, Row, build_batch
from solutions.block_table import slot_mapping
from solutions.weights import GPT2Config, assemble

answer: Any = None  # the learner's module: the judge puts it here


class Witness:
    """Looks on while a model computes, and is asked afterwards."""

    def __init__(self) -> None:
        self._seen: list[tuple[str, int, torch.Tensor]] = []

    def __call__(self, what: str, layer: int, shown: torch.Tensor) -> None:
        self._seen.append((what, layer, shown.clone()))

    def calls(self) -> list[list[Any]]:
        """Return what was shown, in order: `[what, layer]`."""
        return [[what, layer] for what, layer, _ in self._seen]

    def values(self, what: str, layer: int) -> list[Any]:
        """Return what was shown under this name, as nested lists."""
        return next(shown for name, index, shown in self._seen if (name, index) == (what, layer)).tolist()


def tiny_gpt2(sizes: dict[str, Any], weights: dict[str, Any], dtype: str = "float32", doubled: bool = False) -> Any:
    """Return the answer's model with these weights, by their names in a checkpoint. `doubled`: `attend` gives twice."""
    tensors = {name: tensor(values, dtype) for name, values in weights.items()}
    config = GPT2Config(**sizes)

    def attend(queries: torch.Tensor, cache: Any, *rest: Any) -> torch.Tensor:
        _look_at(queries, config, "attend was given queries")
        _, query_start_loc, _, max_query_len, _ = rest
        longest = int(query_start_loc.diff().max())
        if max_query_len != longest:
            raise ValueError(f"attend was given max_query_len={max_query_len!r}; the longest request has {longest}")
        return paged_attention(queries, cache, *rest) * (2 if doubled else 1)

    def write(keys: torch.Tensor, values: torch.Tensor, cache: Any, slots: torch.Tensor, touched: Any) -> None:
        _look_at(keys, config, "write_kv was given keys")
        _look_at(values, config, "write_kv was given values")
        write_kv(keys, values, cache, slots, touched)

    return answer.GPT2(config, assemble(config, tensors), write, attend)


def packed(requests: Sequence[Sequence[Any]], block_size: int) -> Batch:
    """Return a batch of requests, each (new tokens, context length, blocks, whether it samples)."""
    rows = [Row(tokens, context_len, blocks, samples) for tokens, context_len, blocks, samples in requests]
    return build_batch(rows, block_size, slot_mapping, tensor([0]).device)


def caches(sizes: dict[str, Any], num_blocks: int, block_size: int, dtype: str = "float32") -> list[LayerCache]:
    """Return each layer's cache, never written to."""
    shape = (num_blocks, block_size, sizes["n_head"], sizes["n_embd"] // sizes["n_head"])
    return [LayerCache(unwritten(shape, dtype), unwritten(shape, dtype)) for _ in range(sizes["n_layer"])]


def layer_mlp(model: Any, layer: int, hidden: torch.Tensor) -> torch.Tensor:
    """Return `model.mlp` of one of its layers."""
    found: torch.Tensor = model.mlp(model.weights.layers[layer], hidden)
    return found


def layer_attention(
    model: Any, layer: int, cache: LayerCache, hidden: torch.Tensor, batch: Batch, witness: Witness | None = None
) -> torch.Tensor:
    """Return `model.attention` of one of its layers."""
    found: torch.Tensor = model.attention(model.weights.layers[layer], cache, hidden, batch, layer, witness)
    return found


def _look_at(rows: torch.Tensor, config: GPT2Config, who: str) -> None:
    wanted = (config.n_head, config.head_dim)
    if rows.dim() != 3 or tuple(rows.shape[1:]) != wanted:
        raise ValueError(f"{who} of shape {tuple(rows.shape)}; they are [T, {wanted[0]}, {wanted[1]}]")
