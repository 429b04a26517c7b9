"""`engine`, `parity` and `bench` as a learner types them: whose parts run, and what is said when one goes wrong."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.judge.learner import Learner

SHORT = ("--prompt", "Alice was ", "--prompt", "The Queen said ", "--new-tokens", "12")
TAKE = "        blocks = [self._free.popleft() for _ in range(num_blocks)]\n"
RETURN_SLOTS = "    return [\n        blocks[position // block_size]"
# A pool of this size is in no check, so what goes wrong there goes wrong in the engine only, with its fourth block.
ODD_POOL = 37
IN_THE_ENGINE = f"        if len(self._ref_counts) == {ODD_POOL} and len(self._free) == {ODD_POOL - 3}:\n            "
ATTENTION = """title = "Attention"
chapter = 3
order = 1
difficulty = "hard"
module = "attention"
symbols = ["paged_attention"]
needs = "torch"
time_limit = 20
hints = ["", "", ""]
"""
ATTENTION_CHECK = '''def it_attends(solution):
    """It attends."""
    assert False, "not right"
'''


@pytest.fixture
def learner(tmp_path: Path) -> Learner:
    return Learner(tmp_path)


def in_words(printed: str) -> str:
    """Return what was printed as one line, so that it does not matter where it was broken."""
    return " ".join(printed.split())


def pieces(data: dict[str, Any]) -> dict[str, tuple[str, bool, str | None]]:
    """Return for each exercise of the table its state, whether it is used, and why not."""
    found = [each for part in data["parts"] for each in part["exercises"]]
    return {each["exercise"]: (each["state"], each["used"], each["reason"]) for each in found}


def whose(data: dict[str, Any]) -> dict[str, str]:
    return {part["part"]: part["whose"] for part in data["parts"]}


def texts(data: dict[str, Any]) -> list[str]:
    return [each["text"] for each in data["requests"]]


def test_the_engine_runs_what_passes_and_nothing_else(learner: Learner) -> None:
    """The right pool prints, and is heard; the wrong slot mapping would print too."""
    reference = json.loads(learner.run("engine", "--json", *SHORT).stdout)
    assert set(whose(reference).values()) == {"reference"}
    learner.solve("block_pool", TAKE, f"        print('my pool')\n{TAKE}")
    wrong = "    print('my slots')\n    return [\n        blocks[0]"
    learner.solve("block_table", RETURN_SLOTS, wrong)
    spoken = learner.run("engine", *SHORT)
    assert spoken.returncode == 0
    assert "my pool" in spoken.stdout
    assert "my slots" not in spoken.stdout
    mine = json.loads(learner.run("engine", "--json", *SHORT).stdout)
    found = pieces(mine)
    assert found["block-pool"] == ("passed", True, None)
    state, used, reason = found["slot-mapping"]
    assert (state, used) == ("red", False)
    assert reason is not None
    assert reason.startswith("yours fails ")
    assert whose(mine)["block pool"] == "yours"
    assert whose(mine)["slot mapping"] == whose(mine)["attention"] == "reference"
    assert texts(mine) == texts(reference)
    assert [each["finished"] for each in mine["requests"]] == ["length", "length"]


def test_a_part_may_be_the_learners_in_part(learner: Learner) -> None:
    learner.solve("block_table", "child.num_tokens = self.num_tokens", "child.num_tokens = 0")
    data = json.loads(learner.run("engine", "--json", *SHORT).stdout)
    assert whose(data)["block table"] == "yours in part"
    assert pieces(data)["fork"][:2] == ("red", False)
    assert pieces(data)["block-table"][:2] == ("passed", True)


def test_a_verdict_is_of_the_file_as_it_is(learner: Learner) -> None:
    """A pool that passed a moment ago and is wrong now is not used."""
    learner.solve("block_pool")
    assert pieces(json.loads(learner.run("engine", "--json", *SHORT).stdout))["block-pool"][0] == "passed"
    learner.solve("block_pool", "popleft", "pop")
    assert pieces(json.loads(learner.run("engine", "--json", *SHORT).stdout))["block-pool"][0] == "red"


def test_a_full_pool_preempts_and_loses_nothing(learner: Learner) -> None:
    learner.solve("block_pool")
    learner.solve("block_table")
    wide = json.loads(learner.run("engine", "--json").stdout)
    narrow = json.loads(learner.run("engine", "--json", "--blocks", "10").stdout)
    assert wide["summary"]["preemptions"] == 0
    assert narrow["summary"]["preemptions"] > 0
    assert narrow["summary"]["most_blocks"] <= 10 < wide["summary"]["most_blocks"]
    assert narrow["summary"]["tokens"] == wide["summary"]["tokens"] == 4 * 64
    assert texts(narrow) == texts(wide)


FAILURES = {
    "1 / 0": "raised ZeroDivisionError",
    "raise SystemExit": "tried to leave the program (sys.exit?)",
    "while True: pass": "did not come back within 3 s (an endless loop?)",
    # A loop in C code lets no thread of Python's run, so no watchdog of ours either.
    "import itertools; sum(itertools.repeat(1))": "did not come back within 3 s (an endless loop?)",
    "import ctypes; ctypes.string_at(0)": "ended the whole process",
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_part_that_fails_in_the_engine_is_named(learner: Learner, failure: str) -> None:
    learner.solve("block_pool", TAKE, f"{IN_THE_ENGINE}{failure}\n{TAKE}")
    learner.solve("block_table")
    done = learner.run("engine", *SHORT, "--blocks", str(ODD_POOL), "--time-limit", "3")
    line = learner.read("block_pool").split("\n").index(f"            {failure}") + 1
    assert done.returncode == 1
    printed = in_words(done.stdout)
    assert f"allocate {FAILURES[failure]}" in printed
    assert f"where practice/block_pool.py:{line}" in printed
    assert " in step " in printed
    head, _, after = done.stdout.partition(FAILURES[failure].split()[0])
    assert "Traceback" not in head
    if "Zero" in FAILURES[failure]:
        assert "ZeroDivisionError: division by zero" in after


@pytest.mark.parametrize(("request_number", "blocks"), [(0, ODD_POOL), (1, ODD_POOL - 1)])
def test_the_request_and_the_step_are_named(learner: Learner, request_number: int, blocks: int) -> None:
    """The request with the longer prompt is the first to need a second block; its number differs, the pools too."""
    when = f"num_blocks and len(self._ref_counts) == {blocks} and len(self._free) == {blocks - 2}"
    text = f"        if {when}:\n            1 / 0\n"
    learner.solve("block_pool", TAKE, f"{text}{TAKE}")
    learner.solve("block_table")
    prompts = ["--prompt", "A" * 12, "--prompt", "B" * 8]
    if request_number == 1:
        prompts = prompts[2:] + prompts[:2]
    words = ("engine", *prompts, "--new-tokens", "20", "--blocks", str(blocks), "--json")
    data = json.loads(learner.run(*words).stdout)
    assert data["part"] == "block pool"
    assert data["requests"] == [request_number]
    assert data["when"] == "in step 6"
    assert data["message"] == (
        f"your BlockPool.allocate raised ZeroDivisionError in step 6, for request {request_number}"
    )


def add_attention(learner: Learner, find: str, put: str) -> None:
    """Give the course an exercise in attention, which no answer passes, and the learner an answer to it."""
    folder = learner.folder / "course" / "exercises" / "an-attention"
    folder.mkdir()
    (folder / "exercise.toml").write_text(ATTENTION)
    (folder / "checks.py").write_text(ATTENTION_CHECK)
    (folder / "task.md").write_text("`paged_attention`")
    learner.solve("attention", find, put)


def test_parity_names_the_layer_and_the_heads(learner: Learner) -> None:
    """The mask goes by a query's row in the batch. The part is red, so it is used only because it is asked for."""
    add_attention(
        learner,
        "sees = key_positions <= query_positions[:, None]",
        "sees = key_positions <= torch.arange(len(query))[:, None]",
    )
    done = learner.run("parity", "--unproven", "--json")
    data = json.loads(done.stdout)
    assert done.returncode == 1
    assert pieces(data)["an-attention"][:2] == ("red", True)
    assert whose(data)["attention"] == "reference"  # what no check proves is not the learner's
    wrong = {row["plan"]: row["divergence"] for row in data["comparisons"] if row["divergence"]}
    assert set(wrong) == {"chunks", "decode"}  # a whole prompt's rows are its positions
    assert "differs first in layer 0, heads 0–3" in wrong["decode"]
    assert "mask: these positions see the first key only" in wrong["decode"]


