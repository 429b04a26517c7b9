"""The comparison as a whole: every way of computing the same tokens, against Hugging Face."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from course.parity.diagnose import Divergence, diagnose, error_of
from course.parity.record import Record, record_engine, record_reference
from solutions.engine import Engine


@dataclass(frozen=True)
class Comparison:
    """One prompt, computed in one way. `log_prob_gap` is the largest difference of any log-probability."""

    plan: str
    num_tokens: int
    hidden_error: float  # the largest over the layers
    log_prob_gap: float
    divergence: Divergence | None


def plans(num_tokens: int) -> dict[str, list[int]]:
    """Return the ways in which a prompt is computed: at once, in chunks, and token by token at its end."""
    found = {"prefill": [num_tokens]}
    if num_tokens > 1:
        chunk = max(1, num_tokens // 3)
        sizes = [chunk] * (num_tokens // chunk)
        found["chunks"] = sizes + ([num_tokens % chunk] if num_tokens % chunk else [])
        num_decodes = min(4, num_tokens - 1)
        found["decode"] = [num_tokens - num_decodes, *[1] * num_decodes]
    return found


def compare(engine: Engine, reference: Any, tokens: list[int], tolerance: float) -> list[Comparison]:
    """Compare the engine with a `transformers` model over one prompt, in every plan."""
    theirs = record_reference(reference, tokens)
    return [
        compare_plan(engine, theirs, tokens, plan, chunks, tolerance) for plan, chunks in plans(len(tokens)).items()
    ]


def compare_plan(
    engine: Engine, theirs: Record, tokens: list[int], plan: str, chunks: list[int], tolerance: float
) -> Comparison:
    """Compare the engine with a record of the truth over one prompt, computed in chunks of the given sizes."""
    ours = record_engine(engine, tokens, chunks)
    hidden_error = max(map(error_of, ours.hidden, theirs.hidden))
    gap = float((ours.logits.log_softmax(-1) - theirs.logits.log_softmax(-1)).abs().max())
    divergence = diagnose(ours, theirs, tolerance, engine.block_size)
    return Comparison(plan, len(tokens), hidden_error, gap, divergence)


@dataclass(frozen=True)
class GreedyResult:
    """How far two greedy continuations agree. `tie` says that they part where both candidates are within the gap."""

    agreed: int
    wanted: int
    tie: bool

    @property
    def equal(self) -> bool:
        return self.agreed == self.wanted or self.tie


def compare_greedy(engine: Engine, reference: Any, tokens: list[int], num_new: int, gap: float) -> GreedyResult:
    """Compare greedy continuations.

    Where they part, it is a tie, and no difference, when Hugging Face's own logits of the two tokens are within `gap`
    of each other. After a tie the texts are different texts, so nothing beyond it is compared.
    """
    with torch.inference_mode():
        prompt = torch.tensor([tokens], device=reference.device)
        generated = reference.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=num_new, min_new_tokens=num_new,
            do_sample=False, pad_token_id=0,
        )  # fmt: skip
    theirs = generated[0, len(tokens) :].tolist()
    (ours,) = engine.generate([tokens], num_new)
    return agreement(reference, tokens, ours, theirs, gap)


def agreement(reference: Any, prompt: list[int], ours: list[int], theirs: list[int], gap: float) -> GreedyResult:
    """Say how far `ours` is a greedy continuation as good as `theirs`, by the rule of `compare_greedy`."""
    agreed = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b), len(theirs))
    if agreed == len(theirs):
        return GreedyResult(agreed, len(theirs), tie=False)
    with torch.inference_mode():
        logits = reference(torch.tensor([prompt + theirs[:agreed]], device=reference.device)).logits[0, -1].float()
    difference = float(logits[theirs[agreed]] - logits[ours[agreed]])
    return GreedyResult(agreed, len(theirs), tie=difference <= gap)
