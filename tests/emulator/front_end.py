"""Asks the first part of Triton's compiler, which knows the language, whether it takes a kernel.

    python -m tests.emulator.front_end < kernels.json > words.json

A kernel is `{"source", "launch"}`, the launch as `course.emulator.launches()` tells it; of each come the compiler's
words, or null when it takes the kernel.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.emulator import runner


def refusal(source: str, launch: dict[str, Any], folder: Path) -> str | None:
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler.compiler import make_backend

    target = GPUTarget("cuda", 90, 32)
    backend = make_backend(target)
    options = backend.parse_options({})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        kernel = runner.load(source, folder).kernel
        # As if no integer were 1 and none a multiple of 16: the emulator does not compile either of them in.
        constants = {
            (index,): launch["constants"][each.name]
            for index, each in enumerate(kernel.params)
            if each.name in launch["constants"]
        }
        built = ASTSource(kernel, launch["signature"], constants, {})
        built.make_ir(target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context)
    except Exception as error:
        words = str(error)
        while error.__cause__ is not None:
            error = error.__cause__  # type: ignore[assignment]
            words += "\n" + str(error)
        return words or type(error).__name__
    return None


def main() -> None:
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    with tempfile.TemporaryDirectory() as folder:
        kernels = json.load(sys.stdin)
        reply_to, sys.stdout = sys.stdout, sys.stderr
        json.dump([refusal(each["source"], each["launch"], Path(folder)) for each in kernels], reply_to)


if __name__ == "__main__":
    main()
