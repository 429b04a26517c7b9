"""Planted bugs in the model, the batch and the engine: each entry of the catalogue must turn something red."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from course.parity import record
from course.parity.compare import compare
from solutions import engine as engine_module
from solutions.engine import Engine, Parts
from tests.engine.planting import plant
from tests.engine.tiny import tiny_model

TOLERANCE, GAP = 1e-4, 0.005


def tokens_of(length: int, seed: int = 0) -> list[int]:
    return torch.randint(300, (length,), generator=torch.Generator().manual_seed(seed)).tolist()


def parity_holds(parts: Parts | None = None) -> bool:
    """Whether every plan of two prompts agrees with Hugging Face, in hidden states and log-probabilities."""
    config, weights, reference = tiny_model()
    engine = Engine(config, weights, num_blocks=64, parts=parts)
    results = [each for length in (1, 21) for each in compare(engine, reference, tokens_of(length), TOLERANCE)]
    return all(each.divergence is None and each.log_prob_gap <= GAP for each in results)


def batch_equals_solo(engine_class: Any = Engine, eos_token: int | None = None) -> bool:
    """Whether three prompts together give what each gives alone."""
    config, weights, _ = tiny_model()
    prompts = [tokens_of(length, length) for length in (5, 1, 17)]
    alone = [Engine(config, weights, num_blocks=64).generate([prompt], 12, eos_token)[0] for prompt in prompts]
    together: Any = engine_class(config, weights, num_blocks=64)
    try:
        return bool(together.generate(prompts, 12, eos_token) == alone)
    except Exception:
        return False


def test_nothing_is_red_without_a_bug() -> None:
    assert parity_holds()
    assert batch_equals_solo()
    assert all(batch_equals_solo(eos_token=token) for token in _first_tokens())


def _first_tokens() -> list[int]:
    """The first token that each of the three prompts generates: as an end token it ends that one at once."""
    config, weights, _ = tiny_model()
    return [Engine(config, weights, num_blocks=64).generate([tokens_of(n, n)], 1)[0][0] for n in (5, 1, 17)]


MODEL_BUGS = {
    "GP01": ('approximate="tanh"', 'approximate="none"'),
    "GP02": ("config.n_embd), layer.attn_c_proj_weight)", "config.n_embd), layer.attn_c_proj_weight.T)"),
    "GP06": (
        "self.weights.wpe[batch.positions]",
        "(self.weights.wpe[batch.positions] if len(batch.tokens) > 1 else 0)",
    ),
    "GP08": (
        "return F.layer_norm(hidden, (self.config.n_embd,), weight, bias, self.config.layer_norm_epsilon)",
        "return (hidden - hidden.mean(-1, True)) / (hidden.std(-1, keepdim=True) + 1e-5) * weight + bias",
    ),
    "GP09": ("self.config.layer_norm_epsilon)", "1e-12)"),
    "GP10": (
        "hidden = hidden + self.mlp(layer, hidden)",
        "hidden = self.layer_norm(hidden + self.mlp(layer, hidden), layer.ln_2_weight, layer.ln_2_bias)",
    ),
    "GP11": ("return normed @ self.weights.wte.T", "return hidden @ self.weights.wte.T"),
    "GP12": ("return normed @ self.weights.wte.T", "return normed @ torch.zeros_like(self.weights.wte).T"),
    "GP13": (
        "qkv.view(-1, 3, config.n_head, config.head_dim).unbind(1)",
        "qkv.view(-1, config.n_head, 3, config.head_dim).unbind(2)",
    ),
    "GP14": ("heads.reshape(-1, config.n_embd)", "heads.transpose(0, 1).reshape(-1, config.n_embd)"),
    "GP15": ("self.weights.wte[batch.tokens]", "self.weights.wte[batch.tokens] * self.config.n_embd**0.5"),
}


@pytest.mark.parametrize("entry", MODEL_BUGS)
def test_a_bug_in_the_model_breaks_parity(entry: str, tmp_path: Path) -> None:
    module = plant("gpt2", [MODEL_BUGS[entry]], tmp_path)
    assert not parity_holds(Parts(model=module.GPT2))


BATCH_BUGS = {
    "GP05": ("positions += range(first, row.context_len)", "positions += range(num_new)"),
    "GP07": (
        "positions += range(first, row.context_len)",
        "positions += range(starts[-1] + first, starts[-1] + row.context_len)",
    ),
    "GP16": ("sample_rows.append(starts[-1] - 1)", "sample_rows.append(-1)"),
    "SM06": ("slots += slot_mapping(row.blocks", "slots += slot_mapping(row.blocks[:1] + row.blocks[:-1]"),
    "SM12": ("starts.append(starts[-1] + num_new)", "starts.append(starts[-1] + len(rows[0].tokens))"),
}
# SM13 (a row without a sample shifts the others' tokens) cannot show here: a chunk that does not sample has used up the
# token budget, so it is always the last of its step.


@pytest.mark.parametrize("entry", BATCH_BUGS)
def test_a_bug_in_the_batch_is_seen(entry: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = plant("batch", [BATCH_BUGS[entry]], tmp_path)
    config, weights, _ = tiny_model()
    prompts = [tokens_of(length, length) for length in (5, 1, 17)]
    alone = [Engine(config, weights, num_blocks=64).generate([prompt], 12)[0] for prompt in prompts]
    monkeypatch.setattr(engine_module, "build_batch", module.build_batch)
    monkeypatch.setattr(record, "build_batch", module.build_batch)
    try:
        seen = Engine(config, weights, num_blocks=64).generate(prompts, 12) != alone or not parity_holds()
    except Exception:
        seen = True
    assert seen


ENGINE_BUGS = {
    "SC09": (
        "                sequence.take(None)\n",
        "                sequence.take(None)\n"
        "                sampled.insert(sampled.index(tokens), sampled.pop() and tokens)\n",
    ),
    "SC30": (
        "eos = request.eos_token\n",
        "eos = request.eos_token if len(sequence.tokens) > sequence.num_prompt else None\n",
    ),
}


@pytest.mark.parametrize("entry", ENGINE_BUGS)
def test_a_bug_in_reading_tokens_is_seen(entry: str, tmp_path: Path) -> None:
    module = plant("engine", [ENGINE_BUGS[entry]], tmp_path)
    assert not all(batch_equals_solo(module.Engine, token) for token in _first_tokens())
