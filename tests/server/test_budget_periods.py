"""Budgets with periods of a real coordinator. The clocks of its clients stand still, and may show another month."""

from collections.abc import Iterator
from datetime import UTC, datetime
from time import time

import pytest

from countless.client.client import Client
from countless.client.surroundings import REAL
from countless.client.transport.endpoint import Endpoint
from countless.core.budget.decision import Reason
from countless.core.calendar import Calendar
from countless.errors import UnknownBudget
from support.service import TIMEOUT_S, Server, until

pytestmark = pytest.mark.slow

# The coordinator has a real clock: its month began about two weeks ago.
CALENDAR = Calendar("month", "UTC", (datetime.now(UTC).day + 13) % 28 + 1)
MONTH = CALENDAR.period_at(time())
RULE = {"name": "tokens", "limit": 100, "slack": 0, "per": "month", "anchor": CALENDAR.anchor}


@pytest.fixture
def served(server: Server) -> Iterator[Server]:
    """With a budget of 100 units a month."""
    server.reader.request("POST", "/api/v1/budgets", RULE)
    yield server
    server.reader.request("DELETE", "/api/v1/budgets/tokens")


class Site:
    """A client whose clock shows the middle of the coordinator's month."""

    def __init__(self, server: Server, name: str) -> None:
        self.set_clock(0)
        surroundings = REAL._replace(wall_clock=lambda: self.now)
        self.client = Client(Endpoint.parse(server.url), None, name, surroundings=surroundings)
        self.budget = self.client.budget("tokens")

    def set_clock(self, month: int, seconds_to_its_end: float = 10 * 86_400.0) -> None:
        """A month of the coordinator's clock, or one so many months away."""
        self.now = CALENDAR.bounds(MONTH + month)[1] - seconds_to_its_end

    def take(self, n: int) -> Reason:
        return self.budget.take(n, wait=TIMEOUT_S).reason


@pytest.fixture
def sites(served: Server) -> Iterator[tuple[Site, Site]]:
    pair = Site(served, "a"), Site(served, "b")
    yield pair
    for site in pair:
        site.client.close()


def used(server: Server) -> tuple[int, int]:
    """What the coordinator knows of the present month."""
    status = server.reader.request("GET", "/api/v1/budgets/tokens")
    return status["used_lower"], status["used_upper"]


def test_every_period_has_the_whole_limit_by_the_clocks_of_the_sites(served: Server, sites: tuple[Site, Site]) -> None:
    first, second = sites
    assert (first.take(60), second.take(40), first.take(1)) == (Reason.ALLOWED, Reason.ALLOWED, Reason.EXHAUSTED)
    first.set_clock(1)
    assert first.take(70) is Reason.ALLOWED  # its clock is fast: it spends the next month's units
    assert second.take(1) is Reason.EXHAUSTED
    second.set_clock(1)
    assert (second.take(31), second.take(30)) == (Reason.EXHAUSTED, Reason.ALLOWED)
    first.set_clock(0)
    assert first.take(1) is Reason.EXHAUSTED
    second.set_clock(-1)
    assert (second.take(100), second.take(1)) == (Reason.ALLOWED, Reason.EXHAUSTED)
    assert used(served) == (100, 100)


def test_refusal_and_budget_say_when_the_period_ends(served: Server, sites: tuple[Site, Site]) -> None:
    site, _ = sites
    before = site.budget.resets_at
    assert before is None
    assert site.take(100) is Reason.ALLOWED
    assert site.budget.take(1, wait=TIMEOUT_S).retry_after == 10 * 86_400.0
    assert site.budget.resets_at == CALENDAR.bounds(MONTH)[1]
    assert site.budget.rule is not None
    assert (site.budget.rule.limit, site.budget.rule.per) == (100, "month")
    served.reader.request("PATCH", "/api/v1/budgets/tokens", {"limit": 120})
    assert until(lambda: site.budget.take(20, wait=TIMEOUT_S), "the raised limit")
    assert site.budget.rule.limit == 120


def test_site_whose_clock_is_wrong_by_months_is_told_so(served: Server, sites: tuple[Site, Site]) -> None:
    site, _ = sites
    site.set_clock(7)
    for _ in range(2):
        with pytest.raises(UnknownBudget, match="check the clock of the site; the coordinator's is between"):
            site.take(1)
    site.set_clock(0)
    assert site.take(100) is Reason.ALLOWED


def test_units_of_the_next_period_are_there_when_it_begins(served: Server, sites: tuple[Site, Site]) -> None:
    site, _ = sites
    assert site.take(10) is Reason.ALLOWED
    site.set_clock(0, seconds_to_its_end=1.0)
    served.kill()  # the client looks at its clock when it connects again
    served.start()
    assert site.take(90) is Reason.ALLOWED
    site.set_clock(1)
    assert until(lambda: site.budget.remaining, "a first share") == 28


def test_hold_is_settled_in_its_period_and_every_period_is_handed_in_at_the_end(
    served: Server, sites: tuple[Site, Site]
) -> None:
    first, second = sites
    first.set_clock(-1)
    assert first.take(5) is Reason.ALLOWED
    first.set_clock(0)
    hold = first.budget.reserve(80, wait=TIMEOUT_S)
    first.set_clock(1)
    assert first.take(90) is Reason.ALLOWED
    hold.settle(30)
    assert first.client.close()
    assert used(served) == (30, 30)
    assert (second.take(71), second.take(70)) == (Reason.EXHAUSTED, Reason.ALLOWED)
    second.set_clock(1)
    assert (second.take(11), second.take(10)) == (Reason.EXHAUSTED, Reason.ALLOWED)


def test_killed_coordinator_goes_on_in_every_period(served: Server, sites: tuple[Site, Site]) -> None:
    first, second = sites
    for month in (0, 1):
        first.set_clock(month)
        assert first.take(60) is Reason.ALLOWED
    served.kill()
    served.start()
    for month in (1, 0):
        second.set_clock(month)
        assert (second.take(41), second.take(40)) == (Reason.EXHAUSTED, Reason.ALLOWED)
        first.set_clock(month)
        assert first.take(1) is Reason.EXHAUSTED


def test_reset_starts_the_period_again(served: Server, sites: tuple[Site, Site]) -> None:
    first, second = sites
    assert (first.take(60), second.take(40)) == (Reason.ALLOWED, Reason.ALLOWED)
    first.set_clock(1)
    assert first.take(60) is Reason.ALLOWED
    served.reader.request("POST", "/api/v1/budgets/tokens/reset")
    until(lambda: used(served) == (0, 0), "the reports of both sites")
    assert (second.take(100), second.take(1)) == (Reason.ALLOWED, Reason.EXHAUSTED)
    assert (first.take(41), first.take(40)) == (Reason.EXHAUSTED, Reason.ALLOWED)
