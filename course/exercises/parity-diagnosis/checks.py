"""What `parity-diagnosis` promises."""

import math
import random
from typing import Any

from course.judge.expect import expect, expect_error, expect_true

BOUND = 1e-4
# What docs/results/divergence.json has of the bugs planted in the shipped model, to two digits. Of each bug: the errors
# of the hidden states, of the heads by layer, and of the logits; then (layer, heads), the first position that differs
# (all later ones do too), and the cause. 48 tokens, 32 of them in the first pass, in blocks of 16.
SHIPPED: dict[str, Any] = {
    "none": (
        [0.0, 1.3e-07, 2.4e-07, 3.8e-07],
        [
            [9.2e-08, 1.1e-07, 9.8e-08, 1.3e-07],
            [2.1e-07, 2.8e-07, 3.6e-07, 3.5e-07],
            [4.7e-07, 2.8e-07, 5.4e-07, 4.4e-07],
        ],
        2.2e-07,
        None,
        None,
        None,
    ),
    "gelu": (
        [0.0, 0.00043, 0.00067, 0.00086],
        [[9.2e-08, 1.1e-07, 9.8e-08, 1.3e-07], [0.00069, 0.00075, 0.00066, 0.00087], [0.0011, 0.00063, 0.0012, 0.0011]],
        0.00037,
        (0, []),
        1,
        "after the heads",
    ),
    "epsilon": (
        [0.0, 0.00038, 0.00034, 0.00035],
        [
            [0.00054, 0.00045, 0.00044, 0.00059],
            [0.00042, 0.00067, 0.00078, 0.00077],
            [0.00049, 0.00024, 0.00062, 0.00051],
        ],
        0.00011,
        (0, [0, 1, 2, 3]),
        2,
        "attention",
    ),
    "positions": (
        [1.1, 0.8, 0.73, 0.68],
        [[0.48, 0.39, 0.35, 0.55], [0.33, 0.45, 0.5, 0.44], [0.52, 0.31, 0.6, 0.51]],
        0.2,
        (None, []),
        32,
        "position offset",
    ),
    "cut": (
        [0.0, 1.9, 1.7, 1.4],
        [[4.8, 8.5, 1.6, 0.77], [6.6, 4.8, 2.1, 1.9], [4.2, 3.1, 2.3, 2.7]],
        0.53,
        (0, [0, 1, 2, 3]),
        0,
        "attention",
    ),
    "transpose": (
        [0.0, 0.77, 0.89, 0.95],
        [[9.2e-08, 1.1e-07, 9.8e-08, 1.3e-07], [1.3, 1.3, 1.3, 1.3], [1.3, 1.3, 1.4, 1.4]],
        0.28,
        (0, []),
        0,
        "after the heads",
    ),
    "norm": (
        [0.0, 1.3e-07, 2.4e-07, 3.8e-07],
        [
            [9.2e-08, 1.1e-07, 9.8e-08, 1.3e-07],
            [2.1e-07, 2.8e-07, 3.6e-07, 3.5e-07],
            [4.7e-07, 2.8e-07, 5.4e-07, 4.4e-07],
        ],
        0.78,
        (3, []),
        0,
        "after the layers",
    ),
    "strides": (
        [0.0, 0.56, 0.68, 0.8],
        [[9.2e-08, 1.1, 1.4, 1.3], [1.0, 1.6, 1.6, 1.4], [1.1, 1.4, 1.6, 1.6]],
        0.29,
        (0, [1, 2, 3]),
        0,
        "strides",
    ),
    "mask": (
        [0.0, 0.64, 0.69, 0.69],
        [[0.91, 0.78, 1.1, 0.92], [0.81, 0.85, 0.77, 0.76], [0.78, 0.67, 0.82, 0.75]],
        0.16,
        (0, [0, 1, 2, 3]),
        32,
        "query positions",
    ),
    "table": (
        [0.0, 0.65, 0.78, 0.76],
        [[0.97, 0.76, 0.76, 1.0], [1.0, 1.1, 1.3, 1.2], [1.1, 0.54, 0.96, 1.1]],
        0.23,
        (0, [0, 1, 2, 3]),
        16,
        "block table",
    ),
    "scale": (
        [0.0, 0.23, 0.31, 0.39],
        [[0.31, 0.24, 0.28, 0.4], [0.41, 0.49, 0.57, 0.55], [0.57, 0.35, 0.63, 0.56]],
        0.12,
        (0, [0, 1, 2, 3]),
        1,
        "attention",
    ),
    "half": (
        [0.00028, 0.00056, 0.00066, 0.00086],
        [[0.00062, 0.00049, 0.00057, 0.00065], [0.001, 0.0011, 0.001, 0.00087], [0.00098, 0.00094, 0.001, 0.0012]],
        0.00037,
        (None, []),
        0,
        "embedding",
    ),
}


