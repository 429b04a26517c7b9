"""The workers of this interpreter: Hugging Face's ways of generating, and our engines with one idea less each."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from course.assembly.build import write_random_checkpoint
from course.bench.process import Absent, Process
from course.bench.rounds import Round
from course.bench.workers import huggingface, ours
from course.bench.workload import Workload, make_workload
from course.judge.exercise import load_exercises
from solutions.weights import GPT2Config

MODEL = "course/model"
TINY = GPT2Config(vocab_size=300, n_positions=64, n_embd=256, n_layer=1, n_head=4)
OURS: dict[str, Any] = {"device": "cpu", "requests": 3, "most_tokens": 70, "block_size": 16, "kernels": ""}
OURS["modules"] = {}


@pytest.fixture(scope="module")
def plain() -> ours.System:
    return ours.System(model=MODEL, dtype="float32", engine="plain", **OURS)


@pytest.fixture(scope="module")
def workload() -> Workload:
    return make_workload(3, 6, 256)


@pytest.fixture(scope="module")
def expected(plain: ours.System, workload: Workload) -> list[list[int]]:
    tokens: list[list[int]] = plain.round(workload.prompts, workload.new_tokens)["tokens"]
    return tokens


def test_our_engine_counts_its_steps_and_sees_first_tokens(plain: ours.System, workload: Workload) -> None:
    found = plain.round(*workload)
    assert found["steps"] == 6
    assert all(0 < seconds < found["seconds"] for seconds in found["first_token_seconds"])
    assert plain.about()["kv_dtype"] == "float32"


def test_the_learners_parts_are_what_runs(workload: Workload, expected: list[list[int]]) -> None:
    """Their block pool in the reference's engine: right, it gives the same tokens; wrong, it is theirs that fails."""
    source = Path("solutions/block_pool.py").read_text("utf-8")
    symbols = next(each for each in load_exercises() if each.id == "block-pool").symbols

    def system(text: str) -> ours.System:
        modules = {"block_pool": {"source": text, "symbols": list(symbols)}}
        learner = {**OURS, "kernels": "torch", "modules": modules}
        return ours.System(model=MODEL, dtype="float32", engine="learner", **learner)

    assert system(source).round(*workload)["tokens"] == expected
    with pytest.raises(NameError, match="mine"):
        system(source.replace("        blocks = [", "        blocks = mine or [")).round(*workload)


@pytest.mark.parametrize("mode", ["no-cache", "cache", "batch"])
def test_hugging_face_is_given_the_same_tokens(mode: str, workload: Workload, expected: list[list[int]]) -> None:
    """In one padded batch, no prompt sees what pads it; nothing but the length ends a sequence."""
    system = huggingface.System(MODEL, "cpu", "float32", mode)
    found = system.round(*workload)
    assert found["tokens"] == expected
    assert found["steps"] == (6 if mode == "batch" else 18)
    assert system.about()["kv_dtype"] == (None if mode == "no-cache" else "float32")
    first = system.observe(*workload)["first_token_seconds"]
    assert len(first) == 3
    assert (first[0] == first[2]) == (mode == "batch")  # one by one, the last waits for the others


def test_the_end_of_text_ends_nothing(workload: Workload, expected: list[list[int]], tmp_path: Path) -> None:
    """A token that the model would take for the end is one like any other: else the system would do less work."""
    config = json.loads(Path(MODEL, "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps({**config, "eos_token_id": expected[0][1]}), "utf-8")
    shutil.copy(Path(MODEL, "model.safetensors"), tmp_path)
    system = huggingface.System(str(tmp_path), "cpu", "float32", "batch")
    assert system.round(*workload)["tokens"] == expected


def test_what_a_cpu_cannot_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert huggingface.missing(mode="continuous-graphs", device="cpu") == "CUDA graphs need a GPU"
    assert ours.missing(engine="fast", device="cpu", dtype="float16") == "the fused step needs a GPU"
    assert ours.missing(engine="learner", device="cpu", dtype="float16", modules={}) == "no part of the engine is yours"
    assert ours.missing(engine="plain", device="cpu", dtype="float16") is None


@pytest.fixture
def interpreted(tmp_path: Path) -> Iterator[Process]:
    """Return a process in which Triton's interpreter stands in for a GPU, and the folder's model is tiny."""
    write_random_checkpoint(TINY, tmp_path)
    process = Process("fast", "ours.py", environment={"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"})
    yield process
    process.close()


def test_every_ablation_says_what_the_plain_engine_says(interpreted: Process, tmp_path: Path) -> None:
    workload = Workload([[1, 2, 3]], 3)
    settings = {**OURS, "model": str(tmp_path), "dtype": "float16", "requests": 1}
    found: dict[str, Round] = {}
    for engine in ("plain", *ours.FAST):
        interpreted.begin_load(engine=engine, **settings)
        interpreted.end_load()
        found[engine] = interpreted.run(workload)
    assert found["plain"].steps == 3  # the prompt's, and one for each further token
    for engine, result in found.items():
        assert result.tokens == found["plain"].tokens, engine
        assert result.steps == 3, engine
    shares = interpreted.observe(workload)["host"]
    assert all(shares[kind] > 0 for kind in ("scheduling", "assembly", "launching", "reading"))
    assert sum(share for kind, share in shares.items() if kind != "host") <= 1.0


def test_the_learners_engine_needs_parts_of_the_learners(interpreted: Process, tmp_path: Path) -> None:
    interpreted.begin_load(engine="learner", model=str(tmp_path), dtype="float16", **OURS)
    with pytest.raises(Absent, match="no part of the engine is yours"):
        interpreted.end_load()
