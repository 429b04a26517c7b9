"""What `int8-append` promises."""

import random
from typing import Any

from course.judge.expect import expect, expect_true
from solutions.scalar_int8 import Int8Cache, write_kv

EMPTY = None  # what a slot holds that was never written
RISING = [round(0.5 + 0.031 * i, 3) for i in range(16)]


def counts_whole_steps(solution: Any) -> None:
    """`quantise([1.5, -1.0, 0.0], 0.5)` is `[3, -2, 0]`: so many steps of 0.5.

    An integer and a scale take the place of a float. That is the whole idea.
    """
    expect(solution.quantise([1.5], 0.5), [3])
    expect(solution.quantise([1.5, -1.0, 0.0], 0.5), [3, -2, 0])


def rounds_to_the_nearest_step(solution: Any) -> None:
    """With steps of 1/127, 0.606 is 76.96 steps and becomes 77, and -0.606 becomes -77.

    Cutting off the fraction doubles the largest error, and always errs towards zero: sums come out small.
    """
    expect(solution.quantise([1.0, 0.606, -0.606], 1 / 127), [127, 77, -77])


def rounds_half_to_even(solution: Any) -> None:
    """A number half-way between two steps goes to the even one: 0.5, 1.5, 2.5 become 0, 2, 2, and so below zero.

    It is what the processor's own rounding does. Two writers that disagree on halves leave two different caches.
    """
    expect(solution.quantise([0.5, 1.5, 2.5, 3.5], 1.0), [0, 2, 2, 4])
    expect(solution.quantise([-0.5, -1.5, -2.5, -3.5], 1.0), [0, -2, -2, -4])


def saturates_at_127(solution: Any) -> None:
    """What lies beyond 127 steps becomes 127, and -127 below.

    In 8 bits, 129 is -127. A number that wraps around turns the largest key into its opposite.
    """
    expect(solution.quantise([1.012, -1.012], 1 / 127), [127, -127])
    expect(solution.quantise([-128.0, 1000.0], 1.0), [-127, 127])


def a_scale_of_zero_gives_zeros(solution: Any) -> None:
    """`quantise([0.0, 0.0], 0.0)` is `[0, 0]`.

    A head may be silent: all its numbers are 0, and so is its scale.
    """
    expect(solution.quantise([0.0, 0.0], 0.0), [0, 0])


def the_largest_magnitude_becomes_127(solution: Any) -> None:
    """The first token of a block, `[1.0, -4.0]`, has the scale 4/127 and becomes `[32, -127]`.

    The largest magnitude takes the last step, so all 255 integers are put to use. Its sign does not matter.
    """
    expect(solution.append([], None, [[[1.0, -4.0]]]), ([[[32, -127]]], [4 / 127]))


def every_head_has_its_own_scale(solution: Any) -> None:
    """A head of magnitude 100 and one of 0.1 in the same token both become 127, with the scales 100/127 and 0.1/127.

    With one scale for both, a step would be 0.8 wide, and the quiet head would be all zeros.
    """
    block, scales = _append(solution, [], None, [[[100.0], [-0.1]]])
    expect(block, [[[127], [-127]]], what="the block")
    expect(scales, [100 / 127, 0.1 / 127], what="the scales", within=1e-12)


def all_new_tokens_count(solution: Any) -> None:
    """Of two tokens that come together, 1.0 and 2.0, the larger one decides: 64 and 127, with the scale 2/127.

    A chunk of a prompt fills many slots in one step. Its scale is known before anything is quantised.
    """
    expect(solution.append([], None, [[[1.0]], [[2.0]]]), ([[[64]], [[127]]], [2 / 127]))
    expect(solution.append([], None, [[[2.0]], [[1.0]]]), ([[[127]], [[64]]], [2 / 127]))


