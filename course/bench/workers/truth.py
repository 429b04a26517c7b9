"""Hugging Face in float32, asked what it thinks of every token that a system has chosen; and how fast a copy is."""

from __future__ import annotations

import statistics
from typing import Any

BATCH = 16  # sequences in one pass
COPIED = 256 << 20  # bytes: five times the L2 cache of an H200
COPIES, ROUNDS = 20, 5  # one after another, so that what starting one costs does not count; the median of the rounds


class System:
    def __init__(self, model: str, device: str, **others: Any) -> None:
        import torch
        import transformers

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        self._torch = torch
        model_class = transformers.GPT2LMHeadModel
        self._model = model_class.from_pretrained(model, dtype=torch.float32, attn_implementation="eager")
        self._model = self._model.to(device).eval()

    def about(self) -> dict[str, Any]:
        import transformers

        return {"versions": {"transformers": transformers.__version__, "torch": self._torch.__version__}}

    def score(self, texts: list[list[list[int]]]) -> dict[str, Any]:
        """Force every text, a prompt and the tokens chosen after it, and judge each choice in its own context.

        Returns for each text how many tokens are Hugging Face's own greedy ones before the first that is not, and the
        largest log-probability that a choice gives away against the best token at its place.
        """
        torch, found = self._torch, []
        for begin in range(0, len(texts), BATCH):
            batch = [prompt + tokens for prompt, tokens in texts[begin : begin + BATCH]]
            width = max(map(len, batch))
            # What pads stands behind the text, where no position of the text sees it.
            padded = torch.tensor([each + [0] * (width - len(each)) for each in batch], device=self._model.device)
            with torch.inference_mode():
                log_probs = self._model(padded).logits.float().log_softmax(-1)
            best = log_probs.max(-1)
            for row, (prompt, tokens) in enumerate(texts[begin : begin + BATCH]):
                places = slice(len(prompt) - 1, len(prompt) - 1 + len(tokens))
                chosen = torch.tensor(tokens, device=self._model.device)
                gaps = best.values[row, places] - log_probs[row, places].gather(1, chosen[:, None])[:, 0]
                others = (best.indices[row, places] != chosen).nonzero()
                found.append([int(others[0]) if len(others) else len(tokens), float(gaps.max())])
        return {"scores": found}

    def bandwidth(self) -> dict[str, Any]:
        """Return how many bytes a second a copy moves on the GPU; None where there is none."""
        return {"bytes_per_second": copy_bandwidth() if self._model.device.type == "cuda" else None}


def copy_bandwidth() -> float:
    """Return how many bytes a second a copy moves on the GPU, those that it reads and those that it writes.

    Not recorded as a graph: there the copy engine does it, which is slower.
    """
    import torch

    source = torch.ones(COPIED // 4, device="cuda")
    target = torch.empty_like(source)
    rates: list[float] = []
    for _ in range(ROUNDS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(COPIES):
            target.copy_(source)
        end.record()
        end.synchronize()
        rates.append(COPIES * 2 * COPIED / (begin.elapsed_time(end) / 1e3))
    return statistics.median(rates)
