"""Holds what every system generated against Hugging Face in float32, so that none wins by being wrong.

Each token is judged in the context that the system itself chose: how much log-probability does it give away against the
best token there? A near tie is none, and a wrong attention mask much. The bound is that of the parity suite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from course.bench.rounds import Measured

# The largest log-probability that a choice may give away, by the wider error of weights and KV cache: `parity.run`'s.
BOUNDS = {"float32": 0.005, "float16": 0.05, "bfloat16": 0.4, "int8": 0.4}

Text = tuple[list[int], list[int]]  # a prompt, and what a system put after it
Score = Callable[[Sequence[Text]], list[tuple[int, float]]]  # of each text: (tokens until the first difference, gap)


class Agreement(NamedTuple):
    """`requests` texts of `tokens` tokens each: `equal` are Hugging Face's own to the end.

    `shortest` is the fewest tokens before the first difference, `gap` the largest log-probability given away. A system
    that repeats itself has one text a request; another has as many as it made in its rounds (`texts`).
    """

    requests: int
    texts: int
    tokens: int
    equal: int
    shortest: int
    agreed: list[int]
    gap: float
    bound: float

    @property
    def holds(self) -> bool:
        return self.gap <= self.bound  # NaN does not


def bound_of(details: dict[str, Any]) -> float:
    """Return what a system of these dtypes may give away."""
    return max(BOUNDS[details[name]] for name in ("dtype", "kv_dtype") if details.get(name))


def judge(measured: Measured, prompts: Sequence[list[int]], bound: float, score: Score) -> Agreement:
    """Judge all that a system generated, in its warm-up and in its rounds."""
    texts = [
        (prompt, list(tokens))
        for request, prompt in enumerate(prompts)
        for tokens in sorted({tuple(each.tokens[request]) for each in (measured.warm_up, *measured.rounds)})
    ]
    scores = score(texts)
    agreed = [same for same, _ in scores]
    num_tokens = len(texts[0][1])
    gaps = [gap for _, gap in scores]
    gap = next((each for each in gaps if each != each), max(gaps))
    return Agreement(
        requests=len(prompts),
        texts=len(texts),
        tokens=num_tokens,
        equal=sum(same == num_tokens for same in agreed),
        shortest=min(agreed),
        agreed=agreed,
        gap=gap,
        bound=bound,
    )
