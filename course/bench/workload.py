"""What every system is given: the same prompts, as token numbers, and the same number of new tokens."""

from __future__ import annotations

import random
from typing import NamedTuple

SEED = 0
PROMPT_LENGTHS = (5, 60)


class Workload(NamedTuple):
    """`prompts` all arrive at once; each is continued by exactly `new_tokens` tokens, greedily."""

    prompts: list[list[int]]
    new_tokens: int

    @property
    def num_new(self) -> int:
        """The tokens that a system produces in one round. Those of the prompts do not count."""
        return len(self.prompts) * self.new_tokens

    def as_dict(self) -> dict[str, object]:
        return {
            "seed": SEED,
            "requests": len(self.prompts),
            "prompt_tokens": [len(prompt) for prompt in self.prompts],
            "new_tokens": self.new_tokens,
        }


def make_workload(requests: int, new_tokens: int, vocabulary: int) -> Workload:
    """Return prompts of 5 to 60 random tokens, the same ones for the same arguments."""
    chance = random.Random(SEED)
    prompts = [[chance.randrange(vocabulary) for _ in range(chance.randint(*PROMPT_LENGTHS))] for _ in range(requests)]
    return Workload(prompts, new_tokens)
