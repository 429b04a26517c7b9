"""The systems of the whole table: what each is, and how its process is started."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple


class Spec(NamedTuple):
    """One system. `requests` are the only numbers of requests that it is run with; None is all.

    `python` names whose interpreter it runs in ("vllm", "ctranslate2"), None this one. `settings` are its worker's.
    """

    name: str
    title: str
    worker: str
    settings: dict[str, Any]
    group: str
    requests: tuple[int, ...] | None = None
    python: str | None = None
    environment: dict[str, str] | None = None
    dtype: str | None = None  # where it is not that of the run


ONE_BY_ONE = (1, 4)  # flat beyond: twice the requests take twice the time
ABLATED = (1, 8, 32, 256)  # what an idea gives shows at a few sizes
COMPILED = (1, 32)  # each number of requests is compiled anew, for most of a minute
VLLM_SHARE = 0.3  # of the card: what vLLM wants to see free at its start, with others beside it
VLLM_KV_BYTES = 8 << 30  # its KV cache: more than 1,000 sequences of the table, and no need to load alone to measure


def _hugging_face(mode: str, title: str, requests: tuple[int, ...] | None = None) -> Spec:
    return Spec(f"hf-{mode}", f"Hugging Face, {title}", "huggingface.py", {"mode": mode}, "peers", requests)


def _vllm(name: str, title: str, **environment: str) -> Spec:
    settings = {"memory_share": VLLM_SHARE, "kv_bytes": VLLM_KV_BYTES}
    return Spec(name, title, "vllm_system.py", settings, "peers", None, "vllm", environment)


def _ours(name: str, title: str, engine: str, group: str = "ours", dtype: str | None = None) -> Spec:
    requests = ABLATED if group == "ablations" else None
    return Spec(name, title, "ours.py", {"engine": engine}, group, requests, dtype=dtype)


SYSTEMS = (
    _ours("fast", "fast engine", "fast"),
    _ours("plain", "plain engine (fusions and graphs off)", "plain"),
    _ours("yours", "the engine of your parts", "learner"),
    _ours("fast-no-graphs", "fast, graphs off", "fast without graphs", "ablations"),
    _ours("fast-at-once", "fast, one turn late off", "fast read at once", "ablations"),
    _ours("fast-single", "fast, one step a turn", "fast one step a turn", "ablations"),
    _ours("plain-fp32", "plain engine, fp32 weights", "plain", "ablations", "float32"),
    _hugging_face("no-cache", "no cache, one by one", ONE_BY_ONE),
    _hugging_face("cache", "KV cache, one by one", ONE_BY_ONE),
    _hugging_face("batch", "KV cache, padded batch"),
    _hugging_face("static", "static cache, compiled", COMPILED),
    _hugging_face("continuous", "continuous batching"),
    _hugging_face("continuous-graphs", "continuous batching, CUDA graphs"),
    _vllm("vllm", "vLLM", VLLM_ENABLE_V1_MULTIPROCESSING="1"),
    _vllm("vllm-in-process", "vLLM, engine in the process", VLLM_ENABLE_V1_MULTIPROCESSING="0"),
    Spec("ctranslate2", "CTranslate2", "ctranslate2_system.py", {}, "peers", None, "ctranslate2"),
)
GROUPS = ("all", "ours", "ablations", "peers")


def choose(words: str) -> list[Spec]:
    """Return the systems that `words` name, by names and groups with commas between; `ValueError` for another word."""
    named = {each.strip() for each in words.split(",")}
    known = [*GROUPS, *(spec.name for spec in SYSTEMS)]
    if unknown := sorted(named - set(known)):
        raise ValueError(f"no system {unknown[0]!r}: there are {', '.join(known)}")
    return [spec for spec in SYSTEMS if "all" in named or {spec.name, spec.group} & named]


def compared_with(names: Iterable[str]) -> str | None:
    """Return the system that the others are compared with: the best engine of ours that ran."""
    there = set(names)
    return next((name for name in ("fast", "plain") if name in there), None)
