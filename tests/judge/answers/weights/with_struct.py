"""Reads the files without the safetensors library: header and bytes by hand."""

import json
import struct

import torch

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}


def tensor_shapes(config):
    e = config.n_embd
    block = [
        ("ln_1.weight", [e]), ("ln_1.bias", [e]), ("ln_2.weight", [e]), ("ln_2.bias", [e]),
        ("attn.c_attn.weight", [e, 3 * e]), ("attn.c_attn.bias", [3 * e]),
        ("attn.c_proj.weight", [e, e]), ("attn.c_proj.bias", [e]),
        ("mlp.c_fc.weight", [e, 4 * e]), ("mlp.c_fc.bias", [4 * e]),
        ("mlp.c_proj.weight", [4 * e, e]), ("mlp.c_proj.bias", [e]),
    ]  # fmt: skip
    every = [("wte.weight", [config.vocab_size, e]), ("wpe.weight", [config.n_positions, e])]
    every += [(f"h.{i}.{name}", shape) for i in range(config.n_layer) for name, shape in block]
    return dict([*every, ("ln_f.weight", [e]), ("ln_f.bias", [e])])


def load_weights(folder, config, dtype, device):
    found = {}
    for path in folder.iterdir():
        if path.suffix != ".safetensors":
            continue
        content = path.read_bytes()
        (length,) = struct.unpack_from("<Q", content)
        if len(content) < 8 + length:
            raise ValueError(f"{path.name}: only {len(content)} bytes, and the header alone has {length}")
        header = json.loads(content[8 : 8 + length])
        body = content[8 + length :]
        for name, entry in header.items():
            if name != "__metadata__":
                short = name[len("transformer.") :] if name.startswith("transformer.") else name
                found[short] = (entry, body)
    tensors = {}
    for name, shape in tensor_shapes(config).items():
        if name not in found:
            raise ValueError(f"no {name}")
        entry, body = found[name]
        if entry["shape"] != shape:
            raise ValueError(f"{name}: {entry['shape']} instead of {shape}")
        begin, end = entry["data_offsets"]
        if end > len(body):
            raise ValueError(f"{name}: the file ends {end - len(body)} bytes too early")
    for name, shape in tensor_shapes(config).items():
        entry, body = found[name]
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(bytearray(body[begin:end]), dtype=TYPES[entry["dtype"]])
        tensors[name] = flat.reshape(shape).to(device=device, dtype=dtype)
    return assemble(config, tensors)  # noqa: F821 — the stub's
