"""A client budget with periods: its clock decides to which one a request belongs, and nothing crosses over."""

from collections.abc import Sequence
from functools import partial
from math import inf
from threading import RLock

import pytest

from countless.client.budgets.budget import BudgetLink, BudgetPart, BudgetRequest
from countless.client.budgets.local_periods import LocalPeriods
from countless.client.budgets.requests import Waiter
from countless.client.durable.budget import DurableBudget
from countless.client.durable.count_file import CountFile
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.messages import Ask, BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.errors import LimitExceeded, UnknownBudget
from countless.wire.budgets import BudgetDownItem, BudgetLeave, BudgetLeaveAck, BudgetRejected, SetBudgetRule
from support.interrupts import interrupt, is_free, points, run_until
from support.local_budgets import Quotas, Told, told

SITE = SiteId("web", 7)
HOUR_S = 3600.0
NOON = 480_000  # an hour, by its number
HOURLY = SetBudgetRule(BudgetId("tokens"), 100, "hour", "UTC", None, 0.01, "spending", "charge", "refuse")


def tokens(period: int) -> BudgetId:
    return BudgetId("tokens", period)


class Site:
    """A client budget, its clock, and what it has sent."""

    def __init__(self, kind: str = "plain", rule: SetBudgetRule | None = HOURLY) -> None:
        self.now = NOON * HOUR_S
        self.sent: list[Ask | BudgetLeave] = []
        self.quotas = Quotas()
        self.lock = RLock()
        self.file = CountFile.in_memory(SITE)
        link = BudgetLink(self._send, lambda: True, lambda number: None, clock=lambda: self.now)
        if kind != "plain":
            link = link._replace(new_local=self._durable)
        self.budget = BudgetPart("tokens", SITE, self.lock, link)
        if rule is not None:
            self.receive(rule)

    def _durable(self, site: BudgetSite, site_id: SiteId) -> DurableBudget:
        return DurableBudget(site, site_id.incarnation, self.file)

    def _send(self, name: str, items: Sequence[Ask | BudgetLeave]) -> None:
        self.sent += items

    def take_sent(self) -> list[Told | BudgetLeave]:
        sent, self.sent = self.sent, []
        return told(sent)

    def receive(self, *items: BudgetDownItem) -> None:
        for item in items:
            with self.lock:
                self.budget.receive(item)

    def use(self, period: int, limit: int, n: int) -> None:
        """Be granted `limit` units in a period, and spend `n` of them."""
        self.now = period * HOUR_S
        assert self.budget.take(n, wait=0).reason is Reason.STARVED
        self.receive(self.quotas.lend(tokens(period), limit))
        assert self.budget.take(n, wait=0)
        with self.lock:
            self.budget.tick()
        self.sent.clear()


def test_site_asks_without_a_period_until_it_knows_the_rule(kind: str) -> None:
    site = Site(kind, rule=None)
    assert (site.budget.rule, site.budget.resets_at) == (None, None)
    assert site.budget.take(3, wait=0).reason is Reason.STARVED
    assert site.take_sent() == [Told(tokens(0), 1, 0, 0, 0, 3)]
    ended: list[str] = []
    request = BudgetRequest(site.budget, 3, hold=False)
    request.start_waiting(Waiter(request, partial(ended.append, "ended")))
    site.receive(HOURLY)
    assert site.take_sent()[-1] == Told(tokens(NOON), 2, 0, 0, 0, 3)
    site.receive(site.quotas.lend(tokens(NOON), 10))
    assert ended == ["ended"]
    assert site.budget.rule == BudgetRule(100, "hour")
    assert (site.budget.remaining, site.budget.resets_at) == (7, (NOON + 1) * HOUR_S)


