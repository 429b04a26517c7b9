"""One batch of requests through an engine, watched step by step."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

from course.assembly.build import Refusal, Setup, build_engine
from course.assembly.watchdog import Watchdog
from solutions.block_table import blocks_needed
from solutions.engine import Output, Parts, Tokenizer
from solutions.scheduler import Step

IDLE_STEPS = 20  # steps in a row that compute nothing while requests are open: the scheduler is stuck
COMPILING_STEPS, COMPILING = 3, 120.0  # on a GPU the first steps compile kernels, which takes seconds, not a hang


class Stuck(Exception):
    """Requests are open, and the scheduler plans nothing for them."""


class Generation:
    """Puts all `prompts` at once into an engine made of the setup's parts, and runs it until all have ended.

    A pool of `blocks` blocks; None is as many as all requests need in full. `sequences` is filled with the requests'
    sequences, in order of the requests' numbers, so that a failure can name a request.
    """

    def __init__(
        self,
        setup: Setup,
        watchdog: Watchdog,
        prompts: Sequence[list[int]],
        new_tokens: int,
        blocks: int | None,
        sequences: list[Any],
    ) -> None:
        self._refuse_impossible(setup, prompts, new_tokens, blocks)
        self._watchdog = watchdog
        self._prompts = prompts
        self._new_tokens = new_tokens
        self._sequences = sequences
        self._last: Step | None = None
        self._in_use = 0
        needed = sum(blocks_needed(len(prompt) + new_tokens - 1, setup.block_size) for prompt in prompts)
        watchdog.begin("while building the engine")
        self.engine = build_engine(setup, blocks or needed, self._observed(setup.assembled.parts))
        self.tokens: list[list[int]] = [[] for _ in prompts]
        self.step_seconds: list[float] = []
        self.first_token_seconds: list[float] = [0.0] * len(prompts)
        self.seconds = 0.0
        self.preemptions = 0
        self.most_blocks = 0

    def run(self, step_limit: float, eos_token: int | None, *, tell: bool) -> Iterator[dict[str, Any]]:
        """Run to the end and yield what each step did. `tell` has the parent hear of each step as it begins."""
        start = time.perf_counter()
        with self._watchdog.watching(step_limit, "at the start", self._sequences):
            for number, prompt in enumerate(self._prompts):
                self._watchdog.begin(f"while adding request {number}", tell=tell)
                self.engine.add(prompt, self._new_tokens, eos_token)
            idle = 0
            while self.engine.has_work:
                number = len(self.step_seconds) + 1
                is_compiling = self.engine.device.type == "cuda" and number <= COMPILING_STEPS
                self._watchdog.begin(f"in step {number}", tell=tell, extra=COMPILING if is_compiling else 0.0)
                before = time.perf_counter()
                outputs = self.engine.step()
                after = time.perf_counter()
                self.step_seconds.append(after - before)
                self._take(outputs, after - start)
                assert self._last is not None
                idle = 0 if self._last.batch else idle + 1
                if idle == IDLE_STEPS:
                    raise Stuck(f"{IDLE_STEPS} steps in a row computed nothing, although requests are open")
                yield self._event(self._last, outputs)
        self.seconds = time.perf_counter() - start

    def summary(self) -> dict[str, Any]:
        return {
            "tokens": sum(map(len, self.tokens)),
            "steps": len(self.step_seconds),
            "preemptions": self.preemptions,
            "most_blocks": self.most_blocks,
            "blocks": self.engine.cache.num_blocks,
            "seconds": self.seconds,
        }

    def _take(self, outputs: list[Output], seconds: float) -> None:
        for output in outputs:
            if output.tokens and not self.tokens[output.request]:
                self.first_token_seconds[output.request] = seconds
            self.tokens[output.request] += output.tokens

    def _event(self, step: Step, outputs: list[Output]) -> dict[str, Any]:
        numbers = {id(sequence): number for number, sequence in enumerate(self._sequences)}
        in_use = self._in_use
        self.preemptions += len(step.preempted)
        self.most_blocks = max(self.most_blocks, in_use)
        return {
            "step": len(self.step_seconds),
            "blocks_in_use": in_use,
            "batch": [[numbers[id(each.sequence)], each.num_new] for each in step.batch],
            "preempted": [numbers[id(sequence)] for sequence in step.preempted],
            "finished": {output.request: output.finished for output in outputs if output.finished},
        }

    def _observed(self, parts: Parts) -> Parts:
        """Return the same parts, with the sequences that are made and the steps that are planned kept here."""
        observer = self

        def sequence(*args: Any) -> Any:
            made = parts.sequence(*args)
            observer._sequences.append(made)
            return made

        class Observed(parts.scheduler):  # type: ignore[name-defined, misc]
            def schedule(self) -> Step:
                step: Step = super().schedule()
                # Counted now: when the step is over, the blocks of what ended in it are free again.
                observer._last = step
                observer._in_use = observer.engine.cache.num_blocks - self.pool.num_free
                return step

        return replace(parts, sequence=cast("type", sequence), scheduler=Observed)

    @staticmethod
    def _refuse_impossible(setup: Setup, prompts: Sequence[list[int]], new_tokens: int, blocks: int | None) -> None:
        """Say beforehand what no engine could do, so that a part that refuses it is not taken for a broken one."""
        for number, prompt in enumerate(prompts):
            if not prompt:
                raise Refusal(f"prompt {number} is empty: there is nothing to continue")
            total = len(prompt) + new_tokens
            if total > setup.config.n_positions:
                raise Refusal(
                    f"prompt {number} has {len(prompt)} tokens; with {new_tokens} new ones that is more than the "
                    f"model's {setup.config.n_positions} positions: ask for fewer with --new-tokens"
                )
            needed = blocks_needed(total - 1, setup.block_size)
            if blocks is not None and needed > blocks:
                raise Refusal(
                    f"prompt {number} needs {needed} blocks of {setup.block_size} tokens, and a pool of {blocks} can "
                    f"never hold it: ask for more with --blocks"
                )


class Texts:
    """Turns tokens into text as they come, holding back what is not a whole character yet."""

    def __init__(self, tokenizer: Tokenizer, count: int) -> None:
        self._tokenizer = tokenizer
        self._shown = [""] * count

    def new(self, request: int, tokens: list[int], *, ended: bool) -> str:
        """Return what is new of a request's text."""
        text = self._tokenizer.decode(tokens)
        if not ended:
            text = text.rstrip("\ufffd")
        piece = text[len(self._shown[request]) :]
        self._shown[request] += piece
        return piece
