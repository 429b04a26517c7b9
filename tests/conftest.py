"""What all tests share: figures that a run prints at its end."""

from collections.abc import Callable

import pytest

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
