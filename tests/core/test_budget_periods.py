"""Periods at a site: its clock decides which one is the present one, and may jump as it likes."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.budget.periods import MAX_LEAD_S, Periods
from countless.core.calendar import Calendar

NOW = 30_000_000  # a minute, by its number


def periods() -> Periods[int]:
    """The state of a period is its number."""
    return Periods(Calendar("minute"), int)


def at(period: int, second: float = 0.0) -> float:
    return period * 60 + second


def test_state_is_made_when_the_clock_shows_its_period_and_kept_for_the_next_one() -> None:
    site = periods()
    for period in range(NOW, NOW + 5):
        dropped = site.enter(at(period, 59.9))
        assert site.enter(at(period)) == []
        assert (site.period, site.present) == (period, period)
        assert (site.starts_at, site.ends_at) == (at(period), at(period + 1))
        assert dropped == ([period - 2] if period >= NOW + 2 else [])
        assert sorted(site.states) == [each for each in (period - 1, period) if each >= NOW]


def test_clock_that_is_put_back_returns_to_states_that_are_kept() -> None:
    site = periods()
    site.enter(at(NOW))
    site.enter(at(NOW + 1_000_000))
    assert site.enter(at(NOW)) == []
    assert site.present == NOW
    assert sorted(site.states) == [NOW, NOW + 1_000_000]


def test_state_is_made_again_if_the_clock_goes_back_to_a_period_that_was_dropped() -> None:
    site = periods()
    for period in (NOW, NOW + 1, NOW + 2):
        site.enter(at(period))
    assert site.enter(at(NOW)) == []
    assert (site.present, sorted(site.states)) == (NOW, [NOW, NOW + 1, NOW + 2])


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=60))
def test_every_state_is_kept_or_returned_to_be_handed_in_whatever_the_clock_does(steps: list[tuple[int, bool]]) -> None:
    made: list[int] = []
    dropped: list[int] = []

    def new(period: int) -> int:
        made.append(period)
        return period

    site = Periods(Calendar("minute"), new)
    for offset, prepares in steps:
        dropped += site.enter(at(NOW + offset))
        if prepares:
            site.prepare(at(NOW + offset), True)
        assert sorted(made) == sorted([*dropped, *site.states])
        assert site.present == NOW + offset
        assert len([period for period in site.states if period < site.period]) <= 1


def test_next_period_is_prepared_once_before_it_begins() -> None:
    site = periods()
    site.enter(at(NOW))
    assert site.seconds_to_prepare(at(NOW), 1.0) == pytest.approx(54.0)
    assert site.seconds_to_prepare(at(NOW), 0.0) == pytest.approx(58.5)
    assert site.seconds_to_prepare(at(NOW, 59), 1.0) == 0
    assert site.prepare(at(NOW, 54), True) == NOW + 1
    assert site.prepare(at(NOW, 55), True) is None
    assert site.seconds_to_prepare(at(NOW, 55), 1.0) == pytest.approx(59.0)
    assert site.present == NOW
    assert site.enter(at(NOW + 1)) == []
    assert sorted(site.states) == [NOW, NOW + 1]


def test_period_that_is_not_needed_is_not_prepared_and_the_one_after_it_is_considered_in_time() -> None:
    site = periods()
    site.enter(at(NOW))
    assert site.prepare(at(NOW, 54), False) is None
    assert site.seconds_to_prepare(at(NOW, 54), 1.0) == pytest.approx(60.0)
    assert sorted(site.states) == [NOW]


def test_long_period_is_prepared_a_minute_before_it_begins() -> None:
    site = Periods(Calendar("month"), int)
    site.enter(0.0)
    assert site.ends_at - MAX_LEAD_S == site.seconds_to_prepare(0.0, 1.0)


def test_budget_without_a_calendar_has_one_period_for_ever() -> None:
    site = Periods(None, int)
    assert (site.enter(1e9), site.enter(0.0), site.present, site.states) == ([], [], 0, {0: 0})
    assert (site.starts_at, site.ends_at) == (-inf, inf)
    assert (site.prepare(1e9, True), site.seconds_to_prepare(1e9, 0.5)) == (None, inf)