def test_rule_without_periods_changes_nothing_but_the_rule(kind: str) -> None:
    site = Site(kind, rule=None)
    site.budget.take(3, wait=0)
    site.receive(HOURLY._replace(per=None), site.quotas.lend(tokens(0), 10))
    assert site.budget.take(10, wait=0)
    assert (site.budget.rule, site.budget.resets_at) == (BudgetRule(100), None)
    site.receive(site.quotas.refuse(tokens(0), 1))
    assert site.budget.take(1, wait=0) == Decision(Reason.EXHAUSTED)


def test_units_of_a_period_cannot_be_spent_in_the_next_one(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 1)
    site.now += HOUR_S
    assert site.budget.remaining == 0
    assert site.budget.take(wait=0).reason is Reason.STARVED
    site.receive(site.quotas.lend(tokens(NOON), 20))  # it comes late
    assert site.budget.take(wait=0).reason is Reason.STARVED
    site.receive(site.quotas.lend(tokens(NOON + 1), 5))
    assert site.budget.take(5, wait=0)
    assert not site.budget.take(wait=0)


def test_units_set_aside_are_not_taken_after_the_end_of_their_period(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 1)
    assert site.budget.take()
    site.now += HOUR_S - 0.001
    assert site.budget.take()
    site.now += 0.001
    assert not site.budget.take(wait=0)
    site.receive(site.quotas.recall(tokens(NOON)))
    assert site.take_sent()[-1] == Told(tokens(NOON), 2, 3, 0, 3, 0)


def test_hold_is_settled_in_the_period_in_which_it_was_made(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 1)
    hold = site.budget.reserve(9)
    site.receive(site.quotas.refuse(tokens(NOON), 1))
    assert site.take_sent() == []
    site.receive(site.quotas.recall(tokens(NOON)), site.quotas.refuse(tokens(NOON), 1))
    site.use(NOON + 1, 6, 2)
    hold.settle(4)
    assert site.take_sent() == [Told(tokens(NOON), 3, 5, 0, 5, 0)]  # what is back was not lent, so it is returned
    assert site.budget.remaining == 4
    site.receive(site.quotas.recall(tokens(NOON)), site.quotas.recall(tokens(NOON + 1)))
    assert site.take_sent() == [Told(tokens(NOON), 4, 5, 0, 5, 0), Told(tokens(NOON + 1), 2, 2, 0, 2, 0)]


def test_refusal_says_when_the_period_ends(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 10)
    site.receive(site.quotas.refuse(tokens(NOON), 1))
    site.now += 1000
    assert site.budget.take(wait=0) == Decision(Reason.EXHAUSTED, 2600.0)
    with pytest.raises(LimitExceeded) as raised:
        site.budget.reserve(1, wait=0)
    assert raised.value.retry_after == 2600.0


def test_period_before_the_last_one_is_handed_in(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 1)
    hold = site.budget.reserve(2)
    site.use(NOON + 1, 10, 2)
    site.now += HOUR_S
    assert not site.budget.take(wait=0)
    leave = BudgetLeave(tokens(NOON), 7, 3)
    assert site.take_sent()[0] == leave
    hold.settle(0)  # it was handed in as spent
    with site.lock:
        assert site.budget.resend()[0] == leave
        assert not site.budget.settled
    site.receive(BudgetLeaveAck(tokens(NOON), 7))
    with site.lock:
        assert [item.budget.period for item in site.budget.resend()] == [NOON + 1, NOON + 2]
        assert site.budget.settled


def test_clock_that_goes_back_does_not_admit_the_same_units_again(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 8)
    site.use(NOON + 1, 10, 3)
    site.now = NOON * HOUR_S
    assert site.budget.take(2, wait=0)
    assert not site.budget.take(1, wait=0)
    site.use(NOON + 2, 10, 1)
    site.now = NOON * HOUR_S
    assert site.budget.remaining == 0
    site.receive(site.quotas.lend(tokens(NOON), 10))  # what the coordinator believes was lost
    assert site.budget.take(1, wait=0).reason is Reason.STARVED
    assert site.take_sent() == []


