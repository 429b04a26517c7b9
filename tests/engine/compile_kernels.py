"""Compile the kernels for GPUs that are not here, and say what they need of them: one line of JSON a variant and GPU.

    python -m tests.engine.compile_kernels            # every kind of kernel once
    python -m tests.engine.compile_kernels --all      # every variant that the launchers can choose

The launchers decide what is compiled: they are called on small tensors with a recorder in the place of each kernel, so
tile sizes, types and what Triton specialises on (a stride of 1, a multiple of 16) are those of a real launch. Run it as
a program: a process in which Triton interprets cannot compile.
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
from types import ModuleType
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tests.engine.cases import make_case
from tests.engine.planting import load

KB = 1024
# Shared memory that one block may ask for, by compute capability (CUDA C++ Programming Guide, "Technical Specifications
# per Compute Capability").
SHARED_LIMIT = {80: 163 * KB, 86: 99 * KB, 89: 99 * KB, 90: 227 * KB, 100: 227 * KB, 120: 99 * KB}
POINTERS = {
    torch.float32: "*fp32",
    torch.float16: "*fp16",
    torch.bfloat16: "*bf16",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "int8": torch.int8}


@dataclass
class Recorder:
    """Stands in for a kernel and keeps what it is launched with."""

    kernel: Any
    launches: list[tuple[tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **options: self.launches.append((args, options))

    def compile(self, arch: int) -> Any:
        """Compile the last launch for a compute capability (90 is 9.0)."""
        args, options = self.launches[-1]
        signature: dict[str, str] = {}
        constants: dict[tuple[int, ...], Any] = {}
        attributes: dict[tuple[int, ...], Any] = {}
        for index, (parameter, value) in enumerate(zip(self.kernel.params, args, strict=True)):
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

    kernel: str  # decode, prefill or write
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
        ("prefill", "fp16", "fp16", 80),
        ("prefill", "bf16", "int8", 64),
        ("prefill", "fp32", "fp32", 64),
        ("write", "fp16", "fp16", 64),
        ("write", "bf16", "int8", 80),
    ):
        yield Variant(kernel, query, cache, head_dim, 16)
    if everything:
        for kernel, query, head_dim, block_size in itertools.product(
            ("decode", "prefill", "write"), ("fp16", "bf16", "fp32"), (32, 64, 80, 96, 128), (8, 16, 256)
        ):
            for cache in {query, "int8", "fp16"}:
                yield Variant(kernel, query, cache, head_dim, block_size)


def record(variant: Variant, attention: ModuleType, slot_write: ModuleType) -> Recorder:
    """Call the launcher and return the recorder of the kernel that it launched."""
    recorders = []
    for module in (attention, slot_write):
        for name in [name for name in vars(module) if name.endswith("_kernel")]:
            kernel = getattr(module, name)
            setattr(module, name, Recorder(kernel.kernel if isinstance(kernel, Recorder) else kernel))
            recorders.append(getattr(module, name))
    query_len = 1 if variant.kernel == "decode" else 5
    sizes = {"head_dim": variant.head_dim, "block_size": variant.block_size}
    case = make_case([9, 20], [1, query_len], dtype=DTYPES[variant.query], cache_dtype=DTYPES[variant.cache], **sizes)
    if variant.kernel == "write":
        touched = torch.zeros(2, 4, dtype=torch.int32)
        new = torch.zeros(9, 2, variant.head_dim, dtype=DTYPES[variant.query])
        slot_write.write_kv(new, new.clone(), case.cache, torch.arange(9), touched)
    else:
        case.run(attention)
    (launched,) = (each for each in recorders if each.launches)
    return launched


def compile_one(job: tuple[Variant, int], attention: Path, slot_write: Path) -> dict[str, Any]:
    """Return what a variant needs on a GPU, or the error that it does not compile with."""
    variant, arch = job
    result: dict[str, Any] = {"variant": str(variant), "arch": arch, "triton": triton.__version__}
    try:
        compiled = record(variant, _load(attention), _load(slot_write)).compile(arch)
    except Exception as error:
        return result | {"error": f"{type(error).__name__}: {error}"}
    ptx = compiled.asm["ptx"]
    return result | {
        "shared": compiled.metadata.shared,
        "limit": SHARED_LIMIT[arch],
        "cubin": len(compiled.asm["cubin"]),
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
    jobs = list(itertools.product(chosen, options.arch))
    work = functools.partial(compile_one, attention=options.attention, slot_write=options.slot_write)
    torch.set_num_threads(1)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(work, jobs):
            print(json.dumps(result))
            sys.stdout.flush()


if __name__ == "__main__":
    main()
