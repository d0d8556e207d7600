"""The budgets of a session: those without anything at the coordinator are not kept, and others are looked after."""

import gc
from collections.abc import Sequence
from math import inf
from threading import RLock
from weakref import ref

import pytest

from countless.client.budgets.budget import BudgetLink, BudgetPart
from countless.client.budgets.group import BudgetGroup
from countless.client.budgets.requests import Waiter
from countless.client.kinds.budget import SessionBudgets
from countless.client.kinds.member import Known
from countless.client.ticks import TICKS_AT_ONCE
from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.messages import SiteId
from countless.wire.budgets import BudgetLeave, BudgetLeaveAck, BudgetRejected, SetBudgetRule

SITE_ID = SiteId("here", 7)
MINUTE = 30_000_000  # by its number


class Session:
    """Budgets of a client whose clocks are numbers."""

    def __init__(self) -> None:
        self.time = 0.0
        self.lock = RLock()
        self.budgets = SessionBudgets(self.lock, lambda: None)

    def budget(self, name: str) -> BudgetPart:
        link = BudgetLink(self._send, lambda: True, lambda number: None, clock=lambda: MINUTE * 60 + self.time)
        budget = BudgetPart(name, SITE_ID, self.lock, link)
        self.budgets.add(name, budget)
        return budget

    def _send(self, name: str, items: Sequence[Ask | BudgetLeave]) -> None:
        self.budgets.queue(items)

    def use(self, budget: BudgetPart, period: int) -> None:
        """The coordinator sends the rule, and grants units of the period that is asked for then."""
        assert not budget.take(1, wait=0)
        rule = (100, "minute", "UTC", None, 0.01, "spending", "charge", "refuse")
        self.budgets.receive(SetBudgetRule(BudgetId(budget.name), *rule), SITE_ID)
        assert not budget.take(1, wait=0)
        assert [item.budget for item in self.budgets.drain()][-1] == BudgetId(budget.name, period)
        self.budgets.receive(Quota(BudgetId(budget.name, period), since=1, number=1, granted=10, keep=True), SITE_ID)
        self.budgets.tick(self.time)
        assert budget.take(1, wait=0)

    def pass_time(self, seconds: float) -> None:
        """Every hand-in is acknowledged."""
        for _ in range(int(seconds)):
            self.time += 1.0
            self.budgets.tick(self.time)
            for item in self.budgets.drain():
                if isinstance(item, BudgetLeave):
                    self.budgets.receive(BudgetLeaveAck(item.budget, item.incarnation), SITE_ID)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.mark.slow
def test_budget_that_the_program_dropped_is_forgotten_when_its_spending_is_handed_in(session: Session) -> None:
    budget = session.budget("keys/a")
    session.use(budget, MINUTE)
    forgotten = ref(budget)
    del budget
    session.pass_time(60)  # a hold of the last period could still be settled
    gc.collect()
    assert forgotten() is not None
    session.pass_time(240)  # a share of the next one was asked for, too
    gc.collect()
    assert forgotten() is None
    assert session.budgets.next_tick == inf


def test_rejected_budget_is_forgotten_at_once(session: Session) -> None:
    budget = session.budget("keys/a")
    budget.take(1, wait=0)
    [ask] = session.budgets.drain()
    session.budgets.receive(BudgetRejected(ask.budget, "too many"), SITE_ID)
    session.budgets.tick(session.time)
    assert session.budgets.initial_items() == []
    forgotten = ref(budget)
    del budget
    gc.collect()
    assert forgotten() is None


def test_budget_that_the_program_keeps_asks_again_after_it_was_forgotten(session: Session) -> None:
    budget = session.budget("keys/a")
    session.use(budget, MINUTE)
    session.pass_time(600)
    assert session.budgets.initial_items() == []
    session.budgets.renew(SITE_ID._replace(incarnation=8), Known())
    session.use(budget, MINUTE + 10)
    budget.end()
    assert session.budgets.leave_items() == [BudgetLeave(BudgetId("keys/a", MINUTE + 10), 8, 1)]


def test_asks_of_a_new_connection_are_in_the_order_in_which_they_were_made(session: Session) -> None:
    """A request to two budgets repeats what waits at both, whichever of them is sent again."""
    budgets = tuple(session.budget(name) for name in ("keys/a", "keys/b"))
    request = BudgetGroup(budgets, session.lock)._request(2, hold=False)
    request.start_waiting(Waiter(request, lambda: None))
    session.budgets.drain()
    for budget in budgets:  # a share that is not lent, and too small
        session.budgets.receive(Quota(BudgetId(budget.name), since=1, number=1, granted=1), SITE_ID)
    session.budgets.drain()
    with session.lock:
        sent = [*session.budgets.initial_items(), *session.budgets.drain()]
    for budget in budgets:
        numbers = [item.seq for item in sent if isinstance(item, Ask) and item.budget.name == budget.name]
        assert numbers
        assert numbers == sorted(numbers)


class Idle:
    """A budget that counts how often it is looked at."""

    active = True
    leased = False
    settled = True

    def __init__(self, pause: float) -> None:
        self.pause = pause
        self.ticks = self.looks = 0

    def hand_ins(self) -> list[BudgetLeave]:
        return []

    def resend(self) -> list[Ask]:
        return []

    def receive(self, item: object) -> None: ...

    def seconds_to_tick(self) -> float:
        self.looks += 1
        return self.pause

    def tick(self) -> None:
        self.ticks += 1
        self.pause = 50.0

    def renew(self, site_id: SiteId) -> None: ...


def test_only_budgets_whose_time_has_come_are_looked_at() -> None:
    budgets = SessionBudgets(RLock(), lambda: None)
    idle = [Idle(20.0 + number) for number in range(100)]
    for number, each in enumerate(idle):
        budgets.add(str(number), each)
    budgets.tick(0.0)
    assert budgets.next_tick == 20.0
    before = sum(each.looks for each in idle)
    for second in range(20):
        budgets.tick(float(second))
    assert sum(each.looks for each in idle) == before
    idle[0].pause = 0.0
    budgets.tick(20.0)
    assert [each.ticks for each in idle] == [1] + [0] * 99
    assert budgets.next_tick == 21.0


def test_many_budgets_are_looked_after_in_parts() -> None:
    budgets = SessionBudgets(RLock(), lambda: None)
    idle = [Idle(0.0) for _ in range(TICKS_AT_ONCE + 1)]
    for number, each in enumerate(idle):
        budgets.add(str(number), each)
    budgets.tick(0.0)
    assert sum(each.ticks for each in idle) == TICKS_AT_ONCE
    assert budgets.next_tick == 0.0
    budgets.tick(0.0)
    assert sum(each.ticks for each in idle) == TICKS_AT_ONCE + 1
