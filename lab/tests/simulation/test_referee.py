"""The referee keeps the worst errors, and rounding does not decide at the edge of the bound."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless_lab.simulation.referee import Referee


def test_worst_errors_of_both_sides_are_kept() -> None:
    referee = Referee(0.1)
    for estimate, total in [(0, 0), (1, 1), (95, 100), (110, 103), (109, 110)]:
        referee.judge(estimate, total)
    assert referee.over == pytest.approx((110 - 103) / 103 / 0.1)
    assert referee.under == pytest.approx((100 - 95) / 100 / 0.1)
    assert referee.worst == referee.over
    assert referee.violated_at is None


@pytest.mark.parametrize(
    ("estimate", "total", "alpha", "inside"),
    [
        (110, 100, 0.1, True),
        (111, 100, 0.1, False),
        (9.9, 9, 0.1, True),  # within 10 % of both 9 and 11, but not in binary
        (9.9, 11, 0.1, True),
        (307169.28, 304128, 0.01, True),  # (1 + 1/100) * 304128, as a double: a little above the decimal
        (307169.29, 304128, 0.01, False),
        (99, 100, 0.01, True),
    ],
)
def test_estimate_at_the_edge_is_inside(estimate: float, total: int, alpha: float, inside: bool) -> None:
    referee = Referee(alpha)
    referee.judge(estimate, total)
    assert referee.violated_at == (None if inside else total)


def test_first_violation_is_kept() -> None:
    referee = Referee(0.1)
    for estimate, total in ((10, 10), (12, 10), (20, 11)):
        referee.judge(estimate, total)
    assert (referee.violated_at, round(referee.over, 3), referee.under) == (10, 8.182, 0.0)


@given(estimate=st.integers(1, 10**6), start=st.integers(1, 10**6), length=st.integers(1, 200))
def test_error_between_two_reports_is_largest_at_an_end(estimate: int, start: int, length: int) -> None:
    errors = [abs(Fraction(estimate, total) - 1) for total in range(start, start + length)]
    assert max(errors) == max(errors[0], errors[-1])
