"""What all tests share: a place for figures that a run should print at its end."""

from collections.abc import Callable

import pytest

SCORES = pytest.StashKey[list[str]]()


@pytest.fixture
def record_score(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Return a function that keeps a line for the end of the run."""
    return request.config.stash.setdefault(SCORES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(SCORES, []):
        terminalreporter.write_line(line)
