"""Systems in processes of their own: what they answer, and that one that crashes, hangs or is absent is named."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from course.bench.process import Absent, Process
from course.bench.rounds import SystemFailed
from course.bench.workers.serve import covered, profile
from course.bench.workload import Workload

WORKLOAD = Workload([[1, 2, 3], [4]], 3)
HEAD = """
import os, sys, time
class System:
    def __init__(self, **settings): self.settings = settings
    def about(self): return {"settings": self.settings}
    def round(self, prompts, new_tokens):
        tokens = [[7] * new_tokens for _ in prompts]
        return {"tokens": tokens, "seconds": 2.0, "step_seconds": [], "first_token_seconds": [], "steps": new_tokens}
"""
Start = Callable[..., Process]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return what starts a system whose file is `HEAD` and the text given."""
    started = []

    def run(text: str = "", **options: Any) -> Process:
        worker = tmp_path / f"system{len(started)}.py"
        worker.write_text(HEAD + text, "utf-8")
        started.append(Process("mine", str(worker), **options))
        return started[-1]

    yield run
    for process in started:
        process.close()


def load(process: Process, **settings: Any) -> None:
    process.begin_load(**settings)
    process.end_load()


def test_a_system_answers_with_a_round(start: Start) -> None:
    process = start()
    load(process, dtype="float16")
    assert process.about == {"settings": {"dtype": "float16"}}
    result = process.run(WORKLOAD)
    assert (result.tokens, result.seconds, result.steps) == ([[7, 7, 7], [7, 7, 7]], 2.0, 3)


def test_what_a_system_prints_is_no_answer(start: Start) -> None:
    process = start("    def say(self): print('[]'); os.system('echo {}'); return {'said': True}\n")
    load(process)
    assert process.ask("say") == {"said": True}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("    def fall(self): print('the end', flush=True); os._exit(3)\n", "process ended (status 3)"),
        ("    def fall(self): print('the end'); raise RuntimeError('no memory\\nleft')\n", "RuntimeError: no memory"),
        ("    def fall(self): print('the end', flush=True); time.sleep(60)\n", "no answer within 1 s"),
        ("    def fall(self): sys.exit('the end')\n", "SystemExit: the end"),
    ],
    ids=["crash", "exception", "hang", "exit"],
)
def test_a_failure_names_the_system_and_the_task_and_keeps_its_words(start: Start, text: str, why: str) -> None:
    process = start(text)
    load(process)
    with pytest.raises(SystemFailed) as caught:
        process.ask("fall", 1.0)
    assert str(caught.value).startswith("mine failed in fall: ")
    assert why in caught.value.why
    assert "the end" in caught.value.words


def test_a_system_that_is_not_here_is_absent_and_has_not_failed(start: Start) -> None:
    with pytest.raises(Absent, match="no card"):
        load(start("def missing(**settings): return 'no card'\n"))
    with pytest.raises(Absent, match="No module named 'not_a_package'"):
        load(start("    def about(self): import not_a_package\n"))
    with pytest.raises(Absent, match="/no/python cannot be started: No such file"):
        start(python="/no/python")


def test_a_folder_of_packages_is_that_systems_alone(start: Start, tmp_path: Path) -> None:
    packages = tmp_path / "packages"
    packages.mkdir()
    (packages / "peer.py").write_text("VERSION = '1.2'\n", "utf-8")
    text = "    def version(self): import peer; return {'version': peer.VERSION}\n"
    with_it, without = start(text, python=str(packages)), start(text)
    load(with_it)
    load(without)
    assert with_it.ask("version") == {"version": "1.2"}
    with pytest.raises(Absent):
        without.ask("version")


def test_the_first_round_of_a_size_may_compile_and_a_later_one_may_not(start: Start) -> None:
    slow = "class Fast(System): pass\nclass System(Fast):\n    def round(self, **job):\n        time.sleep(1.5)\n"
    process = start(slow + "        return Fast.round(self, **job)\n", load_limit=60.0, round_limit=0.2)
    load(process)
    assert process.run(WORKLOAD).steps == 3
    with pytest.raises(SystemFailed, match=r"no answer within 0\.2 s"):
        process.run(WORKLOAD)


def test_a_gpu_that_is_not_there_is_not_busy(start: Start) -> None:
    process = start()
    load(process)
    found = process.ask("profile", prompts=[[1]], new_tokens=2)
    assert "runs nothing on a GPU" in found["why"]


def test_kernels_side_by_side_are_busy_once() -> None:
    assert covered([(5.0, 6.0), (0.0, 2.0), (1.0, 3.0), (1.5, 1.7)]) == 4.0
    assert covered([]) == 0.0


@pytest.mark.parametrize("spans", [[("cuda", 0, 2), ("cpu", 0, 9), ("cuda", 1, 4)], []], ids=["busy", "elsewhere"])
def test_the_gpu_is_busy_while_its_own_events_last(
    monkeypatch: pytest.MonkeyPatch, spans: list[tuple[str, float, float]]
) -> None:
    """A torch that stands for one with a GPU: what its profiler saw is told in microseconds."""
    events = [SimpleNamespace(device_type=kind, time_range=SimpleNamespace(start=a, end=b)) for kind, a, b in spans]

    @contextlib.contextmanager
    def profiling(activities: list[str]) -> Iterator[Any]:
        assert activities == ["gpu"]
        yield SimpleNamespace(events=lambda: events)

    fake = SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: True, synchronize=lambda: None),
        autograd=SimpleNamespace(DeviceType=SimpleNamespace(CUDA="cuda")),
        profiler=SimpleNamespace(profile=profiling, ProfilerActivity=SimpleNamespace(CUDA="gpu")),
    )
    monkeypatch.setitem(sys.modules, "torch", fake)
    ran: list[int] = []
    found = profile(lambda number: ran.append(number), {"number": 7})
    assert ran == [7]
    assert found == {"busy_seconds": 4e-6} if spans else "another process" in found["why"]
