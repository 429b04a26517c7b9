"""What `preempt` promises."""

import random
from typing import Any
from zlib import crc32

from course.judge.expect import expect


def everybody_decodes_when_there_is_room(solution: Any) -> None:
    """With blocks to spare, every running sequence computes a token, and nobody gives way.

    The everyday step.
    """
    pool, scheduler, (a, b) = _running(solution, 4, 4, 3)
    step = scheduler.schedule()
    expect(step.batch, [(a, 1, 5, True), (b, 1, 4, True)])
    expect(step.preempted, [])
    expect(scheduler.running, [a, b])
    expect(pool.num_free, 1)


def gives_up_its_blocks(solution: Any) -> None:
    """`preempt` frees the table, and moves the sequence from the running ones to those that wait.

    A table that still lists its blocks would give them back a second time, when they are somebody else's.
    """
    pool, scheduler, (a, b) = _running(solution, 4, 4, 3)
    step = solution.Step()
    scheduler.preempt(b, step)
    expect(step.preempted, [b])
    expect(scheduler.running, [a])
    expect(scheduler.waiting, [b])
    expect(pool.num_free, 3)
    expect(b.table.blocks, [])
    expect(b.num_computed, 0)


def keeps_its_tokens(solution: Any) -> None:
    """A preempted sequence keeps all its tokens; admitted again it computes them all, and goes on.

    What was sent to the reader cannot be taken back. Keys and values can be computed again.
    """
    _, scheduler, (a,) = _running(solution, 4, 3)
    _step(scheduler)
    expect(a.tokens, [1, 2, 3, 7, 7])
    scheduler.preempt(a, solution.Step())
    expect(a.tokens, [1, 2, 3, 7, 7])
    expect(scheduler.schedule().batch, [(a, 5, 5, True)])
    a.take(8)
    expect(scheduler.schedule().batch, [(a, 1, 6, True)])


def keeps_what_is_not_read(solution: Any) -> None:
    """A sequence that is preempted before its last token was read still counts that token as unread.

    The token is on its way, and its place in the answer is taken. A count that starts anew is at -1 when it arrives.
    """
    _, scheduler, (a,) = _running(solution, 4, 3)
    scheduler.schedule()
    scheduler.preempt(a, solution.Step())
    expect(a.num_unread, 1)
    a.take(8)
    expect(a.num_tokens, 5)
    expect(scheduler.schedule().batch, [(a, 5, 5, True)])


def waits_at_the_front(solution: Any) -> None:
    """A preempted sequence waits before all others, and before those preempted earlier in the step.

    It is older than they are, and its reader has seen half an answer.
    """
    pool, scheduler, (_, b, c) = _running(solution, 3, 4, 3, 3)
    d = _request(solution, pool, "d", 9, 3)
    scheduler.add(d)
    step = solution.Step()
    scheduler.preempt(c, step)
    scheduler.preempt(b, step)
    expect(scheduler.waiting, [b, c, d])
    expect(step.preempted, [c, b])


def the_newest_gives_way(solution: Any) -> None:
    """When the oldest of three needs a block and none is free, the newest gives way.

    The oldest is never touched, so it gets to its end, and then the next oldest does.
    """
    pool, scheduler, (a, b, c) = _running(solution, 3, 4, 3, 3)
    expect(pool.num_free, 0)
    step = scheduler.schedule()
    expect(step.batch, [(a, 1, 5, True), (b, 1, 4, True)])
    expect(step.preempted, [c])
    expect(scheduler.running, [a, b])
    expect(scheduler.waiting, [c])
    expect(pool.num_free, 0)


def tries_again_after_preempting(solution: Any) -> None:
    """The sequence that needed the block gets it, in the same step; those who then find none give way in turn.

    Three sequences of 4 tokens on three blocks: one decodes and two wait. None is lost.
    """
    pool, scheduler, (a, b, c) = _running(solution, 3, 4, 4, 4)
    step = scheduler.schedule()
    expect(step.batch, [(a, 1, 5, True)])
    expect(step.preempted, [c, b])
    expect(scheduler.running, [a])
    expect(scheduler.waiting, [b, c])
    expect(pool.num_free, 1)


def the_newest_may_be_the_one_in_need(solution: Any) -> None:
    """When the newest itself needs a block, it gives way, and those before it are not disturbed.

    Taking from the older to serve the newer would go round in circles.
    """
    pool, scheduler, (a, b) = _running(solution, 2, 2, 4)
    step = scheduler.schedule()
    expect(step.batch, [(a, 1, 3, True)])
    expect(step.preempted, [b])
    expect(scheduler.waiting, [b])
    expect(pool.num_free, 1)


def a_complete_one_gives_way_too(solution: Any) -> None:
    """The newest gives way also when it is complete and only has its last token to be read.

    It computes nothing any more, so nothing is lost. To spare it, somebody who still computes would lose everything.
    """
    pool = solution.BlockPool(2)
    scheduler = solution.Scheduler(pool)
    a, b = _request(solution, pool, "a", 4), _request(solution, pool, "b", 4, 1)
    scheduler.add(a)
    scheduler.add(b)
    expect(scheduler.schedule().batch, [(a, 4, 4, True), (b, 4, 4, True)])
    a.take(7)
    step = scheduler.schedule()
    expect(step.batch, [(a, 1, 5, True)])
    expect(step.preempted, [b])
    b.take(7)
    scheduler.free_finished()
    expect(scheduler.waiting, [])
    expect(pool.num_free, 0)


