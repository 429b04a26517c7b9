"""What the child can do for its parent: look at the machine, put an engine together, generate, hold it against others.

A task is a dictionary: its name as `task`, `step_limit` in seconds, and what the method of that name takes. Its answer
is a series of events, the last of which is "done"; or "failed" (`blame.Failure`), or "refused", with the reason `why`.
"""

from __future__ import annotations

import gc
import os
import time
from dataclasses import asdict
from typing import Any

import torch

from course.assembly import blame
from course.assembly.build import Refusal, Setup, build_engine, machine, set_up
from course.assembly.generation import Generation, Texts
from course.assembly.watchdog import Send, Watchdog

START_LIMIT = 900.0  # seconds for what is slow and no part's fault: fetching weights


class Tasks:
    """Holds what one task leaves for the next."""

    def __init__(self, send: Send, last_words: int) -> None:
        self._send = send
        self._watchdog = Watchdog(send, last_words)
        self._setup: Setup | None = None
        self._sequences: list[Any] = []  # those of the engine at work, in order of its requests' numbers

    def do(self, job: dict[str, Any]) -> None:
        """Do a task and say how it ended."""
        task = job.pop("task")
        self._sequences = []
        try:
            with self._watchdog.watching(START_LIMIT, "at the start"):
                done = getattr(self, f"_{task}")(**job)
        except Refusal as refusal:
            self._send("refused", {"why": str(refusal)})
        except BaseException as error:  # SystemExit and KeyboardInterrupt are the learner's too
            self._send("failed", blame.of_exception(error, self._watchdog.when, self._sequences)._asdict())
        else:
            self._send("done", done)

    def _look(self, step_limit: float, device: str | None, interpret: bool) -> dict[str, Any]:
        if interpret:
            os.environ["TRITON_INTERPRET"] = "1"  # read by Triton when it is imported
        return machine(device)

    def _assemble(self, step_limit: float, **settings: Any) -> dict[str, Any]:
        start = time.perf_counter()
        self._watchdog.begin("while loading the model")
        self._setup = set_up(**settings)
        return {
            "seconds": time.perf_counter() - start,
            "vocabulary": self._setup.config.vocab_size,
            "threads": torch.get_num_threads(),
        }

    def _generate(self, step_limit: float, prompts: list[str], new_tokens: int, blocks: int | None) -> dict[str, Any]:
        """Continue texts, with an event a step."""
        setup = self._ready
        encoded = [setup.tokenizer.encode(prompt) for prompt in prompts]
        generation = Generation(setup, self._watchdog, encoded, new_tokens, blocks, self._sequences)
        self._send("started", {"cache": generation.engine.describe(), "blocks": generation.engine.cache.num_blocks})
        texts = Texts(setup.tokenizer, len(prompts))
        for event in generation.run(step_limit, setup.tokenizer.eos_token_id, tell=True):
            requests = {request for request, _ in event["batch"]}
            event["text"] = {
                request: texts.new(request, generation.tokens[request], ended=request in event["finished"])
                for request in sorted(requests)
            }
            self._send("step", event)
        return generation.summary()

    def _round(
        self, step_limit: float, prompts: list[list[int]], new_tokens: int, blocks: int | None
    ) -> dict[str, Any]:
        """Continue token numbers and measure it. Nothing is said before the end, and only the length ends a request."""
        generation = Generation(self._ready, self._watchdog, prompts, new_tokens, blocks, self._sequences)
        gc.collect()
        for _ in generation.run(step_limit, None, tell=False):
            pass
        return {
            "tokens": generation.tokens,
            "seconds": generation.seconds,
            "step_seconds": generation.step_seconds,
            "first_token_seconds": generation.first_token_seconds,
            "preemptions": generation.preemptions,
        }

    def _parity(self, step_limit: float, dtype: str) -> dict[str, Any]:
        """Hold the engine against Hugging Face, with an event a comparison."""
        from course.parity.models import load_reference
        from course.parity.run import hold

        setup = self._ready
        engine = build_engine(setup, blocks=2 * -(-setup.config.n_positions // setup.block_size))
        reference = load_reference(setup.folder, setup.weights.wte.dtype, str(engine.device))
        self._send("started", {"cache": engine.describe(), "blocks": engine.cache.num_blocks})
        agrees = True
        with self._watchdog.watching(step_limit, "at the start"):
            for row in hold(engine, reference, dtype, self._watchdog.begin):
                agrees &= row.agrees
                self._send("compared", asdict(row))
        return {"agrees": agrees}

    @property
    def _ready(self) -> Setup:
        assert self._setup is not None
        return self._setup
