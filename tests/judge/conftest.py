"""What the judge's tests share: the judge as the page has it."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from course.judge import page
from course.judge.exercise import Exercise

InPage = Callable[[Exercise, str], Any]


@pytest.fixture(scope="session")
def in_page() -> Iterator[InPage]:
    """Judge an answer as the page does, and return the report.

    A page's Python has never seen the real Triton; that of a test run may have, and may have the reference's kernels
    made with it. So the page gets an interpreter of its own.
    """
    fresh = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, fresh) as pages:
        yield lambda exercise, source: pages.submit(_check, exercise.id, source).result()


def _check(exercise_id: str, source: str) -> Any:
    return json.loads(page.check(exercise_id, source, lambda events: None))
