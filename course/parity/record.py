"""Collects what the two sides compute for the same tokens: hidden states, heads' outputs, logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from solutions.batch import Row, build_batch
from solutions.engine import Engine


@dataclass(frozen=True)
class Record:
    """One side's forward pass over T tokens. L layers, H heads of size D, width E; float32 on the CPU."""

    hidden: torch.Tensor  # [L + 1, T, E]: the input of each layer, then the output of the last
    heads: torch.Tensor  # [L, T, H, D]: the attention output before the projection
    logits: torch.Tensor  # [T, vocabulary]
    first_values: torch.Tensor | None = None  # [L, H, D]: the value of token 0
    first_pass: int | None = None  # how many of the tokens were computed in the first pass; None is all of them


def record_reference(model: Any, tokens: list[int]) -> Record:
    """Run a `transformers` GPT-2 over the tokens, without a cache, and record it."""
    hidden: list[torch.Tensor] = []
    heads: list[torch.Tensor] = []
    values: list[torch.Tensor] = []
    num_heads = model.config.n_head

    def split(rows: torch.Tensor) -> torch.Tensor:
        return rows[0].detach().float().cpu().unflatten(-1, (num_heads, -1))

    hooks = []
    for block in model.transformer.h:
        hooks += [
            block.register_forward_pre_hook(lambda _, args: hidden.append(args[0][0].detach().float().cpu())),
            block.attn.c_proj.register_forward_pre_hook(lambda _, args: heads.append(split(args[0]))),
            block.attn.c_attn.register_forward_hook(lambda _, args, out: values.append(split(out.chunk(3, -1)[2])[0])),
        ]
    # The blocks' last output is the final layer norm's input.
    hooks.append(
        model.transformer.ln_f.register_forward_pre_hook(
            lambda _, args: hidden.append(args[0][0].detach().float().cpu())
        )
    )
    try:
        with torch.inference_mode():
            logits = model(torch.tensor([tokens], device=model.device), use_cache=False).logits[0]
    finally:
        for hook in hooks:
            hook.remove()
    return Record(torch.stack(hidden), torch.stack(heads), logits.float().cpu(), torch.stack(values))


def record_engine(engine: Engine, tokens: list[int], chunks: list[int]) -> Record:
    """Run the engine's model over the tokens, computed in chunks of the given sizes, and record every row.

    `[len(tokens)]` is a prefill; `[len(tokens) - 2, 1, 1]` a prefill and two decodes. The blocks come from the engine's
    own pool and go back to it.
    """
    assert sum(chunks) == len(tokens)
    num_layers = engine.config.n_layer
    hidden: list[list[torch.Tensor]] = [[] for _ in range(num_layers + 1)]
    heads: list[list[torch.Tensor]] = [[] for _ in range(num_layers)]
    logits = []

    def observe(what: str, layer: int, tensor: torch.Tensor) -> None:
        # A copy: the model may go on in the same memory (`hidden += …`).
        (hidden if what == "hidden" else heads)[layer].append(tensor.detach().to("cpu", torch.float32, copy=True))

    table = engine.new_table()
    start = 0
    try:
        for num_new in chunks:
            if table.append(num_new) is None:
                raise ValueError(f"the pool has too few blocks for {len(tokens)} tokens")
            row = Row(tokens[start : start + num_new], start + num_new, table.blocks, samples=True)
            batch = build_batch([row], engine.block_size, engine.parts.slot_mapping, engine.device)
            with torch.inference_mode():
                logits.append(engine.model.logits(engine.model.forward(batch, engine.caches, observe)).float().cpu())
            start += num_new
    finally:
        table.free()
    return Record(
        torch.stack([torch.cat(parts) for parts in hidden]),
        torch.stack([torch.cat(parts) for parts in heads]),
        torch.cat(logits),
        first_pass=chunks[0],
    )
