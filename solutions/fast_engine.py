"""The engine at full speed: decode steps are fused, run several to a turn, and are read one turn late.

While the GPU works on one turn, the host plans and starts the next, and only then reads what the first has sampled.
Where a sequence ended is therefore seen late: that costs a few rows whose tokens nobody wants, never a wrong token.
Prompts take a pass of their own, recorded as graphs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from solutions.cuda_graphs import Graphs
from solutions.engine import Engine, Output, rows_of
from solutions.fused_decode import Entry, FusedDecoder, Turn
from solutions.prompt_graphs import PromptGraphs
from solutions.scheduler import Step
from solutions.weights import GPT2Config, Weights


class _Pending(NamedTuple):
    """A turn that has been started and not been read."""

    step: Step
    turn: Turn


class FastEngine(Engine):
    """`Engine`, with the same answers sooner. `ValueError` for a model or a cache that the fused step does not support.

    `steps_per_turn` is how many decode steps the host plans at once: a new request waits for at most that many. Without
    `use_graphs` the same kernels are launched one by one; without `read_late` each turn is read before the next one is
    planned, so that host and device wait for each other.
    """

    def __init__(
        self,
        config: GPT2Config,
        weights: Weights,
        *args: Any,
        steps_per_turn: int = 8,
        use_graphs: bool = True,
        read_late: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(config, weights, *args, **options)
        scheduler = self.scheduler
        graphs = Graphs(self.device, enabled=use_graphs)
        self.steps_per_turn, self.read_late = steps_per_turn, read_late
        self.decoder = FusedDecoder(config, weights, self.cache, scheduler.max_running, steps_per_turn, graphs)
        self.prompts = PromptGraphs(
            self.model, self.caches, self.decoder, self.block_size, scheduler.max_step_tokens, graphs
        )
        self._pending: _Pending | None = None

    def warm_up(self) -> None:
        """Compile and record everything that a step may need."""
        self.decoder.warm_up()
        self.prompts.warm_up()

    @property
    def has_work(self) -> bool:
        return self._pending is not None or super().has_work

    def step(self) -> list[Output]:
        """Start the next turn, and return what the one before it has sampled."""
        step = self.scheduler.schedule()
        self.cache.copy_blocks(step.copies)
        started = _Pending(step, self._start(step)) if step.batch else None
        outputs = self._read()
        self._pending = started
        return outputs if self.read_late else outputs + self._read()

    def _start(self, step: Step) -> Turn:
        """Start a turn and return at once."""
        sources = self._sources(step)
        if all(each.num_new == 1 and each.samples for each in step.batch):
            num_steps = 1 + self.scheduler.repeat(step, self.steps_per_turn - 1)
            entries = [
                Entry(source, each.sequence.tokens[-1], each.context_len - 1, each.sequence.table.blocks)
                for source, each in zip(sources, step.batch, strict=True)
            ]
            return self.decoder.launch(entries, num_steps)
        rows = zip(sources, rows_of(step), strict=True)
        self.prompts.launch([row if source < 0 else row._replace(tokens=[~source]) for source, row in rows])
        num_rows = sum(each.samples for each in step.batch)
        return self.decoder.read_later(self.decoder.tokens, 1, num_rows, num_rows)

    def _sources(self, step: Step) -> list[int]:
        """Return each sequence's row in the turn under way, where that samples its newest token; -1 if it is known."""
        before = [each for each in self._pending.step.batch if each.samples] if self._pending else []
        rows = {id(each.sequence): row for row, each in enumerate(before)}
        return [-1 if each.context_len <= len(each.sequence.tokens) else rows[id(each.sequence)] for each in step.batch]

    def _read(self) -> list[Output]:
        """Wait for the turn under way and give the sequences its tokens."""
        if self._pending is None:
            return []
        step, turn = self._pending
        self._pending = None
        outputs = self.take(step, turn.tokens())
        self.scheduler.free_finished()
        return outputs
