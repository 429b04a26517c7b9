"""Loading weights: what is read, and that a bad checkpoint is named before any tensor is loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from solutions import weights
from solutions.weights import CONFIGS, load_weights, random_weights, read_config, tensor_shapes
from tests.engine.tiny import tiny_folder, tiny_model

CPU = torch.device("cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_folder(), tmp_path / "model"))


def change(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Rewrite the checkpoint with some tensors replaced, or left out where None; `.` is written `__`."""
    path = folder / "model.safetensors"
    held = load_file(path)
    for name, tensor in tensors.items():
        held.pop(f"transformer.{name.replace('__', '.')}")
        if tensor is not None:
            held[f"transformer.{name.replace('__', '.')}"] = tensor
    save_file(held, path)


def test_every_tensor_is_the_checkpoints_own() -> None:
    config, loaded, reference = tiny_model()
    state = reference.transformer.state_dict()
    assert torch.equal(loaded.wte, state["wte.weight"])
    assert torch.equal(loaded.layers[2].mlp_c_proj_weight, state["h.2.mlp.c_proj.weight"])
    assert torch.equal(loaded.layers[1].attn_c_attn_bias, state["h.1.attn.c_attn.bias"])
    assert len(loaded.layers) == config.n_layer


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_are_cast(dtype: torch.dtype) -> None:
    config = read_config(tiny_folder())
    assert load_weights(tiny_folder(), config, dtype, CPU).layers[0].ln_1_weight.dtype == dtype


def test_names_without_the_prefix_are_accepted(folder: Path) -> None:
    path = folder / "model.safetensors"
    save_file({name.removeprefix("transformer."): tensor for name, tensor in load_file(path).items()}, path)
    assert torch.equal(load_weights(folder, read_config(folder), torch.float32, CPU).wpe, tiny_model()[1].wpe)


def test_a_sharded_checkpoint_is_read(folder: Path) -> None:
    held = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(held)
    for index in range(3):
        save_file({name: held[name] for name in names[index::3]}, folder / f"model-{index}.safetensors")
    assert torch.equal(load_weights(folder, read_config(folder), torch.float32, CPU).wte, tiny_model()[1].wte)


def refusal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the error of loading; opening any tensor before it is a failure."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a tensor was loaded before the checkpoint was known to be whole")

    monkeypatch.setattr(weights, "safe_open", never)
    with pytest.raises(ValueError, match=r".+") as error:
        load_weights(folder, read_config(folder), torch.float32, CPU)
    return str(error.value)


def test_a_missing_tensor_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(folder, h__1__ln_2__bias=None)
    assert refusal(folder, monkeypatch) == "the checkpoint has no tensor h.1.ln_2.bias"


def test_a_tensor_of_another_shape_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    change(folder, h__0__attn__c_attn__weight=torch.zeros(384, 128))
    text = refusal(folder, monkeypatch)
    assert "tensor h.0.attn.c_attn.weight has shape (384, 128); the config asks for (128, 384)" in text


def test_a_truncated_tensor_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    text = refusal(folder, monkeypatch)
    assert "is cut off: tensor " in text
    assert "lacks 100 bytes" in text


def test_a_truncated_header_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.safetensors").write_bytes(b"\xff\xff\x00\x00\x00\x00\x00\x00{")
    assert "cut off inside its header" in refusal(folder, monkeypatch)


def test_a_folder_without_weights_is_said(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "model.safetensors").unlink()
    assert "holds no .safetensors file" in refusal(folder, monkeypatch)


@pytest.mark.parametrize(
    ("name", "value"),
    [("model_type", "llama"), ("activation_function", "gelu"), ("n_inner", 100), ("tie_word_embeddings", False)],
)
def test_another_kind_of_model_is_refused(folder: Path, name: str, value: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    with pytest.raises(ValueError, match=name):
        read_config(folder)


@pytest.mark.parametrize(
    ("name", "millions"), [("gpt2", 124.4), ("gpt2-medium", 354.8), ("gpt2-large", 774.0), ("gpt2-xl", 1557.6)]
)
def test_the_published_sizes(name: str, millions: float) -> None:
    parameters = sum(torch.Size(shape).numel() for shape in tensor_shapes(CONFIGS[name]).values())
    assert round(parameters / 1e6, 1) == millions


def test_random_weights_repeat_with_their_seed() -> None:
    config = read_config(tiny_folder())
    first, second, third = (random_weights(config, seed) for seed in (1, 1, 2))
    assert torch.equal(first.layers[1].mlp_c_fc_weight, second.layers[1].mlp_c_fc_weight)
    assert not torch.equal(first.wte, third.wte)
