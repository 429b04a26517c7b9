"""What `chunked-prefill` promises."""

from typing import Any

from course.judge.expect import expect


def puts_a_prompt_into_the_step(solution: Any) -> None:
    """A prompt of 5 tokens goes into an empty step whole: 5 new tokens, a context of 5, and it samples.

    Its last token is computed, so the step's result for it is the answer's first token.
    """
    pool, scheduler = _scheduler(solution, 4)
    a = _request(solution, pool, "a", 5)
    step = solution.Step()
    expect(scheduler.put_into(step, a), True)
    expect(step.batch, [(a, 5, 5, True)])
    expect(step.num_tokens, 5)
    expect(step.copies, [])
    expect(pool.num_free, 2)


def puts_several_into_one_step(solution: Any) -> None:
    """Sequences that are put into a step stand in its batch in that order, and their tokens add up.

    The batch is packed in this order, row after row.
    """
    pool, scheduler = _scheduler(solution, 4)
    a, b = _request(solution, pool, "a", 5), _request(solution, pool, "b", 3)
    step = solution.Step()
    expect(scheduler.put_into(step, b), True)
    expect(scheduler.put_into(step, a), True)
    expect(step.batch, [(b, 3, 3, True), (a, 5, 5, True)])
    expect(step.num_tokens, 8)


def takes_what_the_budget_leaves(solution: Any) -> None:
    """With a budget of 8, of which 5 are used, a prompt of 9 gets a chunk of 3, and samples nothing.

    Nothing follows token 3 yet: the next token of the prompt is known.
    """
    pool, scheduler = _scheduler(solution, 8, 8)
    a, b = _request(solution, pool, "a", 5), _request(solution, pool, "b", 9)
    step = solution.Step()
    expect(scheduler.put_into(step, a), True)
    expect(scheduler.put_into(step, b), True)
    expect(step.batch, [(a, 5, 5, True), (b, 3, 3, False)])
    expect(step.num_tokens, 8)


def takes_blocks_for_the_chunk_alone(solution: Any) -> None:
    """A chunk of 4 tokens of a prompt of 10 takes one block, not three.

    The other two are somebody's in the meantime.
    """
    pool, scheduler = _scheduler(solution, 4, 4)
    a = _request(solution, pool, "a", 10)
    expect(scheduler.put_into(solution.Step(), a), True)
    expect(pool.num_free, 3)
    expect(a.num_computed, 4)


def finishes_a_prompt_in_chunks(solution: Any) -> None:
    """A prompt of 10 with a budget of 4 takes three steps of 4, 4 and 2 tokens, and the third one samples.

    A prompt longer than the budget would otherwise never be scheduled.
    """
    pool, scheduler = _scheduler(solution, 4, 4)
    a = _request(solution, pool, "a", 10)
    scheduler.add(a)
    _expect_step(scheduler, [(a, 4, 4, False)])
    _expect_step(scheduler, [(a, 4, 8, False)])
    _expect_step(scheduler, [(a, 2, 10, True)])
    _expect_step(scheduler, [(a, 1, 11, True)])


def refuses_when_the_budget_is_used_up(solution: Any) -> None:
    """When the budget has nothing left, `put_into` returns `False` and takes no block.

    A block that is taken for no token is a block that nobody writes to.
    """
    pool, scheduler = _scheduler(solution, 4, 5)
    a, b = _request(solution, pool, "a", 5), _request(solution, pool, "b", 3)
    step = solution.Step()
    expect(scheduler.put_into(step, a), True)
    expect(scheduler.put_into(step, b), False)
    expect(step.batch, [(a, 5, 5, True)])
    expect(step.num_tokens, 5)
    expect(pool.num_free, 2)
    expect(b.num_computed, 0)


def refuses_when_blocks_are_missing(solution: Any) -> None:
    """When the pool has too few blocks, `put_into` returns `False`, and step, table and pool are as they were.

    The scheduler preempts somebody and tries again with the same step.
    """
    pool, scheduler = _scheduler(solution, 2)
    a = _request(solution, pool, "a", 9, 1)
    step = solution.Step()
    expect(scheduler.put_into(step, a), False)
    expect(step.batch, [])
    expect(step.num_tokens, 0)
    expect(pool.num_free, 2)
    expect(a.num_computed, 0)