def test_parity_runs_what_passes(learner: Learner) -> None:
    learner.solve("block_pool")
    add_attention(learner, "sees = key", "sees = 1 / 0 or key")  # red, so not used
    done = learner.run("parity")
    assert done.returncode == 0
    assert "they agree" in done.stdout
    assert "64 of 64 tokens equal" in done.stdout


def test_bench_measures_and_writes_what_it_measured(learner: Learner) -> None:
    learner.solve("block_pool")
    done = learner.run("bench", "--requests", "2", "--new-tokens", "5", "--rounds", "3", "--output", "results.json")
    assert done.returncode == 0, done.stdout
    assert "times as many tokens a second as the reference" in in_words(done.stdout)
    results = json.loads((learner.folder / "results.json").read_text("utf-8"))
    assert results["schema"] == 2
    assert results["workload"]["requests"] == 2
    assert results["like_for_like"] is True
    assert [system["name"] for system in results["systems"]] == ["reference", "yours"]
    for system in results["systems"]:
        assert [each["new_tokens"] for each in system["rounds"]] == [10, 10, 10]
        assert all(len(each["step_seconds"]) == 5 for each in system["rounds"])
    assert set(results) >= {"command", "commit", "date", "hardware", "versions", "ratios"}


def test_bench_does_not_time_what_computes_something_else(learner: Learner) -> None:
    """Right in every check; but in the third block of a decode it writes to the first slot."""
    wrong = f"    if len(blocks) == 5 and num_new == 1:\n        return [blocks[0] * block_size]\n{RETURN_SLOTS}"
    learner.solve("block_table", RETURN_SLOTS, wrong)
    done = learner.run("bench", "--output", "results.json")
    printed = in_words(done.stdout)
    assert done.returncode == 1
    assert pieces_pass(learner, "slot-mapping")
    assert "Not timed: reference and yours do not compute the same: of request " in printed
    assert "tokens/s" not in printed
    assert not (learner.folder / "results.json").exists()


