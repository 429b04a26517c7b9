"""The scheduler: which sequences run in the next step, and how many tokens of each.

Every step has four phases: free what finished, grow what runs, admit what waits, and build the batch from both. Where a
sequence stands is derived from counts of tokens; nothing records a phase. The scheduler is handed a pool and sequences
with block tables; it makes decisions and never touches a tensor.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol


class Pool(Protocol):
    """What the scheduler asks of the block pool; see `block_pool.BlockPool`."""

    @property
    def num_free(self) -> int: ...


class Table(Protocol):
    """What the scheduler asks of a sequence's block table; see `block_table.BlockTable`."""

    blocks: list[int]
    num_tokens: int

    def missing_blocks(self, num_new: int) -> int: ...
    def append(self, num_new: int) -> list[tuple[int, int]] | None: ...
    def free(self) -> None: ...


@dataclass(eq=False)
class Sequence:
    """The tokens of one request: its prompt, then what was generated.

    `tokens` are those that the host knows. `num_unread` counts tokens that were sampled, or will be by a step under
    way, and have not been read yet: they have a position, so the next step can be planned before they are known.
    """

    table: Table
    tokens: list[int]
    num_prompt: int
    max_new_tokens: int
    num_unread: int = 0
    ended: bool = False  # by an end-of-sequence token, or aborted
    num_skips: int = 0  # requests admitted past this one while it was the oldest waiting

    @property
    def num_tokens(self) -> int:
        """The sequence's length, tokens not read yet included."""
        return len(self.tokens) + self.num_unread

    @property
    def num_computed(self) -> int:
        """How many tokens have their keys and values in the cache (or get them in a step under way)."""
        return self.table.num_tokens

    @property
    def num_uncomputed(self) -> int:
        """How many tokens are still to be computed: 1 means a decode, more a prefill or the rest of one."""
        return self.num_tokens - self.num_computed

    @property
    def is_decoding(self) -> bool:
        """Whether its next step computes the newest token alone, on top of a cache that holds all others."""
        return self.num_computed > 0 and self.num_uncomputed == 1

    @property
    def is_complete(self) -> bool:
        """Whether no further token is to be sampled: it ended, or all its new tokens are sampled (if not yet read)."""
        return self.ended or self.num_tokens - self.num_prompt >= self.max_new_tokens

    @property
    def is_finished(self) -> bool:
        """Whether the host has all its tokens, so that its blocks can go."""
        return self.is_complete and (self.ended or self.num_unread == 0)

    def take(self, token: int | None) -> None:
        """Take in what a step sampled: the next token, or None for the end of the sequence, which is not kept."""
        self.num_unread -= 1
        if token is None:
            self.ended = True
        else:
            self.tokens.append(token)


class Scheduled(NamedTuple):
    """One sequence's part in a step: its last `num_new` tokens, of `context_len`, are computed."""

    sequence: Sequence
    num_new: int
    context_len: int
    samples: bool  # whether the step computes its newest token, and so samples the next one


@dataclass
class Step:
    """What one step does: the batch, the block copies to make before it, and who had to give way."""

    batch: list[Scheduled] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)
    preempted: list[Sequence] = field(default_factory=list)
    num_tokens: int = 0