def measures_against_theirs(solution: Any) -> None:
    """`relative_error([0, 0], [3, 4])` is 1, and `relative_error([3, 4], [6, 8])` is 0.5.

    The reference is the yardstick. Divided by your own size, a result that is far too large would look nearly right.
    """
    expect(solution.relative_error([3.0, 4.0], [3.0, 4.0]), 0.0)
    expect(solution.relative_error([0.0, 0.0], [3.0, 4.0]), 1.0)
    expect(solution.relative_error([3.0, 4.0], [6.0, 8.0]), 0.5)
    expect(solution.relative_error([60.0, 80.0], [3.0, 4.0]), 19.0)
    expect(solution.relative_error([1.0, -2.0, 2.0], [1.0, 2.0, 2.0]), 4 / 3)


def does_not_depend_on_the_scale(solution: Any) -> None:
    """Lists a million times smaller have the same relative error.

    Hidden states grow from layer to layer. An absolute error says nothing before you know of what.
    """
    ours, theirs = [1.01, 2.0, -3.0], [1.0, 2.0, -3.0]
    wanted = 0.01 / math.sqrt(14)
    for scale in (1.0, 1e-6, 1e6):
        found = solution.relative_error([scale * each for each in ours], [scale * each for each in theirs])
        expect(found / wanted if isinstance(found, float) else found, 1.0, what="the error over the right one")


def nan_is_infinitely_far(solution: Any) -> None:
    """NaN in the lists gives infinity, and so does any difference from zeros; zeros from zeros give 0.

    NaN is what unwritten memory and a softmax over nothing leave. It is the one error that must never look small.
    """
    nan = math.nan
    for ours, theirs in (([nan, 1.0], [1.0, 1.0]), ([1.0, nan], [1.0, 1.0]), ([1.0, 1.0], [nan, 1.0])):
        expect_true(solution.relative_error(ours, theirs) == math.inf, "NaN is not infinitely far", expected="inf")
    expect_true(solution.relative_error([1e-9, 0.0], [0.0, 0.0]) == math.inf, "not inf", expected="inf")
    expect_true(solution.relative_error([nan, 0.0], [0.0, 0.0]) == math.inf, "not inf", expected="inf")
    expect(solution.relative_error([0.0, 0.0], [0.0, 0.0]), 0.0)


def refuses_lists_of_different_lengths(solution: Any) -> None:
    """Lists of different lengths are a `ValueError`.

    A comparison that stops at the shorter list calls a result right that lacks half of its tokens.
    """
    expect_error(ValueError, solution.relative_error, [1.0], [1.0, 2.0])
    expect_error(ValueError, solution.relative_error, [1.0, 2.0], [1.0])


def finds_what_is_beyond(solution: Any) -> None:
    """`beyond([0.1, 0.5, 0.2, 0.9], 0.2)` is `[1, 3]`: an error equal to the bound is within it.

    The same question is asked of heads and of positions.
    """
    expect(solution.beyond([0.1, 0.5, 0.2, 0.9], 0.2), [1, 3])
    expect(solution.beyond([0.1], 0.2), [])
    expect(solution.beyond([], 0.2), [])
    expect(solution.beyond([0.0, 1e-9], 0.0), [1])


def nan_is_beyond_every_bound(solution: Any) -> None:
    """An error that is NaN or infinite is beyond the bound.

    `nan > bound` is false. A harness that asks that way is green on the day when everything is NaN.
    """
    expect(solution.beyond([math.nan, 0.1, math.inf], 0.2), [0, 2])


def agreement_is_none(solution: Any) -> None:
    """When every error is within the bound, `first_divergence` returns `None`.

    Two right models differ in the last digits. That is no divergence.
    """
    right = [[2e-7] * 4, [3e-7] * 4]
    expect(solution.first_divergence([0.0, 2e-7, 4e-7], right, 3e-7, BOUND), None)
    expect(solution.first_divergence([BOUND] * 3, [[BOUND] * 4] * 2, BOUND, BOUND), None)


