"""Works plans out with pure functions over tuples, and touches the queues once, at the end of each phase."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple


@dataclass(eq=False)
class Sequence:
    table: Any
    tokens: list[int]
    num_prompt: int
    max_new_tokens: int
    num_unread: int = 0
    ended: bool = False
    num_skips: int = 0

    num_tokens = property(lambda self: sum((len(self.tokens), self.num_unread)))
    num_computed = property(lambda self: self.table.num_tokens)
    num_uncomputed = property(lambda self: self.num_tokens - self.num_computed)
    is_decoding = property(lambda self: min(self.num_computed, 1) == 1 == self.num_uncomputed)
    is_complete = property(lambda self: self.ended or self.num_tokens >= self.num_prompt + self.max_new_tokens)
    is_finished = property(lambda self: self.ended or (self.is_complete and not self.num_unread))

    def take(self, token: int | None) -> None:
        self.num_unread, self.ended = self.num_unread - 1, self.ended or token is None
        self.tokens.extend([] if token is None else [token])


class Scheduled(NamedTuple):
    sequence: Sequence
    num_new: int
    context_len: int
    samples: bool


@dataclass
class Step:
    batch: list[Scheduled] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    num_tokens: int = 0


def split(test, items):
    """Those that pass and those that do not, each in order."""
    items = list(items)
    return [item for item in items if test(item)], [item for item in items if not test(item)]


def newest_outside(running, step):
    busy = [part[0] for part in step.batch]
    return next(filter(lambda each: all(each is not other for other in busy), running[::-1]))


class Scheduler:
    def __init__(self, pool, max_step_tokens=2048, max_running=256, look_ahead=5, skip_limit=3) -> None:
        if min(max_step_tokens, max_running) < 1:
            raise ValueError(f"nothing can run: {max_step_tokens}, {max_running}")
        self.pool, self.capacity = pool, pool.num_free
        self.max_step_tokens, self.max_running = max_step_tokens, max_running
        self.look_ahead, self.skip_limit = look_ahead, skip_limit
        self.waiting, self.running = deque(), []

    def add(self, sequence) -> None:
        blocks = -(-(sequence.num_prompt + sequence.max_new_tokens - 1) // sequence.table.block_size)
        if blocks > self.capacity:
            raise ValueError(f"{blocks} blocks are more than {self.capacity}")
        self.waiting.extend((sequence,))

    @property
    def has_work(self) -> bool:
        return any((self.waiting, self.running))

    def schedule(self) -> Step:
        self.free_finished()
        step = Step()
        phases = [self.grow_running, lambda step: step.preempted or self.admit_waiting(step)]
        for phase in phases:
            phase(step)
        for sequence in (part[0] for part in step.batch if part[3]):
            sequence.num_unread += 1
        return step

    def free_finished(self) -> None:
        gone, self.running = split(lambda each: each.is_finished, self.running)
        _, waiting = split(lambda each: each.is_finished, self.waiting)
        self.waiting = deque(waiting)
        for sequence in gone:
            sequence.table.free()

    def ready(self) -> list[Sequence]:
        decoding, prompts = split(lambda each: each.is_decoding, (s for s in self.running if not s.is_complete))
        return list(itertools.chain(decoding, prompts))

    def grow_running(self, step) -> None:
        for sequence in self.ready():
            self._serve(sequence, step)

    def _serve(self, sequence, step) -> None:
        if step.num_tokens >= self.max_step_tokens or sequence.num_computed == 0 or self.put_into(step, sequence):
            return
        self.preempt(newest_outside(self.running, step), step)
        self._serve(sequence, step)

    def admit_waiting(self, step) -> None:
        def look(passed, sequence):
            """Fold one waiting sequence into those that were passed; None when the looking is over."""
            if passed is None or len(self.running) >= self.max_running or step.num_tokens >= self.max_step_tokens:
                return None
            held, looks = passed
            if held and (looks == self.look_ahead or held[0].num_skips >= self.skip_limit):
                return None
            looks += bool(held)
            if sequence.num_unread > 0:
                return [*held, sequence], looks
            if sequence.table.missing_blocks(sequence.num_tokens) > self.pool.num_free:
                return [*held, sequence], looks
            self.put_into(step, sequence)
            admitted.append(sequence)
            self.running.append(sequence)
            sequence.num_skips = 0
            for oldest in held[:1]:
                oldest.num_skips += 1
            return held, looks

        admitted: list[Sequence] = []
        reduce(look, tuple(self.waiting), ([], 0))
        self.waiting = deque(each for each in self.waiting if each not in admitted)

    def put_into(self, step, sequence) -> bool:
        num_new = max(0, min(sequence.num_uncomputed, self.max_step_tokens - step.num_tokens))
        copies = sequence.table.append(num_new) if num_new else None
        if copies is None:
            return False
        step.copies = [*step.copies, *copies]
        step.num_tokens += num_new
        context = sequence.num_computed
        step.batch = [*step.batch, Scheduled(sequence, num_new, context, context == sequence.num_tokens)]
        return True

    def preempt(self, sequence, step) -> None:
        sequence.table.free()
        self.running = [each for each in self.running if each is not sequence]
        self.waiting = deque([sequence, *self.waiting])
        step.preempted = [*step.preempted, sequence]