def needs_no_block_while_the_last_has_room(solution: Any) -> None:
    """A decode whose last block has room goes into the step when no block is free.

    Asking for a block that is not needed preempts somebody for nothing.
    """
    pool, scheduler = _scheduler(solution, 1)
    a = _request(solution, pool, "a", 3, 2)
    scheduler.add(a)
    _expect_step(scheduler, [(a, 3, 3, True)])
    expect(pool.num_free, 0)
    _expect_step(scheduler, [(a, 1, 4, True)])


def has_nothing_to_add_twice(solution: Any) -> None:
    """A sequence whose tokens are all computed gets no second part in a step.

    A batch with the same sequence twice writes one token's keys to two places.
    """
    pool, scheduler = _scheduler(solution, 4)
    a = _request(solution, pool, "a", 5)
    step = solution.Step()
    expect(scheduler.put_into(step, a), True)
    expect(scheduler.put_into(step, a), False)
    expect(step.batch, [(a, 5, 5, True)])
    expect(step.num_tokens, 5)


def hands_on_the_copies(solution: Any) -> None:
    """When a shared block is about to be written, its copy is in `step.copies`, beside the copies of others.

    The engine makes them before the step. One that is lost writes two answers into one block.
    """
    pool, scheduler = _scheduler(solution, 8)
    table_a = solution.BlockTable(pool, 4, as_="table_a")
    table_a.grow(2)
    table_b = solution.BlockTable(pool, 4, as_="table_b")
    table_b.grow(6)
    children = table_a.fork(as_="child_a"), table_b.fork(as_="child_b")
    expect(pool.num_free, 5)
    a = solution.Sequence(children[0], [1, 2, 3], 3, 4, as_="a")
    b = solution.Sequence(children[1], [1, 2, 3, 4, 5, 6, 7], 7, 4, as_="b")
    step = solution.Step()
    expect(scheduler.put_into(step, a), True)
    expect(step.copies, [(0, 3)])
    expect(scheduler.put_into(step, b), True)
    expect(step.copies, [(0, 3), (2, 4)])
    expect(step.batch, [(a, 1, 3, True), (b, 1, 7, True)])


def decodes_come_before_prompts(solution: Any) -> None:
    """`ready()` names those that decode first, even if a prompt was admitted before them.

    A reader sees every token that is late. Nobody sees which part of a prompt is computed when.
    """
    pool, scheduler = _scheduler(solution, 16, 8)
    long, a, b = (
        _request(solution, pool, "long", 30),
        _request(solution, pool, "a", 3),
        _request(solution, pool, "b", 2),
    )
    scheduler.add(a)
    scheduler.add(b)
    _expect_step(scheduler, [(a, 3, 3, True), (b, 2, 2, True)])
    scheduler.add(long)
    _expect_step(scheduler, [(a, 1, 4, True), (b, 1, 3, True), (long, 6, 6, False)])
    expect(scheduler.ready(), [a, b, long])
    solution.start_over_()
    pool, scheduler = _scheduler(solution, 16, 8)
    long, a = _request(solution, pool, "long", 7, 5), _request(solution, pool, "a", 9, 5)
    other = _request(solution, pool, "other", 20)
    for sequence in (long, a, other):
        scheduler.add(sequence)
    _expect_step(scheduler, [(long, 7, 7, True), (a, 1, 1, False)])
    expect(scheduler.ready(), [long, a])


def a_younger_decode_overtakes_an_older_prompt(solution: Any) -> None:
    """A decode goes first when it was admitted after the prompt, too.

    The prompt's blocks are taken by hand here. `ready` goes by where a sequence stands, not by who came last.
    """
    pool, scheduler = _scheduler(solution, 16, 4)
    a, b = _request(solution, pool, "a", 6), _request(solution, pool, "b", 2)
    for sequence in (a, b):
        scheduler.add(sequence)
    _expect_step(scheduler, [(a, 4, 4, False)])
    _expect_step(scheduler, [(a, 2, 6, True), (b, 2, 2, True)])
    a.table.free()
    expect(a.is_decoding, False)
    a.table.grow(1)
    expect(scheduler.ready(), [b, a])


