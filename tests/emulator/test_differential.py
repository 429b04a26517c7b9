"""Every operation that the emulator offers gives what Triton's interpreter gives, in value and in type.

The interpreter is known to be wrong on bfloat16: it computes with it as if it were an integer, and cuts off what it
should round. Those results are held against PyTorch's.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from course import emulator
from course.emulator import language
from tests.emulator import runner
from tests.emulator.cases import Case, all_cases, elementwise

SEED = int(os.environ.get("EMULATOR_SEED", "5"))


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    emulator.install()
    yield
    emulator.uninstall()


def in_the_interpreter(cases: list[Case]) -> list[dict[str, Any]]:
    """Return the results of Triton's interpreter, in a process of its own: it is chosen when Triton is imported."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.emulator.runner"],
        input=json.dumps([case.plain() for case in cases]),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    results: list[dict[str, Any]] = json.loads(ran.stdout)
    return results


def emulated_results(cases: list[Case]) -> list[dict[str, Any]]:
    return list(runner.run((case.plain() for case in cases), emulator.tensor, emulator.Tensor.tolist))


def difference(case: Case, expected: dict[str, Any], actual: dict[str, Any]) -> str | None:
    """Return how two results differ, for a message; None when they do not."""
    if "error" in expected or "error" in actual:
        return f"expected {expected.get('error', 'no error')}, got {actual.get('error', 'no error')}"
    if expected["types"] != actual["types"]:
        return f"types {actual['types']}, expected {expected['types']}"
    for number, (wanted, given) in enumerate(zip(expected["tensors"], actual["tensors"], strict=True)):
        for place, (a, b) in enumerate(zip(runner.flat(wanted), runner.flat(given), strict=True)):
            if not runner.same(a, b, case.relative, case.absolute):
                return f"tensor {number}, element {place}: {b!r}, expected {a!r}"
    return None


def is_about_bfloat16(case: Case) -> bool:
    kinds = re.findall(r"b?float\d+|u?int\d+", case.name.rpartition(" of ")[2])
    return kinds[-1] == "bfloat16" if ".to(b" in case.name else set(kinds) == {"bfloat16"}


def test_every_operation_agrees_with_the_interpreter() -> None:
    print(f"seed {SEED}: EMULATOR_SEED chooses another")
    cases = [case for case in all_cases(SEED) if not is_about_bfloat16(case)]
    wrong = []
    for case, expected, actual in zip(cases, in_the_interpreter(cases), emulated_results(cases), strict=True):
        found = difference(case, expected, actual)
        if found is not None:
            wrong.append(f"{case.name}: {found}")
    assert not wrong, f"seed {SEED}: {len(wrong)} of {len(cases)} cases\n" + "\n".join(wrong[:40])


BFLOAT16 = (
    "a + b", "a - b", "a * b", "tl.where(c, a, b)", "-a", "a + 0.5", "3 - a", "a * -3", "a < b", "a >= 2", "tl.abs(a)",
)  # fmt: skip


def test_bfloat16_agrees_with_pytorch() -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    cases = [(each, elementwise(rng, each, "bfloat16")) for each in BFLOAT16 for _ in range(4)]
    for dtype in ("float64", "float32", "float16", "int32", "int8"):
        cases += [("a.to(torch.bfloat16)", elementwise(rng, "a.to(tl.bfloat16)", dtype)) for _ in range(4)]
    for expression, case in cases:
        (actual,) = emulated_results([case])
        assert "error" not in actual, actual
        a, b = (torch.tensor(each["values"], dtype=getattr(torch, each["dtype"])) for each in case.arguments[:2])
        c = torch.tensor(case.arguments[2]["values"]) != 0
        expected = eval(expression.replace("tl.", "torch."), {"torch": torch, "a": a, "b": b, "c": c})
        assert actual["types"] == ["bf16" if expected.is_floating_point() else "int1"]
        stored = torch.tensor(actual["tensors"][3 if expected.is_floating_point() else 4])
        torch.testing.assert_close(stored.double(), expected.double(), rtol=0, atol=0, equal_nan=True)


def test_every_offered_operation_is_tried() -> None:
    """What the language offers occurs in a case; what has no value to compare is named here."""
    sources = " ".join(case.source for case in all_cases(SEED))
    without_value = {
        "assume", "block_type", "constexpr", "debug_barrier", "device_assert", "device_print", "dtype", "max_constancy",
        "pointer_type", "static_print", "tensor", "to_tensor", "view",
    }  # fmt: skip
    missing = {
        name for name in language.OFFERED if not re.search(rf"tl\.(math\.)?{name}\b|\.{name}\(", sources)
    } - without_value
    assert not missing
