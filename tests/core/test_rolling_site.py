"""A site of a rolling budget: when its units come back, and with which age it hands them over."""

import pytest

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask, BudgetId, Pane, Quota
from countless.core.budget.rolling import MARGIN_S, PANES, Returns, RollingSite
from countless.core.budget.site import Verdict
from countless.core.messages import SiteId

BUDGET = BudgetId("logins")
WINDOW_S = 60.0
PANE_S = WINDOW_S / PANES


def granted(units: int, *, keep: bool = True, start: float = 100.0) -> RollingSite:
    site = RollingSite(BUDGET, WINDOW_S, early_percent=0)
    site.advance(start)
    site.receive(Quota(BUDGET, since=1, number=1, granted=units, keep=keep))
    site.repeat()
    assert not site.proceed()
    return site


def take(site: RollingSite, now: float, units: int) -> None:
    site.advance(now)
    assert site.take(units).verdict is Verdict.ALLOWED
    site.record()


def test_units_of_a_pane_come_back_a_window_after_its_last_one() -> None:
    site = granted(5)
    take(site, 100.0, 3)
    take(site, 100.0 + 0.9 * PANE_S, 2)
    last = 100.0 + 0.9 * PANE_S + WINDOW_S
    site.advance(last)
    assert site.room == 0
    site.advance(last + 2 * MARGIN_S)
    assert site.room == 5


def test_next_pane_comes_back_later() -> None:
    site = granted(5)
    take(site, 100.0, 3)
    take(site, 100.0 + 1.1 * PANE_S, 2)
    site.advance(100.0 + WINDOW_S + 2 * MARGIN_S)
    assert site.room == 3
    site.advance(100.0 + 1.1 * PANE_S + WINDOW_S)
    assert site.room == 3


@pytest.mark.parametrize("moment", [4.05, 8.1, 34.4, 2105.35])
def test_units_that_were_handed_over_come_back_after_their_moment_although_sums_are_rounded(moment: float) -> None:
    returns = Returns(1.0)
    returns.add(moment, 5)
    assert returns.due(moment) == 0
    assert returns.due(moment + 1.0 / PANES + 2 * MARGIN_S) == 5


def test_units_that_no_call_has_recorded_count_from_the_end_of_the_pane() -> None:
    site = granted(5)
    site.advance(100.0)
    assert site.take(4).verdict is Verdict.ALLOWED  # by a thread that reads no clock, at any moment until `ends_at`
    site.advance(150.0)
    site.advance(100.0 + PANE_S + WINDOW_S)
    assert site.room == 1
    site.advance(100.0 + PANE_S + WINDOW_S + 2 * MARGIN_S)
    assert site.room == 5


def test_clock_that_goes_back_keeps_units_longer() -> None:
    site = granted(5)
    take(site, 130.0, 5)
    site.advance(90.0)
    site.advance(130.0 + WINDOW_S)
    assert site.room == 0


def test_site_that_is_not_lent_hands_over_each_pane_with_the_age_of_its_last_unit() -> None:
    site = granted(9)
    take(site, 100.0, 3)
    take(site, 102.0, 2)
    take(site, 110.0, 1)
    site.advance(120.0)
    (ask,) = site.take(7).messages  # it does not fit, so the site gives up its room
    assert ask.panes == (Pane(18.0, 5), Pane(10.0, 1))
    assert (ask.spent, ask.held, ask.granted - ask.returned) == (6, 0, 0)
    assert site.room == site.limit == 0
    assert site.resend().panes == ()


def test_coordinator_counts_what_an_ask_that_was_lost_has_told_with_age_0() -> None:
    coordinator = BudgetCoordinator(BUDGET, 10, slack=0, rolling=True)
    site = SiteId("a")
    coordinator.receive(site, Ask(BUDGET, 1, 0, 0, 0, 0, 0, 0, want=1))
    # 2 units were handed over by an Ask that was lost, 1 by this one
    coordinator.receive(site, Ask(BUDGET, 3, 1, 1, 3, 3, 3, 0, panes=(Pane(7.0, 1),)))
    assert sorted(coordinator.take_panes()) == [Pane(0.0, 2), Pane(7.0, 1)]
    assert coordinator.gone == 3


def test_units_that_were_handed_over_count_until_their_moment_and_at_most_a_pane_longer() -> None:
    returns = Returns(WINDOW_S)
    returns.add(200.0, 4)
    assert returns.due(200.0) == 0
    assert [units for _, units in returns.left(200.0)] == [4]
    assert returns.due(200.0 + PANE_S) == 4
    assert returns.left(200.0 + PANE_S) == []
