"""Makes a results file of the whole table, as an H200 could write it: the figures are made up, the shape is not."""

from __future__ import annotations

from typing import Any

from course.bench.floor import step_numbers
from course.bench.results import origin
from course.bench.systems import SYSTEMS

REQUESTS = (1, 8, 64, 256)
MACHINE = {"device": "cuda", "gpu": "NVIDIA H200", "versions": {"python": "3.12.3", "torch": "2.11.0"}}
SPEEDS = {
    "fast": 7000,
    "plain": 250,
    "plain-fp32": 200,
    "hf-cache": 128,
    "hf-batch": 130,
    "vllm": 500,
    "ctranslate2": 360,
}
WRONG = "hf-batch"  # its tokens are further off than allowed
ONE_BY_ONE = "hf-cache"
ABSENT = "vllm-in-process"
NEW_TOKENS = 64
GPT2 = {"n_embd": 768, "n_layer": 12, "vocab_size": 50257}


def sample() -> dict[str, Any]:
    specs = {spec.name: spec for spec in SYSTEMS}
    return {
        **origin("table", MACHINE),
        "complete": True,
        "model": "gpt2",
        "seed": 0,
        "new_tokens": NEW_TOKENS,
        "num_rounds": 3,
        "copy_bandwidth": 4.26e12,
        "step_numbers": step_numbers(GPT2),
        "systems": {
            name: {
                "title": specs[name].title,
                "group": specs[name].group,
                "dtype": specs[name].dtype or "float16",
                "kv_dtype": specs[name].dtype or "float16",
            }
            for name in SPEEDS
        },
        "not_run": {ABSENT: {"title": specs[ABSENT].title, "why": "No module named 'vllm'"}},
        "failures": [
            {"system": "ctranslate2", "requests": 256, "when": "round 2 of 5", "why": "no answer", "stderr": ""}
        ],
        "runs": [_run(requests) for requests in REQUESTS],
    }


def _run(requests: int) -> dict[str, Any]:
    there = [name for name in SPEEDS if (name, requests) not in {("ctranslate2", 256)}]
    there = [name for name in there if name != ONE_BY_ONE or requests == 1]
    return {
        "workload": {"requests": requests, "prompt_tokens": [32] * requests, "new_tokens": NEW_TOKENS},
        "compared_with": "fast",
        "compared": {
            name: {
                "times": None if name == WRONG else _spread(SPEEDS["fast"] / SPEEDS[name]),
                "refused": "wrong" if name == WRONG else None,
                "like_for_like": name != "plain-fp32",
            }
            for name in there
            if name != "fast"
        },
        "systems": {name: _figures(name, requests) for name in there},
    }


def _figures(name: str, requests: int) -> dict[str, Any]:
    rate = SPEEDS[name] * requests**0.9
    ours = name in ("fast", "plain", "plain-fp32")
    gap = 0.2 if name == WRONG else 0.001
    seconds = [NEW_TOKENS * requests / rate * slower for slower in (1.1, 1.0, 0.9)]
    first = [0.004] * requests if ours else []
    return {
        "warm_up_seconds": 3.0,
        "tokens_per_second": _spread(rate),
        "step_seconds": _spread(requests / rate),
        "first_token_seconds": _spread(0.004) if ours else None,
        "rounds": [{"seconds": each, "first_token_seconds": first} for each in seconds],
        "agreement": {
            "requests": requests, "texts": requests, "tokens": 64, "equal": requests, "shortest": 64,
            "agreed": [64] * requests, "gap": gap, "bound": 0.05, "holds": gap <= 0.05,
        },
        "observed": [{"host": {"host": 0.125}} if ours else {"first_token_seconds": [0.02, 0.03, 0.04]}],
        "profile": {"busy_seconds": 1.0, "busy_share": 0.875} if name != "vllm" else {"why": "another process"},
    }  # fmt: skip


def _spread(median: float) -> dict[str, float]:
    return {"median": median, "least": median * 0.9, "most": median * 1.1}