def pieces_pass(learner: Learner, exercise: str) -> bool:
    return learner.run("check", exercise).returncode == 0


def test_bench_has_nothing_to_measure_at_the_start(learner: Learner) -> None:
    done = learner.run("bench")
    assert done.returncode == 1
    assert "no part of the engine is yours" in done.stdout
    assert "0 of 9 parts are yours" in done.stdout


REFUSED = {
    ("engine", "--blocks", "1", *SHORT): "ask for more with --blocks",
    ("engine", "--new-tokens", "900"): "ask for fewer with --new-tokens",
    ("engine", "--block-size", "7"): "block size 7 is not supported: choose one of",
    ("engine", "--block-size", "0"): "--block-size takes a number from 1",
    ("engine", "--model", "/no/such/folder"): "'/no/such/folder' is no folder here",
    ("engine", "--random", "--model", "gpt9"): "'gpt9' is no folder with a config.json, and none of gpt2",
    ("engine", "--device", "tpu"): "--device takes cpu or cuda",
    ("engine", "--kv-dtype", "int4"): "--kv-dtype takes float32, float16, bfloat16 or int8",
    ("engine", "--prompt"): "--prompt needs a value",
    ("engine", "--prompt", "", "--prompt", "x"): "prompt 0 is empty",
    ("engine", "--rounds", "3"): "engine takes no --rounds",
    ("parity", "--prompt", "x"): "parity takes no --prompt",
    ("bench", "--output", "no/such/folder/file.json"): "there is no folder for",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_cannot_be_is_refused_with_a_reason(learner: Learner, words: tuple[str, ...]) -> None:
    done = learner.run(*words, HF_HUB_OFFLINE="1")
    assert done.returncode == 2
    assert REFUSED[words] in in_words(done.stdout)
    assert "Traceback" not in done.stdout


@pytest.mark.parametrize("command", ["engine", "parity", "bench"])
def test_what_is_missing_comes_with_the_command_that_installs_it(learner: Learner, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "practice/judge.py", command],  # -S: no installed package is found
        cwd=learner.folder, env=learner.environment(), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("Not installed here: torch, safetensors")
    assert done.stderr.count("-m pip install") == 1
    assert '-m pip install --editable ".[engine]"' in done.stderr


def test_random_weights_need_a_config_alone(learner: Learner) -> None:
    sizes = json.loads((learner.folder / "course" / "model" / "config.json").read_text())
    folder = learner.folder / "only-a-config"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({**sizes, "vocab_size": 300}))
    done = learner.run("engine", "--random", "--model", "only-a-config", "--json", *SHORT)
    assert done.returncode == 0
    assert all(0 <= int(number) < 300 for text in texts(json.loads(done.stdout)) for number in text.split())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_the_three_commands_on_a_gpu(learner: Learner) -> None:
    """Kernels are compiled in the first steps, which no watchdog takes for a hang."""
    learner.solve("block_pool")
    learner.solve("block_table")
    done = learner.run(
        "engine", "--json", "--device", "cuda", "--dtype", "float16", "--time-limit", "20", *SHORT, timeout=300
    )
    assert done.returncode == 0, done.stdout
    assert json.loads(done.stdout)["machine"]["gpu"]
    assert learner.run("parity", "--device", "cuda", timeout=300).returncode == 0
    done = learner.run("bench", "--device", "cuda", "--random", "--output", "results.json", timeout=300)
    assert done.returncode == 0, done.stdout
    hardware = json.loads((learner.folder / "results.json").read_text("utf-8"))["hardware"]
    assert hardware["gpu"]
    assert hardware["driver"]
