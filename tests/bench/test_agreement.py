"""Tokens against Hugging Face in float32: what is a near tie, and what is a mistake."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from course.bench.agreement import BOUNDS, bound_of, judge
from course.bench.rounds import Measured, Round
from course.bench.workers.truth import System
from course.bench.workload import make_workload
from course.parity.run import BOUNDS as PARITY
from course.parity.run import INT8_BOUNDS

MODEL = Path("course/model")
PROMPTS = [[1, 2], [3]]


def measured(*rounds: list[list[int]]) -> Measured:
    return Measured("mine", *[Round(rounds[0], 1.0, [], [])], [Round(tokens, 1.0, [], []) for tokens in rounds[1:]])


def test_the_bounds_are_the_parity_suites() -> None:
    assert {**{name: gap for name, (_, gap) in PARITY.items()}, "int8": INT8_BOUNDS[1]} == BOUNDS
    assert bound_of({"dtype": "float16", "kv_dtype": "int8"}) == BOUNDS["int8"]
    assert bound_of({"dtype": "float16", "kv_dtype": None}) == BOUNDS["float16"]


def test_the_worst_text_counts() -> None:
    scores = {1: (4, 0.0), 2: (2, 0.04), 3: (1, 0.06)}
    same = judge(measured([[1, 1, 1, 1], [2, 2, 2, 2]]), PROMPTS, 0.05, lambda texts: [scores[t[0]] for _, t in texts])
    assert (same.equal, same.shortest, same.gap, same.holds) == (1, 2, 0.04, True)
    # What only one round has said is judged too.
    drifted = measured([[1, 1, 1, 1], [2, 2, 2, 2]], [[1, 1, 1, 1], [3, 2, 2, 2]])
    found = judge(drifted, PROMPTS, 0.05, lambda texts: [scores[t[0]] for _, t in texts])
    assert (found.requests, found.texts, found.gap, found.holds) == (2, 3, 0.06, False)


def test_what_is_no_number_does_not_hold() -> None:
    found = judge(measured([[1], [2]]), PROMPTS, 0.05, lambda texts: [(1, 0.0), (0, math.nan)])
    assert math.isnan(found.gap)
    assert not found.holds
    first = judge(measured([[1], [2]]), PROMPTS, 0.05, lambda texts: [(0, math.nan), (1, 0.0)])
    assert not first.holds


@pytest.fixture(scope="module")
def truth() -> System:
    return System(str(MODEL), "cpu")


def greedy(truth: System, prompt: list[int], num_new: int) -> list[int]:
    """Continue a prompt with Hugging Face's model, computing everything anew for each token."""
    torch, tokens = truth._torch, list(prompt)
    for _ in range(num_new):
        with torch.inference_mode():
            tokens.append(int(truth._model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


def test_hugging_face_agrees_with_itself(truth: System) -> None:
    """Texts of several lengths in one batch: what pads them is seen by none."""
    prompts = make_workload(3, 6, 256).prompts
    texts = [[prompt, greedy(truth, prompt, 6)] for prompt in prompts]
    for agreed, gap in truth.score(texts)["scores"]:
        assert agreed == 6
        assert gap < 1e-5


def test_a_token_that_is_not_the_best_costs_what_it_gives_away(truth: System) -> None:
    [prompt] = make_workload(1, 6, 256).prompts
    torch, tokens = truth._torch, greedy(truth, prompt, 6)
    with torch.inference_mode():
        log_probs = truth._model(torch.tensor([prompt + tokens[:3]])).logits[0, -1].log_softmax(-1)
    order = log_probs.argsort(descending=True).tolist()
    for place in (1, 20):
        wrong = [*tokens[:3], order[place]]
        [[agreed, gap]] = truth.score([[prompt, wrong]])["scores"]
        assert agreed == 3
        assert gap == pytest.approx(float(log_probs[order[0]] - log_probs[order[place]]), abs=1e-4)
    assert gap > BOUNDS["bfloat16"]


def test_on_a_cpu_no_copy_is_timed(truth: System) -> None:
    assert truth.bandwidth() == {"bytes_per_second": None}


@pytest.mark.gpu
def test_a_copy_is_as_fast_as_memory_can_be() -> None:
    speed = System(model="course/model", device="cuda").bandwidth()["bytes_per_second"]
    assert 1e11 < speed < 2e13, "100 GB/s is no GPU's, 20 TB/s no memory's"
