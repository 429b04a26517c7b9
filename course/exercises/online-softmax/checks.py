"""What `online-softmax` promises."""

import math
import random
from collections.abc import Sequence
from typing import Any

from course.judge.expect import expect

MASKED = -math.inf


def one_key_gives_its_value(solution: Any) -> None:
    """After one key the result is that key's value, whatever its score.

    The weights of a softmax add up to 1. Alone, a key has all of it.
    """
    softmax = solution.OnlineSoftmax(2, as_="softmax")
    softmax.add([3.0], [[5.0, -1.0]])
    expect(softmax.result(), [5.0, -1.0])


def equal_scores_share_equally(solution: Any) -> None:
    """Three keys with equal scores give the plain mean of their values: 1, 10 and 100 give 37.

    A query of zeros sees all keys alike. The checks of attention use that.
    """
    softmax = solution.OnlineSoftmax(1, as_="softmax")
    softmax.add([0.0, 0.0, 0.0], [[1.0], [10.0], [100.0]])
    expect(softmax.result(), [37.0])


def scores_weigh(solution: Any) -> None:
    """A key whose score is larger by ln 3 weighs three times as much.

    Weights are exponentials of scores: differences become ratios.
    """
    softmax = solution.OnlineSoftmax(1, as_="softmax")
    softmax.add([0.0, math.log(3.0)], [[0.0], [4.0]])
    expect(softmax.result(), [3.0])


def keeps_sums_against_the_maximum(solution: Any) -> None:
    """After the scores 1 and 3, `maximum` is 3, and both sums have the weights exp(-2) and 1.

    Three numbers and a vector are all that a kernel has room for.
    """
    softmax = solution.OnlineSoftmax(1, as_="softmax")
    softmax.add([1.0, 3.0], [[10.0], [20.0]])
    expect(softmax.maximum, 3.0)
    expect(softmax.total, math.exp(-2.0) + 1.0)
    expect(softmax.accumulator, [10.0 * math.exp(-2.0) + 20.0])


def a_larger_maximum_rescales_what_was_there(solution: Any) -> None:
    """When a second block brings the score 2 after a 0, both sums so far are multiplied by exp(-2).

    They were sums of exp(score - 0), and now have to be sums of exp(score - 2).
    """
    softmax = solution.OnlineSoftmax(1, as_="softmax")
    softmax.add([0.0], [[8.0]])
    softmax.add([2.0], [[1.0]])
    expect(softmax.maximum, 2.0)
    expect(softmax.total, math.exp(-2.0) + 1.0)
    expect(softmax.accumulator, [8.0 * math.exp(-2.0) + 1.0])
    expect(softmax.result(), _in_two_passes([0.0, 2.0], [[8.0], [1.0]]))


def a_smaller_block_leaves_the_maximum(solution: Any) -> None:
    """When a second block has only smaller scores, `maximum` stays, and they are weighed against it.

    The maximum is over all keys so far, not over the block.
    """
    softmax = solution.OnlineSoftmax(1, as_="softmax")
    softmax.add([2.0], [[1.0]])
    softmax.add([0.0], [[8.0]])
    expect(softmax.maximum, 2.0)
    expect(softmax.total, 1.0 + math.exp(-2.0))
    expect(softmax.accumulator, [1.0 + 8.0 * math.exp(-2.0)])


def the_cut_into_blocks_does_not_matter(solution: Any) -> None:
    """Six keys give the same result as one block of 6, as blocks of 1 and 5, 2 and 4, or 1 each.

    The block size is a matter of memory. The answer must not know it.
    """
    scores = [0.5, -1.0, 2.0, 1.5, 4.0, 3.0]
    values = [[1.0, 0.0], [2.0, 1.0], [-3.0, 5.0], [4.0, 2.0], [0.5, -2.0], [6.0, 1.0]]
    for sizes in ((6,), (1, 5), (2, 4), (3, 2, 1), (1,) * 6):
        solution.start_over_()
        softmax = solution.OnlineSoftmax(2, as_="softmax")
        _add_in_blocks(softmax, scores, values, sizes)
        expect(softmax.result(), _in_two_passes(scores, values))


def large_scores_do_not_overflow(solution: Any) -> None:
    """Scores of 1000, and of -1000, give the same result as scores of 0.

    `exp(1000)` is too large for a float and `exp(-1000)` is 0. Only differences between scores matter.
    """
    for shift in (1000.0, -1000.0):
        solution.start_over_()
        softmax = solution.OnlineSoftmax(1, as_="softmax")
        softmax.add([shift], [[4.0]])
        softmax.add([shift + 1.0, shift - 1.0], [[2.0], [1.0]])
        expect(softmax.result(), _in_two_passes([0.0, 1.0, -1.0], [[4.0], [2.0], [1.0]]))


