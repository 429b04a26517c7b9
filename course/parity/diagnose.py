"""Names the first place where two records differ, and what usually causes such a difference.

What the numbers mean is decided by `solutions/diagnosis.py`; this module takes the errors of two records and finds the
words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from course.parity.record import Record
from solutions.diagnosis import beyond, first_divergence, likely_cause, relative_error

CAUSES = {
    "position offset": "position offset: the first token is right and later ones are not, so positions do not count on",
    "embedding": "the token or position embedding: a wrong table, row or scale",
    "after the heads": (
        "the heads agree, so the difference comes after them: the output projection, the second layer norm, the GELU "
        "(GPT-2 uses its tanh form) or a matrix that should have been transposed"
    ),
    "after the layers": "the layers agree, so it is the final layer norm or the head, which is the token embedding",
    "strides": "strides: only head 0 is right. Are the strides of heads and slots swapped?",
    "some heads": "some heads only: how query heads share KV heads, or a loop that does not reach every head",
    "query positions": (
        "query positions: the first pass is right, and no pass that goes on from it. Does the mask, or the gathering, "
        "know how many tokens came before?"
    ),
    "block table": "block table: the first block is right and all later ones are not",
    "causal mask": "mask or context length: early positions are wrong, so they see keys that they should not",
    "attention": (
        "attention as a whole: the layer norm before it, the cut into queries, keys and values, what is written, the "
        "scale, the softmax, or a key too many or too few"
    ),
    "first key only": (
        "mask: these positions see the first key only. Does the mask use a query's row in the batch instead of its "
        "position, context length − query length + row?"
    ),
}


@dataclass(frozen=True)
class Divergence:
    """The first difference: `layer` and `heads` as `first_divergence` has them, `cause` one of `CAUSES`."""

    layer: int | None
    heads: list[int]
    positions: list[int]
    error: float
    cause: str

    def __str__(self) -> str:
        place = "at the embedding" if self.layer is None else f"in layer {self.layer}"
        if self.cause == "after the layers":
            place = "in the logits"
        if self.heads:
            place += f", heads {_spans(self.heads)}"
        return (
            f"differs first {place}, at position{'s' if len(self.positions) > 1 else ''} {_spans(self.positions)} "
            f"(relative error {self.error:.2g}). "
            f"Likely cause: {CAUSES[self.cause]}"
        )


def error_of(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return the relative error between two tensors of one shape."""
    return relative_error(ours.flatten().tolist(), theirs.flatten().tolist())


def head_errors(ours: Record, theirs: Record) -> list[list[float]]:
    """Return the relative error of every head's output over all tokens, by layer."""
    pairs = zip(ours.heads.unbind(0), theirs.heads.unbind(0), strict=True)
    return [[*map(error_of, mine.unbind(1), right.unbind(1))] for mine, right in pairs]


def diagnose(ours: Record, theirs: Record, tolerance: float, block_size: int) -> Divergence | None:
    """Return the first divergence beyond a relative error of `tolerance`, or None."""
    num_layers, num_tokens, num_heads, _ = ours.heads.shape
    place = first_divergence(
        [*map(error_of, ours.hidden, theirs.hidden)],
        head_errors(ours, theirs),
        error_of(ours.logits, theirs.logits),
        tolerance,
    )
    if place is None:
        return None
    layer, heads = place
    mine, right = (_at(record, layer, heads) for record in (ours, theirs))
    positions = beyond([*map(error_of, mine, right)], tolerance)
    cause = likely_cause(
        layer, heads, positions,
        num_layers=num_layers, num_heads=num_heads, num_tokens=num_tokens,
        first_pass=ours.first_pass or num_tokens, block_size=block_size,
    )  # fmt: skip
    if len(heads) == num_heads and _see_first_key_only(mine, theirs, layer, positions):
        cause = "first key only"  # what the values say, which `likely_cause` does not see
    return Divergence(layer, heads, positions, error_of(mine, right), cause)


def _at(record: Record, layer: int | None, heads: list[int]) -> torch.Tensor:
    """Return what was computed at a place, one row a token."""
    if layer is None:
        return record.hidden[0]
    if heads:
        return record.heads[layer][:, heads]
    return record.logits if layer == len(record.heads) else record.hidden[layer + 1]


def _see_first_key_only(heads: torch.Tensor, theirs: Record, layer: int | None, positions: list[int]) -> bool:
    """Whether these positions' heads, `[T, H, D]`, are token 0's value: what attending to it alone gives."""
    if theirs.first_values is None or layer is None:
        return False
    seen = heads[positions]
    return error_of(seen, theirs.first_values[layer].expand_as(seen)) < 1e-2


def _spans(numbers: list[int]) -> str:
    """`[0, 1, 2, 5]` → `0–2, 5`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in parts)
