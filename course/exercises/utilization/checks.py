"""What `utilization` promises."""

import random
from typing import Any

from course.judge.expect import expect, expect_error


def one_request_reserves_the_maximum(solution: Any) -> None:
    """One request of 1 token with 4 reserved uses a quarter.

    Whoever reserves must expect the longest answer, and pays for it whatever comes.
    """
    expect(solution.reserved_utilization([1], 4), 0.25)
    expect(solution.reserved_utilization([4], 4), 1.0)


def many_requests_reserve_the_maximum_each(solution: Any) -> None:
    """Requests of 1, 2 and 3 tokens with 4 reserved each use 6 of 12.

    Each request reserves for itself; nobody can use what another left.
    """
    expect(solution.reserved_utilization([1, 2, 3], 4), 0.5)


def a_partly_filled_block_counts_whole(solution: Any) -> None:
    """One token in a block of 4 uses a quarter of it.

    The rest of a last block is the only waste that paging leaves: internal fragmentation.
    """
    expect(solution.paged_utilization([1], 4), 0.25)
    expect(solution.paged_utilization([3], 4), 0.75)


def a_full_block_needs_no_second(solution: Any) -> None:
    """4 tokens fill a block of 4; 5 tokens take two blocks.

    A block too many at every exact fit is waste that nobody asked for.
    """
    expect(solution.paged_utilization([4], 4), 1.0)
    expect(solution.paged_utilization([5], 4), 5 / 8)
    expect(solution.paged_utilization([8], 4), 1.0)


def the_share_is_over_all_requests(solution: Any) -> None:
    """Requests of 1 and 8 tokens in blocks of 4 use 9 of 12, whichever comes first.

    The mean of the two requests' own shares would be another number: long requests weigh more.
    """
    expect(solution.paged_utilization([1, 8], 4), 0.75)
    expect(solution.paged_utilization([8, 1], 4), 0.75)


def blocks_of_one_token_waste_nothing(solution: Any) -> None:
    """With blocks of one token every request is an exact fit.

    Why not always, then? Chapter 2 and the kernel of chapter 5 have the answer: tables and memory access.
    """
    expect(solution.paged_utilization([1, 2, 37], 1), 1.0)


def a_request_fits_exactly_or_is_refused(solution: Any) -> None:
    """A request longer than what is reserved is a `ValueError` that names its length; one just as long is not.

    More than 100 % used would be a sign that somebody writes past the end.
    """
    expect(solution.reserved_utilization([7, 7], 7), 1.0)
    expect_error(ValueError, solution.reserved_utilization, [3, 8, 2], 7, names=8)


def no_request_has_no_share(solution: Any) -> None:
    """An empty list is a `ValueError` in both functions.

    Nothing divided by nothing is not 0 % and not 100 %.
    """
    expect_error(ValueError, solution.reserved_utilization, [], 4096)
    expect_error(ValueError, solution.paged_utilization, [], 16)


def matches_the_chapter(solution: Any) -> None:
    """The chapter's 200 requests use 46.2 % when 4,096 tokens are reserved, and 100.0, 99.6, 98.3 and 93.2 % paged.

    These are the figures that the chapter's picture shows.
    """
    rng = random.Random(0)
    lengths = [rng.randint(100, 2000) + rng.randint(20, 1500) for _ in range(200)]
    expect(round(100 * solution.reserved_utilization(lengths, 4096), 1), 46.2, what="the reserved share, in %")
    for block_size, percent in ((1, 100.0), (16, 99.6), (64, 98.3), (256, 93.2)):
        share = solution.paged_utilization(lengths, block_size)
        expect(round(100 * share, 1), percent, what=f"the share paged by {block_size}, in %")
