"""CTranslate2: its `Generator` on the model, which is converted first. Written for CTranslate2 4.8."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any


class _Numbers:
    """Stands for a tokenizer: the words are the token numbers. None is special, but these three have to be named."""

    bos_token = eos_token = unk_token = "0"

    def __init__(self, size: int) -> None:
        self._size = size

    def get_vocab(self) -> dict[str, int]:
        return {str(token): token for token in range(self._size)}


class System:
    def __init__(self, model: str, device: str, dtype: str, **others: Any) -> None:
        import ctranslate2

        self._dtype = dtype
        folder = tempfile.TemporaryDirectory()
        self._convert(model, folder.name)
        threads = {"intra_threads": int(os.environ.get("OMP_NUM_THREADS", "0"))}
        self._generator = ctranslate2.Generator(folder.name, device=device, compute_type=dtype, **threads)
        folder.cleanup()

    def about(self) -> dict[str, Any]:
        import ctranslate2

        return {"versions": {"ctranslate2": ctranslate2.__version__}, "dtype": self._dtype, "kv_dtype": self._dtype}

    def round(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        start = time.perf_counter()
        tokens = self._generate(prompts, new_tokens)
        seconds = time.perf_counter() - start
        return {
            "tokens": tokens,
            "seconds": seconds,
            "step_seconds": [],
            "first_token_seconds": [],
            "steps": new_tokens,
        }

    def observe(self, prompts: list[list[int]], new_tokens: int) -> dict[str, Any]:
        first: dict[int, float] = {}
        start = time.perf_counter()

        def heard(step: Any) -> bool:
            first.setdefault(step.batch_id, time.perf_counter() - start)
            return False

        self._generate(prompts, new_tokens, callback=heard)
        return {"first_token_seconds": list(first.values())}

    def _generate(self, prompts: list[list[int]], new_tokens: int, **options: Any) -> list[list[int]]:
        results = self._generator.generate_batch(
            [[str(token) for token in prompt] for prompt in prompts],
            max_length=new_tokens,
            sampling_topk=1,
            include_prompt_in_result=False,  # then the length is that of the new tokens alone
            end_token=[],  # only the length ends a sequence
            **options,
        )
        return [list(result.sequences_ids[0]) for result in results]

    def _convert(self, model: str, folder: str) -> None:
        from ctranslate2.converters import TransformersConverter

        class Converter(TransformersConverter):  # type: ignore[misc, unused-ignore]
            def load_tokenizer(self, tokenizer_class: Any, name: str, **options: Any) -> Any:
                import transformers

                return _Numbers(transformers.AutoConfig.from_pretrained(name).vocab_size)

        Converter(model).convert(folder, quantization=self._dtype, force=True)