def keeps_the_order_within_each_group(solution: Any) -> None:
    """Two that are in the middle of their prompts keep the order of `running`, whichever has more to compute.

    Whoever has less to do does not go first: under many short prompts, a long one would never have its turn.
    """
    pool, scheduler = _scheduler(solution, 16, 12)
    a, b, c, d = (
        _request(solution, pool, name, num_prompt) for name, num_prompt in (("a", 5), ("b", 2), ("c", 3), ("d", 2))
    )
    for sequence in (a, b, c, d):
        scheduler.add(sequence)
    _expect_step(scheduler, [(a, 5, 5, True), (b, 2, 2, True), (c, 3, 3, True), (d, 2, 2, True)])
    a.table.free()
    a.table.grow(1)
    c.table.free()
    c.table.grow(1)
    expect(scheduler.ready(), [b, d, a, c])


def decodes_do_not_wait_for_a_long_prompt(solution: Any) -> None:
    """With a budget of 4 and two that decode, each step decodes both and computes 2 tokens of a prompt of 40.

    Served first, the prompt would take the whole budget of ten steps, and both answers would stand still.
    """
    pool, scheduler = _scheduler(solution, 16, 4)
    a, b = _request(solution, pool, "a", 2, 8), _request(solution, pool, "b", 2, 8)
    scheduler.add(a)
    scheduler.add(b)
    _expect_step(scheduler, [(a, 2, 2, True), (b, 2, 2, True)])
    long = _request(solution, pool, "long", 40, 1)
    scheduler.add(long)
    for number in range(1, 4):
        _expect_step(scheduler, [(a, 1, 2 + number, True), (b, 1, 2 + number, True), (long, 2, 2 * number, False)])


def the_complete_are_not_ready(solution: Any) -> None:
    """A sequence that is complete and not yet read is not served any more.

    It would compute a token after its last.
    """
    pool, scheduler = _scheduler(solution, 4)
    a, b = _request(solution, pool, "a", 3, 1), _request(solution, pool, "b", 3, 2)
    scheduler.add(a)
    scheduler.add(b)
    expect(scheduler.schedule().batch, [(a, 3, 3, True), (b, 3, 3, True)])
    expect(scheduler.ready(), [b])
    expect(scheduler.running, [a, b])


def chunks_and_decodes_add_up(solution: Any) -> None:
    """Three prompts with a budget of 6: no step exceeds it, each token is computed once, the oldest prompt goes first.

    This is the whole of chunked prefill, traced.
    """
    pool, scheduler = _scheduler(solution, 16, 6)
    a, b, c = (
        _request(solution, pool, "a", 4, 5),
        _request(solution, pool, "b", 9, 3),
        _request(solution, pool, "c", 5, 2),
    )
    for sequence in (a, b, c):
        scheduler.add(sequence)
    _expect_step(scheduler, [(a, 4, 4, True), (b, 2, 2, False)])
    _expect_step(scheduler, [(a, 1, 5, True), (b, 5, 7, False)])
    _expect_step(scheduler, [(a, 1, 6, True), (b, 2, 9, True), (c, 3, 3, False)])
    _expect_step(scheduler, [(a, 1, 7, True), (b, 1, 10, True), (c, 2, 5, True)])
    _expect_step(scheduler, [(a, 1, 8, True), (b, 1, 11, True), (c, 1, 6, True)])
    _expect_step(scheduler, [])
    expect(pool.num_free, 16)


def _scheduler(solution: Any, num_blocks: int, max_step_tokens: int = 2048) -> tuple[Any, Any]:
    pool = solution.BlockPool(num_blocks)
    return pool, solution.Scheduler(pool, max_step_tokens)


def _request(solution: Any, pool: Any, name: str, num_prompt: int, max_new_tokens: int = 4) -> Any:
    """Return a sequence over a fresh table with a block size of 4; its tokens are 1, 2, …"""
    table = solution.BlockTable(pool, 4, as_=f"table_{name}")
    tokens = list(range(1, num_prompt + 1))
    return solution.Sequence(table, tokens, num_prompt, max_new_tokens, as_=name)


def _expect_step(scheduler: Any, batch: list[tuple[Any, int, int, bool]]) -> None:
    """Plan a step, fail unless this is its batch, and let each sequence that samples take a token."""
    expect(scheduler.schedule().batch, batch)
    for sequence, _, _, samples in batch:
        if samples:
            sequence.take(7)
