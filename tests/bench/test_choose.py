"""Which engine `course.generate` takes, and the reason that it says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import solutions.fast_engine
from course.choose import choose_engine, plain_because
from solutions.engine import Engine, Parts
from solutions.weights import GPT2Config, random_weights

WIDE = GPT2Config(vocab_size=300, n_positions=64, n_embd=256, n_layer=1, n_head=4)
NARROW = GPT2Config(vocab_size=300, n_positions=64, n_embd=128, n_layer=1, n_head=4)


def on_gpu(dtype: torch.dtype) -> Any:
    """Return what says of weights that they are on a GPU, in the place of weights that are."""
    return SimpleNamespace(wte=SimpleNamespace(device=torch.device("cuda"), dtype=dtype))


def test_without_a_gpu_it_is_the_plain_one() -> None:
    weights = random_weights(WIDE, 0, torch.float16, "cpu")
    engine, which = choose_engine(WIDE, weights, block_size=8, num_blocks=4)
    assert (type(engine), engine.block_size) == (Engine, 8)
    assert which == "the plain engine: the fused step needs a GPU"


@pytest.mark.parametrize(
    ("config", "dtype", "kv_dtype", "why"),
    [
        (WIDE, torch.float32, None, r"torch.float32 weights"),
        (WIDE, torch.float16, torch.int8, r"a torch.int8 cache with torch.float16 weights"),
        (NARROW, torch.float16, None, r"a width of 128 with heads of 32"),
    ],
    ids=["fp32", "int8 cache", "narrow"],
)
def test_what_the_fused_step_does_not_support_is_the_plain_one(
    config: GPT2Config, dtype: torch.dtype, kv_dtype: torch.dtype | None, why: str
) -> None:
    assert plain_because(config, on_gpu(dtype), kv_dtype) == f"the fused step does not support {why}"


def test_parts_that_are_named_are_not_passed_over() -> None:
    assert plain_because(WIDE, on_gpu(torch.float16), parts=Parts()) == "its parts are named one by one"


def test_else_it_is_the_fast_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def fast_engine(*arguments: Any, **options: Any) -> str:
        made.append((arguments[0], options))
        return "fast"

    monkeypatch.setattr(solutions.fast_engine, "FastEngine", fast_engine)
    found = choose_engine(WIDE, on_gpu(torch.float16), kv_dtype=None, block_size=16)
    assert found == ("fast", "the fast engine")
    assert made == [(WIDE, {"kv_dtype": None, "block_size": 16})]
