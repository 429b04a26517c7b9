"""Compiles an answer's kernels with Triton's own compiler, for a GPU that need not be here, in a process of its own.

    python -m course.judge.compiling < request.json > reply.json

A request is `{"module", "symbols", "source", "launches", "arch"}`: the answer, what the exercise asks of it, launches
as `course.emulator.launches()` tells them, and a compute capability (90 is 9.0). The reply lists for each launch
`{"kernel", "types", "registers", "spilled", "shared"}` (bytes), or `{"kernel", "types", "error"}` with the compiler's
words. Nothing is launched.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from typing import Any

from course.judge import graft
from course.judge.exercise import reference_path

FILE = "practice/{module}.py"


def compile_launch(kernel: Any, launch: dict[str, Any], arch: int) -> dict[str, Any]:
    """Compile a kernel as one launch wants it, and return what it needs of the GPU."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for index, parameter in enumerate(kernel.params):
        name = parameter.name
        if name in launch["constants"] or name in launch["ones"]:  # an integer that is 1 is compiled in, too
            signature[name] = "constexpr"
            constants[(index,)] = _constant(launch["constants"].get(name, 1))
            continue
        signature[name] = launch["signature"][name]
        if name in launch["aligned"]:
            attributes[(index,)] = [["tt.divisibility", 16]]
    options = {name: launch[name] for name in ("num_warps", "num_stages")}
    source = ASTSource(kernel, signature, constants, attributes)
    compiled = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    return {"shared": compiled.metadata.shared, **_resources(compiled.asm["ptx"], arch)}


def _constant(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    import triton.language as tl

    return tl.str_to_ty(value["dtype"], None)


def _resources(ptx: str, arch: int) -> dict[str, Any]:
    """Ask NVIDIA's assembler, which comes with Triton, for a kernel's registers and the bytes that it spills."""
    from triton.backends.nvidia.compiler import get_ptxas, sm_arch_from_capability

    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "kernel.ptx")
        with open(file, "w", encoding="utf-8") as out:
            out.write(ptx)
        assembler = [get_ptxas(arch).path, "-v", f"--gpu-name={sm_arch_from_capability(arch)}"]
        said = subprocess.run([*assembler, file, "-o", os.devnull], capture_output=True, text=True, check=False).stderr
    registers, spilled = re.search(r"Used (\d+) registers", said), re.search(r"(\d+) bytes spill stores", said)
    return {"registers": registers and int(registers[1]), "spilled": spilled and int(spilled[1])}


def types_of(launch: dict[str, Any]) -> list[str]:
    """Return the types of what a launch's pointers point to, each once."""
    return list(dict.fromkeys(each[1:] for each in launch["signature"].values() if each.startswith("*")))


def answer(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Load the answer, completed from the reference, and compile each launch. See the module."""
    name = request["module"]
    module = graft.load_source(request["source"], FILE.format(module=name), f"practice.{name}")
    path = reference_path(name)  # a designed bug's is no module of `solutions/`
    reference = graft.reference_module(name, None if path.parent.name == "solutions" else str(path))
    graft.graft_source(module, reference, request["symbols"])
    replies = []
    for launch in request["launches"]:
        reply = {"kernel": launch["kernel"], "types": types_of(launch)}
        try:
            reply |= compile_launch(getattr(module, launch["kernel"]), launch, request["arch"])
        except Exception as error:
            reply["error"] = _words(error)
        replies.append(reply)
    return replies


def _words(error: BaseException) -> str:
    """Return the compiler's words. It wraps what went wrong in an error for each function on the way there."""
    words: list[str] = []
    each: BaseException | None = error
    while each is not None:
        said = str(each) or type(each).__name__
        if not words or said not in words[-1]:
            words.append(said)
        each = each.__cause__
    return "\n".join(words).strip()


def main() -> None:
    os.environ.pop("TRITON_INTERPRET", None)  # a process in which Triton interprets cannot compile
    # What Triton 3.9 does unless told; named because it warns otherwise, and because the default will change.
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    request = json.load(sys.stdin)
    reply_to, sys.stdout = sys.stdout, sys.stderr  # what the answer prints is no part of the reply
    json.dump(answer(request), reply_to)


if __name__ == "__main__":
    main()
