"""The kernels compile, without a GPU, for every GPU that the course names, and fit its shared memory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.engine.planting import planted_source

ROOT = Path(__file__).parents[2]


def compile_kernels(*arguments: str | Path) -> list[dict[str, Any]]:
    """Run the compiler in a process of its own: this one may have Triton's interpreter in it."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.engine.compile_kernels", *map(str, arguments)]
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_every_kernel_compiles_for_every_gpu() -> None:
    results = compile_kernels()
    assert [each for each in results if "error" in each] == []
    fused = [each for each in results if each["variant"].startswith("fused")]
    assert {each["arch"] for each in results} == {80, 86, 89, 90, 100, 120}
    assert (len(fused), len(results) - len(fused)) == (2 * 8, 6 * 11)
    for each in results:
        assert each["cubin"] > 0
        assert each in fused or each["kernels"] == (2 if each["variant"].startswith("split") else 1), each
        # The fused step asks how much shared memory there is. The other tiles are chosen for the least of these GPUs.
        assert each["shared"] <= (each["limit"] if each in fused else 99 * 1024) <= each["limit"], each
        assert not each["tf32"], f"{each['variant']} multiplies float32 in reduced precision"
        multiplies = not each["variant"].startswith(("write", "fused-1-"))  # a single row is no work for tensor cores
        assert each["tensor_cores"] == (multiplies and "fp32" not in each["variant"]), each


@pytest.mark.parametrize(
    ("variant", "change", "seen"),
    [
        # A product over 8 keys: the interpreter takes it, the compiler does not.
        ("decode-fp16", ("(2, 64): (64, 2, 5)", "(2, 64): (8, 2, 5)"), lambda each: "error" in each),
        ("decode-fp32", ('keys.T, input_precision="ieee"', "keys.T"), lambda each: each["tf32"]),
    ],
    ids=["TK23", "TK14"],
)
def test_a_planted_bug_is_seen_by_the_compiler(
    variant: str, change: tuple[str, str], seen: Any, tmp_path: Path
) -> None:
    path = tmp_path / "planted.py"
    path.write_text(planted_source("triton_attention", [change]), "utf-8")
    results = compile_kernels("--arch", "90", "--only", variant, "--attention", path)
    assert results and all(seen(each) for each in results), results
