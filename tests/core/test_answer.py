"""The answer, its state table, and the number that is published."""

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from countless.core.answer import STATE_TABLE, Answer, State, bounds, midpoint

ANSWER = Answer(1000, 0.25, 0.05, State.HOLDING, 3, 12, "dithered")


def test_state_table_covers_every_combination_of_facts() -> None:
    assert STATE_TABLE.keys() == set(product((False, True), repeat=3))
    assert set(STATE_TABLE.values()) == set(State)


def test_state_is_learning_while_a_snapshot_is_missing() -> None:
    assert {state for (answered, _, _), state in STATE_TABLE.items() if not answered} == {State.LEARNING}


def test_unreachable_site_degrades_even_an_exact_answer() -> None:
    assert {STATE_TABLE[True, False, exact] for exact in (False, True)} == {State.DEGRADED}


def test_state_is_exact_only_if_all_facts_hold() -> None:
    assert [facts for facts, state in STATE_TABLE.items() if state is State.EXACT] == [(True, True, True)]


def test_bounds_follow_from_estimate_and_alpha() -> None:
    assert (ANSWER.lower, ANSWER.upper) == (1000 / 1.25, 1000 / 0.75)


@given(st.integers(1, 10**40), st.integers(1, 499), st.booleans())
def test_rounded_bounds_contain_every_possible_total(total: int, mille: int, high: bool) -> None:
    part = mille if high else -mille
    edge = total * (1000 + part)  # as far from the total as alpha lets the estimate be
    estimate = edge // 1000 if edge % 1000 == 0 else edge / 1000
    least, most = bounds(estimate, mille / 1000)
    assert least <= total <= most
    assert least == pytest.approx(estimate / (1 + mille / 1000), rel=1e-14)
    assert most == pytest.approx(estimate / (1 - mille / 1000), rel=1e-14)


@given(st.integers(0, 10**40), st.integers(1, 10**40), st.integers(1, 499), st.booleans())
@example(0, 611_178_003, 490, True)  # alpha * floor is not a double: the difference was 6e-8 instead of 0
def test_rounded_bounds_with_a_floor_contain_every_possible_total(
    total: int, floor: int, mille: int, high: bool
) -> None:
    part = mille if high else -mille
    edge = max(0, 1000 * total + max(total, floor) * part)
    estimate = edge // 1000 if edge % 1000 == 0 else edge / 1000
    least, most = bounds(estimate, mille / 1000, floor)
    assert least <= total <= most
    assert most - least <= 2.1 * max(floor, estimate / (1 - mille / 1000)) * mille / 1000 + 1


def test_str_of_an_answer() -> None:
    assert str(ANSWER) == "1,000 (from 800 to 1,333; holding, dithered, round 3, 12 sites)"
    assert "silent: a, 7)" in str(Answer(1, 0.1, 0.1, State.DEGRADED, 1, 2, "exact", ("a", 7)))
    many = Answer(1, 0.1, 0.1, State.DEGRADED, 1, 2000, "exact", tuple(range(1500)))
    assert "silent: 0, 1, 2, 3, 4 and 1,495 more)" in str(many)


@given(st.integers(0, 10**12), st.integers(0, 10**9), st.integers(1, 10**6))
def test_midpoint_is_inside_and_an_integer_if_possible(low: int, width: int, unit: int) -> None:
    high = low + width
    chosen = midpoint(low, high, unit)
    assert isinstance(chosen, int) == (-(-low // unit) <= high // unit)
    if isinstance(chosen, int):
        assert low <= chosen * unit <= high
        assert abs(2 * chosen * unit - low - high) <= 2 * unit
    else:
        assert abs(Fraction(chosen) - Fraction(low + high, 2 * unit)) <= Fraction(chosen) / 2**52


def test_midpoint_of_one_number_is_that_number() -> None:
    assert midpoint(7, 7, 1) == 7
    assert midpoint(10**40, 10**40, 1) == 10**40
    assert midpoint(1, 2, 3) == 0.5


def test_dict_of_an_answer_has_its_bounds_and_no_round() -> None:
    assert ANSWER.as_dict() == {
        "estimate": 1000,
        "lower": 800,
        "upper": 1334,  # 1,333.3
        "alpha": 0.25,
        "delta": 0.05,
        "state": "holding",
        "sites": 12,
        "scheme": "dithered",
    }


def test_repr_of_an_answer_shows_its_bounds() -> None:
    assert repr(ANSWER).startswith("Answer(estimate=1000, lower=800.0, upper=")
    assert "state='holding', sites=12, scheme='dithered', round=" in repr(ANSWER)