def a_quieter_token_leaves_the_scale(solution: Any) -> None:
    """When 0.25 joins a block of scale 1/127, the scale stays, and so do the integers that are there.

    Nothing was lost, so nothing has to be touched: the usual case of a decode.
    """
    expect(solution.append([[[127]], [[-3]]], [1 / 127], [[[0.25]]]), ([[[127]], [[-3]], [[32]]], [1 / 127]))
    expect(solution.append([[[127]]], [1 / 127], [[[-1.0]]]), ([[[127]], [[-127]]], [1 / 127]))


def a_louder_token_requantises_the_old_ones(solution: Any) -> None:
    """When 2.0 joins a block that holds 1.0, the scale doubles and the old integer, 127, becomes 64.

    The old integer counts steps. When the steps grow and the count stays, 1.0 is read as 2.0.
    """
    expect(solution.append([[[127]]], [1 / 127], [[[2.0]]]), ([[[64]], [[127]]], [2 / 127]))
    expect(solution.append([[[127]], [[-64]]], [1 / 127], [[[-4.0]]]), ([[[32]], [[-16]], [[-127]]], [4 / 127]))


def one_head_grows_without_the_others(solution: Any) -> None:
    """When only the second of two heads gets louder, the first head's scale and integers stay as they are.

    Heads share a block and nothing else.
    """
    block, scales = _append(solution, [[[127], [127]]], [1.0, 0.5], [[[3.0], [127.0]]])
    expect(block, [[[127], [64]], [[3], [127]]], what="the block")
    expect(scales, [1.0, 1.0], what="the scales")


def an_empty_block_forgets_its_last_owner(solution: Any) -> None:
    """Where `old` is empty, the scale is that of the new tokens alone, whatever `scales` says.

    Freed blocks are handed out as they are. A loud last owner would cost the next one its precision.
    """
    expect(solution.append([], [9.0], [[[1.0, 0.25]]]), ([[[127, 32]]], [1 / 127]))


def a_silent_block_can_wake(solution: Any) -> None:
    """A block of zeros has the scale 0, and takes a token of 1.0 like any other.

    0 divided by 0 must not happen on either side of the growth.
    """
    expect(solution.append([], None, [[[0.0, 0.0]]]), ([[[0, 0]]], [0.0]))
    expect(solution.append([[[0, 0]]], [0.0], [[[0.0, 0.0]]]), ([[[0, 0]], [[0, 0]]], [0.0]))
    expect(solution.append([[[0, 0]]], [0.0], [[[1.0, 0.0]]]), ([[[0, 0]], [[127, 0]]], [1 / 127]))


def tokens_that_come_together_are_quantised_once(solution: Any) -> None:
    """Of 16 rising tokens that come in one call, each is off by at most half a step.

    Appended one by one, the first would be requantised 15 times, and each time may cost half a step.
    """
    block, scales = _append(solution, [], None, [[[number]] for number in RISING])
    _expect_bound([[[number]] for number in RISING], block, scales, growths=[0])


def errors_stay_within_the_bound(solution: Any) -> None:
    """In any history, a number is off by at most half a step times (growths + 1) of its block and head.

    Each growth rounds once more, by at most half a step of the new and larger size. More than that is a mistake.
    """
    for seed in range(6):
        rng = random.Random(seed)
        solution.start_over_()
        block, scales, written, growths = [], None, [], [0, 0]
        for _ in range(rng.randint(3, 6)):
            loud = 2.0 ** rng.randint(-2, 3)
            new = [[[rng.uniform(-loud, loud) for _ in range(3)] for _ in range(2)] for _ in range(rng.randint(1, 3))]
            before = scales
            block, scales = _append(solution, block, scales, new)
            growths = [
                count + (before is not None and now > was)
                for count, was, now in zip(growths, before or (0, 0), scales, strict=True)
            ]
            written += new
            _expect_bound(written, block, scales, growths)


