"""The engines of this repository: the plain one, the fast one, that with one of its ideas taken away, the learner's."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
UNBOUNDED = 1 << 20  # sequences: more than any memory holds
PASS_TOKENS, PASS_ROWS = 8192, 1024  # of one pass while memory is filled
sys.path.insert(0, str(ROOT))
# The fast engine, and each of its ideas taken away: options of `FastEngine`.
FAST: dict[str, dict[str, Any]] = {
    "fast": {},
    "fast without graphs": {"use_graphs": False},
    "fast read at once": {"read_late": False},
    "fast one step a turn": {"steps_per_turn": 1},
}


def missing(engine: str, device: str, dtype: str, **others: Any) -> str | None:
    if engine == "learner" and not others["modules"]:
        return "no part of the engine is yours"
    is_emulated = os.environ.get("TRITON_INTERPRET") == "1"
    return "the fused step needs a GPU" if engine in FAST and device != "cuda" and not is_emulated else None


class System:
    """`engine` is "plain", "learner", or one of `FAST`.

    The pool holds `requests` of `most_tokens` tokens each; without that number, `blocks`, or what the memory holds.
    """

    def __init__(
        self,
        model: str,
        device: str,
        dtype: str,
        engine: str,
        requests: int | None,
        most_tokens: int,
        block_size: int,
        modules: dict[str, Any],
        kernels: str,
        blocks: int | None = None,
        **others: Any,
    ) -> None:
        import torch

        from course.assembly.load import assemble
        from solutions.engine import Engine
        from solutions.weights import load_weights, read_config

        folder, target, weight_type = Path(model), torch.device(device), getattr(torch, dtype)
        config = read_config(folder)
        per_request = -(-most_tokens // block_size)
        options: dict[str, Any] = {
            "block_size": block_size,
            "num_blocks": requests * per_request if requests else blocks,
            "max_running": requests or UNBOUNDED,
        }
        if engine == "learner":
            assembled = assemble(modules, kernels)
            weights = assembled.load_weights(folder, config, weight_type, target)
            self.engine = Engine(config, weights, parts=assembled.parts, **options)
        elif engine in FAST:
            from solutions.fast_engine import FastEngine

            weights = load_weights(folder, config, weight_type, target)
            self.engine = fast = FastEngine(config, weights, **options, **FAST[engine])
            if device == "cuda":
                fast.warm_up()
        else:
            self.engine = Engine(config, load_weights(folder, config, weight_type, target), **options)
        self._passes = _count_passes(self.engine)

    def about(self) -> dict[str, Any]:
        import torch

        cache = self.engine.cache
        return {
            "versions": {"torch": torch.__version__},
            "dtype": str(self.engine.model.weights.wte.dtype).removeprefix("torch."),
            "kv_dtype": str(cache.dtype).removeprefix("torch."),
            "block_size": cache.block_size,
            "blocks": cache.num_blocks,
        }

    def round(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        tokens: list[list[int]] = [[] for _ in prompts]
        first = [0.0] * len(prompts)
        self._passes.clear()
        start = time.perf_counter()
        for output in self.engine.stream(prompts, new_tokens):
            if output.tokens and not tokens[output.request]:
                first[output.request] = time.perf_counter() - start
            tokens[output.request] += output.tokens
        seconds = time.perf_counter() - start
        return {
            "tokens": tokens,
            "seconds": seconds,
            "step_seconds": [],
            "first_token_seconds": first,
            "steps": sum(self._passes),
        }

    def observe(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        """Run a round with the engine's seams wrapped, and return the share of the time of each kind of work."""
        from course.bench.host import watched

        with watched(self.engine) as shares:
            done = self.round(prompts, new_tokens)
        return {"host": shares.of(done["seconds"])}

    def fill(self, tokens: int) -> dict[str, Any]:
        """Compute sequences of so many tokens until the pool has no blocks for another; then each decodes again."""
        import torch

        from solutions.batch import Row, build_batch

        engine, tables = self.engine, []
        while True:
            table = engine.new_table()
            if table.append(tokens) is None:
                break
            tables.append(table)
        generator = torch.Generator().manual_seed(0)
        texts = torch.randint(engine.config.vocab_size, (len(tables), tokens), generator=generator).tolist()

        def chosen(at_once: int, num_new: int) -> list[int]:
            found: list[int] = []
            for begin in range(0, len(tables), at_once):
                some = slice(begin, begin + at_once)
                rows = [
                    Row(text[-num_new:], tokens, table.blocks, samples=True)
                    for text, table in zip(texts[some], tables[some], strict=True)
                ]
                batch = build_batch(rows, engine.block_size, engine.parts.slot_mapping, engine.device)
                with torch.inference_mode():
                    found += engine.model.next_tokens(batch, engine.caches).tolist()
            return found

        first = chosen(max(1, PASS_TOKENS // tokens), tokens)
        again = chosen(PASS_ROWS, 1)
        cache, used_blocks = engine.cache, engine.cache.num_blocks - engine.pool.num_free
        for table in tables:
            table.free()
        return {
            "alive": len(tables),
            "repeated": sum(one == other for one, other in zip(first, again, strict=True)),
            "used_blocks": used_blocks,
            "blocks": cache.num_blocks,
            "block_size": cache.block_size,
            "pool_bytes": cache.num_bytes,
            "positions": engine.config.n_positions,
        }


def _count_passes(engine: Any) -> list[int]:
    """Have the engine's scheduler note in a list how many steps of the model each of its plans is."""
    passes: list[int] = []

    def noting(call: Callable[..., Any], count: Callable[[Any], int]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            planned = call(*arguments)
            passes.append(count(planned))
            return planned

        return noted

    scheduler = engine.scheduler
    scheduler.schedule = noting(scheduler.schedule, lambda step: bool(step.batch))
    if hasattr(scheduler, "repeat"):
        scheduler.repeat = noting(scheduler.repeat, lambda times: times)
    return passes
