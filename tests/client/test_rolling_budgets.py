"""A rolling budget in a process: units come back by a monotonic clock, and a process that is cut off stops."""

from collections.abc import Sequence
from itertools import count
from math import inf
from threading import RLock

import pytest

from countless.client.budgets.budget import LINGER_S, BudgetLink, BudgetPart, BudgetRequest
from countless.client.budgets.local_periods import LocalPeriods, NewLocal
from countless.client.budgets.requests import Waiter
from countless.client.durable.budget import DurableBudget
from countless.client.durable.count_file import CountFile
from countless.client.session.contact import CONTACT_S, Contact
from countless.core.budget.decision import Reason
from countless.core.budget.messages import Ask, BudgetId, Pane
from countless.core.budget.rolling import PANES, RollingSite
from countless.core.budget.rule import MIN_LEASE_S, BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.errors import InvalidParameter
from countless.wire.budgets import BudgetDownItem, BudgetLeave, BudgetLeaveAck, SetBudgetRule, rule_item, rule_of
from support.local_budgets import Quotas, Told, told

SITE = SiteId("web", 7)
LOGINS = BudgetId("logins")
WINDOW_S = 120.0
PANE_S = WINDOW_S / PANES
RULE = BudgetRule(100, rolling=120, slack=0)


class Site:
    """A client budget that was granted units, its clock, and what it has sent."""

    def __init__(self, kind: str, limit: int, rule: BudgetRule = RULE) -> None:
        self.now = self.contact = 5000.0
        self.sent: list[Ask | BudgetLeave] = []
        self.connected = True
        self.quotas = Quotas()
        self.lock = RLock()
        self.file = CountFile.in_memory(SITE)
        link = BudgetLink(
            self._send,
            lambda: self.connected,
            lambda number: None,
            steady_clock=lambda: self.now,
            contact=lambda: self.contact,
        )
        if kind != "plain":
            link = link._replace(new_local=self._durable)
        self.budget = BudgetPart("logins", SITE, self.lock, link)
        self.receive(rule_item("logins", rule))
        if limit:
            assert self.budget.take(limit, wait=0).reason is Reason.STARVED
            self.receive(self.quotas.lend(LOGINS, limit))
            self.sent.clear()

    def _durable(self, site: BudgetSite, site_id: SiteId) -> DurableBudget:
        return DurableBudget(site, site_id.incarnation, self.file)

    def _send(self, name: str, items: Sequence[Ask | BudgetLeave]) -> None:
        self.sent += items

    def receive(self, item: BudgetDownItem) -> None:
        with self.lock:
            self.budget.receive(item)

    def pass_time(self, seconds: float) -> list[Told | BudgetLeave]:
        """In contact with the coordinator. Returns what was sent."""
        self.sent.clear()
        end = self.now + seconds
        while (pause := self.budget.seconds_to_tick()) <= end - self.now:
            self.now = self.contact = self.now + max(pause, 1e-5)
            with self.lock:
                self.budget.tick()
        self.now = self.contact = end
        return told(self.sent)

    @property
    def saved(self) -> int | None:
        """What is handed in if the process is killed now; None without a file."""
        return self.file.budgets[0].used if self.file.budgets else None


def test_unit_comes_back_a_window_after_it_was_taken(kind: str) -> None:
    site = Site(kind, 40)
    for _ in range(4):
        assert all(site.budget.take(wait=0) for _ in range(20))
        assert site.saved in (None, 20)
        assert site.budget.take(20, wait=0)
        site.pass_time(WINDOW_S - 0.001)
        assert site.budget.remaining == 0
        site.pass_time(0.002)
        assert site.budget.remaining == 40
        assert site.saved in (None, 0)


def test_units_taken_without_a_lock_count_until_a_window_after_their_pane(kind: str) -> None:
    site = Site(kind, 40)
    assert site.budget.take(wait=0)  # sets others aside
    site.now += PANE_S - 0.001
    assert site.budget.take(wait=0)
    site.now += WINDOW_S - 0.002
    assert site.budget.remaining == 38
    site.now += 0.01
    assert site.budget.remaining == 40


@pytest.mark.parametrize("read", [1, 2])
def test_unit_that_another_thread_takes_while_the_clock_is_read_counts_for_a_window(kind: str, read: int) -> None:
    site, admitted, reads = Site(kind, 40), [], count(1)
    assert site.budget.take(wait=0)  # sets others aside
    site.now += PANE_S / 2

    def clock() -> float:
        before = site.now
        if next(reads) == read:
            site.now += 0.005
            if site.budget.take(wait=0):
                admitted.append(site.now)
        return before

    site.budget._clock = clock
    assert site.budget.remaining <= 39
    site.now += WINDOW_S - 0.002
    assert site.budget.remaining <= 40 - len(admitted)


