"""The engine at full speed: decode steps are fused, run several to a turn, and are read one turn late.

While the GPU works on one turn, the host plans and starts the next, and only then reads what the first has sampled.
Where a sequence ended is therefore seen late: that costs a few rows whose tokens nobody wants, never a wrong token.
Prompts take the reference's path, and so does everything that the fused step does not support.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from solutions.engine import Engine, Output
from solutions.fused_decode import Entry, FusedDecoder, Turn
from solutions.scheduler import Step
from solutions.weights import GPT2Config, Weights


class _Pending(NamedTuple):
    """A turn that has been started and not been read."""

    step: Step
    turn: Turn


class FastEngine(Engine):
    """`Engine`, with the same answers sooner. `ValueError` for a model or a cache that the fused step does not support.

    `steps_per_turn` is how many decode steps the host plans at once: a new request waits for at most that many.
    """

    def __init__(
        self, config: GPT2Config, weights: Weights, *args: Any, steps_per_turn: int = 16, **options: Any
    ) -> None:
        super().__init__(config, weights, *args, **options)
        self.steps_per_turn = steps_per_turn
        self.decoder = FusedDecoder(config, weights, self.cache, self.scheduler.max_running, steps_per_turn)
        self._pending: _Pending | None = None

    def warm_up(self) -> None:
        """Compile and capture everything that a step may need."""
        self.decoder.warm_up()

    @property
    def has_work(self) -> bool:
        return self._pending is not None or super().has_work

    def step(self) -> list[Output]:
        """Start the next turn, and return what the one before it has sampled."""
        scheduler = self.scheduler
        outputs: list[Output] = []
        if scheduler.waiting or not all(sequence.is_decoding for sequence in scheduler.running):
            outputs += (
                self._read()
            )  # what is admitted shares a step with those that run, and that step needs their tokens
        step = scheduler.schedule()
        self.cache.copy_blocks(step.copies)
        if step.batch and all(each.num_new == 1 and each.samples for each in step.batch):
            return outputs + self._start(step)
        outputs += self._read()
        return outputs + self.run(step) if step.batch else outputs

    def _start(self, step: Step) -> list[Output]:
        """Start a turn of decodes; return what the one before it has sampled."""
        num_steps = 1 + self.scheduler.repeat(step, self.steps_per_turn - 1)
        pending = self._pending
        rows = {id(each.sequence): row for row, each in enumerate(pending.step.batch)} if pending else {}
        entries = []
        for each in step.batch:
            sequence = each.sequence
            is_known = each.context_len <= len(sequence.tokens)
            source, token = (-1, sequence.tokens[each.context_len - 1]) if is_known else (rows[id(sequence)], 0)
            entries.append(Entry(source, token, each.context_len - 1, sequence.table.blocks))
        turn = self.decoder.launch(entries, num_steps)
        outputs = self._read()
        self._pending = _Pending(step, turn)
        return outputs

    def _read(self) -> list[Output]:
        """Wait for the turn under way and give the sequences its tokens."""
        if self._pending is None:
            return []
        step, turn = self._pending
        self._pending = None
        outputs = [output for sampled in turn.tokens() for output in self.take(step, sampled)]
        self.scheduler.free_finished()
        return outputs
