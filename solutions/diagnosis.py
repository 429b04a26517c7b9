"""Reads where two forward passes part: the first layer and heads that differ, and what usually causes that.

It works on relative errors alone and needs nothing but Python; `course/parity/` hands it those of two models.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def relative_error(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return ‖ours − theirs‖ / ‖theirs‖ of two lists of numbers; `ValueError` when they are not of one length.

    NaN is infinitely far from everything, and so is any difference from zeros alone.
    """
    distance, size = math.dist(ours, theirs), math.hypot(*theirs)
    if not size:
        return math.inf if distance else 0.0
    error = distance / size
    return math.inf if math.isnan(error) else error


def beyond(errors: Sequence[float], bound: float) -> list[int]:
    """Return the indices of the errors that are not within `bound`: larger ones, and NaN."""
    return [index for index, error in enumerate(errors) if not error <= bound]


def first_divergence(
    hidden: Sequence[float], heads: Sequence[Sequence[float]], logits: float, bound: float
) -> tuple[int | None, list[int]] | None:
    """Return the layer and the heads that are the first to differ, or None when all is within `bound`.

    `hidden[i]` is the error of layer i's input, `hidden[i + 1]` that of its output, and `heads[i][h]` that of head h in
    layer i. A layer computes its heads first, then its output; after the last layer come the logits. The layer is None
    when layer 0's input differs, which is the embedding, and the number of layers when only the logits differ. The
    heads are `[]` where the heads agree.
    """
    if beyond([hidden[0]], bound):
        return None, []
    for layer, errors in enumerate(heads):
        differing = beyond(errors, bound)
        if differing or beyond([hidden[layer + 1]], bound):
            return layer, differing
    return (len(heads), []) if beyond([logits], bound) else None


def likely_cause(
    layer: int | None,
    heads: list[int],
    positions: list[int],
    *,
    num_layers: int,
    num_heads: int,
    num_tokens: int,
    first_pass: int,
    block_size: int,
) -> str:
    """Return what usually causes a divergence at this place, the most special cause first.

    `layer` and `heads` are what `first_divergence` returns; `positions` are those that differ there, in order, at least
    one. The `num_tokens` tokens were computed in one pass or more, the first of which had `first_pass` of them.
    """
    if layer is None:
        return "position offset" if positions[0] > 0 else "embedding"
    if not heads:
        return "after the heads" if layer < num_layers else "after the layers"
    if len(heads) < num_heads:
        return "strides" if heads == list(range(1, num_heads)) else "some heads"
    if positions == list(range(first_pass, num_tokens)):
        return "query positions"
    if positions == list(range(block_size, num_tokens)):
        return "block table"
    if positions[0] == 0 and positions[-1] < num_tokens - 1:
        return "causal mask"
    return "attention"
