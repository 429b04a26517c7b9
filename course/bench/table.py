"""The whole table: every system that this machine has, side by side, over several numbers of requests."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from course.bench.agreement import Agreement, Text, bound_of, judge
from course.bench.floor import step_numbers
from course.bench.process import Absent, Process
from course.bench.results import ROOT, figures, origin
from course.bench.rounds import Failure, Measured, SystemFailed, measure, ratio
from course.bench.systems import Spec, compared_with
from course.bench.workload import PROMPT_LENGTHS, SEED, Workload, make_workload

Say = Callable[[str], None]
WATCHED = 3  # rounds at most in which the first tokens of a system that does not show them are looked for


class Plan(NamedTuple):
    """What is run. `pythons` are interpreters or folders of packages by the peer's name; `modules` the learner's."""

    model: Path
    dtype: str
    block_size: int
    requests: tuple[int, ...]
    new_tokens: int
    rounds: int
    pythons: dict[str, str | None]
    modules: dict[str, Any]
    kernels: str
    load_limit: float = 900.0
    round_limit: float = 300.0
    profiled: tuple[int, ...] | None = None  # the numbers of requests with which the GPU's busy share is found; all


class Table:
    """Runs the plan on a machine (what `look` returns). `record` may be had at any time: it holds what is done."""

    def __init__(self, plan: Plan, specs: Sequence[Spec], machine: dict[str, Any], say: Say) -> None:
        self._plan, self._specs, self._machine, self._say = plan, {spec.name: spec for spec in specs}, machine, say
        self._processes: dict[str, Process] = {}
        self._truth: Process | None = None
        self._systems: dict[str, dict[str, Any]] = {}
        self._not_run: dict[str, dict[str, str]] = {}
        self._failures: list[dict[str, Any]] = []
        self._runs: list[dict[str, Any]] = []
        self._bandwidth: float | None = None

    @contextlib.contextmanager
    def loaded(self) -> Iterator[None]:
        """Start every system for as long as the block runs."""
        try:
            for spec in self._specs.values():
                self._start(spec)
            self._load(list(self._specs.values()))
            if self._processes:
                self._load_truth()
            yield
        finally:
            for process in [*self._processes.values(), *([self._truth] if self._truth else [])]:
                process.close()

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure each number of requests, then profile each; yield the record whenever there is more in it."""
        for requests in self._plan.requests:
            if not self._processes:
                return
            self._say(f"{requests} requests")
            workload = make_workload(requests, self._plan.new_tokens, self._vocabulary())
            self._runs.append(self._measure(workload))
            yield self.record(complete=False)
        self._measure_bandwidth()
        yield self.record(complete=False)
        # At the very end: a process in which the profiler has run once may launch more slowly ever after.
        for requests, run in zip(self._plan.requests, self._runs, strict=False):
            if self._plan.profiled is None or requests in self._plan.profiled:
                self._profile(make_workload(requests, self._plan.new_tokens, self._vocabulary()), run["systems"])
                yield self.record(complete=False)
        yield self.record(complete=True)

    def record(self, *, complete: bool) -> dict[str, Any]:
        plan = self._plan
        return {
            **origin("table", self._machine),
            "complete": complete,
            "model": plan.model.name,
            "seed": SEED,
            "new_tokens": plan.new_tokens,
            "num_rounds": plan.rounds,
            "copy_bandwidth": self._bandwidth,  # bytes a second
            "step_numbers": step_numbers(self._config()),
            "systems": {name: self._systems[name] for name in self._specs if name in self._systems},
            "not_run": self._not_run,
            "failures": self._failures,
            "runs": sorted(self._runs, key=lambda run: run["workload"]["requests"]),
        }

    def _start(self, spec: Spec) -> None:
        python = self._plan.pythons.get(spec.python) if spec.python else None
        if not any(_takes(spec, requests) for requests in self._plan.requests):
            self._absent(spec, f"it is run with {' or '.join(map(str, spec.requests or ()))} requests alone")
            return
        try:
            self._processes[spec.name] = Process(
                spec.name,
                spec.worker,
                python=python,
                environment=spec.environment,
                load_limit=self._plan.load_limit,
                round_limit=self._plan.round_limit,
            )
        except Absent as absent:
            self._absent(spec, str(absent))

    def _load(self, specs: Sequence[Spec]) -> None:
        """Load systems, all at the same time."""
        begun = [(spec, self._processes[spec.name]) for spec in specs if spec.name in self._processes]
        start = time.perf_counter()
        for spec, process in begun:
            process.begin_load(**self._settings(spec))
        for spec, process in begun:
            self._say(f"loading: {spec.name}")
            try:
                process.end_load()
            except Absent as absent:
                self._processes.pop(spec.name).close()
                self._absent(spec, str(absent))
            except SystemFailed as failure:
                self._fail(spec.name, None, "loading", failure)
            else:
                self._systems[spec.name] = {
                    "title": spec.title,
                    "group": spec.group,
                    **process.about,
                    "loaded_after_seconds": time.perf_counter() - start,
                    "loaded_beside": len(begun) - 1,
                }

    def _load_truth(self) -> None:
        self._say("loading: Hugging Face in float32, to hold the others' tokens against")
        self._truth = Process("truth", "truth.py", load_limit=self._plan.load_limit)
        try:
            self._truth.begin_load(model=str(self._plan.model), device=self._machine["device"])
            self._truth.end_load()
        except (Absent, SystemFailed) as error:
            self._lose_truth(error)

    def _settings(self, spec: Spec) -> dict[str, Any]:
        plan = self._plan
        return {
            "model": str(plan.model.resolve()),
            "device": self._machine["device"],
            "dtype": spec.dtype or plan.dtype,
            "requests": max(plan.requests),
            "most_tokens": PROMPT_LENGTHS[1] + plan.new_tokens,
            "block_size": plan.block_size,
            "modules": plan.modules if spec.name == "yours" else {},
            "kernels": plan.kernels,
            **spec.settings,
        }

    def _measure(self, workload: Workload) -> dict[str, Any]:
        requests = len(workload.prompts)
        systems = [self._processes[name] for name, spec in self._specs.items() if self._has(spec, requests)]
        measured = measure(
            systems,
            workload,
            self._plan.rounds,
            self._say,
            lambda name, when, error: self._fail(name, requests, when, error),
        )
        found = {each.name: {**figures(each), **self._judged(each, workload)} for each in measured}
        for name, figure in found.items():
            figure |= {"observed": self._observed(name, workload), "profile": {"why": "not asked for, or cut short"}}
        origin_here = origin("table", self._machine)
        return {
            "command": origin_here["command"],
            "date": origin_here["date"],
            "workload": workload.as_dict(),
            **_compared(measured, found, self._systems),
            "systems": found,
        }

    def _has(self, spec: Spec, requests: int) -> bool:
        return spec.name in self._processes and _takes(spec, requests)

    def _judged(self, each: Measured, workload: Workload) -> dict[str, Any]:
        """Hold a system's tokens against Hugging Face's."""
        if self._truth is None:
            return {"agreement": None}
        self._say(f"holding against Hugging Face in float32: {each.name}")
        try:
            found = judge(each, workload.prompts, bound_of(self._systems[each.name]), self._score)
        except (Absent, SystemFailed) as error:
            self._lose_truth(error)
            return {"agreement": None}
        return {"agreement": {**found._asdict(), "holds": found.holds}}

    def _score(self, texts: Sequence[Text]) -> list[tuple[int, float]]:
        assert self._truth
        return [(agreed, gap) for agreed, gap in self._truth.ask("score", texts=texts)["scores"]]

    def _observed(self, name: str, workload: Workload) -> list[dict[str, Any]]:
        """Watch rounds that are not timed."""
        self._say(f"watching: {name}")
        try:
            seen = [self._processes[name].observe(workload)]
            if "first_token_seconds" in seen[0]:  # no timed round has them, so they have a spread of their own
                seen += [self._processes[name].observe(workload) for _ in range(1, min(WATCHED, self._plan.rounds))]
        except (Absent, SystemFailed) as error:
            self._fail(name, len(workload.prompts), "while it was watched", error)
            return []
        return seen

    def _profile(self, workload: Workload, systems: dict[str, dict[str, Any]]) -> None:
        """Find for how long each system keeps the GPU busy, in one more round."""
        for name in [each for each in systems if each in self._processes]:
            self._say(f"profiling {len(workload.prompts)} requests: {name}")
            try:
                found = self._processes[name].ask("profile", **workload._asdict())
            except (Absent, SystemFailed) as error:
                self._fail(name, len(workload.prompts), "while it was profiled", error)
                continue
            if "busy_seconds" in found:  # over a timed round, which the profiler does not slow down
                rate = systems[name]["tokens_per_second"]["median"]
                found["busy_share"] = found["busy_seconds"] / (workload.num_new / rate)
            systems[name]["profile"] = found

    def _measure_bandwidth(self) -> None:
        """Have a copy timed, while all others wait: what a step is held against."""
        if self._truth is None:
            return
        try:
            self._bandwidth = self._truth.ask("bandwidth")["bytes_per_second"]
        except (Absent, SystemFailed) as error:  # a figure that is missing is no reason to lose the others
            self._say(f"no copy was timed: {error}")

    def _config(self) -> dict[str, Any]:
        config: dict[str, Any] = json.loads((self._plan.model / "config.json").read_text("utf-8"))
        return config

    def _vocabulary(self) -> int:
        return int(self._config()["vocab_size"])

    def _absent(self, spec: Spec, why: str) -> None:
        self._say(f"not run: {spec.name}: {why}")
        self._not_run[spec.name] = {"title": spec.title, "why": why}

    def _lose_truth(self, error: Exception) -> None:
        self._fail("truth", None, "in holding tokens against Hugging Face", error)
        if self._truth:
            self._truth.close()
        self._truth = None

    def _fail(self, name: str, requests: int | None, when: str, error: Failure | Exception) -> None:
        """Note what happened to a system, which is not run any more."""
        words = getattr(error, "words", "")
        why = getattr(error, "why", str(error))
        self._say(f"failed: {name}, {when}: {why}" + "".join(f"\n    {line}" for line in words.split("\n")[-8:]))
        self._failures.append({"system": name, "requests": requests, "when": when, "why": why, "stderr": words})
        if name in self._processes:
            self._processes.pop(name).close()


