"""Names the phase that a sequence is in, and moves sequences by it; indices and loops rather than comprehensions."""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple


class Phase(Enum):
    EMPTY = "nothing in the cache"
    PROMPT = "some of it in the cache"
    DECODE = "all but one in the cache"
    IDLE = "all of it in the cache"
    DONE = "ended"


@dataclass(eq=False)
class Sequence:
    table: Any
    tokens: list
    num_prompt: int
    max_new_tokens: int
    num_unread: int = 0
    ended: bool = False
    num_skips: int = 0

    def phase(self) -> Phase:
        if self.ended:
            return Phase.DONE
        cached, all_of_it = self.table.num_tokens, len(self.tokens) + self.num_unread
        if cached == 0:
            return Phase.EMPTY
        if cached >= all_of_it:
            return Phase.IDLE
        return Phase.DECODE if all_of_it - cached == 1 else Phase.PROMPT

    @property
    def num_tokens(self):
        known = 0
        for _ in self.tokens:
            known += 1
        return known + self.num_unread

    @property
    def num_computed(self):
        return self.table.num_tokens

    @property
    def num_uncomputed(self):
        return len(self.tokens) + self.num_unread - self.table.num_tokens

    @property
    def is_decoding(self):
        cached = self.table.num_tokens
        return cached != 0 and cached == len(self.tokens) + self.num_unread - 1

    @property
    def is_complete(self):
        if self.ended:
            return True
        answer = len(self.tokens) - self.num_prompt + self.num_unread
        return not answer < self.max_new_tokens

    @property
    def is_finished(self):
        if self.ended:
            return True
        return len(self.tokens) >= self.num_prompt + self.max_new_tokens and self.num_unread == 0

    def take(self, token):
        self.num_unread = self.num_unread - 1
        if token is not None:
            self.tokens = [*self.tokens, token]
            return
        self.ended = True


class Scheduled(NamedTuple):
    sequence: Sequence
    num_new: int
    context_len: int
    samples: bool


@dataclass
class Step:
    batch: list = field(default_factory=list)
    copies: list = field(default_factory=list)
    preempted: list = field(default_factory=list)
    num_tokens: int = 0


class Scheduler:
    def __init__(self, pool, max_step_tokens=2048, max_running=256, look_ahead=5, skip_limit=3):
        if max_step_tokens < 1 or max_running < 1:
            raise ValueError("a step must be able to do something")
        self.pool = pool
        self.capacity = pool.num_free
        self.max_step_tokens = max_step_tokens
        self.max_running = max_running
        self.look_ahead = look_ahead
        self.skip_limit = skip_limit
        self.waiting = deque()
        self.running = []

    def add(self, sequence):
        slots = sequence.num_prompt + sequence.max_new_tokens - 1
        blocks = sequence.table.missing_blocks(slots)
        if blocks <= self.capacity:
            self.waiting.append(sequence)
        else:
            raise ValueError("needs " + str(blocks) + " blocks, there are " + str(self.capacity))

    @property
    def has_work(self):
        return len(self.waiting) + len(self.running) > 0

    def schedule(self):
        self.free_finished()
        plan = Step()
        self.grow_running(plan)
        if len(plan.preempted) == 0:
            self.admit_waiting(plan)
        for part in plan.batch:
            if part.samples:
                part.sequence.num_unread += 1
        return plan

    def free_finished(self):
        position = 0
        while position < len(self.running):
            if self.running[position].is_finished:
                gone = self.running.pop(position)
                gone.table.free()
            else:
                position += 1
        for _ in range(len(self.waiting)):
            sequence = self.waiting.popleft()
            if not sequence.is_finished:
                self.waiting.append(sequence)

    def ready(self):
        decoding, others = [], []
        for sequence in self.running:
            if sequence.is_complete:
                continue
            (decoding if sequence.is_decoding else others).append(sequence)
        return decoding + others

    def grow_running(self, step):
        queue = deque(self.ready())
        while queue and step.num_tokens < self.max_step_tokens:
            sequence = queue[0]
            if sequence not in self.running or self.put_into(step, sequence):
                queue.popleft()
            else:
                self.preempt(self._newest_outside(step), step)

    def _newest_outside(self, step):
        for position in range(len(self.running) - 1, -1, -1):
            if not any(part[0] is self.running[position] for part in step.batch):
                return self.running[position]
        raise AssertionError("everybody has a part in the step")

    def admit_waiting(self, step):
        position = 0  # of the next one to look at; everybody before it was passed
        looks = 0
        while position < len(self.waiting):
            if len(self.running) >= self.max_running or step.num_tokens >= self.max_step_tokens:
                return
            candidate = self.waiting[position]
            if position > 0:
                oldest = self.waiting[0]
                if looks >= self.look_ahead or oldest.num_skips >= self.skip_limit:
                    return
                looks += 1
            if candidate.num_unread or candidate.table.missing_blocks(candidate.num_tokens) > self.pool.num_free:
                position += 1
                continue
            self.put_into(step, candidate)
            del self.waiting[position]
            self.running.append(candidate)
            candidate.num_skips = 0
            if position > 0:
                self.waiting[0].num_skips += 1

    def put_into(self, step, sequence):
        room = self.max_step_tokens - step.num_tokens
        wanted = sequence.num_uncomputed
        if room <= 0 or wanted <= 0:
            return False
        whole = wanted <= room
        num_new = wanted if whole else room
        copies = sequence.table.append(num_new)
        if copies is None:
            return False
        for copy in copies:
            step.copies.append(copy)
        step.num_tokens += num_new
        step.batch.append(Scheduled(sequence, num_new, sequence.num_computed, whole))
        return True

    def preempt(self, sequence, step):
        self.running = [each for each in self.running if each is not sequence]
        sequence.table.free()
        self.waiting.insert(0, sequence)
        step.preempted.append(sequence)
