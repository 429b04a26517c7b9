"""The whole table, with systems whose tokens and times are known in the place of processes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from course.bench import table
from course.bench.process import Absent
from course.bench.report import as_text, grids
from course.bench.results import SCHEMA, joined
from course.bench.rounds import Round, SystemFailed
from course.bench.systems import SYSTEMS, choose, compared_with
from course.bench.table import Plan, Table
from course.bench.workload import Workload

MACHINE = {"device": "cuda", "gpu": "a GPU", "versions": {"python": "3.12"}}
RIGHT = 5  # the token that Hugging Face's model would choose everywhere


class Fake:
    """A system that takes `seconds` a round. What is wrong with it is told by `broken`, called before each task."""

    seconds: ClassVar = {"fast": 1.0, "plain": 4.0, "vllm": 8.0}
    tokens: ClassVar[dict[str, int]] = {}
    dtypes: ClassVar[dict[str, str]] = {}
    broken: Callable[[str, str, int], None] = staticmethod(lambda name, task, requests: None)
    log: ClassVar[list[str]] = []

    def __init__(self, name: str, worker: str, **options: Any) -> None:
        self.name = name
        self.about: dict[str, Any] = {}

    def begin_load(self, **settings: Any) -> None:
        self._dtype = Fake.dtypes.get(self.name, settings.get("dtype", "float32"))

    def end_load(self) -> None:
        Fake.broken(self.name, "load", 0)
        Fake.log.append(f"load {self.name}")
        self.about = {"dtype": self._dtype, "kv_dtype": self._dtype}

    def run(self, workload: Workload) -> Round:
        Fake.broken(self.name, "round", len(workload.prompts))
        Fake.log.append(f"round {self.name}")
        tokens = [[Fake.tokens.get(self.name, RIGHT)] * workload.new_tokens for _ in workload.prompts]
        return Round(tokens, Fake.seconds.get(self.name, 2.0), [], [], steps=workload.new_tokens)

    def observe(self, workload: Workload) -> dict[str, Any]:
        Fake.broken(self.name, "observe", len(workload.prompts))
        return {"first_token_seconds": [0.25, 0.75]}

    def ask(self, task: str, **job: Any) -> dict[str, Any]:
        Fake.broken(self.name, task, 0)
        if task == "profile":
            Fake.log.append(f"profile {self.name}")
            return {"busy_seconds": 0.5}
        if task == "bandwidth":
            Fake.log.append("bandwidth")
            return {"bytes_per_second": 4e12}
        return {"scores": [[4, 0.0] if tokens[0] == RIGHT else [0, tokens[0] / 1000] for _, tokens in job["texts"]]}

    def close(self) -> None:
        Fake.log.append(f"close {self.name}")


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "Process", Fake)
    for name in ("tokens", "dtypes"):
        monkeypatch.setattr(Fake, name, {})
    monkeypatch.setattr(Fake, "log", [])


def break_at(monkeypatch: pytest.MonkeyPatch, where: tuple[str, str, int], error: Exception) -> None:
    def broken(*at: Any) -> None:
        if at == where:
            raise error

    monkeypatch.setattr(Fake, "broken", staticmethod(broken))


def run(
    tmp_path: Path, systems: str = "fast,plain,vllm", requests: tuple[int, ...] = (1, 2), **options: Any
) -> list[dict[str, Any]]:
    """Return the records of a run, one whenever there was more in it; each is JSON."""
    (tmp_path / "config.json").write_text('{"vocab_size": 100, "n_embd": 8, "n_layer": 2}', "utf-8")
    plan = Plan(tmp_path, "float16", 16, requests, 4, 2, {}, {}, "triton", **options)
    ran = Table(plan, choose(systems), MACHINE, lambda what: None)
    with ran.loaded():
        return [json.loads(json.dumps(each)) for each in ran.run()]


def test_every_system_is_in_the_record_with_every_raw_time(tmp_path: Path) -> None:
    *earlier, last = run(tmp_path)
    assert [(len(each["runs"]), each["complete"]) for each in earlier] == [(1, False), *[(2, False)] * 4]
    assert (last["schema"], last["kind"], last["complete"]) == (SCHEMA, "table", True)
    assert set(last) >= {"command", "commit", "hardware", "versions", "seed", "new_tokens", "num_rounds", "model"}
    assert [each["workload"]["requests"] for each in last["runs"]] == [1, 2]
    plain = last["runs"][1]["systems"]["plain"]
    assert [each["seconds"] for each in plain["rounds"]] == [4.0, 4.0]
    assert plain["tokens_per_second"]["median"] == 8 / 4
    assert plain["step_seconds"]["median"] == 4 / 4
    assert last["runs"][1]["compared"]["plain"]["times"] == {"median": 4.0, "least": 4.0, "most": 4.0}
    assert last["runs"][1]["compared_with"] == "fast"
    assert plain["observed"] == [{"first_token_seconds": [0.25, 0.75]}] * 2  # as many as are timed


def test_the_busy_share_is_of_a_timed_round(tmp_path: Path) -> None:
    """Half a second of work, in rounds of 1 and of 8 seconds: what the profiler costs is in no share."""
    systems = run(tmp_path)[-1]["runs"][0]["systems"]
    assert systems["fast"]["profile"]["busy_share"] == pytest.approx(0.5)
    assert systems["vllm"]["profile"]["busy_share"] == pytest.approx(0.5 / 8)


def test_nothing_is_timed_after_a_profiler_has_run(tmp_path: Path) -> None:
    run(tmp_path)
    profiled = [each.startswith("profile") for each in Fake.log if not each.startswith("close")]
    assert profiled == sorted(profiled)
    assert profiled.count(True) == 6


def test_a_copy_is_timed_after_the_rounds_and_before_the_profiler(tmp_path: Path) -> None:
    record = run(tmp_path)[-1]
    assert record["copy_bandwidth"] == 4e12
    place = Fake.log.index("bandwidth")
    assert not [each for each in Fake.log[place:] if each.startswith("round")]
    assert not [each for each in Fake.log[:place] if each.startswith("profile")]
    # Of the model in the test: 2 layers of 12 · 8² + 13 · 8, 100 tokens of 8, and the last layer norm.
    assert record["step_numbers"] == {"weights": 2 * 872 + 816, "kv_per_token": 32}


def test_a_copy_that_fails_loses_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_at(monkeypatch, ("truth", "bandwidth", 0), SystemFailed("truth", "in bandwidth", "out of memory"))
    record = run(tmp_path)[-1]
    assert record["copy_bandwidth"] is None
    assert record["failures"] == []
    assert record["complete"]
    assert all(each["profile"]["busy_share"] for each in record["runs"][1]["systems"].values())


def test_all_load_at_the_same_time(tmp_path: Path) -> None:
    found = run(tmp_path)[-1]["systems"]
    loads = [each.removeprefix("load ") for each in Fake.log if each.startswith("load")]
    assert loads == ["fast", "plain", "vllm", "truth"]
    assert (found["vllm"]["loaded_beside"], found["plain"]["loaded_beside"]) == (2, 2)


def test_the_busy_share_is_found_where_it_is_asked_for(tmp_path: Path) -> None:
    runs = run(tmp_path, profiled=(2,))[-1]["runs"]
    assert ["busy_share" in each["systems"]["fast"]["profile"] for each in runs] == [False, True]


def test_a_system_that_wins_by_being_wrong_has_no_ratio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "tokens", {"vllm": 90})  # 0.09 below the best, where fp16 allows 0.05
    results = run(tmp_path)[-1]
    wrong = results["runs"][0]["compared"]["vllm"]
    assert wrong["times"] is None
    assert wrong["refused"] == "vllm chose a token 0.09 below the best in log-probability; 0.05 is allowed"
    assert results["runs"][0]["compared"]["plain"]["times"]
    agreement = results["runs"][0]["systems"]["vllm"]["agreement"]
    assert (agreement["equal"], agreement["shortest"], agreement["holds"]) == (0, 0, False)


def test_a_near_tie_is_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "tokens", {"vllm": 40})
    run_of_one = run(tmp_path)[-1]["runs"][0]
    assert run_of_one["compared"]["vllm"]["times"]["median"] == 8.0
    assert run_of_one["systems"]["vllm"]["agreement"]["holds"] is True


def test_where_ours_is_wrong_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "tokens", {"fast": 90})
    compared = run(tmp_path)[-1]["runs"][0]["compared"]
    assert {name: each["times"] for name, each in compared.items()} == {"plain": None, "vllm": None}


def test_another_dtype_is_named_and_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """BM25."""
    monkeypatch.setattr(Fake, "dtypes", {"plain": "float32"})
    results = run(tmp_path)[-1]
    assert [results["systems"][name]["dtype"] for name in ("fast", "plain")] == ["float16", "float32"]
    compared = results["runs"][0]["compared"]
    assert [compared[name]["like_for_like"] for name in ("plain", "vllm")] == [False, True]
    text = "\n".join(map(as_text, grids(results)))
    assert "4.00 (4.00 to 4.00) †" in text
    assert "†: the two do not compute in the same dtype." in text


@pytest.mark.parametrize("requests", [1, 2])
def test_one_that_fails_is_named_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, requests: int
) -> None:
    error = SystemFailed("vllm", "in round", "the process ended", "out of x")
    break_at(monkeypatch, ("vllm", "round", requests), error)
    results = run(tmp_path)[-1]
    assert results["failures"] == [
        {"system": "vllm", "requests": requests, "when": "warming up", "why": "the process ended", "stderr": "out of x"}
    ]
    assert results["complete"]
    assert ["vllm" in each["systems"] for each in results["runs"]] == [n < requests for n in (1, 2)]
    assert all({"fast", "plain"} <= set(each["systems"]) for each in results["runs"])
    assert Fake.log.count("close vllm") == 1
    text = as_text(grids(results)[-1])
    assert f"failed warming up with {requests} requests: the process ended" in text


def test_one_that_fails_where_it_is_watched_keeps_its_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_at(monkeypatch, ("vllm", "observe", 1), SystemFailed("vllm", "in observe", "hung"))
    results = run(tmp_path)[-1]
    assert results["runs"][0]["systems"]["vllm"]["tokens_per_second"]["median"] == 0.5
    assert "vllm" not in results["runs"][1]["systems"]


def test_what_is_not_here_is_listed_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_at(monkeypatch, ("vllm", "load", 0), Absent("No module named 'vllm'"))
    results = run(tmp_path)[-1]
    assert results["not_run"] == {"vllm": {"title": "vLLM", "why": "No module named 'vllm'"}}
    assert results["failures"] == []
    assert "No module named 'vllm'" in as_text(grids(results)[-1])


def test_a_system_for_few_requests_is_not_run_with_others(tmp_path: Path) -> None:
    results = run(tmp_path, "fast,hf-cache", (1, 2))[-1]
    assert ["hf-cache" in each["systems"] for each in results["runs"]] == [True, False]
    absent = run(tmp_path, "fast,hf-cache", (2, 8))[-1]["not_run"]
    assert absent["hf-cache"]["why"] == "it is run with 1 or 4 requests alone"


def test_without_hugging_face_nothing_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_at(monkeypatch, ("truth", "load", 0), SystemFailed("truth", "loading", "no memory"))
    results = run(tmp_path)[-1]
    assert results["runs"][0]["compared"]["vllm"]["times"] is None
    assert results["failures"][0]["system"] == "truth"
    assert results["runs"][0]["systems"]["vllm"]["agreement"] is None


def test_nothing_is_run_where_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_at(monkeypatch, ("vllm", "load", 0), Absent("no"))
    assert run(tmp_path, "vllm") == []
    assert "load truth" not in Fake.log


def test_systems_are_chosen_by_name_and_by_group() -> None:
    assert [each.name for each in choose("plain, fast")] == ["fast", "plain"]
    assert {each.group for each in choose("ablations,vllm")} == {"ablations", "peers"}
    assert choose("all") == list(SYSTEMS)
    with pytest.raises(ValueError, match="no system 'vlm': there are all, ours"):
        choose("fast,vlm")
    assert [compared_with(each) for each in (["plain", "fast"], ["vllm", "plain"], ["vllm"])] == ["fast", "plain", None]


def test_two_commands_make_one_table(tmp_path: Path) -> None:
    earlier, later = (run(tmp_path, "fast,vllm,hf-cache", requests)[-1] for requests in ((1, 4), (4, 8)))
    only = run(tmp_path, "fast,vllm,hf-cache", (8,))[-1]
    assert list(only["not_run"]) == ["hf-cache"]
    both = joined(earlier, only)
    assert [each["workload"]["requests"] for each in both["runs"]] == [1, 4, 8]
    assert both["not_run"] == {}  # it ran with few
    assert all(each["command"] and each["date"] for each in both["runs"])
    again = joined(earlier, later)
    assert again["runs"][1] == later["runs"][0]
    [rates] = [grid for grid in grids(both) if grid.name == "rates"]
    assert [row[0] for row in rates.rows] == ["fast engine", "Hugging Face, KV cache, one by one", "vLLM"]


@pytest.mark.parametrize("place", ["commit", "new_tokens", "num_rounds", "model"])
def test_tables_of_different_things_are_not_joined(tmp_path: Path, place: str) -> None:
    results = run(tmp_path)[-1]
    with pytest.raises(ValueError, match=f"the results that are there have {place} 'other'"):
        joined({**results, place: "other"}, results)
    other = {**results, "hardware": {**results["hardware"], "gpu": "B200"}}
    with pytest.raises(ValueError, match=r"hardware\.gpu 'B200'"):
        joined(other, results)
