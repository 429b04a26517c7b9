"""vLLM, as its users call it: `LLM.generate` on token numbers. Written for vLLM 0.21 (its V1 engine)."""

from __future__ import annotations

import json
import os
import time
from typing import Any


class System:
    """`VLLM_ENABLE_V1_MULTIPROCESSING=0` in the environment keeps its engine in this process."""

    def __init__(self, model: str, device: str, dtype: str, memory_share: float, kv_bytes: int, **others: Any) -> None:
        from vllm import LLM

        with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
            positions = json.load(file)["n_positions"]
        self._dtype = dtype
        self._llm = LLM(
            model=model,
            skip_tokenizer_init=True,
            dtype=dtype,
            gpu_memory_utilization=memory_share,
            kv_cache_memory_bytes=kv_bytes,
            max_model_len=positions,
            enable_prefix_caching=False,  # every round has the same prompts
        )
        self._engine = self._llm.llm_engine
        self._steps = 0
        step = self._engine.step

        def counted() -> Any:
            self._steps += 1
            return step()

        self._engine.step = counted  # type: ignore[method-assign, unused-ignore]

    def about(self) -> dict[str, Any]:
        import torch
        import vllm

        return {
            "versions": {"vllm": vllm.__version__, "torch": torch.__version__},
            "dtype": self._dtype,
            "kv_dtype": self._dtype,
        }

    def round(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        from vllm import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=new_tokens, ignore_eos=True, detokenize=False)
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        self._steps = 0
        start = time.perf_counter()
        outputs = self._llm.generate(inputs, params, use_tqdm=False)
        seconds = time.perf_counter() - start
        tokens = [list(output.outputs[0].token_ids) for output in outputs]
        return {
            "tokens": tokens,
            "seconds": seconds,
            "step_seconds": [],
            "first_token_seconds": [],
            "steps": self._steps,
        }

    def observe(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        """Step the engine as `generate` does, but have it hand out every token as it comes."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        params = SamplingParams(
            temperature=0,
            max_tokens=new_tokens,
            ignore_eos=True,
            detokenize=False,
            output_kind=RequestOutputKind.DELTA,
        )
        first: dict[str, float] = {}
        start = time.perf_counter()
        for number, prompt in enumerate(prompts):
            self._engine.add_request(f"observed-{number}", {"prompt_token_ids": prompt}, params)
        while self._engine.has_unfinished_requests():
            for output in self._engine.step():
                first.setdefault(output.request_id, time.perf_counter() - start)
        return {"first_token_seconds": list(first.values())}
