"""What counts as equal, and how values are shown."""

import math

import pytest

from course.judge.expect import same
from course.judge.remote import shorten
from course.judge.views import view_of
from solutions.scalar_attention import OnlineSoftmax


@pytest.mark.parametrize(
    ("actual", "expected", "equal"),
    [
        (1.0 + 1e-12, 1.0, True),
        (1.0 + 1e-6, 1.0, False),
        (2_000_000.0, 2_000_000.001, True),
        (37, 37.0, True),
        (math.nan, 1.0, False),
        (math.nan, math.inf, False),
        (math.inf, math.inf, True),
        (-math.inf, math.inf, False),
        (5.0, -math.inf, False),
        (math.inf, 5.0, False),
        ((1.0, [2.0]), [1.0, (2.0,)], True),
    ],
)
def test_what_is_the_same(actual: object, expected: object, equal: bool) -> None:
    assert same(actual, expected) is equal


def test_floats_are_shown_to_ten_digits() -> None:
    """Two Pythons may differ in the last digits of a sum, and their reports may not."""
    assert shorten([0.1 + 0.2, (2 / 3, "2.00000000001"), -0.0, 1e-300]) == (
        "[0.3, (0.6666666667, '2.00000000001'), -0.0, 1e-300]"
    )
    assert shorten((math.inf, math.nan, True, 12345678901234)) == "(inf, nan, True, 12345678901234)"


def test_a_softmax_is_drawn_without_numbers_that_json_lacks() -> None:
    softmax = OnlineSoftmax(2)
    view = view_of("OnlineSoftmax", softmax, [2])
    assert view is not None
    assert repr(view()) == "{'maximum': '-inf', 'total': 0, 'accumulator': [0, 0]}"
    softmax.add([1.0], [[2 / 3, math.nan]])
    assert view() == {"maximum": 1.0, "total": 1.0, "accumulator": [0.6666666667, "nan"]}
