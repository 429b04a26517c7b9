"""What `look-ahead` promises."""

from typing import Any

from course.judge.expect import expect, expect_true


def admits_in_order_of_arrival(solution: Any) -> None:
    """Requests that fit are admitted from the front of the queue, all in one step.

    First come, first served, as long as there is room for everybody.
    """
    pool, scheduler = _scheduler(solution, 8)
    a, b, c = (_add(solution, pool, scheduler, name, 5) for name in "abc")
    expect(scheduler.schedule().batch, [(a, 5, 5, True), (b, 5, 5, True), (c, 5, 5, True)])
    expect(scheduler.running, [a, b, c])
    expect(scheduler.waiting, [])
    expect(pool.num_free, 2)


def counts_whole_blocks(solution: Any) -> None:
    """Of three prompts of 5 tokens, two are admitted to 4 blocks of 4.

    15 tokens would fit into 16 slots. They do not fit into 4 blocks: each takes two.
    """
    pool, scheduler = _scheduler(solution, 4)
    a, b, c = (_add(solution, pool, scheduler, name, 5) for name in "abc")
    expect(scheduler.schedule().batch, [(a, 5, 5, True), (b, 5, 5, True)])
    expect(scheduler.waiting, [c])
    expect(pool.num_free, 0)


def counts_blocks_of_any_size(solution: Any) -> None:
    """With two free blocks of 2 tokens a prompt of 5 waits; with one free block of 8 it is admitted.

    How large a block is, the table knows.
    """
    pool, scheduler = _scheduler(solution, 3)
    a = _add(solution, pool, scheduler, "a", 2, 2, block_size=2)
    b = _add(solution, pool, scheduler, "b", 5, 1, block_size=2)
    expect(scheduler.schedule().batch, [(a, 2, 2, True)])
    expect(scheduler.waiting, [b])
    solution.start_over_()
    pool, scheduler = _scheduler(solution, 2)
    a = _add(solution, pool, scheduler, "a", 2, 2, block_size=8)
    b = _add(solution, pool, scheduler, "b", 5, 1, block_size=8)
    expect(scheduler.schedule().batch, [(a, 2, 2, True), (b, 5, 5, True)])


def admits_what_fits_exactly(solution: Any) -> None:
    """A request that needs all the free blocks is admitted.

    A block that is kept back is a block nobody uses.
    """
    pool, scheduler = _scheduler(solution, 2)
    a = _add(solution, pool, scheduler, "a", 8, 1)
    expect(scheduler.schedule().batch, [(a, 8, 8, True)])


def needs_room_for_the_whole_prompt(solution: Any) -> None:
    """A prompt whose first chunk fits and whose rest does not is not admitted.

    It would hold its blocks and wait in the middle of its prompt, while others could have used them.
    """
    pool, scheduler = _scheduler(solution, 3, max_step_tokens=5)
    a = _add(solution, pool, scheduler, "a", 2)
    long = _add(solution, pool, scheduler, "long", 12, 1)
    expect(scheduler.schedule().batch, [(a, 2, 2, True)])
    expect(scheduler.waiting, [long])
    expect(scheduler.running, [a])
    expect(pool.num_free, 2)


def stops_at_the_budget(solution: Any) -> None:
    """When the budget is used up, the next request waits and takes no block.

    With a budget of 8, two prompts of 8 take two steps. Blocks taken a step early are blocks nobody writes to.
    """
    pool, scheduler = _scheduler(solution, 6, max_step_tokens=8)
    a, b = _add(solution, pool, scheduler, "a", 8, 2), _add(solution, pool, scheduler, "b", 8, 2)
    expect(scheduler.schedule().batch, [(a, 8, 8, True)])
    expect(pool.num_free, 4)
    expect(scheduler.waiting, [b])
    expect(scheduler.running, [a])


def a_long_prompt_starts_with_a_chunk(solution: Any) -> None:
    """A prompt that is longer than what is left of the budget is admitted with a first chunk.

    The rest follows in later steps. What is left of a budget is not wasted.
    """
    pool, scheduler = _scheduler(solution, 8, max_step_tokens=8)
    a, b = _add(solution, pool, scheduler, "a", 5), _add(solution, pool, scheduler, "b", 9)
    expect(scheduler.schedule().batch, [(a, 5, 5, True), (b, 3, 3, False)])
    expect(scheduler.running, [a, b])
    expect(scheduler.waiting, [])


def counts_those_that_run_already(solution: Any) -> None:
    """With `max_running` of 2 and two sequences running, nobody is admitted, whatever is free.

    The limit is there for whatever has a row for each sequence. Those that came in earlier have one too.
    """
    pool, scheduler = _scheduler(solution, 8, max_running=2)
    a, b, c = (_add(solution, pool, scheduler, name, 3) for name in "abc")
    _expect_step(scheduler, [(a, 3, 3, True), (b, 3, 3, True)])
    expect(scheduler.waiting, [c])
    _expect_step(scheduler, [(a, 1, 4, True), (b, 1, 4, True)])
    expect(scheduler.waiting, [c])