def test_units_taken_after_the_end_of_a_pane_are_in_the_next_one(kind: str) -> None:
    site = Site(kind, 40)
    assert site.budget.take(wait=0)
    site.now += 2 * PANE_S
    assert site.budget.take(wait=0)
    site.now += WINDOW_S - 0.001
    assert site.budget.remaining == 39


def test_settled_units_count_from_the_settlement(kind: str) -> None:
    site = Site(kind, 40)
    hold = site.budget.reserve(10, wait=0)
    site.pass_time(WINDOW_S)
    hold.settle(4)
    assert (site.budget.remaining, site.saved) in ((36, None), (36, 4))
    site.pass_time(WINDOW_S - 0.001)
    assert site.budget.remaining == 36
    site.pass_time(0.002)
    assert site.budget.remaining == 40


def test_refusal_says_when_own_units_come_back() -> None:
    site = Site("plain", 40)
    assert site.budget.take(30, wait=0)
    site.now += 50.0
    assert site.budget.take(10, wait=0)
    site.receive(site.quotas.refuse(LOGINS, 1))
    for n, seconds in ((1, 70.0), (30, 70.0), (31, 120.0)):
        decision = site.budget.take(n, wait=0)
        assert decision.reason is Reason.EXHAUSTED
        assert decision.retry_after == site.budget.retry_after(n) == pytest.approx(seconds, abs=1e-3)
    assert site.budget.take(50, wait=0).retry_after is None  # others must return some of theirs
    assert site.budget.resets_at is None


# Reports


def test_units_that_come_back_are_used_again_without_a_message_if_they_were_lent(kind: str) -> None:
    site = Site(kind, 40)
    for _ in range(5):
        assert site.budget.take(30, wait=0)
        assert site.pass_time(WINDOW_S + 1) == []


def test_site_that_was_not_lent_hands_over_what_it_has_taken_with_its_age(kind: str) -> None:
    site = Site(kind, 40)
    assert site.budget.take(30, wait=0)
    site.now += 50.0
    assert site.budget.take(20, wait=0).reason is Reason.STARVED
    [ask] = site.sent
    assert isinstance(ask, Ask)
    assert ask.panes == (Pane(50.0, 30),)
    assert (ask.granted, ask.returned, ask.spent, ask.held, ask.want) == (40, 40, 30, 0, 20)
    assert site.saved in (None, 30)


def test_units_that_come_back_go_to_the_coordinator_if_they_were_not_lent() -> None:
    site = Site("plain", 40)
    site.budget.take(41, wait=0)
    site.receive(site.quotas.grant(LOGINS, 81))
    assert site.budget.take(41, wait=0)
    assert site.pass_time(WINDOW_S - 1) == []
    assert [(item.spent, getattr(item, "held", None)) for item in site.pass_time(1.1)] == [(0, 0)]


def test_units_that_came_back_before_a_request_are_returned_after_it() -> None:
    """The request has found them before the tick did."""
    site = Site("plain", 40)
    site.budget.take(41, wait=0)
    site.receive(site.quotas.grant(LOGINS, 81))
    assert site.budget.take(41, wait=0)
    site.now = site.contact = site.now + WINDOW_S + 1
    site.sent.clear()
    assert site.budget.take(wait=0)
    assert [(each.spent, each.limit) for each in site.pass_time(1) if isinstance(each, Told)] == [(1, 0)]


def test_budget_that_was_not_used_for_a_window_is_handed_in(kind: str) -> None:
    site = Site(kind, 40)
    assert site.budget.take(1, wait=0)
    assert site.pass_time(2 * WINDOW_S - 1) == []
    assert site.pass_time(2) == [BudgetLeave(LOGINS, 7, 0)]
    assert site.budget.take(1, wait=0).reason is Reason.STARVED  # until that is acknowledged
    site.pass_time(LINGER_S)
    site.receive(BudgetLeaveAck(LOGINS, 7))
    assert not site.budget.active
    site.sent.clear()
    site.budget.take(1, wait=0)
    assert site.sent == [Ask(LOGINS, 2, 0, 0, 0, 0, 0, 0, 1)]  # `seq` goes on: it names the next membership


def test_what_was_handed_over_is_handed_in_as_well(kind: str) -> None:
    site = Site(kind, 40)
    assert site.budget.take(30, wait=0)
    site.budget.take(20, wait=0)
    site.receive(site.quotas.lend(LOGINS, 65))
    assert site.budget.take(20, wait=0)
    with site.lock:
        site.budget.end()
        assert site.budget.hand_ins() == [BudgetLeave(LOGINS, 7, 50)]
    assert site.saved in (None, 50)


# The lease


