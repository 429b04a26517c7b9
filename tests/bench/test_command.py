"""The commands: what they print, what they write, and how they end."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from course.bench.__main__ import main
from course.bench.memory import main as memory
from course.judge.cli import main as judge

SMALL = ["--requests", "4,1", "--rounds", "2", "--new-tokens", "4", "--device", "cpu"]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    # The engine's tests set it for all of this process, and then the fast engine would be there without a GPU.
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, check=False, timeout=600, env=environment
    )


def test_the_table_runs_small_on_a_cpu(tmp_path: Path) -> None:
    """Two real systems, and one that is not here; then another number of requests in the same file."""
    output = tmp_path / "results.json"
    words = ["-m", "course.bench", "--systems", "plain,hf-batch,fast", "--output", str(output), *SMALL]
    done = run(*words)
    assert done.returncode == 0, done.stderr
    assert "the fused step needs a GPU" in done.stdout
    assert "round 2 of 2: plain" in done.stderr
    assert re.findall(r"(\d+) requests$", done.stderr, flags=re.MULTILINE) == ["4", "1"]  # in the order that is given
    results = json.loads(output.read_text("utf-8"))
    assert results["complete"]
    assert results["command"].split()[1:] == words
    assert list(results["systems"]) == ["plain", "hf-batch"]
    assert [each["workload"]["requests"] for each in results["runs"]] == [1, 4]
    for each in results["runs"]:
        assert each["compared"]["hf-batch"]["times"]["median"] > 0
        assert all(system["agreement"]["holds"] for system in each["systems"].values())
        assert all(len(system["rounds"]) == 2 for system in each["systems"].values())
    added = run(*words, "--requests", "2", "--add")
    assert added.returncode == 0, added.stderr
    results = json.loads(output.read_text("utf-8"))
    assert [each["workload"]["requests"] for each in results["runs"]] == [1, 2, 4]
    changed = run(*words, "--new-tokens", "5", "--add")
    assert changed.returncode == 2
    assert "the results that are there have new_tokens 4, and these would have 5" in changed.stderr


def test_what_makes_no_sense_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--systems", "vlm", *SMALL]) == 2
    assert "no system 'vlm': there are all, ours" in capsys.readouterr().err
    for words, why in (
        (["--requests", "1,0"], "0 is not 1 or more"),
        (["--model", str(tmp_path)], "is no folder with a config.json"),
        (["--output", str(tmp_path / "no" / "file")], "there is no folder for"),
        (["--add"], "there is no --output file to add to"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 2
        assert why in capsys.readouterr().err


def test_the_judges_bench_opens_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(["bench", "--systems", "vlm", "--requests", "1,4"]) == 2
    assert "no system 'vlm'" in capsys.readouterr().err
    assert judge(["bench", "--vllm-python", "python3"]) == 2
    assert "--vllm-python is for the table of many systems" in capsys.readouterr().err


def test_memory_says_how_many_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    output = tmp_path / "memory.json"
    monkeypatch.setattr(sys, "argv", ["memory", "--blocks", "50", "--tokens", "40", "--output", str(output)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert memory() == 0
    assert "sequences of 40 tokens alive at once: 16" in capsys.readouterr().out
    results = json.loads(output.read_text("utf-8"))
    assert (results["kind"], results["alive"], results["alive_if_reserved"]) == ("memory", 16, 3)
