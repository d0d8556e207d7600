"""Periods at a site: its clock decides which one is the present one, and may jump as it likes."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless.core.calendar import Calendar
from countless.core.periods.site import BUDGET_LEADS_S, SitePeriods

NOW = 30_000_000  # a minute, by its number


def periods(spread: float = 0.0) -> SitePeriods[int]:
    """The state of a period is its number."""
    return SitePeriods(Calendar("minute"), int, spread, BUDGET_LEADS_S)


def enter(site: SitePeriods[int], now: float) -> list[int]:
    """What is dropped."""
    assert site.enter(now) == site.present == site.states[site.period]
    return site.drop_earlier()


def always(state: int) -> bool:
    return True


def never(state: int) -> bool:
    return False


def at(period: int, second: float = 0.0) -> float:
    return period * 60 + second


def test_state_is_made_when_the_clock_shows_its_period_and_kept_for_the_next_one() -> None:
    site = periods()
    for period in range(NOW, NOW + 5):
        dropped = enter(site, at(period, 59.9))
        assert enter(site, at(period)) == []
        assert (site.period, site.present) == (period, period)
        assert (site.starts_at, site.ends_at) == (at(period), at(period + 1))
        assert dropped == ([period - 2] if period >= NOW + 2 else [])
        assert sorted(site.states) == [each for each in (period - 1, period) if each >= NOW]


def test_clock_that_is_put_back_returns_to_states_that_are_kept() -> None:
    site = periods()
    enter(site, at(NOW))
    enter(site, at(NOW + 1_000_000))
    assert enter(site, at(NOW)) == []
    assert site.present == NOW
    assert sorted(site.states) == [NOW, NOW + 1_000_000]


def test_state_is_made_again_if_the_clock_goes_back_to_a_period_that_was_dropped() -> None:
    site = periods()
    for period in (NOW, NOW + 1, NOW + 2):
        enter(site, at(period))
    assert enter(site, at(NOW)) == []
    assert (site.present, sorted(site.states)) == (NOW, [NOW, NOW + 1, NOW + 2])


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), max_size=60))
def test_every_state_is_kept_or_returned_to_be_handed_in_whatever_the_clock_does(steps: list[tuple[int, bool]]) -> None:
    made: list[int] = []
    dropped: list[int] = []

    def new(period: int) -> int:
        made.append(period)
        return period

    site = SitePeriods(Calendar("minute"), new)
    for offset, prepares in steps:
        dropped += enter(site, at(NOW + offset))
        if prepares:
            site.prepare(at(NOW + offset, 59.9), always)
        assert sorted(made) == sorted([*dropped, *site.states])
        assert site.present == NOW + offset
        assert len([period for period in site.states if period < site.period]) <= 1


@pytest.mark.parametrize(("spread", "second"), [(0.0, 40.0), (1.0, 20.0)])
def test_next_period_is_prepared_once_before_it_begins(spread: float, second: float) -> None:
    site = periods(spread)
    enter(site, at(NOW))
    assert site.seconds_to_prepare(at(NOW)) == pytest.approx(second)
    assert site.seconds_to_prepare(at(NOW, 59)) == 0
    assert site.prepare(at(NOW, second - 0.1), always) is None
    assert site.prepare(at(NOW, second), always) == NOW + 1
    assert site.prepare(at(NOW, 59), always) is None
    assert site.seconds_to_prepare(at(NOW, second)) == pytest.approx(60.0)
    assert site.present == NOW
    assert enter(site, at(NOW + 1)) == []
    assert sorted(site.states) == [NOW, NOW + 1]


def test_period_that_is_not_needed_is_not_prepared_and_the_one_after_it_is_considered_in_time() -> None:
    site = periods(spread=1.0)
    enter(site, at(NOW))
    assert site.prepare(at(NOW, 20), never) is None
    assert site.seconds_to_prepare(at(NOW, 20)) == pytest.approx(60.0)
    assert sorted(site.states) == [NOW]


@pytest.mark.parametrize(("per", "lead_s"), [("minute", 40.0), ("hour", 120.0), ("day", 120.0), ("month", 120.0)])
def test_period_of_a_budget_is_prepared_long_before_the_edge(per: str, lead_s: float) -> None:
    site = SitePeriods(Calendar(per), int, 1.0, BUDGET_LEADS_S)
    site.enter(0.0)
    assert site.seconds_to_prepare(0.0) == site.ends_at - lead_s


def test_without_a_calendar_there_is_one_period_that_does_not_end() -> None:
    site = SitePeriods(None, int)
    assert (enter(site, 1e9), enter(site, 0.0), site.present, site.states) == ([], [], 0, {0: 0})
    assert (site.starts_at, site.ends_at) == (-inf, inf)
    assert (site.prepare(1e9, always), site.seconds_to_prepare(1e9)) == (None, inf)