def _takes(spec: Spec, requests: int) -> bool:
    return spec.requests is None or requests in spec.requests


def _compared(
    measured: Sequence[Measured], found: dict[str, dict[str, Any]], systems: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Return how many times as fast our engine is as each other system, and where that may not be said, why.

    Systems whose tokens are not held, or not good enough, have no ratio; those of another dtype are marked.
    """
    base = compared_with(each.name for each in measured)
    mine = next((each for each in measured if each.name == base), None)
    compared: dict[str, dict[str, Any]] = {}
    for each in measured:
        if mine is None or each.name == base:
            continue
        refused = _refusal(base or "", found) or _refusal(each.name, found)
        types = [(systems[name]["dtype"], systems[name]["kv_dtype"]) for name in (mine.name, each.name)]
        compared[each.name] = {
            "times": None if refused else ratio(mine, each)._asdict(),
            "refused": refused,
            "like_for_like": types[0] == types[1] or (types[0][0] == types[1][0] and types[1][1] is None),
        }
    return {"compared_with": base, "compared": compared}


def _refusal(name: str, found: dict[str, dict[str, Any]]) -> str | None:
    agreement = found[name]["agreement"]
    if agreement is None:
        return f"the tokens of {name} were not held against Hugging Face"
    held = Agreement(**{key: value for key, value in agreement.items() if key != "holds"})
    if not held.holds:
        return f"{name} chose a token {held.gap:.3g} below the best in log-probability; {held.bound:g} is allowed"
    return None


def look(device: str | None) -> dict[str, Any]:
    """Say what there is to compute on; asked in a process of its own, so that this one never touches a GPU."""
    script = "import json; from course.assembly.build import machine; print(json.dumps(machine(json.loads(input()))))"
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=json.dumps(device),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise ValueError(done.stderr.strip().rpartition("\n")[2])
    found: dict[str, Any] = json.loads(done.stdout)
    return found
