"""What all tests share: figures that a run prints at its end, and what Triton is here."""

import os
from collections.abc import Callable

import pytest
import torch

# The kernels run on the GPU where there is one, and in Triton's interpreter elsewhere. Triton reads this when it is
# imported, and kernels are made for one or the other when theirs are: so it stands here, before any of the tests'.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"
# What Triton 3.9 does unless told; named because it warns otherwise, and because the default will change.
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")

SCORE = "score"


@pytest.fixture
def record_score(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Return a function that keeps a line for the end of the run; it travels with the test's report."""
    return lambda line: record_property(SCORE, line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, line in getattr(report, "user_properties", ()):
                if name == SCORE and report.when == "call":
                    terminalreporter.write_line(line)
