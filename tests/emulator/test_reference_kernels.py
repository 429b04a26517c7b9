"""The reference kernels run on the emulator unchanged, and are right there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from course import emulator
from tests.emulator.batches import SOLUTIONS, empty_cache, largest_error, load, make_batch, write

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def kernels() -> Iterator[Any]:
    parts = SimpleNamespace(
        attention=load(SOLUTIONS / "triton_attention.py"), writer=load(SOLUTIONS / "triton_slot_write.py")
    )
    yield parts
    emulator.uninstall()


@pytest.mark.parametrize(
    ("context_lens", "query_lens", "sizes"),
    [
        ([1], [1], {}),
        ([9, 20, 33], [1, 1, 1], {}),
        ([9, 20, 33], [1, 0, 1], {"num_heads": 6, "num_kv_heads": 2, "head_dim": 48, "block_size": 8}),
        ([9, 20, 40], [9, 5, 40], {}),
        ([17, 5], [16, 1], {"num_heads": 3, "num_kv_heads": 1, "head_dim": 48, "block_size": 8}),
        ([33, 34], [2, 1], {"dtype": "float16"}),
        ([20, 3], [1, 1], {"dtype": "float16", "block_size": 64}),
        ([20, 18], [1, 1], {"cache_dtype": "int8"}),
        ([20, 18], [3, 18], {"cache_dtype": "int8", "dtype": "float16"}),
    ],
)
def test_attention_is_right(
    kernels: Any, context_lens: list[int], query_lens: list[int], sizes: dict[str, Any]
) -> None:
    batch = make_batch(kernels.writer, context_lens, query_lens, **sizes)
    half = sizes.get("dtype") == "float16"
    assert largest_error(batch.run(kernels.attention), batch.expected) < (4e-3 if half else 2e-6)


def test_a_write_touches_its_slots_only(kernels: Any) -> None:
    emulator.traffic()
    cache = empty_cache(3, 8, 2, 32, "float16")
    keys = [[[float(token + head)] * 32 for head in range(2)] for token in range(3)]
    write(kernels.writer, cache, keys, keys, [9, -1, 2], 8)
    stored = cache.keys.tolist()
    assert stored[1][1] == keys[0] and stored[0][2] == keys[2]
    assert emulator.traffic()["stored"] == 2 * 2 * 2 * 32 * 2  # keys and values, tokens, heads, numbers, bytes
    written = [
        (block, slot)
        for block in range(3)
        for slot in range(8)
        if stored[block][slot][0][0] == stored[block][slot][0][0]
    ]
    assert written == [(0, 2), (1, 1)]


def test_int8_rounds_half_to_even_and_requantises(kernels: Any) -> None:
    cache = empty_cache(3, 8, 1, 32, "int8")

    def append(numbers: list[float], first: int) -> list[int]:
        rows = [[[number] + [0.0] * 31] for number in numbers]
        write(kernels.writer, cache, rows, rows, [8 + first + each for each in range(len(numbers))], 8)
        return [row[0][0] for row in cache.keys.tolist()[1]]

    assert append([127, 1.5, 2.5, -1.5, -2.5, 0.5], 0) == [127, 2, 2, -2, -2, 0, None, None]
    assert append([254], 6) == [64, 1, 1, -1, -1, 0, 127, None]


def test_launches_say_what_was_compiled(kernels: Any) -> None:
    emulator.launches()
    batch = make_batch(kernels.writer, [9, 20], [1, 1], dtype="float16")
    batch.run(kernels.attention)
    batch.run(kernels.attention)
    names = [each["kernel"] for each in emulator.launches()]
    assert names == ["slot_write_kernel", "decode_kernel"], "the same launch is told once"
    batch.run(kernels.attention)
    (launch,) = emulator.launches()
    assert launch["signature"]["keys_ptr"] == "*fp16" and launch["signature"]["key_scales_ptr"] == "constexpr"
    assert launch["signature"]["scale"] == "fp32" and launch["signature"]["block_stride"] == "i32"
    assert launch["constants"] | {"GROUP": 2, "HEAD_DIM": 32, "TILE": 64} == launch["constants"]
    assert "block_stride" in launch["aligned"] and launch["num_warps"] == 2 and launch["num_stages"] == 5
    assert emulator.launches() == []


SMALLEST = """
from tests.emulator.batches import SOLUTIONS, largest_error, load, make_batch
parts = [load(SOLUTIONS / f"triton_{name}.py") for name in ("attention", "slot_write")]
for lengths in (([9, 20], [1, 1]), ([9, 20], [9, 5])):
    batch = make_batch(parts[1], *lengths, dtype="float16", cache_dtype="int8")
    assert largest_error(batch.run(parts[0]), batch.expected) < 4e-3
print("right")
"""


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_other_pythons_run_it(version: str) -> None:
    python = shutil.which(f"python{version}")
    environment = {"PATH": os.environ["PATH"], "PYENV_VERSION": version}  # where pyenv picks the Python: this one

    def run(code: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python or "", "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )

    if python is None or run("").returncode != 0:
        pytest.skip(f"no Python {version} here")
    ran = run(SMALLEST)
    assert ran.stdout == "right\n", ran.stderr


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        SMALLEST + "import sys\nprint([each for each in sys.modules if each.partition('.')[0] in ('numpy', 'torch')])"
    )
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
                         capture_output=True, text=True, check=False)  # fmt: skip
    assert ran.stdout == "right\n[]\n", ran.stderr
