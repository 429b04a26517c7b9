"""Reads where two forward passes part: the first layer and heads that differ, and what usually causes that.

It works on relative errors alone and needs nothing but Python; `course/parity/` hands it those of two models.
"""

from __future__ import annotations

from collections.abc import Sequence


def relative_error(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return ‖ours − theirs‖ / ‖theirs‖ of two lists of numbers; `ValueError` when they are not of one length.

    NaN is infinitely far from everything, and so is any difference from zeros alone.
    """
    raise NotImplementedError("parity-diagnosis: relative_error is not written yet")


def beyond(errors: Sequence[float], bound: float) -> list[int]:
    """Return the indices of the errors that are not within `bound`: larger ones, and NaN."""
    raise NotImplementedError("parity-diagnosis: beyond is not written yet")


def first_divergence(
    hidden: Sequence[float], heads: Sequence[Sequence[float]], logits: float, bound: float
) -> tuple[int | None, list[int]] | None:
    """Return the layer and the heads that are the first to differ, or None when all is within `bound`.

    `hidden[i]` is the error of layer i's input, `hidden[i + 1]` that of its output, and `heads[i][h]` that of head h in
    layer i. A layer computes its heads first, then its output; after the last layer come the logits. The layer is None
    when layer 0's input differs, which is the embedding, and the number of layers when only the logits differ. The
    heads are `[]` where the heads agree.
    """
    raise NotImplementedError("parity-diagnosis: first_divergence is not written yet")


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
    raise NotImplementedError("parity-diagnosis: likely_cause is not written yet")
