"""Names the first place where two records differ, and what usually causes such a difference."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from course.parity.record import Record


@dataclass(frozen=True)
class Divergence:
    """The first difference. `layer` is None at the embedding; `heads` lists the heads that differ, where known."""

    layer: int | None
    heads: list[int]
    positions: list[int]
    error: float
    cause: str

    def __str__(self) -> str:
        place = "at the embedding" if self.layer is None else f"in layer {self.layer}"
        if self.heads:
            place += f", heads {_spans(self.heads)}"
        return (
            f"differs first {place}, at positions {_spans(self.positions)} (relative error {self.error:.2g}). "
            f"Likely cause: {self.cause}"
        )


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """‖ours − theirs‖ / ‖theirs‖; NaN anywhere in ours counts as infinitely far."""
    error = float((ours.double() - theirs.double()).norm() / theirs.double().norm().clamp_min(1e-30))
    return error if error == error else float("inf")


def diagnose(ours: Record, theirs: Record, tolerance: float, block_size: int) -> Divergence | None:
    """Return the first divergence beyond a relative error of `tolerance`, or None.

    A layer is looked at in the order in which it computes: its heads' outputs first, then what it hands on.
    """
    if relative_error(ours.hidden[0], theirs.hidden[0]) > tolerance:
        return _at_embedding(ours, theirs, tolerance)
    for layer in range(len(ours.heads)):
        heads = [
            head
            for head in range(ours.heads.shape[2])
            if relative_error(ours.heads[layer, :, head], theirs.heads[layer, :, head]) > tolerance
        ]
        if heads:
            return _at_heads(ours, theirs, layer, heads, tolerance, block_size)
        error = relative_error(ours.hidden[layer + 1], theirs.hidden[layer + 1])
        if error > tolerance:
            positions = _differing(ours.hidden[layer + 1], theirs.hidden[layer + 1], tolerance)
            cause = (
                "the heads agree, so the difference comes after them: the output projection, the second layer norm, "
                "the GELU (GPT-2 uses its tanh form) or a matrix that should have been transposed"
            )
            return Divergence(layer, [], positions, error, cause)
    return None


def _differing(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> list[int]:
    return [row for row in range(len(ours)) if relative_error(ours[row], theirs[row]) > tolerance]


def _at_embedding(ours: Record, theirs: Record, tolerance: float) -> Divergence:
    positions = _differing(ours.hidden[0], theirs.hidden[0], tolerance)
    if positions and 0 not in positions:
        cause = "position offset: the first token is right and later ones are not, so positions do not count on"
    else:
        cause = "the token or position embedding: a wrong table, row or scale"
    return Divergence(None, [], positions, relative_error(ours.hidden[0], theirs.hidden[0]), cause)


def _at_heads(
    ours: Record, theirs: Record, layer: int, heads: list[int], tolerance: float, block_size: int
) -> Divergence:
    mine, right = ours.heads[layer], theirs.heads[layer]
    positions = _differing(mine[:, heads].flatten(1), right[:, heads].flatten(1), tolerance)
    num_heads = mine.shape[1]
    if len(heads) == num_heads and _sees_first_key_only(ours, theirs, layer, positions):
        cause = (
            "mask: these positions see the first key only. Does the mask use a query's row in the batch instead of its "
            "position, context length − query length + row?"
        )
    elif heads == list(range(1, num_heads)):
        cause = "strides: only head 0 is right. Are the strides of heads and slots swapped?"
    elif (
        positions
        and min(positions) >= block_size
        and all(position in positions for position in range(block_size, len(mine)))
    ):
        cause = f"block table: the first block of {block_size} is right and all later ones are not"
    elif positions and max(positions) < len(mine) - 1 and 0 in positions:
        cause = "mask or context length: early positions are wrong, so they see keys that they should not"
    elif len(heads) == num_heads:
        cause = "attention as a whole: scale, softmax, a key too many or too few, or keys and values written wrongly"
    else:
        cause = "some heads only: how query heads share KV heads, or a loop that does not reach every head"
    error = relative_error(mine[:, heads], right[:, heads])
    return Divergence(layer, heads, positions, error, cause)


def _sees_first_key_only(ours: Record, theirs: Record, layer: int, positions: list[int]) -> bool:
    if theirs.first_values is None or not positions:
        return False
    seen = ours.heads[layer, positions]
    return relative_error(seen, theirs.first_values[layer].expand_as(seen)) < 1e-2


def _spans(numbers: list[int]) -> str:
    """`[0, 1, 2, 5]` → `0–2, 5`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in parts)
