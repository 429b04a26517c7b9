"""What a decode step has to read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course.bench.floor import decode_steps, seconds, step_numbers
from course.bench.workload import make_workload

MODEL = Path("course/model")
FP16 = {"dtype": "float16", "kv_dtype": "float16"}


def test_all_weights_of_a_real_model_are_counted_but_its_positions() -> None:
    with (MODEL / "model.safetensors").open("rb") as file:
        tensors = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    shapes = {name: each["shape"] for name, each in tensors.items() if name != "__metadata__"}
    sizes = {name: shape[0] * (shape[1] if len(shape) > 1 else 1) for name, shape in shapes.items()}
    positions = [name for name in sizes if name.endswith("wpe.weight")]
    assert len(positions) == 1
    numbers = step_numbers(json.loads((MODEL / "config.json").read_text("utf-8")))
    assert numbers["weights"] == sum(sizes.values()) - sizes[positions[0]]


def test_gpt2_small_at_context_64() -> None:
    """247.3 MB of weights in 16 bits and 36,864 bytes a token, at 4.26 TB/s."""
    numbers = step_numbers({"n_embd": 768, "n_layer": 12, "vocab_size": 50257})
    assert 2 * numbers["weights"] == pytest.approx(247.3e6, rel=1e-3)
    assert 2 * numbers["kv_per_token"] == 36_864
    for requests, microseconds in ((1, 58.6), (8, 62.5), (32, 75.8), (256, 199.8)):
        workload = {"prompt_tokens": [32] * requests, "new_tokens": 64}  # 64 tokens on average
        found = seconds(workload, FP16, numbers, 4.26e12)
        assert found is not None
        assert found * 1e6 == pytest.approx(microseconds, abs=0.06)


def test_the_mean_context_is_that_of_the_decode_steps() -> None:
    workload = make_workload(5, 7, 100)
    numbers = {"weights": 0, "kv_per_token": 1}
    contexts = [[len(prompt) + step for prompt in workload.prompts] for step in range(1, workload.new_tokens)]
    read = 2 * sum(map(sum, contexts)) / len(contexts)
    assert seconds(workload.as_dict(), FP16, numbers, 1.0) == pytest.approx(read)


def test_int8_keys_halve_the_cache_alone() -> None:
    workload = {"prompt_tokens": [32], "new_tokens": 64}
    numbers = {"weights": 1000, "kv_per_token": 10}
    assert seconds(workload, FP16, numbers, 1.0) == 2 * (1000 + 640)
    assert seconds(workload, {**FP16, "kv_dtype": "int8"}, numbers, 1.0) == 2 * 1000 + 640
    assert seconds(workload, {**FP16, "kv_dtype": None}, numbers, 1.0) is None


def test_a_decode_step_begins_when_the_last_prompt_is_done() -> None:
    rounds = [{"seconds": 1.0, "first_token_seconds": [0.1, 0.37]}, {"seconds": 2.0, "first_token_seconds": []}]
    assert decode_steps(rounds, 64) == [pytest.approx(0.01)]
    assert decode_steps(rounds, 1) == []
