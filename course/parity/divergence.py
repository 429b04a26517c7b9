"""`python -m course.parity.divergence`: how each planted bug shows, layer by layer, on the model that ships.

Prints JSON, which `docs/results/divergence.json` holds and the chapter's picture draws.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
from typing import Any

import torch

from course.parity.diagnose import diagnose, error_of, head_errors
from course.parity.models import load_pair
from course.parity.planted import BUGS, Bug
from course.parity.record import Record, record_engine, record_reference
from solutions.engine import Engine
from solutions.tokenizer import ByteTokenizer

MODEL = "course/model"
PROMPT = "Alice was beginning to get very tired of sitting"
PASSES = [32, 8, 1, 1, 1, 1, 1, 1, 1, 1]
BLOCK_SIZE = 16
BOUND = 1e-4


def measure() -> dict[str, Any]:
    """Return every bug's errors on the shipped model, in fp32 on the CPU but for the bug that says otherwise."""
    import transformers

    torch.set_num_threads(1)
    config, weights, reference = load_pair(MODEL, torch.float32, "cpu")
    tokens = ByteTokenizer().encode(PROMPT)
    theirs = record_reference(reference, tokens)

    def engine_with(bug: Bug) -> Engine:
        return bug.engine(config, weights, num_blocks=8, block_size=BLOCK_SIZE)

    return {
        "command": "python -m course.parity.divergence",
        "commit": _commit(),
        "hardware": f"CPU, {platform.machine()}, one thread",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "model": MODEL,
        "prompt": PROMPT,
        "passes": PASSES,
        "block_size": BLOCK_SIZE,
        "bound": BOUND,
        "stages": stages(config.n_layer),
        "bugs": [
            {"id": name, "name": bug.name, "what": bug.what} | _compare(engine_with(bug), tokens, theirs)
            for name, bug in BUGS.items()
        ],
    }


def stages(num_layers: int) -> list[str]:
    """Return the names of the places that are compared, in the order in which they are computed."""
    of_layers = (f"layer {layer}{part}" for layer in range(num_layers) for part in (", heads", ""))
    return ["embedding", *of_layers, "logits"]


def _compare(engine: Engine, tokens: list[int], theirs: Record) -> dict[str, Any]:
    engine.cache.data.zero_()  # a bug that reads slots of nobody gives the same figures every time
    ours = record_engine(engine, tokens, PASSES)
    found = diagnose(ours, theirs, BOUND, BLOCK_SIZE)
    errors = [error_of(ours.hidden[0], theirs.hidden[0])]
    for layer in range(len(ours.heads)):
        errors.append(error_of(ours.heads[layer], theirs.heads[layer]))
        errors.append(error_of(ours.hidden[layer + 1], theirs.hidden[layer + 1]))
    errors.append(error_of(ours.logits, theirs.logits))
    gap = float((ours.logits.log_softmax(-1) - theirs.logits.log_softmax(-1)).abs().max())
    same = int((ours.logits.argmax(-1) == theirs.logits.argmax(-1)).sum())
    return {
        "errors": [_short(error) for error in errors],
        "heads": [[_short(error) for error in layer] for layer in head_errors(ours, theirs)],
        "log_prob_gap": _short(gap),
        "same_choice": same,  # of the tokens, those after which both would go on with the same token
        "layer": found and found.layer,
        "first_heads": found.heads if found else [],
        "positions": found.positions if found else [],
        "cause": found and found.cause,
        "report": str(found) if found else None,
    }


def _short(number: float) -> float:
    return float(f"{number:.2e}")


def _commit() -> str:
    found = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=7"], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or "unknown"


if __name__ == "__main__":
    text = json.dumps(measure(), indent=1, ensure_ascii=False)
    print(re.sub(r"\[[^][{}]*]", lambda flat: f"[{' '.join(flat[0][1:-1].split())}]", text))
