"""Trains the small model that ships with the course: a GPT-2 of bytes that writes recognisable English.

    python course/model/train.py alice29.txt

The text is "Alice's Adventures in Wonderland" (Lewis Carroll, 1865, in the public domain), as it stands in the tests of
the brotli package: `pip download --no-deps --no-binary :all: brotli==1.2.1`, then `tests/testdata/alice29.txt` in it.
Writes `config.json`, `model.safetensors` and `training.json` (seed, versions, time, loss curve) beside this file.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import platform
import time
from pathlib import Path

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel

FOLDER = Path(__file__).parent
SEED = 20
CONTEXT = 256
BATCH = 64
STEPS = 3000
WARM_UP = 100
LEARNING_RATE = 2e-3
HELD_OUT = 0.05  # of the text, at its end
CONFIG = {
    "vocab_size": 256,
    "n_positions": CONTEXT,
    "n_embd": 128,
    "n_layer": 3,
    "n_head": 4,
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "bos_token_id": None,
    "eos_token_id": None,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="the text to learn, in UTF-8")
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(SEED)
    text = options.text.read_bytes().replace(b"\r\n", b"\n")
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long().to(device)
    split = int(len(data) * (1 - HELD_OUT))
    train, held_out = data[:split], data[split:]
    model = GPT2LMHeadModel(GPT2Config(**CONFIG)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate(step, options.steps))
    generator = torch.Generator().manual_seed(SEED)
    curve = []
    start = time.time()
    for step in range(options.steps):
        if step % 100 == 0:
            loss = evaluate(model, held_out)
        offsets = torch.randint(len(train) - CONTEXT, (BATCH,), generator=generator).to(device)
        tokens = train[offsets[:, None] + torch.arange(CONTEXT, device=device)]
        train_loss = model(tokens, labels=tokens).loss
        optimizer.zero_grad()
        train_loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            curve.append({"step": step, "train": round(train_loss.item(), 4), "held_out": round(loss, 4)})
            print(curve[-1], flush=True)
    model.save_pretrained(options.out, safe_serialization=True)
    (options.out / "generation_config.json").unlink(missing_ok=True)
    record = {
        "command": "python course/model/train.py alice29.txt",
        "text": {"name": options.text.name, "bytes": len(text), "sha256": hashlib.sha256(text).hexdigest()},
        "seed": SEED,
        "steps": options.steps,
        "batch": BATCH,
        "context": CONTEXT,
        "learning_rate": LEARNING_RATE,
        "kept": "the last weights, past the lowest held-out loss: the text is to be recognisable, not new",
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "held_out_share": HELD_OUT,
        "held_out_loss": round(evaluate(model, held_out), 4),
        "seconds": round(time.time() - start, 1),
        "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor() or "CPU",
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
        "curve": curve,
    }
    (options.out / "training.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    prompt = torch.tensor([list(b"Alice was ")], device=device)
    print(bytes(model.generate(prompt, max_new_tokens=200, do_sample=False)[0].tolist()).decode(errors="replace"))


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up, then a cosine down to a tenth."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.1 + 0.45 * (1 + math.cos(math.pi * (step - WARM_UP) / max(1, steps - WARM_UP)))


def evaluate(model: GPT2LMHeadModel, data: torch.Tensor) -> float:
    """Return the mean loss in nats a byte over the held-out text."""
    model.eval()
    windows = data[: len(data) // CONTEXT * CONTEXT].view(-1, CONTEXT)
    with torch.no_grad():
        loss = float(model(windows, labels=windows).loss)
    model.train()
    return loss


if __name__ == "__main__":
    main()