def test_period_that_was_handed_in_begins_again_when_that_is_acknowledged(kind: str) -> None:
    site = Site(kind)
    for period in (NOON, NOON + 1, NOON + 2):
        site.use(period, 10, 4)
    site.now = NOON * HOUR_S
    ended: list[str] = []
    request = BudgetRequest(site.budget, 3, hold=False)
    request.start_waiting(Waiter(request, partial(ended.append, "ended")))
    assert site.take_sent() == []
    site.receive(site.quotas.recall(tokens(NOON)))
    assert site.take_sent() == [BudgetLeave(tokens(NOON), 7, 4)]
    site.receive(BudgetLeaveAck(tokens(NOON), 7))
    assert site.take_sent() == [Told(tokens(NOON), 2, 0, 0, 0, 3)]  # `seq` goes on
    site.receive(site.quotas.begin_again(tokens(NOON), 2), site.quotas.lend(tokens(NOON), 6))
    assert (ended, site.budget.remaining) == (["ended"], 3)
    with site.lock:
        assert [item.budget.period for item in site.budget.resend()] == [NOON + 1, NOON + 2, NOON]
    site.now += 3 * HOUR_S
    site.budget.take(1, wait=0)
    assert BudgetLeave(tokens(NOON), 7, 3) in site.take_sent()


def test_recall_of_a_period_that_was_handed_in_is_answered_with_what_was_spent(kind: str) -> None:
    site = Site(kind)
    for period in (NOON, NOON + 1, NOON + 2):
        site.use(period, 10, 4)
    site.sent.clear()
    site.receive(site.quotas.recall(tokens(NOON)))
    assert site.take_sent() == [BudgetLeave(tokens(NOON), 7, 4)]
    site.receive(BudgetLeaveAck(tokens(NOON), 7), site.quotas.recall(tokens(NOON)), site.quotas.lend(tokens(NOON), 10))
    assert site.take_sent() == [BudgetLeave(tokens(NOON), 7, 0)]


def test_next_period_is_asked_for_before_it_begins_if_this_one_was_used(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 4)
    with site.lock:
        seconds = site.budget.seconds_to_tick()
        assert HOUR_S - 120 <= seconds <= HOUR_S - 60
        site.now += seconds
        site.budget.tick()
        assert site.take_sent() == [Told(tokens(NOON + 1), 1, 0, 0, 0, 1)]
        assert 60 <= site.budget.seconds_to_tick() <= 120
    site.receive(site.quotas.lend(tokens(NOON + 1), 28))
    assert site.budget.remaining == 6
    with site.lock:
        site.now += site.budget.seconds_to_tick()
        site.budget.tick()
    assert site.budget.remaining == 28
    assert site.take_sent() == []
    with site.lock:  # nothing was used: the period after it is not prepared
        site.now += site.budget.seconds_to_tick()
        site.budget.tick()
        assert site.take_sent() == []
        site.now += site.budget.seconds_to_tick()
        site.budget.tick()
    assert site.take_sent() == [BudgetLeave(tokens(NOON), 7, 4)]


def test_sites_ask_for_the_next_period_at_different_times() -> None:
    site, moments = Site(), set[float]()
    for incarnation in range(100):
        with site.lock:
            site.budget.renew(SiteId("web", incarnation))
            moments.add(site.budget.seconds_to_tick())
    assert len({int(moment) for moment in moments}) > 30
    assert all(HOUR_S - 120 <= moment <= HOUR_S - 60 for moment in moments)
    assert Site(rule=HOURLY._replace(per=None)).budget.seconds_to_tick() == inf