def the_others_have_their_turn(solution: Any) -> None:
    """After a sequence gave way itself, those that come after it in the step are served.

    Here the older one computes its prompt anew, so it comes after the one that decodes. What that gave up is enough.
    """
    pool, scheduler, (old, young) = _running(solution, 2, 4, 4)
    old.table.free()
    old.table.grow(1)
    expect(scheduler.ready(), [young, old])
    step = scheduler.schedule()
    expect(step.preempted, [young])
    expect(step.batch, [(old, 4, 5, True)])
    expect(scheduler.running, [old])
    expect(scheduler.waiting, [young])
    expect(pool.num_free, 0)


def whoever_is_in_the_step_stays(solution: Any) -> None:
    """A sequence that has its part in the step is not preempted in it, even when it is the newest.

    Its blocks are about to be written. Given to another, they would be written twice.
    """
    pool, scheduler, (old, young) = _running(solution, 2, 4, 3)
    old.table.free()
    old.table.grow(2)
    expect(scheduler.ready(), [young, old])
    step = scheduler.schedule()
    expect(step.batch, [(young, 1, 4, True)])
    expect(step.preempted, [old])
    expect(scheduler.running, [young])
    expect(pool.num_free, 1)


def those_beyond_the_budget_keep_running(solution: Any) -> None:
    """With a budget of 2 and three that decode, the third has no turn, keeps its blocks, and is not preempted.

    No turn is not the same as no memory. Dropped from the list, it would never be heard of again.
    """
    pool = solution.BlockPool(4)
    scheduler = solution.Scheduler(pool, 3)
    a, b, c = (_request(solution, pool, name, 1) for name in "abc")
    for sequence in (a, b, c):
        scheduler.add(sequence)
    _step(scheduler)
    step = solution.Step(num_tokens=1)
    scheduler.grow_running(step)
    expect(step.batch, [(a, 1, 2, True), (b, 1, 2, True)])
    expect(step.preempted, [])
    expect(scheduler.running, [a, b, c])
    expect(c.num_computed, 1)
    expect(pool.num_free, 1)


def an_aborted_one_frees_nothing_twice(solution: Any) -> None:
    """When a request is aborted after it was preempted, no block comes free: it has none.

    Its former blocks belong to others by now.
    """
    pool, scheduler, (a, b) = _running(solution, 2, 4, 3)
    expect(scheduler.schedule().preempted, [b])
    expect(pool.num_free, 0)
    b.take(None)
    scheduler.free_finished()
    expect(scheduler.waiting, [])
    expect(pool.num_free, 0)
    expect(scheduler.running, [a])


def every_answer_is_as_if_alone(solution: Any) -> None:
    """In histories with far too few blocks, every request ends with the tokens that it would have had alone.

    The next token is a function of all that the table's slots hold. A lost block, a wrong length, a sequence that is
    forgotten: each shows as a wrong answer, or as none.
    """
    for seed in range(8):
        _random_history(solution, random.Random(seed))


def _running(solution: Any, num_blocks: int, *lengths: int) -> tuple[Any, Any, list[Any]]:
    """Return a pool of blocks of 4, a scheduler, and sequences a, b, … that have computed prompts of these lengths."""
    pool = solution.BlockPool(num_blocks)
    scheduler = solution.Scheduler(pool)
    sequences = [_request(solution, pool, name, length) for name, length in zip("abc", lengths, strict=False)]
    for sequence in sequences:
        scheduler.add(sequence)
    _step(scheduler)
    return pool, scheduler, sequences


def _request(solution: Any, pool: Any, name: str, num_prompt: int, max_new_tokens: int = 4) -> Any:
    """Return a sequence over a fresh table with a block size of 4; its tokens are 1, 2, …"""
    table = solution.BlockTable(pool, 4, as_=f"table_{name}")
    tokens = list(range(1, num_prompt + 1))
    return solution.Sequence(table, tokens, num_prompt, max_new_tokens, as_=name)


def _step(scheduler: Any) -> None:
    """Plan a step, and let each sequence that samples take a token."""
    for sequence, _, _, samples in scheduler.schedule().batch:
        if samples:
            sequence.take(7)


def _random_history(solution: Any, rng: random.Random) -> None:
    """Have a few requests share a pool that holds little more than the longest of them."""
    solution.start_over_()
    num_blocks, block_size = rng.randint(4, 6), rng.choice([1, 2, 4])
    engine = solution.TinyEngine(num_blocks, block_size, rng.choice([3, 6, 64]))
    wanted = []
    for name in "abcde":
        num_prompt = rng.randint(1, 2 * block_size)
        prompt = [rng.randrange(1, 50) for _ in range(num_prompt)]
        max_new_tokens = rng.randint(2, num_blocks * block_size + 1 - num_prompt)
        wanted.append((engine.add(prompt, max_new_tokens, as_=name), prompt, max_new_tokens))
        if rng.random() < 0.7:
            engine.step()
    for _ in range(60):
        if not engine.step():
            break
    for sequence, prompt, max_new_tokens in wanted:
        answer = sequence.tokens[len(prompt) :]
        expect(answer, _alone(prompt, max_new_tokens), what=f"the answer to {sequence!r}")
    expect(engine.num_free, num_blocks, what="the free blocks in the end")


def _alone(prompt: list[int], max_new_tokens: int) -> list[int]:
    """Return the answer of a request that has the engine to itself."""
    tokens = list(prompt)
    while len(tokens) - len(prompt) < max_new_tokens and (token := crc32(bytes(tokens)) % 50) != 0:
        tokens.append(token)
    return tokens[len(prompt) :]
