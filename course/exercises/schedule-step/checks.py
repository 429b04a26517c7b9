"""What `schedule-step` promises."""

from typing import Any

from course.judge.expect import expect, expect_error, expect_true


def queues_in_order_of_arrival(solution: Any) -> None:
    """`add` puts sequences at the end of the queue, and takes no block.

    Blocks of somebody who waits are blocks that nobody uses.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool)
    a = _request(solution, pool, "a", 5)
    b = _request(solution, pool, "b", 2)
    scheduler.add(a)
    scheduler.add(b)
    expect(scheduler.waiting, [a, b])
    expect(scheduler.running, [])
    expect(pool.num_free, 4)


def refuses_what_can_never_fit(solution: Any) -> None:
    """A request that the whole pool could not hold is a `ValueError` that names the blocks it needs; others are served.

    In the queue it would wait for ever, and hold up everybody behind it.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool)
    big = _request(solution, pool, "big", 17)
    small = _request(solution, pool, "small", 2)
    expect_error(ValueError, scheduler.add, big, names=5)
    expect(scheduler.waiting, [])
    scheduler.add(small)
    expect(scheduler.schedule().batch, [(small, 2, 2, True)])


def counts_the_new_tokens_too(solution: Any) -> None:
    """A request whose prompt fits and whose answer will not is refused as well.

    It would run until the pool is full, give way, and start again, for ever.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool)
    expect_error(ValueError, scheduler.add, _request(solution, pool, "long", 4, 14), names=5)
    expect(scheduler.waiting, [])


def accepts_what_fills_the_pool(solution: Any) -> None:
    """A prompt of 13 tokens with 4 new ones needs 16 slots, and is accepted by a pool of 4 blocks of 4.

    The fourth new token is sampled and never fed back. A scheduler that keeps a block in reserve never serves this one.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool)
    request = _request(solution, pool, "request", 13, 4)
    scheduler.add(request)
    expect(scheduler.schedule().batch, [(request, 13, 13, True)])


def accepts_while_the_pool_is_busy(solution: Any) -> None:
    """Whether a request can ever fit is a question to the empty pool: while others run, it is accepted and waits.

    A busy engine is busy with requests that will end.
    """
    pool = solution.BlockPool(2)
    scheduler = solution.Scheduler(pool)
    first, second = _request(solution, pool, "first", 8, 1), _request(solution, pool, "second", 8, 1)
    scheduler.add(first)
    expect(scheduler.schedule().batch, [(first, 8, 8, True)])
    expect(pool.num_free, 0)
    scheduler.add(second)
    expect(scheduler.waiting, [second])


def plans_an_empty_step(solution: Any) -> None:
    """With nothing to do, `schedule()` returns a step with an empty batch.

    The engine asks, sees that, and rests.
    """
    scheduler = solution.Scheduler(solution.BlockPool(4))
    expect(scheduler.has_work, False)
    step = scheduler.schedule()
    expect(step.batch, [])
    expect(step.num_tokens, 0)
    expect(scheduler.schedule().batch, [])


def admits_what_waits(solution: Any) -> None:
    """A step computes the prompts of those that wait, and they run from then on.

    Two prompts of different lengths, in one step, without padding.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool)
    a, b = _request(solution, pool, "a", 5), _request(solution, pool, "b", 3)
    scheduler.add(a)
    scheduler.add(b)
    step = scheduler.schedule()
    expect(step.batch, [(a, 5, 5, True), (b, 3, 3, True)])
    expect(step.num_tokens, 8)
    expect(scheduler.running, [a, b])
    expect(scheduler.waiting, [])
    expect(pool.num_free, 1)


def a_sampled_token_is_unread(solution: Any) -> None:
    """A sequence that samples in a step has one unread token after `schedule()`; a chunk that does not sample has none.

    The token has a position before it is known. The next step can be planned at once.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool, 8)
    a, b = _request(solution, pool, "a", 5), _request(solution, pool, "b", 7)
    scheduler.add(a)
    scheduler.add(b)
    expect(scheduler.schedule().batch, [(a, 5, 5, True), (b, 3, 3, False)])
    expect(a.num_unread, 1)
    expect(b.num_unread, 0)


