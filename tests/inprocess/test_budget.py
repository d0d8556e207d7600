"""`countless.Budget`: what a program sees of a budget whose sites are in one process."""

from threading import Thread
from typing import Any

import pytest

import countless
from countless.core.budget.decision import Decision, Reason
from countless.errors import AboveLimit, InvalidParameter, LimitExceeded, UnknownName


def test_exact_budget_admits_the_limit_and_not_one_unit_more() -> None:
    budget = countless.Budget(limit=1000, sites=3, slack=0)
    admitted = sum(bool(budget.site(number % 3).take()) for number in range(3000))
    assert admitted == budget.spent == 1000
    decision = budget.site(0).take()
    assert not decision
    assert decision.reason is Reason.EXHAUSTED


def test_refusals_cost_no_message_once_every_site_was_told() -> None:
    budget = countless.Budget(limit=1000, sites=3, slack=0)
    for number in range(1200):
        budget.site(number % 3).take()
    before = budget.messages
    assert not any(budget.site(number % 3).take() for number in range(300))
    assert budget.messages == before


def test_small_request_is_admitted_after_a_large_one_was_refused() -> None:
    budget = countless.Budget(limit=10, sites=2, slack=0)
    assert budget.site(0).take(6)
    assert not budget.site(1).take(5)
    assert budget.site(1).take(4)
    assert not budget.site(0).take()


def test_request_above_the_limit_is_an_error_and_changes_nothing() -> None:
    site = countless.Budget(limit=5, sites=1, slack=0).site(0)
    for request in (site.take, site.reserve):
        with pytest.raises(AboveLimit, match="n must be an integer from 1 to 5, the limit of budget 'budget'"):
            request(6)
    assert site.spent == site.held == 0
    assert site.take(5)
    assert not site.take(5)


def test_hold_returns_what_was_not_used_to_every_site() -> None:
    budget = countless.Budget(limit=10, sites=2, slack=0)
    with budget.site(0).reserve(10) as hold:
        assert not budget.site(1).take()
        with pytest.raises(LimitExceeded, match="'budget' has no units left"):
            budget.site(1).reserve(1)
        hold.settle(7)
        hold.settle(0)
    assert (budget.spent, budget.held) == (7, 0)
    assert budget.site(1).take(3)
    assert not budget.site(0).take()


def test_exception_in_a_hold_settles_nothing_and_leaving_it_settles_everything() -> None:
    budget = countless.Budget(limit=10, sites=1, slack=0)
    with pytest.raises(KeyError), budget.site(0).reserve(4):
        raise KeyError
    assert (budget.spent, budget.held) == (0, 0)
    with budget.site(0).reserve(4):
        pass
    assert (budget.spent, budget.held) == (4, 0)


def test_removed_site_returns_its_room_and_is_charged_its_holds() -> None:
    budget = countless.Budget(limit=100, sites=2, slack=0)
    assert budget.site(0).take(5)
    hold = budget.site(0).reserve(3)
    gone = budget.site(0)
    assert gone.room > 0
    assert budget.remove_site(0) == 8
    hold.settle(0)
    assert not gone.take()
    assert budget.site(1).take(92)
    assert not budget.site(1).take()
    assert budget.spent == 100


def test_site_added_again_under_its_name_starts_anew() -> None:
    budget = countless.Budget(limit=10, sites=["a"], slack=0)
    assert budget.site("a").take(4)
    budget.remove_site("a")
    assert budget.add_site("a").take(6)
    assert not budget.add_site().take()
    assert budget.sites == ("a", 1)


def test_raised_limit_is_told_to_sites_that_were_refused() -> None:
    budget = countless.Budget(limit=10, sites=2, slack=0)
    assert budget.site(0).take(10)
    assert not budget.site(1).take()
    budget.set_limit(12)
    assert budget.site(1).take(2)
    assert not budget.site(1).take()


def test_lowered_limit_takes_room_back() -> None:
    budget = countless.Budget(limit=1000, sites=2, slack=0)
    assert budget.site(0).take(10)
    assert budget.site(0).room > 0
    budget.set_limit(15)
    assert budget.site(1).take(5)
    assert not budget.site(0).take()
    budget.set_limit(3)
    assert budget.usage.state == "lowering"
    assert not budget.site(1).take()
    assert budget.spent == 15


def test_slack_is_what_may_be_left_at_a_refusal() -> None:
    budget = countless.Budget(limit=10_000, sites=10, slack=0.05)
    number = 0
    while budget.site(number % 10).take():
        number += 1
    assert 10_000 - 500 <= budget.spent <= 10_000
    assert budget.usage.lower <= budget.spent <= budget.usage.upper <= 10_000


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 2.5}, "limit"),
        ({"limit": True}, "limit"),
        ({"limit": 2**62 + 1}, "limit"),
        ({"limit": 5, "slack": 1}, "slack"),
        ({"limit": 5, "slack": -0.1}, "slack"),
        ({"limit": 5, "slack": float("nan")}, "slack"),
        ({"limit": 5, "sites": -1}, "sites"),
        ({"limit": 5, "name": 3}, "name"),
    ],
)
def test_values_outside_their_range_are_refused(arguments: dict[str, object], name: str) -> None:
    with pytest.raises(InvalidParameter, match=f"^{name} = "):
        countless.Budget(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [0, -1, 1.0, True, "3", 2**62 + 1])
