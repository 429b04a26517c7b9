"""What `sequence-phase` promises."""

import itertools
from typing import Any

from course.judge.expect import expect


def counts_the_prompt(solution: Any) -> None:
    """A new sequence with a prompt of 3 tokens has 3 tokens, none computed, 3 to compute.

    The scheduler asks for these numbers to decide how much of a prompt a step takes.
    """
    sequence = _sequence(solution, num_tokens=3, num_prompt=3)
    expect(sequence.num_tokens, 3)
    expect(sequence.num_computed, 0)
    expect(sequence.num_uncomputed, 3)


def counts_what_the_table_holds(solution: Any) -> None:
    """When its table holds 2 of 3 tokens, 2 are computed and 1 is to be computed.

    The table is the one place that knows. A second count would have to be kept in step with it.
    """
    sequence = _sequence(solution, num_tokens=3, num_prompt=3, num_computed=2)
    expect(sequence.num_tokens, 3)
    expect(sequence.num_computed, 2)
    expect(sequence.num_uncomputed, 1)


def counts_tokens_that_were_not_read(solution: Any) -> None:
    """A token that was sampled and not read yet is part of the length, and is to be computed.

    An engine that plans a step before it has read the last one's tokens knows where they go, if not what they are.
    """
    sequence = _sequence(solution, num_tokens=3, num_prompt=3, num_computed=3, num_unread=1)
    expect(sequence.num_tokens, 4)
    expect(sequence.num_uncomputed, 1)


def tells_a_decode_from_a_prefill(solution: Any) -> None:
    """A sequence decodes when one token is left to compute and the cache holds the others.

    Decodes go first in a step. Two tokens left are the rest of a prompt.
    """
    for num_computed, num_unread, decodes in ((3, 0, False), (2, 0, True), (1, 0, False), (3, 1, True), (2, 1, False)):
        solution.start_over_()
        sequence = _sequence(solution, num_tokens=3, num_prompt=3, num_computed=num_computed, num_unread=num_unread)
        expect(sequence.is_decoding, decodes)


def a_prompt_of_one_token_is_a_prefill(solution: Any) -> None:
    """A prompt of one token is not a decode before it is computed.

    Its cache is empty. It has to be admitted first, like any other prompt.
    """
    sequence = _sequence(solution, num_tokens=1, num_prompt=1)
    expect(sequence.num_uncomputed, 1)
    expect(sequence.is_decoding, False)
    solution.start_over_()
    expect(_sequence(solution, num_tokens=2, num_prompt=1, num_computed=1).is_decoding, True)


def takes_a_token(solution: Any) -> None:
    """`take(9)` puts 9 behind the tokens, and one token fewer is unread.

    It was counted when it was sampled. Counted twice, each length and position after it is off by one.
    """
    sequence = _sequence(solution, num_tokens=3, num_prompt=3, num_computed=3, num_unread=1)
    sequence.take(9)
    expect(sequence.tokens, [1, 2, 3, 9])
    expect(sequence.num_unread, 0)
    expect(sequence.num_tokens, 4)
    expect(sequence.num_uncomputed, 1)


def takes_the_end(solution: Any) -> None:
    """`take(None)` ends the sequence and adds no token, even if it is the first that was sampled.

    The end-of-sequence token is no part of the answer, and nothing may be sampled after it.
    """
    sequence = _sequence(solution, num_tokens=3, num_prompt=3, num_computed=3, num_unread=1)
    expect(sequence.is_finished, False)
    sequence.take(None)
    expect(sequence.tokens, [1, 2, 3])
    expect(sequence.num_unread, 0)
    expect(sequence.ended, True)
    expect(sequence.is_complete, True)
    expect(sequence.is_finished, True)


def token_zero_is_a_token(solution: Any) -> None:
    """`take(0)` adds token 0.

    0 is a number in every vocabulary; only `None` stands for the end.
    """
    sequence = _sequence(solution, num_tokens=1, num_prompt=1, num_computed=1, num_unread=1)
    sequence.take(0)
    expect(sequence.tokens, [1, 0])
    expect(sequence.is_complete, False)


def is_complete_with_its_last_token(solution: Any) -> None:
    """With `max_new_tokens` of 2 it is complete when the second new token is sampled, not before and not after.

    One step too many computes a token that nobody asked for, in a slot that nobody set aside.
    """
    sequence = _sequence(solution, num_tokens=4, num_prompt=3, num_computed=3, max_new_tokens=2)
    expect(sequence.is_complete, False)
    solution.start_over_()
    sequence = _sequence(solution, num_tokens=5, num_prompt=3, num_computed=4, max_new_tokens=2)
    expect(sequence.is_complete, True)
    expect(sequence.is_finished, True)


def waits_for_unread_tokens(solution: Any) -> None:
    """A sequence whose last token is not read yet is complete, and is not finished.

    No step is planned for it any more, and its blocks stay until the host has seen everything.
    """
    sequence = _sequence(solution, num_tokens=4, num_prompt=3, num_computed=4, num_unread=1, max_new_tokens=2)
    expect(sequence.is_complete, True)
    expect(sequence.is_finished, False)
    sequence.take(8)
    expect(sequence.is_finished, True)


def starts_again_when_its_blocks_are_gone(solution: Any) -> None:
    """When its table is freed, all its tokens are to be computed again, those that it generated too.

    That is all that preemption needs: what is derived from the table cannot be forgotten.
    """
    sequence = _sequence(solution, num_tokens=5, num_prompt=3, num_computed=4, max_new_tokens=9)
    expect(sequence.is_decoding, True)
    sequence.table.free()
    expect(sequence.num_tokens, 5)
    expect(sequence.num_computed, 0)
    expect(sequence.num_uncomputed, 5)
    expect(sequence.is_decoding, False)


def every_combination_agrees(solution: Any) -> None:
    """For every mix of computed, unread and ended, the six properties fit together.

    Each asks its own question of the same counts. Whether the next token is a decode is not whether one is wanted.
    """
    for num_computed, num_unread, ended in itertools.product((0, 1, 3, 4), (0, 1), (False, True)):
        solution.start_over_()
        sequence = _sequence(
            solution,
            num_tokens=4,
            num_prompt=2,
            num_computed=num_computed,
            num_unread=num_unread,
            max_new_tokens=3,
            ended=ended,
        )
        complete = ended or num_unread == 1
        expect(sequence.num_uncomputed, 4 + num_unread - num_computed)
        expect(sequence.is_decoding, num_computed > 0 and 4 + num_unread - num_computed == 1)
        expect(sequence.is_complete, complete)
        expect(sequence.is_finished, complete and (ended or num_unread == 0))


def _sequence(
    solution: Any,
    *,
    num_tokens: int,
    num_prompt: int,
    num_computed: int = 0,
    max_new_tokens: int = 4,
    **fields: Any,
) -> Any:
    """Return a sequence of the tokens 1, 2, … over a table in which `num_computed` have their place."""
    table = solution.BlockTable(solution.BlockPool(4), 4, as_="table")
    if num_computed:
        table.grow(num_computed)
    return solution.Sequence(table, list(range(1, num_tokens + 1)), num_prompt, max_new_tokens, **fields)
