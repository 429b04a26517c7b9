"""The fused decode step against float64, and the fast engine against the plain one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from solutions import fused_decode
from solutions.block_pool import BlockPool
from solutions.block_table import BlockTable
from solutions.cuda_graphs import Graphs
from solutions.engine import Engine
from solutions.fast_engine import FastEngine
from solutions.fused_decode import FusedDecoder, _Recorded, unsupported
from solutions.kv_cache import KVCache
from solutions.scheduler import Scheduler, Sequence
from solutions.weights import GPT2Config, random_weights
from tests.engine.fused_checks import GPT2_SMALL, SMALL, Scene, compare, varied

TINY = GPT2Config(vocab_size=300, n_positions=64, n_embd=256, n_layer=1, n_head=4)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.parametrize("contexts", [[17], [15, 16, 31], [16] * 20], ids=["gemv", "skinny", "tiled"])
def test_the_fused_step_is_the_float64_one(contexts: list[int]) -> None:
    """Context lengths around the block size, in scrambled blocks; whatever no token owns is NaN, and stays so."""
    found = compare(Scene(TINY, contexts, 2, DEVICE), 2)
    assert found.token_gap < 0.01, found
    assert found.kv_error < 2e-3, found


@pytest.mark.parametrize("size", [1, 8, 16, 256])
def test_what_layer_norm_takes_away_changes_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of plan, with biases that move the mean of the residual stream: the fused one has no mean at all.

    And with an epsilon that counts.
    """
    monkeypatch.setattr(fused_decode, "PLANS", {256: fused_decode.PLANS[size]})
    scene = Scene(replace(SMALL, layer_norm_epsilon=0.01), [17, 65][: min(size, 2)], 1, DEVICE)
    for layer in scene.weights.layers:
        layer.attn_c_proj_bias.add_(2)
        layer.mlp_c_proj_bias.sub_(1)
    found = compare(scene, 1)
    assert found.token_gap < 0.01, found
    assert found.kv_error < 2e-3, found


@pytest.mark.parametrize("size", [1, 4, 16, 64])
def test_the_longest_of_short_contexts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels without a loop among them, whose one tile is full."""
    plan = fused_decode.PLANS[size]._replace(attend_long=None)  # type: ignore[arg-type]  # not to be asked
    monkeypatch.setattr(fused_decode, "PLANS", {256: plan})
    scene = Scene(replace(SMALL, n_layer=1), [fused_decode.SHORT - 1, 5][: min(size, 2)], 1, DEVICE)
    decoder = FusedDecoder(scene.config, scene.weights, scene.cache, max_rows=2, max_steps=1)
    monkeypatch.setattr(
        decoder,
        "_record",
        lambda size: _Recorded(
            lambda: decoder._enter(size), lambda: decoder._step(size, long=False), lambda: pytest.fail("a long step")
        ),
    )
    for stale in (decoder.given.there, decoder.tables):
        stale.fill_(2**31 - 1)
    found = compare(scene, 1, decoder)
    assert found.token_gap < 0.01, found
    assert found.kv_error < 2e-3, found


class RunsOnce(Graphs):
    """Runs a call when it is recorded, as on a GPU."""

    def record(self, call: Callable[[], None], kept: torch.Tensor) -> Callable[[], None]:
        before = kept.clone()
        call()
        kept.copy_(before)
        return call


def test_what_is_recorded_between_turns_reads_nothing_of_the_one_before() -> None:
    """Its numbers are laid out for another size: taken for places, they lead anywhere."""
    scene = Scene(replace(SMALL, n_layer=1), [17], 1, DEVICE)
    graphs = RunsOnce(torch.device(DEVICE))
    decoder = FusedDecoder(scene.config, scene.weights, scene.cache, max_rows=4, max_steps=1, graphs=graphs)
    decoder.given.there.fill_(3)  # all of it in bounds, so that a mistake does no harm here
    decoder._record(1)
    assert not decoder.tables.any()
    found = compare(scene, 1, decoder)
    assert found.token_gap < 0.01, found
    assert found.kv_error < 2e-3, found


def test_recording_runs_no_more_steps_than_a_turn_has() -> None:
    """Each step that is run writes one more row of `sampled`, which has as many as the longest turn."""
    scene = Scene(replace(SMALL, n_layer=1), [17], 1, DEVICE)
    graphs = RunsOnce(torch.device(DEVICE))
    decoder = FusedDecoder(scene.config, scene.weights, scene.cache, max_rows=1, max_steps=1, graphs=graphs)
    with_next = torch.full((2,), -1, dtype=torch.int32, device=DEVICE)
    decoder.sampled = with_next[:1]
    decoder._record(1)
    assert with_next[1] == -1


@pytest.mark.parametrize("size", [1, 8, 256])
def test_plans_for_long_contexts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn's longest row decides; short ones beside it come out right as well."""
    plan = fused_decode.PLANS[size]._replace(attend=None)  # type: ignore[arg-type]  # not to be asked
    monkeypatch.setattr(fused_decode, "PLANS", {256: plan})
    scene = Scene(replace(SMALL, n_layer=1), [130, 17][: min(size, 2)], 1, DEVICE)
    found = compare(scene, 1)
    assert found.token_gap < 0.01, found
    assert found.kv_error < 2e-3, found