def test_coordinator_that_is_away_across_the_edge_of_a_minute_costs_no_request() -> None:
    """For 12 s: the sites have a first share of the next minute, 28 % of the limit, before that."""
    site, minute = Site(rule=HOURLY._replace(per="minute", limit=600)), int(NOON * HOUR_S / 60)
    coordinators = {each: BudgetCoordinator(tokens(each), 600) for each in range(minute, minute + 3)}
    admitted = dict.fromkeys(coordinators, 0)
    for tenth in range(1200):
        site.now = minute * 60 + tenth / 10
        period, away = int(site.now // 60), 54 <= tenth / 10 < 66
        admitted[period] += bool(site.budget.take(wait=0)) if tenth % 2 else 0  # five requests a second
        with site.lock:
            if not away and site.budget.seconds_to_tick() <= 0:
                site.budget.tick()
        sent, site.sent = site.sent, []
        for ask in sent if not away else []:
            assert isinstance(ask, Ask)
            for _, message in coordinators[ask.budget.period].receive(SITE, ask):
                site.receive(message)
    assert admitted[minute] >= 299  # the first one has waited
    assert admitted[minute + 1] == 300


def test_units_that_were_exhausted_in_a_period_stay_exhausted_while_the_coordinator_does_not_answer(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 10)
    assert site.budget.left == 1
    site.receive(site.quotas.refuse(tokens(NOON), 1))
    assert site.budget.take(wait=0).reason is Reason.EXHAUSTED
    site.receive(site.quotas.recall(tokens(NOON)))  # it was restarted, and waits for another process that was killed
    for n in (1, 2):
        assert site.budget.take(n, wait=0) == Decision(Reason.EXHAUSTED, HOUR_S)
    assert site.budget.left == 0
    site.receive(site.quotas.lend(tokens(NOON), 11))
    assert site.budget.take(wait=0)
    assert site.budget.take(2, wait=0).reason is Reason.STARVED
    site.now += HOUR_S
    assert (site.budget.left, site.budget.take(wait=0).reason) == (1, Reason.STARVED)


def test_units_without_periods_may_come_back_while_the_coordinator_does_not_answer() -> None:
    site = Site(rule=HOURLY._replace(per=None))
    site.receive(site.quotas.refuse(tokens(0), 1))
    assert site.budget.take(wait=0).reason is Reason.EXHAUSTED
    site.receive(site.quotas.recall(tokens(0)))
    assert site.budget.take(wait=0).reason is Reason.STARVED


def test_request_that_waits_is_admitted_in_the_period_that_begins_meanwhile(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 10)
    with site.lock:
        site.now += site.budget.seconds_to_tick()
        site.budget.tick()
    site.receive(site.quotas.lend(tokens(NOON + 1), 28))
    ended: list[str] = []
    request = BudgetRequest(site.budget, 20, hold=False)
    request.start_waiting(Waiter(request, partial(ended.append, "ended")))
    assert ended == []
    with site.lock:
        site.now += site.budget.seconds_to_tick()
        site.budget.tick()
    assert (ended, site.budget.remaining) == (["ended"], 8)


def test_rejection_of_the_present_period_is_an_error_and_of_an_earlier_one_is_not(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 4)
    site.use(NOON + 1, 10, 4)
    request = BudgetRequest(site.budget, 20, hold=False)
    assert request.attempt() is None
    site.receive(BudgetRejected(tokens(NOON), "closed"), BudgetRejected(tokens(NOON - 5), "closed"))
    assert request.attempt() is None
    site.receive(BudgetRejected(tokens(NOON + 1), "check the clock"))
    with pytest.raises(UnknownBudget, match="check the clock"):
        request.attempt()
    site.sent.clear()
    assert site.budget.take(3, wait=0).reason is Reason.STARVED
    assert site.take_sent() == [Told(tokens(NOON + 1), 2, 0, 0, 0, 3)]  # `seq` goes on
    site.now = NOON * HOUR_S
    assert site.budget.take(3, wait=0).reason is Reason.STARVED
    assert site.take_sent() == [Told(tokens(NOON), 2, 0, 0, 0, 3)]


def test_budget_of_the_same_name_with_another_calendar_starts_from_nothing(kind: str) -> None:
    site = Site(kind)
    for period in (NOON, NOON + 1, NOON + 2):
        site.use(period, 10, 4)
    site.receive(HOURLY._replace(per="day"))
    day = NOON // 24
    assert (site.budget.remaining, site.budget.resets_at) == (0, (day + 1) * 24 * HOUR_S)
    with site.lock:
        assert not site.budget.active
    site.receive(BudgetRejected(tokens(NOON + 2), "there is no such period"))
    assert site.budget.take(3, wait=0).reason is Reason.STARVED
    assert site.take_sent()[-1] == Told(tokens(day), 2, 0, 0, 0, 3)


@pytest.mark.parametrize("rule", [HOURLY._replace(tz="Europe/Nowhere"), HOURLY._replace(kind="unheard-of")])
def test_rule_that_cannot_be_followed_is_an_error(rule: SetBudgetRule) -> None:
    site = Site(rule=None)
    request = BudgetRequest(site.budget, 1, hold=False)
    assert request.attempt() is None
    site.receive(rule)
    for attempt in (request.attempt, site.budget.take):
        with pytest.raises(UnknownBudget, match=r"its rule cannot be followed here: (tz|kind) = "):
            attempt()
    site.receive(HOURLY)
    assert site.budget.take(wait=0).reason is Reason.STARVED


def test_renewed_budget_hands_in_every_period_and_begins_again(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 4)
    site.use(NOON + 1, 10, 5)
    with site.lock:
        site.budget.renew(SiteId("web", 8))
        assert site.budget.resend() == [BudgetLeave(tokens(NOON), 7, 4), BudgetLeave(tokens(NOON + 1), 7, 5)]
    assert site.budget.take(3, wait=0).reason is Reason.STARVED
    assert site.take_sent() == [Told(tokens(NOON + 1), 1, 0, 0, 0, 3)]


def test_closed_budget_hands_in_every_period_and_admits_nothing_later(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 4)
    site.use(NOON + 1, 10, 5)
    with site.lock:
        site.budget.end()
        assert site.budget.hand_ins() == [BudgetLeave(tokens(NOON), 7, 4), BudgetLeave(tokens(NOON + 1), 7, 5)]
        site.budget.tick()
    site.now += HOUR_S
    assert site.budget.take(wait=0).reason is Reason.UNREACHABLE
    for period in (NOON, NOON + 1):
        site.receive(BudgetLeaveAck(tokens(period), 7))
    with site.lock:
        assert site.budget.settled


def test_forked_child_has_nothing_of_any_period(kind: str) -> None:
    site = Site(kind)
    site.use(NOON, 10, 4)
    site.use(NOON + 1, 10, 5)
    with site.lock:
        site.budget.after_fork(SiteId("web", 9))
        assert site.budget.resend() == []
    assert site.budget.take(1, wait=0).reason is Reason.STARVED


def test_interrupted_step_into_the_next_period_leaves_the_budget_usable(kind: str) -> None:
    for point in points():
        site = Site(kind)
        site.use(NOON, 10, 4)
        site.use(NOON + 1, 10, 5)
        site.now += HOUR_S
        if not run_until(BudgetRequest(site.budget, 1, hold=False).attempt, point, interrupt):
            break
        assert is_free(site.lock)
        assert site.budget.take(3, wait=0).reason is Reason.STARVED
        site.receive(site.quotas.lend(tokens(NOON + 2), 3))
        assert site.budget.take(3, wait=0)
        assert not site.budget.take(1, wait=0)
        site.now -= HOUR_S
        assert site.budget.take(5, wait=0)
    assert point > 3


# Mistakes that random runs meet rarely: each fails one of the tests above.


def test_period_that_is_dropped_and_not_handed_in_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPeriods, "_hand_in", lambda self, locals_: [])
    with pytest.raises(AssertionError):
        test_period_before_the_last_one_is_handed_in("plain")


def test_period_that_begins_again_before_the_acknowledgement_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalPeriods, "_new", lambda self, period: self._make(BudgetId(self._name, period)))
    with pytest.raises(AssertionError):
        test_clock_that_goes_back_does_not_admit_the_same_units_again("plain")
