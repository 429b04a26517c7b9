"""The pass over prompts on folded weights, against a plain float64 computation token by token."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from solutions import attention
from solutions.batch import Row, build_batch
from solutions.block_table import slot_mapping
from solutions.fused_decode import FusedDecoder, Linear
from solutions.gpt2 import GPT2
from solutions.kv_cache import KVCache
from solutions.prompt_pass import PromptPass, _Product
from solutions.weights import GPT2Config, random_weights
from tests.engine.fused_checks import reference_step, varied

CONFIG = GPT2Config(vocab_size=300, n_positions=64, n_embd=256, n_layer=2, n_head=4)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def errors(planted: bool = False) -> tuple[float, float]:
    """Return the errors of the logits and of the keys and values of two prompts, of which one comes in two chunks."""
    torch.manual_seed(0)
    weights = varied(random_weights(CONFIG, 0, torch.float16, DEVICE))
    for layer in weights.layers:  # biases that move the residual stream's mean: the folded one has none
        layer.attn_c_proj_bias.add_(2)
        layer.mlp_c_proj_bias.sub_(1)
    cache = KVCache(2, 8, 16, 4, 64, torch.float16, DEVICE)
    cache.data.fill_(float("nan"))
    decoder = FusedDecoder(CONFIG, weights, cache, max_rows=2, max_steps=1)
    if planted:
        decoder.linears[1][2].bias.zero_()
    forward = PromptPass(GPT2(CONFIG, weights, attention.write_kv, attention.paged_attention), decoder).forward
    caches = [cache.layer(index) for index in range(2)]
    prompts = [torch.randint(0, 300, (length,)).tolist() for length in (17, 33)]
    tables = [[5, 0], [2, 7, 3]]
    steps = [
        [Row(prompts[1][:16], 16, tables[1][:1], False)],
        [Row(prompts[0], 17, tables[0], True), Row(prompts[1][16:], 33, tables[1], True)],
    ]
    with torch.inference_mode():
        for rows in steps:
            batch = build_batch(rows, 16, slot_mapping, torch.device(DEVICE))
            normed = forward(batch, caches)
    head = decoder.head
    logits = (normed[batch.sample_rows].double() @ head.weight.double().T + head.bias.double())[:, :300]
    logits_errors, kv_errors = [], []
    for index, (prompt, table) in enumerate(zip(prompts, tables, strict=True)):
        past = cache.data.new_zeros((2, 2, 0, 4, 64), dtype=torch.float64)
        for position, token in enumerate(prompt):
            wanted, past = reference_step(CONFIG, weights, token, position, past)
        slots = slot_mapping(table, 16, len(prompt), len(prompt))
        found = cache.data.flatten(2, 3)[:, :, slots].double()
        kv_errors.append((found - past).norm() / past.norm())
        logits_errors.append((logits[index] - wanted).norm() / wanted.norm())
    return float(torch.stack(logits_errors).max()), float(torch.stack(kv_errors).max())  # NaN where one is


def test_a_prompt_is_computed_as_in_float64() -> None:
    logits_error, kv_error = errors()
    assert logits_error < 3e-3
    assert kv_error < 3e-3


@pytest.mark.gpu
def test_a_prompt_is_computed_as_in_float64_on_a_gpu() -> None:
    """There GELU leaves with its product: it is the form with the hyperbolic tangent."""
    test_a_prompt_is_computed_as_in_float64()
    torch.manual_seed(0)
    linear = Linear(torch.randn(64, 256, device="cuda").half(), torch.randn(64, device="cuda"))
    inputs = torch.randn(8, 256, device="cuda").half() / 8
    exact = inputs.double() @ linear.weight.double().T + linear.bias.double()
    found = _Product(linear).with_gelu(inputs).double()
    errors = [float((found - F.gelu(exact, approximate=form)).norm()) for form in ("tanh", "none")]
    assert errors[0] < errors[1]


def test_a_bias_that_is_left_out_shows() -> None:
    logits_error, _ = errors(planted=True)
    assert logits_error > 0.02
