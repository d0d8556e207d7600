"""A threshold: possibly over, certainly over; each verdict is given once and in this order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.answer import Threshold, Verdict
from countless.errors import InvalidParameter


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [(0, 0, None), (90, 100, None), (90, 100.5, "possibly"), (100, 110, "possibly"), (100.5, 110, "certainly")],
)
def test_verdict_is_over_only_above_the_threshold(lower: float, upper: float, verdict: Verdict | None) -> None:
    assert Threshold(100).verdict(lower, upper) == verdict


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40))))
def test_each_verdict_is_given_once_in_order_and_when_true(answers: list[tuple[int, int]]) -> None:
    """Also when the bounds come back down: a coordinator may widen alpha, and the total has not fallen."""
    threshold, last, verdicts = Threshold(100), None, list[Verdict]()
    for lower, width in answers:
        for verdict in threshold.new_verdicts(last, lower, lower + width):
            verdicts.append(verdict)
            last = verdict
    passed = [
        *(["possibly"] if any(lower + width > 100 for lower, width in answers) else []),
        *(["certainly"] if any(lower > 100 for lower, _ in answers) else []),
    ]
    assert verdicts == passed


@pytest.mark.parametrize("over", [-1, 1.5, True, "7", None, float("nan")])
def test_threshold_must_be_a_non_negative_integer(over: int) -> None:
    with pytest.raises(InvalidParameter, match="over"):
        Threshold(over)
