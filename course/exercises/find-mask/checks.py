"""What the mended `paged_attention` promises."""

from typing import Any

from course.judge.paged import expect_attention, make_case, plain_case, run


def the_parity_run_agrees(solution: Any) -> None:
    """The four runs of the report, with 2 heads, give what the reference gives.

    A prompt of 5 tokens, the last 2 of 7, a decode after 10 tokens, and one after none.
    """
    for context_len, query_len in ((5, 5), (7, 2), (11, 1), (1, 1)):
        case = make_case([context_len], [query_len])
        expect_attention(case, run(solution, case))
        solution.start_over_()


def a_chunk_is_causal(solution: Any) -> None:
    """The last 3 of 9 tokens see 7, 8 and 9 keys: values 1 to 9 give 4, 4.5 and 5.

    A mask that is left out would let the first of them see the other two.
    """
    case = plain_case([[float(number) for number in range(1, 10)]], [3])
    expect_attention(case, run(solution, case))


def second_tiles_are_masked_too(solution: Any) -> None:
    """A prompt of 20 tokens, and the last 18 of 37, are right in every row.

    A sequence's second tile of queries does not start at its first new token.
    """
    case = make_case([20, 37], [20, 18], num_heads=1, num_kv_heads=1)
    expect_attention(case, run(solution, case))


def a_mixed_batch_is_right(solution: Any) -> None:
    """A decode, a prefill and the end of a chunk in one launch, 6 query heads over 2 KV heads.

    Each sequence has its own context and its own number of new tokens.
    """
    case = make_case([13, 4, 10], [1, 4, 3], num_heads=6)
    expect_attention(case, run(solution, case))