def looks_past_what_does_not_fit(solution: Any) -> None:
    """A small request is admitted past a big one that does not fit; the big one stays at the front.

    Two free blocks that help the big one nothing are of use to the small one now.
    """
    pool, scheduler = _scheduler(solution, 4)
    first = _add(solution, pool, scheduler, "first", 8)
    big = _add(solution, pool, scheduler, "big", 12)
    small = _add(solution, pool, scheduler, "small", 3)
    last = _add(solution, pool, scheduler, "last", 12)
    expect(scheduler.schedule().batch, [(first, 8, 8, True), (small, 3, 3, True)])
    expect(scheduler.running, [first, small])
    expect(scheduler.waiting, [big, last])
    expect(big.num_skips, 1)
    expect(last.num_skips, 0)


def looks_as_far_as_the_window(solution: Any) -> None:
    """With a window of 2 the second behind the oldest is admitted; the third is not looked at.

    Without a bound, one step could read the whole queue, and the oldest request could be passed from far behind.
    """
    pool, scheduler = _scheduler(solution, 3, look_ahead=2)
    _running(solution, pool, scheduler, 4)
    big, other = _add(solution, pool, scheduler, "big", 12, 1), _add(solution, pool, scheduler, "other", 12, 1)
    small, third = _add(solution, pool, scheduler, "small", 1), _add(solution, pool, scheduler, "third", 1)
    scheduler.schedule()
    expect(scheduler.waiting, [big, other, third])
    solution.start_over_()
    pool, scheduler = _scheduler(solution, 3, look_ahead=2)
    _running(solution, pool, scheduler, 4)
    waiting = [_add(solution, pool, scheduler, name, 12, 1) for name in ("big", "other", "third")]
    small = _add(solution, pool, scheduler, "small", 1)
    scheduler.schedule()
    expect(scheduler.waiting, [*waiting, small])


def the_window_counts_those_admitted(solution: Any) -> None:
    """The window is counted in requests looked at, admitted ones too: with a window of 2, two pass in a step.

    It says how far a step looks, not how many it finds.
    """
    pool, scheduler = _scheduler(solution, 5, look_ahead=2)
    _running(solution, pool, scheduler, 4)
    big = _add(solution, pool, scheduler, "big", 20, 1)
    s, t, u = (_add(solution, pool, scheduler, name, 1) for name in "stu")
    scheduler.schedule()
    expect(scheduler.waiting, [big, u])
    expect(scheduler.running[-2:], [s, t], what="the two newest that run")


def looks_five_behind_by_default(solution: Any) -> None:
    """The default window is 5: the fifth behind the oldest is admitted, and a sixth is not.

    Wide enough to find a small request, narrow enough to stay roughly first come, first served.
    """
    pool, scheduler = _scheduler(solution, 3)
    _running(solution, pool, scheduler, 4)
    waiting = [_add(solution, pool, scheduler, f"big{number}", 12, 1) for number in range(5)]
    _add(solution, pool, scheduler, "small", 1)
    sixth = _add(solution, pool, scheduler, "sixth", 1)
    scheduler.schedule()
    expect(scheduler.waiting, [*waiting, sixth])


def three_pass_and_then_nobody(solution: Any) -> None:
    """Three may pass the oldest one, in one step or over several; then nobody does, until it is admitted.

    Blocks that come free then add up for it, instead of going to the next small one.
    """
    pool, scheduler = _scheduler(solution, 6)
    _running(solution, pool, scheduler, 4, 4)
    big = _add(solution, pool, scheduler, "big", 21, 1)
    small = [_add(solution, pool, scheduler, f"s{number}", 1, 1) for number in range(5)]
    _step(scheduler)
    expect(scheduler.waiting, [big, *small[3:]])
    expect(big.num_skips, 3)
    _step(scheduler)
    expect(scheduler.waiting, [big, *small[3:]])
    _step(scheduler)
    step = scheduler.schedule()
    batch = step.batch
    expect_true(batch[:1] == [(big, 21, 21, True)], f"all blocks are free for `big`, and the step was {batch!r}")


def counts_skips_over_several_steps(solution: Any) -> None:
    """The count goes on from step to step: two pass in one step, one in the next, and then nobody.

    A count that starts anew with each step is no limit at all.
    """
    pool, scheduler = _scheduler(solution, 8)
    _running(solution, pool, scheduler, 4)
    big = _add(solution, pool, scheduler, "big", 32, 1)
    _add(solution, pool, scheduler, "s", 1)
    _add(solution, pool, scheduler, "t", 1)
    _step(scheduler)
    expect(big.num_skips, 2)
    _add(solution, pool, scheduler, "u", 1)
    v = _add(solution, pool, scheduler, "v", 1)
    _step(scheduler)
    expect(big.num_skips, 3)
    expect(scheduler.waiting, [big, v])
    _step(scheduler)
    expect(scheduler.waiting, [big, v])


