"""What the emulator says would not compile, Triton's compiler refuses; what it says nothing of, the compiler takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from course import emulator
from tests.emulator import reports, runner
from tests.emulator.batches import SOLUTIONS, load, make_batch
from tests.emulator.test_reports import RIGHT, right_source
from tests.emulator.test_styles import STYLES

# Triton 3.6 wants a K of 16 for float32, Triton 3.9 is content with 8; the course takes both.
DEPENDS = {"a product that tensor cores do not take"}


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    emulator.install()
    yield
    emulator.uninstall()


def test_the_compiler_refuses_what_the_emulator_refuses_and_takes_the_rest(tmp_path: Path) -> None:
    kernels, refused = {}, set()
    emulator.launches()
    for mistake in reports.MISTAKES:
        said = reports.report(mistake, tmp_path).partition(":")[0]
        launched = emulator.launches()
        if said == "NotOffered" or mistake.title in DEPENDS:
            continue
        kernels[mistake.title] = {"source": reports.source_of(mistake), "launch": launched[0]}
        refused |= {mistake.title} if said == "WouldNotCompile" else set()
    for name in RIGHT:
        runner.load(right_source(name), tmp_path).kernel[(1,)](*map(reports.buffer, ["8 floats"] * 2), 8, 8)
        kernels[name] = {"source": right_source(name), "launch": emulator.launches()[0]}
    for name, source in STYLES.items():
        batch = make_batch(load(SOLUTIONS / "triton_slot_write.py"), [9, 5], [2, 5])
        emulator.launches()
        batch.run(runner.load(source, tmp_path))
        kernels[name] = {"source": source, "launch": emulator.launches()[0]}
    ran = subprocess.run(
        [sys.executable, "-m", "tests.emulator.front_end"],
        input=json.dumps(list(kernels.values())),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    words = dict(zip(kernels, json.loads(ran.stdout), strict=True))
    assert len(refused) > 20
    assert {name for name, said in words.items() if said is not None} == refused