def test_amount_outside_its_range_changes_nothing(n: object) -> None:
    budget = countless.Budget(limit=10, sites=1)
    for request in (budget.site(0).take, budget.site(0).reserve):
        with pytest.raises(InvalidParameter, match=r"^n = .* an integer from 1 to 2\*\*62"):
            request(n)  # type: ignore[arg-type]
    hold = budget.site(0).reserve(3)
    with pytest.raises(InvalidParameter, match="used = 4 is not allowed: used must be an integer from 0 to 3"):
        hold.settle(4)
    assert (budget.spent, budget.held) == (0, 3)
    with pytest.raises(UnknownName):
        budget.site(1)


def test_eight_threads_spend_the_limit_exactly() -> None:
    budget = countless.Budget(limit=20_000, sites=4, slack=0)
    admitted = [0] * 8

    def spend(thread: int) -> None:
        site = budget.site(thread % 4)
        while site.take():
            admitted[thread] += 1

    threads = [Thread(target=spend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(admitted) == budget.spent == 20_000


# Periods

HOUR_S = 3600.0


class Clock:
    def __init__(self) -> None:
        self.seconds = 1_700_000_000.0 // HOUR_S * HOUR_S

    def __call__(self) -> float:
        return self.seconds


def test_every_period_has_the_whole_limit() -> None:
    clock = Clock()
    budget = countless.Budget(limit=100, sites=3, slack=0, per="hour", clock=clock)
    for _ in range(4):
        assert sum(bool(budget.site(number % 3).take()) for number in range(300)) == 100
        assert (budget.spent, budget.usage.upper) == (100, 100)
        clock.seconds += HOUR_S


def test_refusal_says_when_the_period_ends() -> None:
    clock = Clock()
    budget = countless.Budget(limit=1, sites=1, slack=0, per="day", tz="Asia/Kolkata", anchor=5, clock=clock)
    assert budget.site(0).take()
    ends_at = budget.resets_at
    assert ends_at is not None
    assert (ends_at + 5.5 * HOUR_S) % (24 * HOUR_S) == 5 * HOUR_S
    assert budget.site(0).take() == Decision(Reason.EXHAUSTED, ends_at - clock())
    with pytest.raises(LimitExceeded) as raised:
        budget.site(0).reserve(1)
    assert raised.value.retry_after == ends_at - clock()
    clock.seconds = ends_at
    assert budget.site(0).take()
    assert countless.Budget(limit=1).resets_at is None


def test_hold_is_settled_in_the_period_in_which_it_was_made() -> None:
    clock = Clock()
    budget = countless.Budget(limit=10, sites=2, slack=0, per="hour", clock=clock)
    hold = budget.site(0).reserve(8)
    clock.seconds += HOUR_S
    assert (budget.spent, budget.held) == (0, 0)
    assert budget.site(1).take(10)
    hold.settle(3)
    assert (budget.spent, budget.site(0).take().reason) == (10, Reason.EXHAUSTED)
    clock.seconds -= HOUR_S
    assert (budget.spent, budget.held) == (3, 0)
    assert budget.site(1).take(7)
    assert not budget.site(1).take(1)


def test_period_that_is_over_for_long_is_not_spent_again_when_the_clock_goes_back() -> None:
    clock = Clock()
    budget = countless.Budget(limit=10, sites=1, slack=0, per="hour", clock=clock)
    assert budget.site(0).take(10)
    for _ in range(3):
        clock.seconds += HOUR_S
        assert budget.site(0).take(4)
    clock.seconds -= 3 * HOUR_S
    assert budget.spent == 4  # the first period that is still there
    assert budget.site(0).take(6)
    assert not budget.site(0).take()


def test_limit_is_changed_in_every_period_and_reset_in_this_one() -> None:
    clock = Clock()
    budget = countless.Budget(limit=10, sites=2, slack=0, per="hour", clock=clock)
    assert budget.site(0).take(10)
    clock.seconds += HOUR_S
    budget.set_limit(5)
    assert budget.site(0).take(5)
    assert not budget.site(1).take()
    budget.reset()
    assert budget.spent == 0
    assert budget.site(1).take(5)
    assert not budget.site(0).take()
    assert budget.spent == 5
    clock.seconds += HOUR_S
    assert budget.site(0).take(5)
    assert not budget.site(0).take()


def test_site_that_was_removed_stays_removed_in_later_periods() -> None:
    clock = Clock()
    budget = countless.Budget(limit=10, sites=2, slack=0, per="hour", clock=clock)
    gone = budget.site(0)
    assert gone.take(4)
    assert budget.remove_site(0) == 4
    clock.seconds += HOUR_S
    assert not gone.take()
    assert budget.site(1).take(10)
    assert budget.add_site(0).take().reason is Reason.EXHAUSTED


@pytest.mark.parametrize(
    ("parameters", "field"),
    [({"per": "week"}, "per"), ({"per": "day", "tz": "Nowhere"}, "tz"), ({"per": "day", "anchor": 24}, "anchor")],
)
def test_invalid_calendar_is_refused(parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidParameter) as raised:
        countless.Budget(limit=10, **parameters)
    assert raised.value.parameter == field