def test_a_short_context_fits_into_the_tile_of_a_plan_without_a_loop() -> None:
    for size, plan in fused_decode.PLANS.items():
        assert plan.attend.stages or plan.attend.tile >= fused_decode.SHORT, size
        assert plan.attend_long.stages, size


def test_what_a_plan_in_fixed_point_may_have_and_no_other() -> None:
    """The residual stream is read as it is by one row or in a loop; no program stores to what others add to."""
    for size, plan in fused_decode.PLANS.items():
        readers, attends = (plan.qkv, plan.up, plan.head), (plan.attend, plan.attend_long)
        if plan.fixed:
            assert plan.proj.splits and plan.down.splits, size
            assert all(cut.splits == 1 and (cut.rows == 1 or cut.step) for cut in readers if cut.direct), size
        else:
            assert not any(cut.direct for cut in readers), size
            assert not any(attend.outputs for attend in attends), size


@pytest.mark.parametrize("size", [size for size, plan in fused_decode.PLANS.items() if plan.fixed])
def test_fixed_point_holds_all_that_fp16_can(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused_decode, "PLANS", {256: fused_decode.PLANS[size]})
    scene = Scene(replace(SMALL, n_layer=1), [17, 65][: min(size, 2)], 1, DEVICE)
    wide = scene.weights.wpe.float()
    scene.weights.wpe.copy_(wide * (60_000 / wide.abs().amax(1, keepdim=True)))
    found = compare(scene, 1)
    assert found.token_gap < 0.01, found
    assert found.kv_error < 2e-3, found


