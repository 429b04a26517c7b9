"""The small model that ships with the course: its promises, its parity, and that it writes English."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from course.parity.compare import compare, compare_greedy
from course.parity.models import load_pair
from solutions.engine import Engine
from solutions.tokenizer import load_tokenizer
from solutions.weights import load_weights, read_config, tensor_shapes

FOLDER = Path("course/model")
# Common words of the text it learned. A model that has learned nothing writes none of them.
WORDS = {"the", "and", "said", "alice", "to", "a", "it", "was", "in", "of", "she", "i", "you"}


def make_engine(**options: int) -> Engine:
    config = read_config(FOLDER)
    weights = load_weights(FOLDER, config, torch.float32, torch.device("cpu"))
    return Engine(config, weights, load_tokenizer(str(FOLDER), config.vocab_size), num_blocks=64, **options)


def test_it_keeps_to_its_size() -> None:
    config = read_config(FOLDER)
    assert sum(torch.Size(shape).numel() for shape in tensor_shapes(config).values()) <= 700_000
    assert config.n_head >= 2
    assert config.head_dim >= 32
    assert config.n_positions == 256


def test_its_training_is_recorded() -> None:
    record = json.loads((FOLDER / "training.json").read_text("utf-8"))
    curve = record["curve"]
    assert record["seed"] == 20
    assert curve[0]["train"] > 5 > 1.2 > curve[-1]["train"]
    assert {"command", "text", "steps", "device", "versions", "parameters"} <= record.keys()


@pytest.mark.parametrize("prompt", ["Alice was ", "The Queen said", "`What is "])
def test_it_writes_recognisable_text(prompt: str) -> None:
    engine = make_engine()
    (tokens,) = engine.generate([prompt], 120)
    assert engine.tokenizer is not None
    words = "".join(char if char.isalpha() else " " for char in engine.tokenizer.decode(tokens).lower()).split()
    assert len(words) > 12
    assert sum(word in WORDS for word in words) / len(words) > 0.3


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 21, 63, 64, 65, 250])
def test_parity(length: int) -> None:
    config, weights, reference = load_pair(str(FOLDER), torch.float32, "cpu")
    engine = Engine(config, weights, num_blocks=64)
    tokens = list(Path("solutions/scheduler.py").read_bytes()[:length])
    for result in compare(engine, reference, tokens, 1e-4):
        assert result.divergence is None, result.divergence
        assert result.log_prob_gap <= 0.005


def test_greedy_parity() -> None:
    config, weights, reference = load_pair(str(FOLDER), torch.float32, "cpu")
    result = compare_greedy(Engine(config, weights, num_blocks=64), reference, list(b"Alice was beginning"), 64, 0.005)
    assert result.equal
