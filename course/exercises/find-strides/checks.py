"""What the mended `paged_attention` promises."""

from typing import Any

from course.judge.paged import expect_attention, make_case, run


def the_parity_run_agrees(solution: Any) -> None:
    """Contexts of 1 token and of 11, with 4 heads, give what the reference gives, in every head.

    These are the two runs of the report.
    """
    for context_len in (1, 11):
        case = make_case([context_len], [1], num_heads=4, num_kv_heads=4)
        expect_attention(case, run(solution, case, used_before=True))
        solution.start_over_()


def only_the_context_is_read(solution: Any) -> None:
    """Contexts of 15, 16 and 17 tokens are right where nobody has written the slots beyond them.

    A wrong address often hits something that looks right. Memory that nobody has written does not.
    """
    case = make_case([15, 16, 17], [1, 1, 1], num_kv_heads=2)
    expect_attention(case, run(solution, case))


def query_heads_share_a_kv_head(solution: Any) -> None:
    """6 query heads over 2 KV heads of 48 numbers are right.

    Where a number of heads and a size of a head differ from every power of two, few mistakes stay hidden.
    """
    case = make_case([9, 4], [1, 1], num_heads=6, head_dim=48)
    expect_attention(case, run(solution, case))


def the_cache_may_have_any_layout(solution: Any) -> None:
    """A cache that keeps a head's tokens together, `[block][head][slot]`, gives the same.

    The next change of the layout is sure to come. Whoever asks the tensor for its strides need not hear of it.
    """
    case = make_case([11], [1], num_heads=4, num_kv_heads=4)
    expect_attention(case, run(solution, case, heads_first=True))
