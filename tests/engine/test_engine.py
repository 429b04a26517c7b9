"""The engine on a CPU: what it refuses, what it streams, and that company changes nobody's tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from solutions.engine import Engine
from solutions.tokenizer import ByteTokenizer
from tests.engine.tiny import tiny_model


def make_engine(**options: Any) -> Engine:
    config, weights, _ = tiny_model()
    return Engine(config, weights, **{"num_blocks": 64, **options})


def prompts(lengths: list[int], seed: int = 3) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(300, (length,), generator=generator).tolist() for length in lengths]


LENGTHS = [1, 5, 15, 16, 17, 40, 3, 64]
SOLO: dict[int, list[int]] = {}


@pytest.fixture(scope="module")
def solo() -> list[list[int]]:
    """What each prompt generates when it runs alone."""
    return [make_engine().generate([prompt], 24)[0] for prompt in prompts(LENGTHS)]


def test_a_batch_equals_solo_runs(solo: list[list[int]]) -> None:
    assert make_engine().generate(prompts(LENGTHS), 24) == solo


def test_chunks_equal_solo_runs(solo: list[list[int]]) -> None:
    assert make_engine(max_step_tokens=7).generate(prompts(LENGTHS), 24) == solo


def test_late_joiners_equal_solo_runs(solo: list[list[int]]) -> None:
    engine = make_engine()
    waiting = list(enumerate(prompts(LENGTHS)))
    numbers: dict[int, int] = {}
    results: dict[int, list[int]] = {}
    while waiting or engine.has_work:
        if waiting:
            index, prompt = waiting.pop(0)
            numbers[engine.add(prompt, 24)] = index
        for output in engine.step():
            results.setdefault(numbers[output.request], []).extend(output.tokens)
    assert [results[index] for index in range(len(LENGTHS))] == solo


def test_preemption_equals_solo_runs(solo: list[list[int]]) -> None:
    engine = make_engine(num_blocks=9)
    preempted = 0
    schedule = engine.scheduler.schedule

    def counting() -> Any:
        nonlocal preempted
        step = schedule()
        preempted += len(step.preempted)
        return step

    engine.scheduler.schedule = counting
    assert engine.generate(prompts(LENGTHS), 24) == solo
    assert preempted > 0
    assert engine.pool.num_free == 9


@pytest.mark.parametrize("block_size", [8, 32, 256])
def test_any_block_size_gives_the_same_tokens(solo: list[list[int]], block_size: int) -> None:
    assert make_engine(block_size=block_size, num_blocks=1024 // block_size).generate(prompts(LENGTHS), 24) == solo


def test_eos_ends_one_sequence_and_disturbs_no_other(solo: list[list[int]]) -> None:
    eos = solo[2][5]
    expected = [tokens[: tokens.index(eos)] if eos in tokens else tokens for tokens in solo]
    engine = make_engine()
    assert engine.generate(prompts(LENGTHS), 24, eos_token=eos) == expected
    assert engine.pool.num_free == 64
    assert len({len(tokens) for tokens in expected}) > 1


def test_blocks_are_free_in_the_step_that_reads_the_end() -> None:
    engine = make_engine()
    engine.add(prompts([20])[0], 1)
    outputs = engine.step()
    assert [output.finished for output in outputs] == ["length"]
    assert engine.pool.num_free == 64
    assert not engine.has_work


def test_an_aborted_request_gives_its_blocks_back() -> None:
    engine = make_engine()
    first, second = (engine.add(prompt, 24) for prompt in prompts([20, 30]))
    engine.step()
    engine.abort(first)
    engine.abort(first)  # once more is no error
    engine.abort(99)
    assert engine.pool.num_free == 64 - 2
    results = [
        token for _ in range(23) for output in engine.step() if output.request == second for token in output.tokens
    ]
    assert len(results) == 23
    assert engine.pool.num_free == 64


def test_a_stream_that_is_left_ends_its_requests() -> None:
    engine = make_engine()
    stream = engine.stream(prompts([5, 6]), 24)
    next(stream)
    stream.close()
    assert not engine.has_work
    assert engine.pool.num_free == 64


@pytest.mark.parametrize(
    ("prompt", "new", "message"),
    [
        ([], 5, "the prompt is empty"),
        ([1, 300], 5, "token 300 is not in the vocabulary of 300"),
        ([1, -1], 5, "token -1 is not in the vocabulary"),
        ([1] * 250, 7, "250 tokens and 7 new ones are more than the model's 256 positions"),
        ([1] * 100, 60, "need 10 blocks; the pool has 9"),
        ([1], 0, "0 new tokens"),
        ("text", 5, "a text prompt needs a tokenizer"),
    ],
)
def test_bad_requests_are_refused_and_disturb_nobody(
    solo: list[list[int]], prompt: Any, new: int, message: str
) -> None:
    engine = make_engine(num_blocks=9)
    good = prompts(LENGTHS)[2]
    number = engine.add(good, 24)
    [(_, results, _)] = engine.step()
    with pytest.raises(ValueError, match=message):
        engine.add(prompt, new)
    while engine.has_work:
        results += [token for output in engine.step() if output.request == number for token in output.tokens]
    assert results == solo[2]


def test_the_pools_bytes_are_its_tensors() -> None:
    engine = make_engine()
    tensors = [tensor for cache in engine.caches for tensor in cache if tensor is not None]
    assert engine.cache.num_bytes == sum(tensor.nbytes for tensor in tensors)
    assert f"{engine.cache.num_bytes:,} bytes" in engine.describe()
    assert "64 blocks of 16 tokens" in engine.describe()


def test_the_default_pool_is_no_larger_than_can_be_used() -> None:
    config, weights, _ = tiny_model()
    assert Engine(config, weights, max_running=4).cache.num_blocks == 4 * 16


def test_int8_takes_about_half_of_fp16() -> None:
    half, int8 = (make_engine(kv_dtype=dtype).cache for dtype in (torch.float16, torch.int8))
    assert int8.dtype == torch.int8
    assert 0.5 < int8.num_bytes / half.num_bytes < 0.51


def test_text_goes_in_and_comes_out() -> None:
    engine = make_engine(tokenizer=ByteTokenizer())
    assert engine.generate(["Ab"], 4) == make_engine().generate([[65, 98]], 4)
    assert ByteTokenizer().decode(ByteTokenizer().encode("Grüße")) == "Grüße"