def writes_to_the_slot(solution: Any) -> None:
    """With blocks of 2, slot 2 is the first of block 1: the integers go there, and the scale to block 1.

    Slots are what they were for floats. A block has a second thing to keep now, its scales.
    """
    cache = solution.Int8Cache(3, 2, as_="cache")
    solution.write_kv([[[1.0]]], [[[-1.0]]], cache, [2])
    expect(cache.keys, [[EMPTY, EMPTY], [[[127]], EMPTY], [EMPTY, EMPTY]])
    expect(cache.values, [[EMPTY, EMPTY], [[[-127]], EMPTY], [EMPTY, EMPTY]])
    expect(cache.key_scales, [EMPTY, [1 / 127], EMPTY])


def keys_and_values_have_their_own_scales(solution: Any) -> None:
    """A key of 1.0 and a value of 10.0 are both 127, with the scales 1/127 and 10/127.

    Keys are often many times louder than values, or the other way round.
    """
    cache = solution.Int8Cache(1, 2, as_="cache")
    solution.write_kv([[[1.0]]], [[[10.0]]], cache, [0])
    expect(cache.key_scales, [[1 / 127]])
    expect(cache.value_scales, [[10 / 127]])
    expect(cache.values, [[[[127]], EMPTY]])


def a_decode_appends_to_what_is_there(solution: Any) -> None:
    """A token in slot 1 is appended to the token in slot 0, which is requantised where need be.

    One token a step: this is how a block fills while a sequence decodes.
    """
    cache = solution.Int8Cache(1, 2, as_="cache")
    solution.write_kv([[[1.0]]], [[[1.0]]], cache, [0])
    solution.write_kv([[[2.0]]], [[[0.25]]], cache, [1])
    expect(cache.keys, [[[[64]], [[127]]]])
    expect(cache.key_scales, [[2 / 127]])
    expect(cache.values, [[[[127]], [[32]]]])
    expect(cache.value_scales, [[1 / 127]])


def padding_writes_nothing(solution: Any) -> None:
    """A row with a negative slot leaves every slot and every scale as it was.

    A batch of a fixed size has rows without a token. In Python, block -1 is the last one.
    """
    cache = solution.Int8Cache(2, 2, as_="cache")
    solution.write_kv([[[9.0]], [[1.0]], [[8.0]]], [[[9.0]], [[1.0]], [[8.0]]], cache, [-1, 0, -2])
    expect(cache.keys, [[[[127]], EMPTY], [EMPTY, EMPTY]])
    expect(cache.key_scales, [[1 / 127], EMPTY])
    expect(cache.value_scales, [[1 / 127], EMPTY])


def each_block_takes_its_own_rows(solution: Any) -> None:
    """Rows for blocks 1, 0, 1 in one write: each block's scale comes from its own rows, and they are appended at once.

    A chunk crosses blocks, and a batch mixes sequences.
    """
    cache = solution.Int8Cache(2, 2, as_="cache")
    rows = [[[1.0]], [[100.0]], [[4.0]]]
    solution.write_kv(rows, rows, cache, [2, 0, 3])
    expect(cache.keys, [[[[127]], EMPTY], [[[32]], [[127]]]])
    expect(cache.key_scales, [[100 / 127], [4 / 127]])
    expect(cache.value_scales, [[100 / 127], [4 / 127]])


def a_chunk_is_appended_at_once(solution: Any) -> None:
    """Of 16 rising tokens that one write puts into one block, each is off by at most half a step.

    The scale is known before anything is rounded. Token by token, the first one would be rounded 16 times.
    """
    cache = solution.Int8Cache(1, 16, as_="cache")
    rows = [[[number]] for number in RISING]
    solution.write_kv(rows, rows, cache, list(range(16)))
    expect(cache.key_scales, [[max(RISING) / 127]])
    integers = cache.keys
    expect(_shape(integers, int), [[[["number"]]] * 16], what="the keys of block 0")
    _expect_bound(rows, integers[0], [max(RISING) / 127], growths=[0])