def test_process_that_is_cut_off_admits_nothing_after_its_lease(kind: str) -> None:
    site = Site(kind, 40)
    assert site.budget.take(wait=0)
    site.connected = False
    site.now += WINDOW_S - 0.001
    assert site.budget.take(wait=0)
    site.now += 0.001
    for n in (1, 2):
        assert site.budget.take(n, wait=0).reason is Reason.UNREACHABLE
    site.contact = site.now - WINDOW_S + 1
    assert site.budget.take(wait=0)


def test_request_that_waits_for_a_contact_is_admitted_when_there_is_one() -> None:
    site, ended = Site("plain", 40), list[str]()
    assert site.budget.take(wait=0)
    site.now += WINDOW_S
    request = BudgetRequest(site.budget, 3, hold=False)
    request.start_waiting(Waiter(request, lambda: ended.append("ended")))
    assert ended == []
    site.contact = site.now - 1
    with site.lock:
        site.budget.tick()
    assert ended == ["ended"]


def test_process_without_a_contact_asks_for_its_first_units() -> None:
    site = Site("plain", 0)
    site.contact = -inf
    site.budget.take(1, wait=0)
    assert site.sent == [Ask(LOGINS, 1, 0, 0, 0, 0, 0, 0, 1)]


def test_lease_is_at_least_a_minute() -> None:
    assert (BudgetRule(1, rolling=2).lease, BudgetRule(1, rolling=3600).lease) == (MIN_LEASE_S, 3600.0)


def test_contact_is_when_the_answered_sync_was_sent() -> None:
    contact = Contact()
    contact.sync_sent(100.0)
    contact.sync_sent(120.0)
    assert contact.due == 120.0 + CONTACT_S
    assert contact.sync_answered(10_000.0)  # the process was stopped for hours
    assert contact.at == 100.0
    assert contact.sync_answered(10_000.0)
    assert contact.at == 120.0
    contact.sync_sent(10_000.0)
    contact.new_stream()  # its answer is lost
    contact.sync_sent(10_030.0)
    contact.sync_answered(10_031.0)
    assert contact.at == 10_030.0
    contact.sync_sent(10_040.0)
    assert not contact.sync_answered(10_041.0)


# Rules, forks, overdrafts


def test_rule_of_a_rolling_budget_is_refused_by_clients_that_do_not_know_it() -> None:
    item = rule_item("logins", RULE)
    assert item == SetBudgetRule(LOGINS, 100, "rolling 120.0s", "UTC", None, 0, "spending", "charge", "refuse")
    with pytest.raises(InvalidParameter, match="per must be"):
        BudgetRule(*item[1:])
    assert rule_of(item) == RULE
    assert rule_of(rule_item("logins", BudgetRule(5, per="hour"))) == BudgetRule(5, per="hour")
    with pytest.raises(InvalidParameter, match="per must be"):
        rule_of(item._replace(per="rolling around"))


def test_forked_child_has_nothing_and_leaves_the_file_of_its_parent_alone(kind: str) -> None:
    site = Site(kind, 40)
    assert all(site.budget.take(wait=0) for _ in range(5))
    site.now += WINDOW_S + PANE_S + 1
    saved = site.saved
    site.budget.after_fork(SiteId("web", 8))
    assert (site.budget.remaining, site.saved) == (0, saved)


def test_overdraft_is_a_total() -> None:
    site = Site("plain", 5, BudgetRule(100, rolling=120, on_unreachable="overdraft"))
    site.connected = False
    assert site.budget.take(9, wait=0)
    assert site.budget.overdraft == 4
    site.now += WINDOW_S + 1
    assert (site.budget.remaining, site.budget.overdraft) == (9, 4)


# Mistakes that random runs meet rarely: each fails one of the tests above.


@pytest.mark.parametrize("early", [WINDOW_S / 2, PANE_S])
def test_units_that_come_back_too_early_are_noticed(early: float, monkeypatch: pytest.MonkeyPatch) -> None:
    original = RollingSite._counts_until
    monkeypatch.setattr(RollingSite, "_counts_until", lambda self, pane: original(self, pane) - early)
    with pytest.raises(AssertionError):
        test_unit_comes_back_a_window_after_it_was_taken("plain")


def test_units_that_count_from_the_first_moment_of_a_pane_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = RollingSite._add
    monkeypatch.setattr(RollingSite, "_add", lambda self, moment: original(self, self.ends_at - PANE_S))
    with pytest.raises(AssertionError):
        test_unit_comes_back_a_window_after_it_was_taken("plain")


def test_request_that_is_admitted_after_the_lease_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    original = LocalPeriods.__init__

    def without_lease(self: LocalPeriods, name: str, site_id: SiteId, new_local: NewLocal, contact: object) -> None:
        original(self, name, site_id, new_local, lambda: inf)

    monkeypatch.setattr(LocalPeriods, "__init__", without_lease)
    with pytest.raises(AssertionError):
        test_process_that_is_cut_off_admits_nothing_after_its_lease("plain")
