"""Holds the fused decode step against a plain float64 computation of the same steps."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from solutions.fused_decode import Entry, FusedDecoder
from solutions.kv_cache import KVCache
from solutions.weights import GPT2Config, Weights, random_weights

SMALL = GPT2Config(vocab_size=1000, n_positions=256, n_embd=256, n_layer=2, n_head=4)
GPT2_SMALL = GPT2Config(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12)


@dataclass(frozen=True)
class Found:
    """What a comparison found: how far a chosen token's logit was below the best, and the error of keys and values."""

    token_gap: float
    kv_error: float


class Scene:
    """Sequences with random keys and values behind them, in scrambled blocks of a cache that is NaN elsewhere."""

    def __init__(self, config: GPT2Config, contexts: list[int], num_steps: int, device: str, seed: int = 0) -> None:
        torch.manual_seed(seed)
        print(f"seed {seed}")
        self.config, self.contexts = config, contexts
        self.weights = varied(random_weights(config, seed, torch.float16, device))
        block_size = 16
        per_row = [-(-(context + num_steps + 1) // block_size) for context in contexts]
        self.cache = KVCache(
            config.n_layer, sum(per_row) + 2, block_size, config.n_head, config.head_dim, torch.float16, device
        )
        self.cache.data.fill_(float("nan"))
        order = torch.randperm(sum(per_row) + 2).tolist()
        self.blocks = [[order.pop() for _ in range(count)] for count in per_row]
        self.slots = [
            torch.tensor([blocks[at // block_size] * block_size + at % block_size for at in range(context + num_steps)])
            for blocks, context in zip(self.blocks, contexts, strict=True)
        ]
        for slots, context in zip(self.slots, contexts, strict=True):
            places = slots[:context].to(device)
            shape = (config.n_layer, 2, context, config.n_head, config.head_dim)
            self.flat()[:, :, places] = torch.randn(shape, device=device).half()
        self.tokens = torch.randint(0, config.vocab_size, (len(contexts),)).tolist()

    def flat(self) -> torch.Tensor:
        """Return the cache by slot: [layers, 2, slots, heads, head_dim]."""
        return self.cache.data.flatten(2, 3)

    def entries(self) -> list[Entry]:
        return [
            Entry(-1, token, context, blocks)
            for token, context, blocks in zip(self.tokens, self.contexts, self.blocks, strict=True)
        ]


def compare(scene: Scene, num_steps: int, decoder: FusedDecoder | None = None) -> Found:
    """Run one turn and hold each step against float64, fed with the tokens that the turn chose."""
    before = scene.flat().double()
    decoder = decoder or FusedDecoder(
        scene.config, scene.weights, scene.cache, max_rows=len(scene.contexts), max_steps=num_steps
    )
    chosen = decoder.launch(scene.entries(), num_steps).tokens()
    after = scene.flat()
    gaps, errors = [], []
    for row, (context, slots) in enumerate(zip(scene.contexts, scene.slots, strict=True)):
        past = before[:, :, slots[:context].to(before.device)]
        token = scene.tokens[row]
        for step in range(num_steps):
            logits, past = reference_step(scene.config, scene.weights, token, context + step, past)
            token = chosen[row][step]
            gaps.append((logits.max() - logits[token]) / logits.std())
            written = after[:, :, slots[context + step]].double()
            errors.append((written - past[:, :, -1]).norm() / past[:, :, -1].norm())
    touched = torch.cat(
        [slots[: context + num_steps] for slots, context in zip(scene.slots, scene.contexts, strict=True)]
    )
    others = torch.ones(after.shape[2], dtype=torch.bool)
    others[touched] = False
    assert bool(after[:, :, others.to(after.device)].isnan().all()), "something was written where no token is"
    return Found(float(torch.stack(gaps).max()), float(torch.stack(errors).max()))  # NaN where one is


def reference_step(
    config: GPT2Config, weights: Weights, token: int, position: int, past: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one step's logits and the past with the new keys and values, all in float64."""
    wide = weights.wte.double()
    x = wide[token] + weights.wpe[position].double()
    layers = []
    for index, layer in enumerate(weights.layers):
        w = {name: value.double() for name, value in layer._asdict().items()}
        normed = F.layer_norm(x, x.shape, w["ln_1_weight"], w["ln_1_bias"], config.layer_norm_epsilon)
        query, key, value = (normed @ w["attn_c_attn_weight"] + w["attn_c_attn_bias"]).view(3, config.n_head, -1)
        keys, values = (torch.cat([past[index, i], new[None]]) for i, new in enumerate((key, value)))
        scores = torch.einsum("hd,khd->hk", query, keys) * config.head_dim**-0.5
        heads = torch.einsum("hk,khd->hd", scores.softmax(-1), values)
        x = x + heads.flatten() @ w["attn_c_proj_weight"] + w["attn_c_proj_bias"]
        normed = F.layer_norm(x, x.shape, w["ln_2_weight"], w["ln_2_bias"], config.layer_norm_epsilon)
        inner = F.gelu(normed @ w["mlp_c_fc_weight"] + w["mlp_c_fc_bias"], approximate="tanh")
        x = x + inner @ w["mlp_c_proj_weight"] + w["mlp_c_proj_bias"]
        layers.append(torch.stack([keys, values]))
    normed = F.layer_norm(
        x, x.shape, weights.ln_f_weight.double(), weights.ln_f_bias.double(), config.layer_norm_epsilon
    )
    return normed @ wide.T, torch.stack(layers)


def varied(weights: Weights) -> Weights:
    """Make biases and layer norms other than 0 and 1, so that one left out shows."""

    def vary(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if name.endswith("bias"):
            return torch.randn_like(tensor) * 0.05
        return tensor * (1 + 0.1 * torch.randn_like(tensor)) if "ln_" in name else tensor * 2

    layers = tuple(type(each)(*(vary(n, t) for n, t in each._asdict().items())) for each in weights.layers)
    return weights._replace(
        layers=layers,
        ln_f_weight=vary("ln_f_weight", weights.ln_f_weight),
        ln_f_bias=vary("ln_f_bias", weights.ln_f_bias),
    )
