"""What a page's worker calls: load the model once, start a run, take its steps. Everything passes as JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from course.page_engine.engine import Engine, Failure, Settings
from course.page_engine.gpt2 import GPT2
from course.page_engine.parts import Origin, assemble
from course.page_engine.trail import Place, Trail


class Desk:
    """One model, and one run at a time on it."""

    def __init__(self, config: str, weights: bytes | memoryview) -> None:
        self.model = GPT2(config, bytes(weights))
        self._engine: Engine | None = None

    def start(self, settings: str, answers: str, post: Callable[[str], object]) -> str:
        """Begin a run in place of the last one, and return whose its parts are.

        `answers` are the reader's, by exercise, which pass. `post` hears, as JSON, `[symbol, request]` when a function
        of theirs begins or goes on, and `null` when none is running.
        """
        self._engine = None

        def tell(place: Place | None) -> None:
            post(json.dumps(place))

        trail = Trail(tell)
        parts, origins = assemble(json.loads(answers), trail)
        started: dict[str, Any] = {"origins": [_describe(each) for each in origins], "failure": None}
        try:
            self._engine = Engine(self.model, parts, Settings(**json.loads(settings)), trail)
        except Failure as failure:
            started["failure"] = str(failure)
        return json.dumps(started)

    def step(self) -> str:
        """Take a step and return it, as `engine.Engine.step`; `{"failure": …}` when the engine cannot go on."""
        assert self._engine
        try:
            return json.dumps(self._engine.step())
        except Failure as failure:
            self._engine = None
            return json.dumps({"failure": str(failure)})


def _describe(origin: Origin) -> dict[str, Any]:
    exercise = origin.exercise
    what = {"exercise": exercise.id, "title": exercise.title, "module": exercise.module}
    return {**what, "yours": origin.yours, "why": origin.why}
