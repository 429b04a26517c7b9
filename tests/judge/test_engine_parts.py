"""The parts of an engine, put together and run in this process: what `engine`, `parity` and `bench` have in common."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from course import emulator
from course.assembly import parts
from course.assembly.tasks import Tasks
from course.judge.exercise import Exercise, load_exercises
from course.judge.stub import reference_source

MODEL = str(Path(__file__).resolve().parents[2] / "course" / "model")
SETTINGS = {"model": MODEL, "scratch": None, "device": "cpu", "dtype": "float32", "kv_dtype": None, "block_size": 16}


@pytest.fixture(autouse=True)
def real_triton() -> Iterator[None]:
    """An engine's process has no emulator; this one has, once a test in it has judged a kernel."""
    emulated = isinstance(sys.modules.get("triton"), emulator.language.Module)
    emulator.uninstall()
    yield
    if emulated:
        emulator.install()


class Child:
    """What the parent would hear."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._tasks = Tasks(lambda kind, data: self.events.append((kind, data)), os.open(os.devnull, os.O_WRONLY))

    def do(self, task: str, **job: Any) -> tuple[str, dict[str, Any]]:
        """Do a task and return its last event."""
        self._tasks.do({"task": task, "step_limit": 60.0, **job})
        return self.events[-1]

    def assemble(self, *answers: tuple[str, str, str, str], **settings: Any) -> tuple[str, dict[str, Any]]:
        """Put an engine together of (module, its one symbol, find, put)."""
        modules = {}
        for module, symbol, find, put in answers:
            source = reference_source(module)
            assert find in source
            modules[module] = {"source": source.replace(find, put), "symbols": [symbol]}
        return self.do("assemble", modules=modules, kernels="torch", **SETTINGS | settings)

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [data for each, data in self.events if each == kind]


def exercise(module: str, *symbols: str) -> Exercise:
    return load_exercises()[0]._replace(module=module, symbols=symbols)


@pytest.mark.parametrize(
    ("module", "symbols", "names"),
    [
        ("block_pool", ["BlockPool.allocate", "BlockPool.free"], ["block pool"]),
        ("block_table", ["BlockTable.fork"], ["block table"]),
        ("block_table", ["slot_mapping"], ["slot mapping"]),
        ("scheduler", ["Sequence.is_decoding", "Sequence.num_tokens"], ["sequence"]),
        ("scheduler", ["Scheduler.preempt"], ["scheduler"]),
        ("scheduler", ["Sequence.num_tokens", "Scheduler.schedule"], ["sequence", "scheduler"]),
        ("attention", ["paged_attention"], ["attention"]),
        ("attention", ["write_int8"], ["KV writing", "attention"]),
        ("triton_attention", ["paged_attention"], []),  # a kernel is no part of an engine on a CPU
        ("weights", ["assemble"], ["weights"]),
        ("utilization", ["max_requests"], []),
    ],
)
def test_an_exercise_writes_the_part_that_its_symbols_are_in(module: str, symbols: list[str], names: list[str]) -> None:
    found = parts.parts_of(exercise(module, *symbols), parts.engine_parts("torch"))
    assert [part.name for part in found] == names


def test_kernels_are_the_parts_of_an_engine_on_a_gpu() -> None:
    for module in ("triton_slot_write", "triton_attention"):
        found = parts.parts_of(exercise(module, "whatever"), parts.engine_parts("triton"))
        assert [part.module for part in found] == [module]
        assert not parts.parts_of(exercise("attention", "paged_attention"), parts.engine_parts("triton"))


def test_every_part_is_in_the_reference() -> None:
    """A table that names what is not there would be noticed by a learner first."""
    for kernels in parts.KERNELS:
        for part in parts.engine_parts(kernels):
            assert f"class {part.symbol}" in reference_source(part.module) or (
                f"def {part.symbol}(" in reference_source(part.module)
            )


def test_a_scheduler_that_plans_nothing_is_stuck() -> None:
    child = Child()
    child.assemble(("scheduler", "Scheduler.admit_waiting", "while self.waiting and", "while False and"))
    kind, data = child.do("generate", prompts=["Alice"], new_tokens=4, blocks=None)
    assert kind == "failed"
    assert data["interpreter"].endswith("Stuck: 20 steps in a row computed nothing, although requests are open")
    assert data["when"] == "in step 20"


def test_a_wrong_value_that_breaks_the_reference_is_not_blamed_on_a_line_of_yours() -> None:
    child = Child()
    child.assemble(("scheduler", "Scheduler.schedule", "        return step\n", "        return None\n"))
    kind, data = child.do("generate", prompts=["Alice"], new_tokens=4, blocks=None)
    assert kind == "failed"
    assert data["place"] is None
    assert data["what"].startswith("the engine, in solutions/engine.py:")


@pytest.mark.parametrize(
    ("find", "put"),
    [
        ("self.layer_norm(hidden, layer.ln_1_weight", "self.layer_norm(hidden / 0 or 1 / 0, layer.ln_1_weight"),
        ("queries, keys, values = qkv", "queries, keys = qkv"),
    ],
)
def test_what_serves_the_whole_batch_names_all_its_requests(find: str, put: str) -> None:
    child = Child()
    child.assemble(("gpt2", "GPT2.attention", find, put))
    kind, data = child.do("generate", prompts=["Alice", "Bob", "Carol"], new_tokens=4, blocks=None)
    assert (kind, data["part"], data["requests"]) == ("failed", "model", [0, 1, 2])
    assert data["what"].startswith("your GPT2.attention raised ")


def test_a_helper_is_part_of_what_calls_it() -> None:
    child = Child()
    source = reference_source("block_table").replace(
        "        index = self.num_tokens // self.block_size\n", "        _check(self)\n        index = 0\n"
    )
    source += "\n\ndef _check(table):\n    1 / 0\n"
    modules = {"block_table": {"source": source, "symbols": ["BlockTable.append"]}}
    child.do("assemble", modules=modules, kernels="torch", **SETTINGS)
    _, data = child.do("generate", prompts=["Alice", "Bob"], new_tokens=4, blocks=None)
    assert (data["part"], data["requests"]) == ("block table", [0])
    assert data["what"] == "your _check raised ZeroDivisionError"


def test_a_cache_in_int8_halves_nothing_but_bytes() -> None:
    child = Child()
    tokens = {}
    for kv_dtype in (None, "int8"):
        child.assemble(kv_dtype=kv_dtype)
        kind, data = child.do("generate", prompts=["Alice was "], new_tokens=8, blocks=None)
        assert (kind, data["tokens"]) == ("done", 8)
        tokens[kv_dtype] = child.of_kind("started")[-1]["cache"]
    assert "float32: 98,304 bytes" in tokens[None]
    assert "int8: 24,768 bytes" in tokens["int8"]


def test_swapped_strides_in_attention_are_named_by_parity() -> None:
    child = Child()
    find = "        weights = torch.where(sees"
    child.assemble(("attention", "paged_attention", find, f"        values[:, 1:] = values[:, 1:].roll(1, 1)\n{find}"))
    kind, data = child.do("parity", dtype="float32")
    assert (kind, data) == ("done", {"agrees": False})
    first = next(row for row in child.of_kind("compared") if row["divergence"])
    assert "differs first in layer 0, heads 1–3" in first["divergence"]
    assert "strides: only head 0 is right" in first["divergence"]


def test_parity_of_the_reference() -> None:
    child = Child()
    child.assemble()
    kind, data = child.do("parity", dtype="float32")
    assert (kind, data) == ("done", {"agrees": True})
    assert child.of_kind("compared")[-1]["agreed"] == 64


def test_a_round_counts_from_the_arrival_by_a_clock_that_is_not_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """BM13: the time in the queue is part of the time to the first token. BM15: the wall clock is not asked."""
    monkeypatch.setattr(time, "time", lambda: -1e9 * time.perf_counter())
    child = Child()
    child.assemble()
    kind, data = child.do("round", prompts=[[1] * 20, [2] * 20], new_tokens=6, blocks=2)  # one request at a time
    assert kind == "done"
    assert [len(tokens) for tokens in data["tokens"]] == [6, 6]
    assert len(data["step_seconds"]) == 12
    first, second = data["first_token_seconds"]
    assert 0 < first < sum(data["step_seconds"][:6]) < second < data["seconds"]
    assert sum(data["step_seconds"]) < data["seconds"]


KERNELS = {
    module: {"source": reference_source(module), "symbols": [symbol]}
    for module, symbol in (("triton_slot_write", "write_kv"), ("triton_attention", "paged_attention"))
}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_learners_kernels_run_on_a_gpu() -> None:
    """They are loaded from the text of their files, and give the tokens that PyTorch gives on the CPU."""
    texts = []
    for device, kernels, modules in (("cpu", "torch", {}), ("cuda", "triton", KERNELS)):
        child = Child()
        child.do("assemble", modules=modules, kernels=kernels, **SETTINGS | {"device": device})
        kind, data = child.do("generate", prompts=["Alice was ", "The Queen said "], new_tokens=40, blocks=None)
        assert kind == "done", data
        texts.append("".join(str(step["text"]) for step in child.of_kind("step")))
    assert texts[0] == texts[1]
    kind, data = child.do("parity", dtype="float32")
    assert (kind, data) == ("done", {"agrees": True})


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_kernel_that_fails_on_a_gpu_is_named() -> None:
    child = Child()
    source = reference_source("triton_attention").replace("    return out\n", "    return out + 1 / 0\n")
    assert "1 / 0" in source
    modules = {"triton_attention": {"source": source, "symbols": ["paged_attention"]}}
    child.do("assemble", modules=modules, kernels="triton", **SETTINGS | {"device": "cuda"})
    kind, data = child.do("generate", prompts=["Alice was ", "The Queen said "], new_tokens=4, blocks=None)
    assert (kind, data["part"], data["requests"], data["when"]) == ("failed", "attention", [0, 1], "in step 1")
    assert data["what"] == "your paged_attention raised ZeroDivisionError"


def test_text_comes_in_whole_characters() -> None:
    """A byte of a character that is not finished is held back until its last one is there."""
    from course.assembly.generation import Texts
    from solutions.tokenizer import ByteTokenizer

    data = list("né…".encode())
    texts = Texts(ByteTokenizer(), 1)
    assert [texts.new(0, data[:end], ended=end == len(data)) for end in range(1, len(data) + 1)] == [
        "n", "", "é", "", "", "…",
    ]  # fmt: skip
    assert Texts(ByteTokenizer(), 1).new(0, data[:2], ended=True) == "n\ufffd"
