"""Hugging Face `transformers`, in the ways in which it generates. Written for transformers 5.17."""

from __future__ import annotations

import importlib.util
import itertools
import time
from typing import Any

MODES: dict[str, dict[str, Any]] = {
    "no-cache": {"use_cache": False},
    "cache": {},
    "batch": {},
    "static": {"cache_implementation": "static"},
    "continuous": {},
    "continuous-graphs": {},
}


def missing(mode: str, device: str, **others: Any) -> str | None:
    if device == "cuda":
        return None
    if mode == "continuous-graphs":
        return "CUDA graphs need a GPU"
    if mode == "continuous" and importlib.util.find_spec("psutil") is None:
        return "on a CPU its cache is sized with psutil, which is not installed"
    return None


class System:
    """`mode` is one of `MODES`: one request after another without and with a KV cache, all as one padded batch, that
    with a static cache and a compiled step, or continuous batching as it comes and with CUDA graphs.
    """

    def __init__(self, model: str, device: str, dtype: str, mode: str, **others: Any) -> None:
        import torch
        import transformers

        self._torch, self._mode = torch, mode
        self._model = transformers.GPT2LMHeadModel.from_pretrained(model, dtype=getattr(torch, dtype)).to(device).eval()
        settings = self._model.generation_config
        settings.eos_token_id = None  # only the length ends a sequence
        settings.do_sample = False
        settings.pad_token_id = 0
        if mode == "static":
            compiling = transformers.CompileConfig()
            compiling._compile_all_devices = True  # on a CPU too, where `generate` would not
            settings.compile_config = compiling
        self._manager: Any = None
        self._managed = 0

    def about(self) -> dict[str, Any]:
        import transformers

        dtype = str(self._model.dtype).removeprefix("torch.")
        return {
            "versions": {"transformers": transformers.__version__, "torch": self._torch.__version__},
            "dtype": dtype,
            "kv_dtype": None if self._mode == "no-cache" else dtype,
        }

    def round(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        if self._mode.startswith("continuous"):
            self._prepare_manager(prompts, new_tokens)
        start = time.perf_counter()
        tokens = self._generate(prompts, new_tokens)
        seconds = time.perf_counter() - start
        passes = len(prompts) if self._mode in ("no-cache", "cache") else 1
        return {
            "tokens": tokens,
            "seconds": seconds,
            "step_seconds": [],
            "first_token_seconds": [],
            "steps": passes * new_tokens,
        }

    def observe(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        first: list[float] = []
        start = time.perf_counter()
        if self._mode.startswith("continuous"):
            self._run_manager(prompts, new_tokens, first)
            first = [each - start for each in first]
        else:
            self._generate(prompts, new_tokens, logits_processor=[_first_calls(first, start)])
        return {"first_token_seconds": first}

    def _generate(self, prompts: list[list[int]], new_tokens: int, **options: Any) -> list[list[int]]:
        if self._mode.startswith("continuous"):
            return self._run_manager(prompts, new_tokens)
        if self._mode in ("no-cache", "cache"):
            found = []
            for prompt in prompts:
                for each in options.get("logits_processor", ()):
                    each.begin()
                found += self._generate_batch([prompt], new_tokens, **options)
            return found
        return self._generate_batch(prompts, new_tokens, **options)

    def _generate_batch(self, prompts: list[list[int]], new_tokens: int, **options: Any) -> list[list[int]]:
        width = max(map(len, prompts))
        padded = [[0] * (width - len(prompt)) + prompt for prompt in prompts]
        mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        with self._torch.inference_mode():
            generated = self._model.generate(
                self._torch.tensor(padded, device=self._model.device),
                attention_mask=self._torch.tensor(mask, device=self._model.device),
                max_new_tokens=new_tokens,
                **MODES[self._mode],
                **options,
            )
        tokens: list[list[int]] = generated[:, width:].tolist()
        return tokens

    def _prepare_manager(self, prompts: list[list[int]], new_tokens: int) -> None:
        """Have a manager of the size that its own hints ask for; it is kept from round to round."""
        if self._managed == len(prompts):
            return
        from transformers import ContinuousBatchingConfig
        from transformers.generation.continuous_batching.utils import WorkloadHints

        if self._manager is not None:
            self._manager.stop(block=True)
            self._manager.destroy()
        self._managed = len(prompts)
        config = ContinuousBatchingConfig(
            allow_block_sharing=False,  # every round has the same prompts
            max_memory_percent=0.05,  # of a card that others are on too
            **({"use_cuda_graph": True} if self._mode == "continuous-graphs" else {}),
        )
        hints = WorkloadHints(
            max_prompt_length=max(map(len, prompts)), max_generated_length=new_tokens, num_requests=len(prompts)
        )
        self._manager = self._model.init_continuous_batching(continuous_batching_config=config, workload_hints=hints)
        # No warm-up of its own: for GPT-2 it uses positions that the model has not.
        self._manager.start()

    def _run_manager(
        self, prompts: list[list[int]], new_tokens: int, first: list[float] | None = None
    ) -> list[list[int]]:
        """Continue the prompts; `first` gets the time of each one's first token, by the clock of `perf_counter`."""
        ids = self._manager.add_requests(prompts, max_new_tokens=new_tokens, record_timestamps=first is not None)
        results: dict[str, Any] = {}
        while len(results) < len(ids):
            result = self._manager.get_result(timeout=1.0)
            if result is None and not self._manager.is_running():
                raise RuntimeError("the thread of the continuous batching manager has ended")
            if result is not None and result.error:
                raise RuntimeError(result.error)
            if result is not None and result.is_finished():
                results[result.request_id] = result
        if first is not None:
            first += [results[each].timestamps[0] for each in ids]
        return [list(results[each].generated_tokens) for each in ids]


def _first_calls(first: list[float], start: float) -> Any:
    """Return a logits processor that changes nothing and notes when each sequence of a batch has its first logits.

    They are waited for, as whoever reads the token would.
    """

    class FirstCalls:
        is_first = True

        def begin(self) -> None:
            self.is_first = True

        def __call__(self, tokens: Any, logits: Any) -> Any:
            if self.is_first:
                logits[0, 0].item()
                first.extend(itertools.repeat(time.perf_counter() - start, len(tokens)))
                self.is_first = False
            return logits

    return FirstCalls()