def only_the_oldest_counts(solution: Any) -> None:
    """Those that wait behind the oldest count nothing: when one of them becomes the oldest, three may pass it in turn.

    It was not held up by those that passed. It was held up by the oldest.
    """
    pool, scheduler = _scheduler(solution, 5, skip_limit=2)
    running = _running(solution, pool, scheduler, 4, 2)
    big = _add(solution, pool, scheduler, "big", 13, 3)
    next_big = _add(solution, pool, scheduler, "next_big", 17, 1)
    s, t, u = (_add(solution, pool, scheduler, name, 1, 1) for name in "stu")
    _expect_step(scheduler, [(running, 1, 5, True), (s, 1, 1, True), (t, 1, 1, True)])
    expect(scheduler.waiting, [big, next_big, u])
    _expect_step(scheduler, [(big, 13, 13, True), (u, 1, 1, True)])
    v = _add(solution, pool, scheduler, "v", 1, 1)
    _expect_step(scheduler, [(big, 1, 14, True), (v, 1, 1, True)])
    expect(next_big.num_skips, 2)


def an_admitted_one_starts_again(solution: Any) -> None:
    """A request that was passed and then admitted has a count of 0: when it is preempted, others may pass it again.

    Otherwise a preempted request puts the scheduler into its strictest mode at once.
    """
    pool, scheduler = _scheduler(solution, 4, skip_limit=1)
    old = _add(solution, pool, scheduler, "old", 2, 8)
    _add(solution, pool, scheduler, "brief", 4, 1)
    big = _add(solution, pool, scheduler, "big", 9)
    _add(solution, pool, scheduler, "s", 1, 1)
    _step(scheduler)
    expect(scheduler.waiting, [big])
    _expect_step(scheduler, [(old, 1, 3, True), (big, 9, 9, True)])
    expect(big.num_skips, 0)
    _expect_step(scheduler, [(old, 1, 4, True), (big, 1, 10, True)])
    _expect_step(scheduler, [(old, 1, 5, True)])
    expect(scheduler.waiting, [big])
    t = _add(solution, pool, scheduler, "t", 1, 1)
    expect(scheduler.schedule().batch, [(old, 1, 6, True), (t, 1, 1, True)])
    expect(scheduler.waiting, [big])


def waits_for_tokens_that_were_not_read(solution: Any) -> None:
    """A preempted sequence with a token that was not read is not admitted until it was; others may pass it.

    It has to be computed from all its tokens, and one of them is not known yet.
    """
    pool, scheduler = _scheduler(solution, 3)
    unread = _add(solution, pool, scheduler, "unread", 4, num_unread=1)
    a = _add(solution, pool, scheduler, "a", 3)
    _expect_step(scheduler, [(a, 3, 3, True)])
    expect(scheduler.waiting, [unread])
    unread.take(9)
    expect(scheduler.schedule().batch, [(a, 1, 4, True), (unread, 5, 5, True)])


def the_big_one_does_not_starve(solution: Any) -> None:
    """With a small request arriving in every step, a big one that needs the whole pool starts within six steps.

    Without a limit there is always a small one that fits, and the big one waits for a quiet hour that never comes.
    """
    pool, scheduler = _scheduler(solution, 3)
    for number in range(2):
        _add(solution, pool, scheduler, f"s{number}", 1, 2)
    _step(scheduler)
    big = _add(solution, pool, scheduler, "big", 12, 1)
    for number in range(2, 8):
        _add(solution, pool, scheduler, f"s{number}", 1, 2)
        if any(part[0] is big for part in _step(scheduler)):
            return
    expect_true(False, "six steps, and `big` still waits", expected="big in one of six steps")


def _scheduler(solution: Any, num_blocks: int, **options: Any) -> tuple[Any, Any]:
    pool = solution.BlockPool(num_blocks)
    return pool, solution.Scheduler(pool, **options)


def _add(
    solution: Any,
    pool: Any,
    scheduler: Any,
    name: str,
    num_prompt: int,
    max_new_tokens: int = 4,
    *,
    block_size: int = 4,
    **fields: Any,
) -> Any:
    """Queue a request and return its sequence; its tokens are 1, 2, …"""
    table = solution.BlockTable(pool, block_size, as_=f"table_{name}")
    tokens = list(range(1, num_prompt + 1))
    sequence = solution.Sequence(table, tokens, num_prompt, max_new_tokens, **fields, as_=name)
    scheduler.add(sequence)
    return sequence


def _running(solution: Any, pool: Any, scheduler: Any, num_prompt: int, max_new_tokens: int = 4) -> Any:
    """Have one sequence running before anything else happens."""
    sequence = _add(solution, pool, scheduler, "running", num_prompt, max_new_tokens)
    _step(scheduler)
    return sequence


def _expect_step(scheduler: Any, batch: list[tuple[Any, int, int, bool]]) -> None:
    """Plan a step, fail unless this is its batch, and let each sequence that samples take a token."""
    expect(scheduler.schedule().batch, batch)
    _take(batch)


def _step(scheduler: Any) -> list[tuple[Any, int, int, bool]]:
    """Plan a step, let each sequence that samples take a token, and return the batch."""
    batch: list[tuple[Any, int, int, bool]] = scheduler.schedule().batch
    _take(batch)
    return batch


def _take(batch: list[tuple[Any, int, int, bool]]) -> None:
    for sequence, _, _, samples in batch:
        if samples:
            sequence.take(7)
