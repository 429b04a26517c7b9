"""What `concurrency` promises."""

from typing import Any

from course.judge.expect import expect

GIB = 1 << 30


def counts_whole_requests(solution: Any) -> None:
    """10 tokens' worth of memory holds 2 requests of 4 tokens in blocks of 4, and 10 of 1 token in blocks of 1.

    Half a request cannot run.
    """
    expect(solution.max_requests(10, 1, 4, 4), 2)
    expect(solution.max_requests(10, 1, 1, 1), 10)


def bytes_per_token_shrink_the_pool(solution: Any) -> None:
    """At 5 bytes a token, 100 bytes hold 20 tokens: 5 requests of 4.

    Memory is in bytes and lengths are in tokens.
    """
    expect(solution.max_requests(100, 5, 4, 4), 5)
    expect(solution.max_requests(99, 5, 4, 4), 4)


def a_request_takes_whole_blocks(solution: Any) -> None:
    """A request of 5 tokens takes 2 blocks of 4, so 6 blocks hold 3 such requests.

    No two requests share a block, so the empty rest of a last block is lost to all others.
    """
    expect(solution.max_requests(24, 1, 5, 4), 3)
    expect(solution.max_requests(24, 1, 4, 4), 6)
    expect(solution.max_requests(24, 1, 8, 4), 3)


def too_little_memory_holds_none(solution: Any) -> None:
    """Memory that is short of one request holds 0 requests.

    A request larger than the pool can ever hold must be refused when it arrives, not be left waiting for ever.
    """
    expect(solution.max_requests(7, 1, 5, 4), 0)
    expect(solution.max_requests(3, 1, 1, 4), 0)


def matches_the_chapter(solution: Any) -> None:
    """With 55 GiB for Qwen2.5-7B's cache, 342 requests of 3,000 tokens fit paged by 16; reserving 32,768 each, 31.

    To reserve is to page with one block as long as the longest request allowed.
    """
    expect(solution.max_requests(55 * GIB, 57_344, 3_000, 16), 342)
    expect(solution.max_requests(55 * GIB, 57_344, 3_000, 32_768), 31)
