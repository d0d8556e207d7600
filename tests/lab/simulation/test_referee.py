"""The referee finds the worst moment, and is not fooled by rounding at the edge."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.lab.simulation.referee import Referee


def test_the_worst_moment_is_kept() -> None:
    referee = Referee(0.1)
    for estimate, truth in [(0, 0), (1, 1), (95, 100), (110, 103), (109, 110)]:
        referee.see(estimate, truth)
    assert (referee.estimate, referee.truth) == (110, 103)
    assert referee.worst_error_over_alpha == pytest.approx(abs(110 - 103) / 103 / 0.1)
    assert referee.inside


@pytest.mark.parametrize(
    ("estimate", "truth", "inside"), [(110, 100, True), (111, 100, False), (9.9, 9, True), (9.9, 11, True)]
)
def test_the_edge(estimate: float, truth: int, inside: bool) -> None:
    """9.9 is within 10 % of both 9 and 11, but not in binary."""
    referee = Referee(0.1)
    referee.see(estimate, truth)
    assert referee.inside is inside


@given(estimate=st.integers(1, 10**6), start=st.integers(1, 10**6), length=st.integers(1, 200))
def test_the_ends_of_a_wait_are_its_worst_moments(estimate: int, start: int, length: int) -> None:
    errors = [abs(Fraction(estimate, truth) - 1) for truth in range(start, start + length)]
    assert max(errors) == max(errors[0], errors[-1])
