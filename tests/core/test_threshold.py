"""A mark: possibly over, certainly over, each said once and in this order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.threshold import Threshold, Verdict
from countless.errors import InvalidParameter


@pytest.mark.parametrize(
    ("lower", "upper", "verdict"),
    [(0, 0, None), (90, 100, None), (90, 100.5, "possibly"), (100, 110, "possibly"), (100.5, 110, "certainly")],
)
def test_over_means_more_than_the_mark(lower: float, upper: float, verdict: Verdict | None) -> None:
    assert Threshold(100).verdict(lower, upper) == verdict


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40))))
def test_each_word_is_said_once_in_order_and_when_it_is_true(answers: list[tuple[int, int]]) -> None:
    """Also when the bounds come back down: a coordinator may widen alpha, and the truth has not fallen."""
    threshold, said, words = Threshold(100), None, list[Verdict]()
    for lower, width in answers:
        for word in threshold.news(said, lower, lower + width):
            words.append(word)
            said = word
    passed = [
        *(["possibly"] if any(lower + width > 100 for lower, width in answers) else []),
        *(["certainly"] if any(lower > 100 for lower, _ in answers) else []),
    ]
    assert words == passed


@pytest.mark.parametrize("over", [-1, 1.5, True, "7", None, float("nan")])
def test_a_mark_is_a_whole_number(over: int) -> None:
    with pytest.raises(InvalidParameter, match="over"):
        Threshold(over)