def test_attention_may_be_the_output_projection_of_several_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the tensor cores too, which no plan has so far."""
    plan = fused_decode.PLANS[16]
    attend, attend_long = (each._replace(outputs=128) for each in (plan.attend, plan.attend_long))
    for long in (False, True):
        only = {"attend_long": attend_long, "attend": None} if long else {"attend": attend, "attend_long": None}
        monkeypatch.setattr(fused_decode, "PLANS", {256: plan._replace(**only)})  # type: ignore[arg-type]
        found = compare(Scene(SMALL, [130 if long else 17, 65], 1, DEVICE), 1)
        assert found.token_gap < 0.01, found
        assert found.kv_error < 2e-3, found


@pytest.mark.parametrize("size", [1, 4, 16])
def test_the_products_of_a_plan_at_the_width_of_gpt2_small(size: int) -> None:
    """Three parts of the columns: other tests without a GPU are too narrow for them. Of the outputs only a few."""
    width, plan = 768, fused_decode.PLANS[size]
    scene = Scene(TINY, [17], 1, DEVICE)
    decoder = FusedDecoder(TINY, scene.weights, scene.cache, max_rows=size, max_steps=1)
    for name, depth in (("qkv", width), ("proj", width), ("up", width), ("down", 4 * width)):
        cut = getattr(plan, name)
        writes = name in ("proj", "down")
        x = torch.randn(16, depth, device=DEVICE).half()  # a row and a tile
        weight = (torch.randn(4 * cut.outputs, depth, device=DEVICE) * depth**-0.5).half()
        linear = fused_decode.Linear(weight, torch.randn(len(weight), device=DEVICE))
        out = torch.zeros(size, len(weight), dtype=torch.int32 if writes and plan.fixed else x.dtype, device=DEVICE)
        inputs = (x.float() * fused_decode.UNITS.value).int() if cut.direct else x
        options = {"partial" if cut.splits else "add": True} if writes else {}
        decoder._multiply(linear, (inputs, 0), out, size, cut, **options)
        wide = x[:size].double()
        if cut.direct:
            wide *= (wide.square().mean(1, keepdim=True) + TINY.layer_norm_epsilon).rsqrt()
        expected = wide @ weight.double().T + linear.bias.double()
        if out.dtype == torch.int32:  # each program rounds once
            expected *= fused_decode.UNITS.value
            assert float((out - expected).abs().max()) < 0.6 * cut.splits + 0.3, name
        else:
            assert float((out - expected).norm() / expected.norm()) < 2e-3, name


@pytest.mark.gpu
@pytest.mark.parametrize("num_rows", [1, 13])
def test_sums_in_fixed_point_are_the_same_each_time(num_rows: int) -> None:
    """Programs add in any order: keys and values of several turns agree to the last bit, and so do the tokens."""
    scene = Scene(GPT2_SMALL, [5 + 7 * row for row in range(num_rows)], 4, "cuda")
    decoder = FusedDecoder(scene.config, scene.weights, scene.cache, max_rows=num_rows, max_steps=4)
    found = []
    for _ in range(5):
        tokens = decoder.launch(scene.entries(), 4).tokens()
        found.append((tokens, scene.cache.data.clone().view(torch.int16)))
    for tokens, data in found[1:]:
        assert tokens == found[0][0]
        assert torch.equal(data, found[0][1])


@pytest.mark.parametrize(("position", "steps", "long"), [(126, 2, False), (126, 3, True), (128, 1, True)])
def test_the_longest_context_that_a_turn_reaches_chooses_its_plan(position: int, steps: int, long: bool) -> None:
    scene = Scene(replace(SMALL, n_layer=1), [5, position, 9], steps, DEVICE)
    decoder = FusedDecoder(scene.config, scene.weights, scene.cache, max_rows=4, max_steps=steps)
    chosen: list[bool] = []
    decoder._record = lambda size: _Recorded(  # type: ignore[method-assign]
        lambda: None, lambda: chosen.append(False), lambda: chosen.append(True)
    )
    decoder.launch(scene.entries(), steps)
    assert chosen == [long] * steps


@pytest.mark.gpu
@pytest.mark.parametrize("longest", [120, 500])
@pytest.mark.parametrize("num_rows", [1, 2, 4, 8, 13, 32, 64, 100, 256])
def test_gpt2_small_on_a_gpu(num_rows: int, longest: int) -> None:
    contexts = [([63, 64, 15, 16, 1, 100][row % 6] + 7 * row) % longest + 1 for row in range(num_rows)]
    contexts[-1] = longest
    found = compare(Scene(GPT2_SMALL, contexts, 3, "cuda"), 3)
    assert found.token_gap < 0.01, found
    assert found.kv_error < 3e-3, found


def test_a_planted_mistake_in_folding_shows() -> None:
    """The check itself: without a layer norm's bias in the next product, keys and values are off."""
    scene = Scene(TINY, [17], 1, DEVICE)
    decoder = FusedDecoder(TINY, scene.weights, scene.cache, max_rows=1, max_steps=1)
    layer = scene.weights.layers[0]
    decoder.linears[0][0].bias.copy_(layer.attn_c_attn_bias.float())
    assert compare(scene, 1, decoder).kv_error > 0.02