def a_block_starts_anew_at_its_first_slot(solution: Any) -> None:
    """A write to a block's first slot forgets the last owner's scale, and what lies behind is not looked at.

    The last owner's tokens are still there. Counted or requantised, they would spoil the scale of somebody else.
    """
    cache = solution.Int8Cache(1, 4, as_="cache")
    loud = [[[50.0]], [[60.0]], [[70.0]], [[80.0]]]
    solution.write_kv(loud, loud, cache, [0, 1, 2, 3])
    solution.write_kv([[[1.0]]], [[[0.5]]], cache, [0])
    expect(cache.key_scales, [[1 / 127]])
    solution.write_kv([[[2.0]]], [[[0.25]]], cache, [1])
    expect(cache.key_scales, [[2 / 127]])
    expect(cache.keys[0][:2], [[[64]], [[127]]], what="the keys in slots 0 and 1")
    expect(cache.value_scales, [[0.5 / 127]])


def random_histories_end_alike(solution: Any) -> None:
    """Sequences that come, grow and go, in chunks and single tokens, leave the reference's integers and scales.

    Real traffic is one long random history.
    """
    for seed in range(3):
        rng = random.Random(seed)
        solution.start_over_()
        cache, model = solution.Int8Cache(4, 4, as_="cache"), Int8Cache(4, 4)
        lengths = [0] * 4  # of the tokens in each block
        for _ in range(6):
            slots = []
            for block in rng.sample(range(4), rng.randint(1, 4)):
                first = lengths[block] if lengths[block] < 4 and rng.random() < 0.8 else 0
                lengths[block] = rng.randint(first + 1, 4)
                slots += [4 * block + offset for offset in range(first, lengths[block])]
            slots.insert(rng.randint(0, len(slots)), -1)
            keys, values = ([[_loud(rng), _loud(rng)] for _ in slots] for _ in range(2))
            solution.write_kv(keys, values, cache, slots)
            write_kv(keys, values, model, slots)
        expect(cache.key_scales, model.key_scales, within=1e-9)
        expect(cache.value_scales, model.value_scales, within=1e-9)
        for block, length in enumerate(lengths):
            expect(cache.keys[block][:length], model.keys[block][:length], what=f"the keys of block {block}")
            expect(cache.values[block][:length], model.values[block][:length], what=f"the values of block {block}")


def _loud(rng: random.Random) -> list[float]:
    return [rng.gauss(0, 1) * 10 ** rng.uniform(-1, 1) for _ in range(2)]


def _append(solution: Any, old: Any, scales: Any, new: Any) -> Any:
    """Return what `append` gives: a block and its scales, once they are known to be of the right shape."""
    answer = solution.append(old, scales, new)
    expect_true(
        isinstance(answer, list | tuple) and len(answer) == 2,
        f"append gave {answer!r}",
        expected="a pair: the block's tokens, and its scales",
    )
    expect(_shape(answer[0], int), _shape([*old, *new], int, float), what="the block's tokens, heads and integers")
    expect(_shape(answer[1], int, float), ["number"] * len(new[0]), what="the scales")
    return answer


def _shape(nested: Any, *numbers: type) -> Any:
    """Return nested lists with "number" in each number's place, and what is neither as it is."""
    if isinstance(nested, list | tuple):
        return [_shape(each, *numbers) for each in nested]
    return "number" if isinstance(nested, numbers) else nested


def _expect_bound(written: Any, block: Any, scales: Any, growths: list[int]) -> None:
    """Hold every number of a block to half a step times (growths + 1)."""
    for slot, (token, numbers) in enumerate(zip(block, written, strict=True)):
        for head, (steps, vector) in enumerate(zip(token, numbers, strict=True)):
            for step, number in zip(steps, vector, strict=True):
                error = abs(step * scales[head] - number)
                bound = (growths[head] + 1) / 2 * scales[head]
                expect_true(
                    error <= bound * (1 + 1e-9),
                    f"token {slot}, head {head}: {number:.4f} is read back as {step * scales[head]:.4f}, "
                    f"off by {error:.4f}; the scale is {scales[head]:.4f}, after {growths[head]} growths",
                    expected=f"an error of at most {bound:.4f}",
                )
