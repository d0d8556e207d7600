"""The failure budget: the sum over all rounds is at most delta."""

from fractions import Fraction
from math import frexp

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from countless.errors import InvalidParameter
from countless.planning.failure_budget import round_eta

deltas = st.floats(1e-12, 0.999)


@settings(deadline=None, derandomize=True)
@given(deltas, st.integers(1, 10**12))
def test_round_eta_is_the_largest_power_of_two_within_its_share(delta: float, number: int) -> None:
    eta = round_eta(delta, number)
    share = Fraction(delta) / (number * (number + 1))
    assert frexp(eta)[0] == 0.5
    assert Fraction(eta) <= share < 2 * Fraction(eta)


@settings(deadline=None, derandomize=True)
@given(deltas)
def test_round_etas_sum_to_at_most_delta(delta: float) -> None:
    rounds = 300
    spent = sum(Fraction(round_eta(delta, r)) for r in range(1, rounds + 1))
    rest = Fraction(delta) / (rounds + 1)  # the sum of delta/(r(r+1)) over all later rounds
    assert spent + rest <= Fraction(delta)


@settings(deadline=None, derandomize=True)
@given(deltas, st.integers(1, 10**6))
def test_round_eta_never_rises(delta: float, number: int) -> None:
    assert round_eta(delta, number + 1) <= round_eta(delta, number)


def test_round_eta_keeps_a_power_of_two() -> None:
    assert round_eta(0.5, 1) == 0.25
    assert round_eta(0.75, 3) == 0.0625


@pytest.mark.parametrize(
    ("delta", "number"), [(0.0, 1), (1.0, 1), (float("nan"), 1), (0.1, 0), (0.1, True), (0.1, 2**600)]
)
def test_round_eta_refuses_invalid_arguments(delta: float, number: int) -> None:
    with pytest.raises(InvalidParameter):
        round_eta(delta, number)