@pytest.mark.parametrize(("num_blocks", "stops"), [(12, False), (2, True)], ids=["roomy", "preempted, with EOS"])
def test_the_fast_engine_says_what_the_engine_says(num_blocks: int, stops: bool) -> None:
    seed = 0
    print(f"seed {seed}")
    rng = random.Random(seed)
    torch.manual_seed(seed)
    weights = varied(random_weights(TINY, seed, torch.float16, DEVICE))
    prompts = [[rng.randrange(300) for _ in range(length)] for length in (3, 14)]
    options: dict[str, Any] = {"num_blocks": num_blocks, "max_running": 2}
    expected = Engine(TINY, weights, **options).generate(prompts, 8)
    eos = expected[0][4] if stops else None
    expected = [answer[: answer.index(eos)] if eos in answer else answer for answer in expected]
    fast = FastEngine(TINY, weights, steps_per_turn=3, **options)
    preempted = []
    preempt = fast.scheduler.preempt
    fast.scheduler.preempt = lambda sequence, step: (preempted.append(sequence), preempt(sequence, step))
    assert fast.generate(prompts, 8, eos) == expected
    assert bool(preempted) == stops
    assert fast.pool.num_free == num_blocks
    assert not fast.has_work


@pytest.mark.gpu
def test_graphs_and_turns_change_no_token_on_a_gpu() -> None:
    """Sizes shrink as requests end, so that graphs are recorded while turns are under way; later they are all there."""
    rng = random.Random(0)
    torch.manual_seed(0)
    weights = varied(random_weights(SMALL, 0, torch.float16, "cuda"))
    prompts = [[rng.randrange(1000) for _ in range(rng.randint(1, 90))] for _ in range(40)]
    lengths = [rng.randint(1, 40) for _ in prompts]

    def answers(engine: FastEngine) -> list[list[int]]:
        numbers = [engine.add(prompt, length) for prompt, length in zip(prompts, lengths, strict=True)]
        found: dict[int, list[int]] = {number: [] for number in numbers}
        while engine.has_work:
            for output in engine.step():
                found[output.request] += output.tokens
        return list(found.values())

    options: dict[str, Any] = {"num_blocks": 400, "max_running": 40, "max_step_tokens": 512}
    engine = FastEngine(SMALL, weights, **options)
    expected = answers(engine)
    assert [len(answer) for answer in expected] == lengths
    engine.warm_up()
    assert answers(engine) == expected
    for less in ({"use_graphs": False}, {"read_late": False}, {"steps_per_turn": 1}):
        assert answers(FastEngine(SMALL, weights, **options, **less)) == expected, less


def sequences(pool: BlockPool, *lengths: int, new: int = 8) -> list[Sequence]:
    return [Sequence(BlockTable(pool, 4), [0] * length, length, new) for length in lengths]


def test_a_step_of_decodes_is_repeated_until_one_is_complete() -> None:
    pool = BlockPool(16)
    scheduler = Scheduler(pool)
    first, second = sequences(pool, 3, 5)
    second.max_new_tokens = 4
    for sequence in (first, second):
        scheduler.add(sequence)
    scheduler.schedule()  # the prompts; each has sampled one token
    step = scheduler.schedule()
    assert scheduler.repeat(step, 15) == 2  # second: one by the prompts' step, one by this, two more
    assert (first.num_unread, second.num_unread) == (4, 4)
    assert (first.num_computed, second.num_computed) == (6, 8)
    assert second.is_complete
    assert not first.is_complete


def test_nothing_is_repeated_that_the_pool_cannot_hold() -> None:
    pool = BlockPool(2)
    scheduler = Scheduler(pool)
    [sequence] = sequences(pool, 3, new=5)
    scheduler.add(sequence)
    scheduler.schedule()
    step = scheduler.schedule()
    pool.allocate(pool.num_free)
    assert scheduler.repeat(step, 3) == 0
    assert (sequence.num_unread, sequence.num_computed) == (2, 4)


def test_what_is_not_supported_is_named() -> None:
    weights = random_weights(TINY, 0, torch.float32, "cpu")
    cache = KVCache(1, 2, 16, 4, 64, torch.float32, "cpu")
    assert unsupported(TINY, weights, cache.dtype) == "torch.float32 weights"
    with pytest.raises(ValueError, match=r"does not support torch\.float32 weights"):
        FusedDecoder(TINY, weights, cache)
