"""The peers' workers, on packages that stand in for them: the calls are those of the versions that they name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from course.bench.process import Process
from course.bench.rounds import Disagreement, measure
from course.bench.workload import Workload

WORKLOAD = Workload([[1, 2, 3], [4]], 5)
# Each sequence goes on counting from its last token. The second token of every one is a space, whose text is nothing.
VLLM = """
__version__ = "0.21.0"
from vllm.sampling_params import RequestOutputKind, SamplingParams
class Out:
    def __init__(self, request_id, token_ids): self.request_id, self.outputs = request_id, [Out2(token_ids)]
class Out2:
    def __init__(self, token_ids): self.token_ids, self.text = token_ids, ""
class Engine:
    def __init__(self): self.open = {}
    def add_request(self, request_id, prompt, params):
        assert params.ignore_eos and not params.detokenize and params.temperature == 0
        self.open[request_id] = (prompt["prompt_token_ids"], [], params)
    def has_unfinished_requests(self): return bool(self.open)
    def step(self):
        found = []
        for name, (prompt, new, params) in list(self.open.items()):
            new.append((prompt + new)[-1] + 1)
            done = len(new) == params.max_tokens - SHORT
            if params.output_kind is RequestOutputKind.DELTA: found.append(Out(name, new[-1:]))
            elif done: found.append(Out(name, tuple(new)))
            if done: del self.open[name]
        return found
SHORT = 0
class LLM:
    def __init__(self, model, skip_tokenizer_init, dtype, gpu_memory_utilization, kv_cache_memory_bytes, max_model_len,
                 enable_prefix_caching):
        assert skip_tokenizer_init and not enable_prefix_caching and max_model_len == 256
        self.llm_engine = Engine()
    def generate(self, prompts, params, use_tqdm):
        params.output_kind = RequestOutputKind.FINAL_ONLY
        for number, prompt in enumerate(prompts): self.llm_engine.add_request(str(number), prompt, params)
        found = []
        while self.llm_engine.has_unfinished_requests(): found += self.llm_engine.step()
        return sorted(found, key=lambda out: int(out.request_id))
"""
SAMPLING = """
from enum import Enum
class RequestOutputKind(Enum):
    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2
class SamplingParams:
    def __init__(self, temperature, max_tokens, ignore_eos, detokenize, output_kind=RequestOutputKind.CUMULATIVE):
        self.temperature, self.max_tokens, self.ignore_eos = temperature, max_tokens, ignore_eos
        self.detokenize, self.output_kind = detokenize, output_kind
"""


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    folder = tmp_path / "packages"
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm" / "__init__.py").write_text(VLLM, "utf-8")
    (folder / "vllm" / "sampling_params.py").write_text(SAMPLING, "utf-8")
    (folder / "torch.py").write_text("__version__ = '2.11'\nclass cuda: is_available = lambda: False\n", "utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"n_positions": 256}), "utf-8")
    return folder


@pytest.fixture
def vllm(packages: Path, tmp_path: Path) -> Iterator[Process]:
    process = Process("vllm", "vllm_system.py", python=str(packages))
    process.begin_load(
        model=str(tmp_path), device="cuda", dtype="float16", memory_share=0.3, kv_bytes=1 << 30, requests=4, modules={}
    )
    process.end_load()
    yield process
    process.close()


def test_vllm_is_called_as_its_users_call_it(vllm: Process) -> None:
    """BM14: the token numbers are counted as they are; there is no text to count anew."""
    assert vllm.about == {
        "versions": {"vllm": "0.21.0", "torch": "2.11"},
        "dtype": "float16",
        "kv_dtype": "float16",
    }
    [measured] = measure([vllm], WORKLOAD, 2)
    assert measured.warm_up.tokens == [[4, 5, 6, 7, 8], [5, 6, 7, 8, 9]]
    assert [each.steps for each in measured.rounds] == [5, 5]


def test_vllms_first_tokens_are_seen_in_a_round_apart(vllm: Process) -> None:
    assert measure([vllm], WORKLOAD, 1)[0].first_token_seconds() == []
    first = vllm.observe(WORKLOAD)["first_token_seconds"]
    assert len(first) == 2
    assert 0 < first[0] <= first[1]


def test_a_peer_that_stops_early_is_not_timed(packages: Path, tmp_path: Path) -> None:
    """BM09: a limit that means something else gives other numbers of tokens, and those are refused."""
    init = packages / "vllm" / "__init__.py"
    init.write_text(init.read_text("utf-8").replace("SHORT = 0", "SHORT = 1"), "utf-8")
    process = Process("vllm", "vllm_system.py", python=str(packages))
    try:
        process.begin_load(model=str(tmp_path), device="cuda", dtype="float16", memory_share=0.3, kv_bytes=1 << 30)
        process.end_load()
        with pytest.raises(Disagreement, match="vllm gave request 0 4 tokens; asked for 5"):
            measure([process], WORKLOAD, 1)
    finally:
        process.close()