def a_new_request_joins_those_that_run(solution: Any) -> None:
    """A request that arrives while another decodes is in the next step, beside it.

    That is what makes batching continuous: nobody waits for a batch to end.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool)
    a, b = _request(solution, pool, "a", 5), _request(solution, pool, "b", 3)
    scheduler.add(a)
    scheduler.schedule()
    a.take(7)
    scheduler.add(b)
    expect(scheduler.schedule().batch, [(a, 1, 6, True), (b, 3, 3, True)])
    expect(scheduler.running, [a, b])


def frees_before_it_admits(solution: Any) -> None:
    """What a finished sequence gives back serves a waiting one in the same step.

    A step later, and the memory was idle for a step, in every request's life.
    """
    pool = solution.BlockPool(2)
    scheduler = solution.Scheduler(pool)
    a, b = _request(solution, pool, "a", 8, 1), _request(solution, pool, "b", 5)
    scheduler.add(a)
    scheduler.add(b)
    expect(scheduler.schedule().batch, [(a, 8, 8, True)])
    a.take(7)
    expect(scheduler.schedule().batch, [(b, 5, 5, True)])
    expect(scheduler.running, [b])
    expect(pool.num_free, 0)


def serves_who_runs_before_who_waits(solution: Any) -> None:
    """The last free block goes to a running sequence that needs it, not to a request that waits.

    Admitted first, the new one would take the block, and be preempted for it a moment later.
    """
    pool = solution.BlockPool(2)
    scheduler = solution.Scheduler(pool)
    a, b = _request(solution, pool, "a", 4), _request(solution, pool, "b", 2)
    scheduler.add(a)
    scheduler.schedule()
    a.take(7)
    scheduler.add(b)
    step = scheduler.schedule()
    expect(step.batch, [(a, 1, 5, True)])
    expect(scheduler.waiting, [b])


def frees_neighbours(solution: Any) -> None:
    """When two neighbours have finished, both go, their blocks come back, and the third stays.

    Removing from a list while looping over it skips the next one, which then keeps its blocks.
    """
    pool = solution.BlockPool(8)
    scheduler = solution.Scheduler(pool)
    a, b, c, d = (_request(solution, pool, name, 4) for name in "abcd")
    for sequence in (a, b, c, d):
        scheduler.add(sequence)
    scheduler.schedule()
    a.take(7)
    b.take(None)
    c.take(None)
    d.take(7)
    scheduler.free_finished()
    expect(scheduler.running, [a, d])
    expect(pool.num_free, 6)


def forgets_an_aborted_request(solution: Any) -> None:
    """A request that ended while it waited leaves the queue; the others keep their places.

    Its reader has gone away. It has no block to give back.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool)
    a = _request(solution, pool, "a", 4)
    gone = _request(solution, pool, "gone", 4, ended=True)
    b = _request(solution, pool, "b", 4)
    for sequence in (a, gone, b):
        scheduler.add(sequence)
    scheduler.free_finished()
    expect(scheduler.waiting, [a, b])
    expect(pool.num_free, 4)
    expect(scheduler.schedule().batch, [(a, 4, 4, True), (b, 4, 4, True)])


def has_work_until_all_have_ended(solution: Any) -> None:
    """There is work while a sequence waits, is in the middle of its prompt, or decodes.

    An engine that stops when nothing waits and nothing decodes forgets whoever is between two chunks.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool, 4)
    request = _request(solution, pool, "request", 6, 2)
    scheduler.add(request)
    expect(scheduler.has_work, True)
    expect(scheduler.schedule().batch, [(request, 4, 4, False)])
    expect(scheduler.has_work, True)
    expect(scheduler.schedule().batch, [(request, 2, 6, True)])
    request.take(7)
    expect(scheduler.has_work, True)
    expect(scheduler.schedule().batch, [(request, 1, 7, True)])
    request.take(7)
    expect(scheduler.schedule().batch, [])
    expect(scheduler.has_work, False)
    expect(pool.num_free, 4)


def admits_nobody_when_somebody_gave_way(solution: Any) -> None:
    """In a step that preempts, no waiting request is admitted, even if it would fit; in the next one it is.

    The blocks were taken from a running sequence for those that still run. They will want more of them.
    """
    pool = solution.BlockPool(3)
    scheduler = solution.Scheduler(pool)
    a, b = _request(solution, pool, "a", 4), _request(solution, pool, "b", 5)
    small = _request(solution, pool, "small", 1, 1)
    scheduler.add(a)
    scheduler.add(b)
    scheduler.schedule()
    a.take(7)
    b.take(7)
    scheduler.add(small)
    step = scheduler.schedule()
    expect(step.preempted, [b])
    expect(step.batch, [(a, 1, 5, True)])
    expect(pool.num_free, 1)
    a.take(7)
    step = scheduler.schedule()
    expect_true((small, 1, 1, True) in step.batch, f"the step after that did not admit `small`: {step.batch!r}")


def can_plan_a_step_ahead(solution: Any) -> None:
    """The next step can be planned before the last one's token was read, up to the last token and no further.

    While the GPU computes a step, the host plans the next one.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool)
    request = _request(solution, pool, "request", 3, 3)
    scheduler.add(request)
    expect(scheduler.schedule().batch, [(request, 3, 3, True)])
    expect(scheduler.schedule().batch, [(request, 1, 4, True)])
    expect(scheduler.schedule().batch, [(request, 1, 5, True)])
    expect(scheduler.schedule().batch, [])
    expect(request.num_unread, 3)
    expect(pool.num_free, 2)
    expect(scheduler.has_work, True)


def _request(solution: Any, pool: Any, name: str, num_prompt: int, max_new_tokens: int = 4, **fields: Any) -> Any:
    """Return a sequence over a fresh table with a block size of 4; its tokens are 1, 2, …"""
    table = solution.BlockTable(pool, 4, as_=f"table_{name}")
    tokens = list(range(1, num_prompt + 1))
    return solution.Sequence(table, tokens, num_prompt, max_new_tokens, **fields, as_=name)