class Scheduler:
    """Roughly first come, first served, over a pool that may be smaller than what all requests would like.

    A step computes at most `max_step_tokens` tokens, of at most `max_running` sequences. A waiting request that does
    not fit may be passed by others behind it: by up to `skip_limit` of them, from the `look_ahead` next in the queue.
    Then nobody passes it until memory frees. When a running sequence finds no block, the newest running one is
    preempted: its blocks are freed, and its tokens are computed again when it is admitted again.
    """

    def __init__(
        self,
        pool: Pool,
        max_step_tokens: int = 2048,
        max_running: int = 256,
        look_ahead: int = 5,
        skip_limit: int = 3,
    ) -> None:
        if max_step_tokens < 1 or max_running < 1:
            raise ValueError(f"a step of {max_step_tokens} tokens and {max_running} sequences can do nothing")
        self.pool = pool
        self.capacity = pool.num_free
        self.max_step_tokens = max_step_tokens
        self.max_running = max_running
        self.look_ahead = look_ahead
        self.skip_limit = skip_limit
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # in order of admission

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence. Nothing is allocated before it is admitted.

        `ValueError` when even the empty pool could not hold it: it would wait for ever, and others behind it.
        """
        # The last token is sampled but never fed back, so it needs no slot.
        needed = sequence.table.missing_blocks(sequence.num_prompt + sequence.max_new_tokens - 1)
        if needed > self.capacity:
            raise ValueError(
                f"a prompt of {sequence.num_prompt} tokens and {sequence.max_new_tokens} new ones need {needed} "
                f"blocks; the pool has {self.capacity}: ask for fewer tokens, or make the pool larger"
            )
        self.waiting.append(sequence)

    @property
    def has_work(self) -> bool:
        """Whether any sequence is waiting or running."""
        return bool(self.waiting or self.running)

    def schedule(self) -> Step:
        """Plan the next step. An empty batch means that there is nothing to do."""
        self.free_finished()
        step = Step()
        self.grow_running(step)
        if not step.preempted:  # what was freed is for those that run
            self.admit_waiting(step)
        for scheduled in step.batch:
            scheduled.sequence.num_unread += scheduled.samples
        return step

    def repeat(self, step: Step, most: int) -> int:
        """Plan a step of decodes up to `most` times more, without looking at those that wait; return how often.

        The sequences take the blocks for it at once. It is never more than until one of them is complete, and nothing
        where the pool has not all the blocks.
        """
        left = (
            each.sequence.max_new_tokens + each.sequence.num_prompt - each.sequence.num_tokens for each in step.batch
        )
        times = min(most, *left)
        if times <= 0 or sum(each.sequence.table.missing_blocks(times) for each in step.batch) > self.pool.num_free:
            return 0
        for each in step.batch:
            each.sequence.table.append(times)
            each.sequence.num_unread += times
        return times

    def free_finished(self) -> None:
        """Give back the blocks of finished sequences, wherever they are, and forget them."""
        for sequence in self.running:
            if sequence.is_finished:
                sequence.table.free()
        self.running = [sequence for sequence in self.running if not sequence.is_finished]
        # A waiting sequence owns no block. It was aborted, or gave way when only its last token was still to be read.
        self.waiting = deque(sequence for sequence in self.waiting if not sequence.is_finished)

    def grow_running(self, step: Step) -> None:
        """Put the running sequences into the step, as far as the token budget goes.

        When the pool has no block for one of them, the newest running sequence that has no part in the step yet is
        preempted, until there is a block, or until it gave way itself.
        """
        for sequence in self.ready():
            while sequence.num_computed and not self.put_into(step, sequence):  # preempted, it has none computed
                if step.num_tokens == self.max_step_tokens:
                    return
                scheduled = {each.sequence for each in step.batch}
                self.preempt(next(each for each in reversed(self.running) if each not in scheduled), step)

    def ready(self) -> list[Sequence]:
        """Return the running sequences that have a token to compute, in the order in which a step serves them.

        Decodes first, so that no prompt holds up an answer; among decodes, and among the others, the oldest first.
        """
        ready = [sequence for sequence in self.running if not sequence.is_complete]
        return sorted(ready, key=lambda sequence: not sequence.is_decoding)

    def admit_waiting(self, step: Step) -> None:
        """Move waiting sequences that fit into the step, roughly in order of arrival."""
        passed: list[Sequence] = []  # those that do not fit, the oldest first
        looked_ahead = 0
        while self.waiting and len(self.running) < self.max_running and step.num_tokens < self.max_step_tokens:
            if passed and (looked_ahead == self.look_ahead or passed[0].num_skips >= self.skip_limit):
                break
            looked_ahead += bool(passed)
            sequence = self.waiting.popleft()
            fits = sequence.num_unread == 0 and sequence.table.missing_blocks(sequence.num_tokens) <= self.pool.num_free
            if not (fits and self.put_into(step, sequence)):
                passed.append(sequence)
                continue
            self.running.append(sequence)
            sequence.num_skips = 0
            if passed:
                passed[0].num_skips += 1
        self.waiting.extendleft(reversed(passed))

    def put_into(self, step: Step, sequence: Sequence) -> bool:
        """Add as much of a sequence to the step as the token budget allows; `False` when there is no room for any.

        A prompt longer than what is left of the budget is computed in chunks, one a step.
        """
        num_new = min(sequence.num_uncomputed, self.max_step_tokens - step.num_tokens)
        if num_new == 0:
            return False
        copies = sequence.table.append(num_new)
        if copies is None:
            return False
        step.copies += copies
        step.num_tokens += num_new
        step.batch.append(Scheduled(sequence, num_new, sequence.num_computed, sequence.num_uncomputed == 0))
        return True

    def preempt(self, sequence: Sequence, step: Step) -> None:
        """Take a running sequence's blocks away. It waits at the front of the queue, with all its tokens."""
        sequence.table.free()
        self.running.remove(sequence)
        self.waiting.appendleft(sequence)
        step.preempted.append(sequence)