def the_embedding_comes_first(solution: Any) -> None:
    """When `hidden[0]` is beyond the bound, the answer is `(None, [])`, whatever else is.

    Everything after a wrong embedding is wrong. Its heads tell you nothing.
    """
    expect(solution.first_divergence([0.3, 0.4, 0.5], [[0.4] * 4, [0.5] * 4], 0.2, BOUND), (None, []))
    expect(solution.first_divergence([math.nan, 0.0, 0.0], [[0.0] * 4] * 2, 0.0, BOUND), (None, []))


def heads_come_before_the_output(solution: Any) -> None:
    """When heads of a layer and its output differ, the heads are named.

    The output is computed from the heads, so it is wrong in any case. Which heads are, is the clue.
    """
    hidden, later = [0.0, 0.3, 0.4], [0.5] * 4
    expect(solution.first_divergence([0.0, 2e-7, 0.4], [[2e-7, 0.9, 2e-7, 2e-7], later], 0.3, BOUND), (0, [1]))
    expect(solution.first_divergence(hidden, [[2e-7, 0.9, 0.9, 0.9], later], 0.3, BOUND), (0, [1, 2, 3]))
    expect(solution.first_divergence(hidden, [[2e-7, 0.9, 2e-7, math.nan], later], 0.3, BOUND), (0, [1, 3]))
    expect(solution.first_divergence([0.0, 2e-7, 0.4], [[2e-7] * 4, later], 0.3, BOUND), (1, [0, 1, 2, 3]))


def a_layer_can_differ_after_its_heads(solution: Any) -> None:
    """When a layer's heads agree and its output differs, the answer is `(layer, [])`.

    What lies between: the output projection, the second layer norm, the feed-forward part.
    """
    right, wrong = [2e-7] * 4, [0.5] * 4
    expect(solution.first_divergence([0.0, 0.3, 0.4], [right, wrong], 0.3, BOUND), (0, []))
    expect(solution.first_divergence([0.0, 2e-7, 0.4], [right, right], 0.3, BOUND), (1, []))


def the_logits_come_last(solution: Any) -> None:
    """When only the logits differ, the answer is the number of layers: `(2, [])` for 2 layers.

    A model without its final layer norm is right in every layer, and every word that it says is wrong.
    """
    right = [2e-7] * 4
    expect(solution.first_divergence([0.0, 2e-7, 2e-7], [right, right], 0.8, BOUND), (2, []))
    expect(solution.first_divergence([0.0, 2e-7], [right], math.nan, BOUND), (1, []))


def _cause(solution: Any, layer: int | None, heads: list[int], positions: list[int], **others: int) -> Any:
    sizes = {"num_layers": 2, "num_heads": 4, "num_tokens": 12, "first_pass": 12, "block_size": 4} | others
    return solution.likely_cause(layer, heads, positions, **sizes)


def tells_the_embeddings_causes_apart(solution: Any) -> None:
    """At the embedding it is a position offset when position 0 is right, else the embedding itself.

    The first token has position 0 however positions are counted. A wrong table is wrong for it too.
    """
    expect(_cause(solution, None, [], list(range(12))), "embedding")
    expect(_cause(solution, None, [], [0]), "embedding")
    expect(_cause(solution, None, [], [8, 9, 10, 11], first_pass=8), "position offset")
    expect(_cause(solution, None, [], [1]), "position offset")


def tells_what_follows_the_heads(solution: Any) -> None:
    """Without heads it is after the heads, or, when `layer` is `num_layers`, after the layers.

    A wrong GELU is in the first group and a missing final layer norm in the second.
    """
    expect(_cause(solution, 0, [], list(range(12))), "after the heads")
    expect(_cause(solution, 1, [], [11]), "after the heads")
    expect(_cause(solution, 2, [], list(range(12))), "after the layers")
    expect(_cause(solution, 2, [], [3], num_layers=3), "after the heads")


def tells_strides_from_other_heads(solution: Any) -> None:
    """Every head but 0 is a matter of strides; any other part of the heads is "some heads".

    Head 0 starts at offset 0, and 0 times a wrong stride is still 0.
    """
    everywhere = list(range(12))
    expect(_cause(solution, 0, [1, 2, 3], everywhere), "strides")
    expect(_cause(solution, 1, [1], everywhere, num_heads=2), "strides")
    expect(_cause(solution, 0, [2, 3], everywhere), "some heads")
    expect(_cause(solution, 0, [0, 1, 2], everywhere), "some heads")
    expect(_cause(solution, 0, [1], everywhere), "some heads")
    expect(_cause(solution, 0, [0], everywhere), "some heads")
    expect(_cause(solution, 0, [0], everywhere, num_heads=1), "attention")


