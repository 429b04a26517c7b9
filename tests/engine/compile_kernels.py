"""Compile the kernels for GPUs that are not here, and say what they need of them: one line of JSON a variant and GPU.

    python -m tests.engine.compile_kernels            # every kind of kernel once
    python -m tests.engine.compile_kernels --all      # every variant that the launchers can choose

The launchers decide what is compiled: they are called on small tensors with a recorder in the place of each kernel, so
tile sizes, types and what Triton specialises on (a stride of 1, a multiple of 16) are those of a real launch. A variant
may launch several kernels; what is said of it holds for all of them. Run it as a program: a process in which Triton
interprets cannot compile.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from course.judge.console.compiled import SHARED_LIMIT
from solutions import fused_decode, prompt_graphs, prompt_pass, split_kv
from solutions.kv_cache import KVCache
from solutions.weights import GPT2Config, random_weights
from tests.engine.cases import make_case
from tests.engine.planting import load

POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8}


# The fused step is compiled for the GPU that its plans were found on, and for the least shared memory that one has.
FUSED = {f"fused-{size}": size for size in fused_decode.PLANS}
FUSED_ARCHITECTURES = (89, 90)


@dataclass
class Recorder:
    """Stands in for a kernel and keeps what it is launched with, once."""

    kernel: Any
    launches: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=dict)

    def __getitem__(self, grid: Any) -> Any:
        return self._launch

    def _launch(self, *args: Any, **options: Any) -> None:
        numbers = [each.dtype if isinstance(each, torch.Tensor) else each for each in args]
        self.launches[str((numbers, options))] = (args, options)

    def compile(self, arch: int) -> list[Any]:
        """Compile what was launched for a compute capability (90 is 9.0)."""
        return [self._compile(arch, *launch) for launch in self.launches.values()]

    def _compile(self, arch: int, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        signature: dict[str, str] = {}
        constants: dict[tuple[int, ...], Any] = {}
        attributes: dict[tuple[int, ...], Any] = {}
        for index, (parameter, value) in enumerate(zip(self.kernel.params, args, strict=True)):
            if parameter.name == "ASM":  # the launcher looks whether its tensors are on a GPU
                value = True
            if parameter.is_constexpr or value is None or (isinstance(value, int) and value == 1):
                signature[parameter.name] = "constexpr"
                constants[(index,)] = value
                continue
            if isinstance(value, torch.Tensor):
                signature[parameter.name] = POINTERS[value.dtype]
            else:
                signature[parameter.name] = "i32" if isinstance(value, int) else "fp32"
            if isinstance(value, torch.Tensor) or (isinstance(value, int) and value % 16 == 0):
                attributes[(index,)] = [["tt.divisibility", 16]]
        source = ASTSource(self.kernel, signature, constants, attributes)
        return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


@dataclass(frozen=True)
class Variant:
    """One choice of the launchers. `query` is the model's dtype, `cache` the KV cache's."""

    kernel: str  # decode, split, prefill, write, or one of FUSED
    query: str
    cache: str
    head_dim: int
    block_size: int

    def __str__(self) -> str:
        return f"{self.kernel}-{self.query}-{self.cache}-{self.head_dim}-{self.block_size}"


def variants(everything: bool) -> Iterator[Variant]:
    """Yield what to compile: every kernel, dtype and kind of head size once, or all that the launchers can choose."""
    for kernel, query, cache, head_dim in (
        ("decode", "fp16", "fp16", 64),
        ("decode", "bf16", "int8", 80),
        ("decode", "fp32", "fp32", 80),
        ("split", "fp16", "fp16", 64),
        ("split", "fp16", "int8", 64),
        ("split", "bf16", "int8", 80),
        ("prefill", "fp16", "fp16", 80),
        ("prefill", "bf16", "int8", 64),
        ("prefill", "fp32", "fp32", 64),
        ("write", "fp16", "fp16", 64),
        ("write", "bf16", "int8", 80),
        *((kernel, "fp16", "fp16", 64) for kernel in FUSED),
    ):
        yield Variant(kernel, query, cache, head_dim, 16)
    if everything:
        for kernel, query, head_dim, block_size in itertools.product(
            ("decode", "split", "prefill", "write"), ("fp16", "bf16", "fp32"), (32, 64, 80, 96, 128), (8, 16, 256)
        ):
            for cache in {query, "int8", "fp16"}:
                yield Variant(kernel, query, cache, head_dim, block_size)


def record(variant: Variant, arch: int, attention: ModuleType, slot_write: ModuleType) -> list[Recorder]:
    """Call the launcher and return the recorders of the kernels that it launched."""
    recorders = []
    for module in (attention, slot_write, split_kv, fused_decode, prompt_graphs, prompt_pass):
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            kernel = getattr(module, name)
            setattr(module, name, Recorder(kernel.kernel if isinstance(kernel, Recorder) else kernel))
            recorders.append(getattr(module, name))
    if variant.kernel in FUSED:
        launch_fused(FUSED[variant.kernel], arch)
    else:
        launch_part(variant, attention, slot_write)
    return [each for each in recorders if each.launches]


def launch_part(variant: Variant, attention: ModuleType, slot_write: ModuleType) -> None:
    """Call an attention or a slot write on a small batch."""
    query_len = 5 if variant.kernel == "prefill" else 1
    longest = 2 * split_kv.PART if variant.kernel == "split" else 20
    sizes = {"head_dim": variant.head_dim, "block_size": variant.block_size}
    cache_dtype = DTYPES[variant.cache]
    case = make_case([9, longest], [1, query_len], dtype=DTYPES[variant.query], cache_dtype=cache_dtype, **sizes)
    if variant.kernel == "write":
        touched = torch.zeros(2, 4, dtype=torch.int32)
        new = torch.zeros(9, 2, variant.head_dim, dtype=DTYPES[variant.query])
        slot_write.write_kv(new, new.clone(), case.cache, torch.arange(9), touched)
    else:
        case.run(split_kv if variant.kernel == "split" else attention)


def launch_fused(size: int, arch: int) -> None:
    """Launch a decode step of GPT-2 small, but for the number of its layers and words, as on that GPU.

    And what begins a turn, and the kernels of a step with prompts.
    """
    config = GPT2Config(vocab_size=1000, n_positions=1024, n_embd=768, n_layer=1, n_head=12)
    cache = KVCache(1, 1, 16, config.n_head, config.head_dim, torch.float16, "cpu")
    weights = random_weights(config, 0, torch.float16, "cpu")
    decoder = fused_decode.FusedDecoder(config, weights, cache, max_rows=size, max_steps=1)
    decoder.uses_pdl, decoder.shared_memory = arch >= 90, SHARED_LIMIT[arch]
    decoder._enter(size)
    for long in (False, True):
        decoder._step(size, long)
    prompts = prompt_graphs.PromptGraphs(SimpleNamespace(config=config), [], decoder, 16, 256, decoder.graphs)
    prompts._lay_out(prompt_graphs.Size(256, size, 128))
    passed = prompt_pass.PromptPass(SimpleNamespace(config=config), decoder)
    passed._add(decoder.x, decoder.heads, passed.layers[0][1])


def compile_one(job: tuple[Variant, int], attention: Path, slot_write: Path) -> dict[str, Any]:
    """Return what a variant needs on a GPU, or the error that it does not compile with."""
    variant, arch = job
    result: dict[str, Any] = {"variant": str(variant), "arch": arch, "triton": triton.__version__}
    try:
        recorders = record(variant, arch, _load(attention), _load(slot_write))
        compiled = [kernel for each in recorders for kernel in each.compile(arch)]
    except Exception as error:
        return result | {"error": f"{type(error).__name__}: {error}"}
    ptx = "".join(each.asm["ptx"] for each in compiled)
    return result | {
        "kernels": len(compiled),
        "shared": max(each.metadata.shared for each in compiled),
        "limit": SHARED_LIMIT[arch],
        "cubin": min(len(each.asm["cubin"]) for each in compiled),
        "tf32": "tf32" in ptx,
        "tensor_cores": any(each in ptx for each in ("mma.sync", "wgmma.mma", "tcgen05.mma")),
    }


@functools.cache
def _load(path: Path) -> ModuleType:
    return load(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every head size, block size and dtype")
    parser.add_argument("--arch", type=int, nargs="*", default=list(SHARED_LIMIT), help="compute capabilities")
    parser.add_argument("--only", default="", help="variants whose name starts with this")
    parser.add_argument("--attention", type=Path, default=Path("solutions/triton_attention.py"))
    parser.add_argument("--slot-write", type=Path, default=Path("solutions/triton_slot_write.py"))
    options = parser.parse_args()
    chosen = dict.fromkeys(each for each in variants(options.all) if str(each).startswith(options.only))
    jobs = [
        (variant, arch)
        for variant, arch in itertools.product(chosen, options.arch)
        if variant.kernel not in FUSED or arch in FUSED_ARCHITECTURES
    ]
    work = functools.partial(compile_one, attention=options.attention, slot_write=options.slot_write)
    torch.set_num_threads(1)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(work, jobs):
            print(json.dumps(result))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