def a_masked_key_counts_for_nothing(solution: Any) -> None:
    """A key with a score of minus infinity changes neither the sums nor the result.

    This is how a kernel hides a key: it computes a whole block and sets the scores that do not count to minus infinity.
    """
    softmax = solution.OnlineSoftmax(1, as_="softmax")
    softmax.add([0.0, MASKED, 1.0], [[1.0], [9.0], [2.0]])
    expect(softmax.maximum, 1.0)
    expect(softmax.total, math.exp(-1.0) + 1.0)
    expect(softmax.result(), _in_two_passes([0.0, 1.0], [[1.0], [2.0]]))


def a_masked_value_is_not_touched(solution: Any) -> None:
    """The value of a masked key may be NaN, or `None`: the result is as if the key were not there.

    0 times NaN is NaN. To hide a value, leave it out; a weight of 0 is not enough.
    """
    for value in ([math.nan], None):
        solution.start_over_()
        softmax = solution.OnlineSoftmax(1, as_="softmax")
        softmax.add([0.0, 0.0, 0.0, MASKED], [[1.0], [10.0], [100.0], value])
        expect(softmax.result(), [37.0])


def a_masked_block_changes_nothing(solution: Any) -> None:
    """A block of masked keys leaves everything as it was, as the first block too.

    Minus infinity minus minus infinity is NaN, and one NaN in a sum stays for ever.
    """
    softmax = solution.OnlineSoftmax(1, as_="softmax")
    softmax.add([MASKED, MASKED], [[1.0], [2.0]])
    expect(softmax.maximum, MASKED)
    expect(softmax.total, 0.0)
    expect(softmax.accumulator, [0.0])
    softmax.add([-2.0], [[5.0]])
    softmax.add([MASKED], [None])
    expect(softmax.maximum, -2.0)
    expect(softmax.total, 1.0)
    expect(softmax.result(), [5.0])


def no_key_gives_zeros(solution: Any) -> None:
    """As long as no key was seen the result is zeros, and an empty block changes nothing.

    Rows that only pad a batch see no key, and must not fail.
    """
    softmax = solution.OnlineSoftmax(3, as_="softmax")
    expect(softmax.result(), [0.0, 0.0, 0.0])
    softmax.add([], [])
    expect(softmax.result(), [0.0, 0.0, 0.0])


def asking_changes_nothing(solution: Any) -> None:
    """`result()` can be asked for twice, and more blocks can follow.

    The sums are the state; the quotient is only a look at it.
    """
    softmax = solution.OnlineSoftmax(1, as_="softmax")
    softmax.add([1.0, 0.0], [[2.0], [4.0]])
    first = _in_two_passes([1.0, 0.0], [[2.0], [4.0]])
    expect(softmax.result(), first)
    expect(softmax.result(), first)
    softmax.add([3.0], [[6.0]])
    expect(softmax.result(), _in_two_passes([1.0, 0.0, 3.0], [[2.0], [4.0], [6.0]]))


def two_do_not_mix(solution: Any) -> None:
    """Two objects that take in blocks in turns each give their own result.

    Every query of every head has its own sums.
    """
    one, two = solution.OnlineSoftmax(1, as_="one"), solution.OnlineSoftmax(1, as_="two")
    one.add([0.0], [[1.0]])
    two.add([5.0], [[2.0]])
    one.add([0.0], [[3.0]])
    expect(one.result(), [2.0])
    expect(two.result(), [2.0])


def matches_two_passes(solution: Any) -> None:
    """Random scores in random blocks give what two passes over all of them give.

    One pass for the maximum and the total, one for the weights: that is the softmax of the textbooks.
    """
    rng = random.Random(3)
    for _ in range(12):
        solution.start_over_()
        count, head_dim = rng.randint(1, 12), rng.randint(1, 3)
        scores = [round(rng.gauss(0, 4), 2) if rng.random() < 0.8 else MASKED for _ in range(count)]
        values = [[round(rng.uniform(-5, 5), 1) for _ in range(head_dim)] for _ in range(count)]
        sizes = [rng.randint(1, 4) for _ in range(count)]
        softmax = solution.OnlineSoftmax(head_dim, as_="softmax")
        _add_in_blocks(softmax, scores, values, sizes)
        expect(softmax.result(), _in_two_passes(scores, values))


def _add_in_blocks(softmax: Any, scores: list[float], values: list[list[float]], sizes: Sequence[int]) -> None:
    first = 0
    for size in sizes:
        if first < len(scores):
            softmax.add(scores[first : first + size], values[first : first + size])
        first += size


def _in_two_passes(scores: list[float], values: list[list[float]]) -> list[float]:
    maximum = max(scores)
    if maximum == MASKED:
        return [0.0] * len(values[0])
    weights = [math.exp(score - maximum) for score in scores]
    return [
        math.fsum(weight * value[i] for weight, value in zip(weights, values, strict=True)) / math.fsum(weights)
        for i in range(len(values[0]))
    ]