def tells_the_positions_apart(solution: Any) -> None:
    """With all heads, the positions decide: all after the first pass, all after the first block, or early ones.

    Each of these bugs leaves some tokens right, and which ones is how you know it.
    """
    all_heads = [0, 1, 2, 3]
    expect(_cause(solution, 0, all_heads, [10, 11], first_pass=10), "query positions")
    expect(_cause(solution, 0, all_heads, list(range(4, 12))), "block table")
    expect(_cause(solution, 0, all_heads, [0, 1, 2]), "causal mask")
    expect(_cause(solution, 0, all_heads, [0, 4, 10]), "causal mask")
    expect(_cause(solution, 0, all_heads, list(range(12))), "attention")


def falls_back_to_attention(solution: Any) -> None:
    """Positions that fit no rule are "attention": one missing in a run is enough.

    A guess that is too special sends you to the wrong line for an afternoon.
    """
    all_heads = [0, 1, 2, 3]
    expect(_cause(solution, 0, all_heads, [11], first_pass=10), "attention")
    expect(_cause(solution, 0, all_heads, [10], first_pass=10), "attention")
    expect(_cause(solution, 0, all_heads, [4, 5, 7, 8, 9, 10, 11]), "attention")
    expect(_cause(solution, 0, all_heads, list(range(5, 12))), "attention")
    expect(_cause(solution, 0, all_heads, list(range(1, 12))), "attention")
    expect(_cause(solution, 0, all_heads, [0, 11]), "attention")


def the_more_special_cause_wins(solution: Any) -> None:
    """Where two rules fit, the first one in the table is the answer.

    A first pass of exactly one block: every later pass is wrong, which says more than that every later block is.
    """
    all_heads, later = [0, 1, 2, 3], list(range(4, 12))
    expect(_cause(solution, 0, all_heads, later, first_pass=4), "query positions")
    expect(_cause(solution, 0, [1, 2, 3], later, first_pass=4), "strides")
    expect(_cause(solution, 0, [1, 2], later), "some heads")
    expect(_cause(solution, 0, [], later, first_pass=4), "after the heads")


def names_the_planted_bugs(solution: Any) -> None:
    """The bugs planted in the shipped model are read as they are: `None` without a bug, and eleven places and causes.

    These are the reports that the picture of this chapter shows.
    """
    for hidden, heads, logits, place, first, cause in SHIPPED.values():
        expect(solution.first_divergence(hidden, heads, logits, BOUND), place)
        if place is None:
            continue
        sizes = {"num_layers": 3, "num_heads": 4, "num_tokens": 48, "first_pass": 32, "block_size": 16}
        expect(solution.likely_cause(*place, list(range(first, 48)), **sizes), cause)


def finds_any_place(solution: Any) -> None:
    """In reports of any size, the first wrong place is found, with all later ones wrong too.

    Real models have 12 to 48 layers, and nobody looks through 600 heads by eye.
    """
    for seed in range(20):
        rng = random.Random(seed)
        solution.start_over_()
        num_layers, num_heads = rng.randint(1, 5), rng.randint(1, 6)
        stages = 2 * num_layers + 2  # the embedding, heads and output of every layer, the logits
        first = rng.randrange(stages + 1)
        noise = [
            rng.uniform(0, 0.9) * BOUND if stage < first else rng.uniform(2, 1e4) * BOUND for stage in range(stages)
        ]
        heads = [[noise[2 * layer + 1]] * num_heads for layer in range(num_layers)]
        wanted: Any = None
        if first < stages:
            layer = None if first == 0 else (first - 1) // 2
            wanted = (layer, [])
            if first % 2 and layer is not None and layer < num_layers:
                named = sorted(rng.sample(range(num_heads), rng.randint(1, num_heads)))
                heads[layer] = [0.5 if head in named else 1e-7 for head in range(num_heads)]
                wanted = (layer, named)
        hidden = [noise[0], *noise[2:-1:2]]
        expect(solution.first_divergence(hidden, heads, noise[-1], BOUND), wanted)
