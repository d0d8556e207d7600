"""What a client does by the rule of its budget: without a connection, and for limits on what runs at the same time."""

import asyncio
from collections.abc import Callable
from threading import Thread

import pytest

from countless.client.budgets.group import BudgetGroup
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.messages import BudgetId
from countless.core.budget.state import BudgetState
from countless.core.messages import SiteId
from countless.errors import InvalidParameter, Unreachable
from countless.wire.budgets import SetBudgetRule
from support.local_budgets import TOKENS, Process, RecordingBudget
from support.service import TIMEOUT_S, until
from support.waiting import eventually


def rule(budget: BudgetId = TOKENS, *, kind: str = "spending", on_unreachable: str = "refuse") -> SetBudgetRule:
    return SetBudgetRule(budget, 100, None, "UTC", None, 0.01, kind, "charge", on_unreachable)


def cut_off(kind: str, limit: int, on_unreachable: str) -> RecordingBudget:
    recording = RecordingBudget(kind, limit)
    recording.receive(rule(on_unreachable=on_unreachable))
    recording.connected = lambda: False
    return recording


# Without a connection


def test_request_without_a_connection_is_refused_by_default(kind: str) -> None:
    recording = cut_off(kind, 5, "refuse")
    assert recording.budget.take(5, wait=0)
    assert recording.budget.take(1, wait=0).reason is Reason.UNREACHABLE
    with pytest.raises(Unreachable):
        recording.budget.reserve(1, wait=0)
    assert recording.budget.overdraft == 0


def test_overdraft_is_admitted_counted_and_reported(kind: str) -> None:
    recording = cut_off(kind, 5, "overdraft")
    assert recording.budget.take(3, wait=0)
    assert recording.budget.take(4, wait=0)
    assert recording.budget.take(1, wait=0)
    assert recording.budget.overdraft == 3
    assert recording.saved in (None, 8)
    ask = recording.recall()
    assert (ask.spent, ask.granted, ask.returned) == (8, 8, 0)


def test_units_that_a_hold_returns_are_free_and_the_overdraft_stays_a_total(kind: str) -> None:
    recording = cut_off(kind, 5, "overdraft")
    hold = recording.budget.reserve(9, wait=0)
    assert (recording.budget.overdraft, recording.budget.remaining) == (4, 0)
    hold.settle(2)
    assert (recording.budget.overdraft, recording.budget.remaining) == (4, 7)


def test_there_is_no_overdraft_with_a_connection_or_after_the_end() -> None:
    recording = cut_off("plain", 0, "overdraft")
    recording.connected = lambda: True
    assert recording.budget.take(1, wait=0).reason is Reason.STARVED
    recording.connected = lambda: False
    with recording.lock:
        recording.budget.end()
    assert recording.budget.take(1, wait=0).reason is Reason.UNREACHABLE
    assert recording.budget.overdraft == 0


def test_there_is_no_overdraft_while_the_rule_is_unknown() -> None:
    recording = RecordingBudget("plain", 0)
    recording.connected = lambda: False
    assert recording.budget.take(1, wait=0).reason is Reason.UNREACHABLE


def test_coordinator_charges_an_overdraft_and_grants_nothing_until_it_is_covered() -> None:
    """The site asks when the connection is back."""
    coordinator, recording, other = BudgetCoordinator(TOKENS, 10, slack=0), cut_off("plain", 0, "overdraft"), SiteId(2)
    recording.budget.take(12, wait=0)
    first = recording.sent[0]
    coordinator.receive(SiteId(1), first._replace(want=1))
    coordinator.receive(SiteId(1), recording.recall())
    assert (coordinator.usage.lower, coordinator.usage.upper, coordinator.free) == (12, 12, -2)
    assert coordinator.usage.state is BudgetState.LOWERING
    outbox = coordinator.receive(other, first._replace(want=1))
    assert [message.granted for _, message in outbox] == [0]


class CountingConnection:
    """There is no connection; it counts how often a request has found out."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self) -> bool:
        self.asked += 1
        return False


def test_request_waits_for_the_connection_beyond_its_time_if_that_is_the_rule() -> None:
    recording, decisions = cut_off("plain", 0, "wait"), list[Decision]()
    recording.connected = connection = CountingConnection()
    thread = Thread(target=lambda: decisions.append(recording.budget.take(1, wait=0.001)), daemon=True)
    thread.start()
    until(lambda: connection.asked >= 3, "asked three times")
    recording.lend(1)
    thread.join(TIMEOUT_S)
    assert decisions == [Decision(Reason.ALLOWED)]
    assert recording.budget.take(1, wait=0).reason is Reason.UNREACHABLE


async def test_async_request_waits_for_the_connection_beyond_its_time_if_that_is_the_rule() -> None:
    recording = cut_off("plain", 0, "wait")
    recording.connected = connection = CountingConnection()
    task = asyncio.create_task(recording.budget.atake(1, wait=0.001))
    await eventually(lambda: connection.asked >= 3)
    recording.lend(1)
    assert await task


@pytest.mark.parametrize(("team", "allowed"), [("overdraft", True), ("refuse", False)])
def test_budgets_together_overdraw_only_if_all_that_need_it_may(team: str, allowed: bool) -> None:
    process = Process(0, ["key", "team", "org"], lambda site_id, ask: None)
    rules = {"key": "overdraft", "team": team, "org": "refuse"}
    for name, granted in {"key": 2, "team": 3, "org": 20}.items():
        process.receive(rule(BudgetId(name), on_unreachable=rules[name]))
        process.receive(process.quotas.lend(BudgetId(name), granted))
    process.connected = lambda: False
    budgets = BudgetGroup(tuple(process.budgets.values()), process.lock)
    assert bool(budgets.take(5, wait=0)) is allowed
    assert [budget.remaining for budget in process.budgets.values()] == ([0, 0, 15] if allowed else [2, 3, 20])
    assert [budget.overdraft for budget in process.budgets.values()] == ([3, 2, 0] if allowed else [0, 0, 0])


# What runs at the same time


def in_flight(kind: str) -> RecordingBudget:
    recording = RecordingBudget(kind, 0)
    recording.receive(rule(kind="in_flight"))
    recording.lend(10)
    return recording


def test_units_of_a_limit_on_what_runs_cannot_be_spent(kind: str) -> None:
    recording = in_flight(kind)
    requests: list[Callable[[], object]] = [recording.budget.take, lambda: recording.budget.take(5)]
    for request in requests:
        with pytest.raises(InvalidParameter, match="use acquire"):
            request()
    with recording.budget.reserve(4):
        pass
    with recording.budget.acquire(4) as slot:
        slot.settle(3)
    assert (recording.budget.remaining, recording.recall().spent) == (10, 0)


def test_waiting_take_learns_that_units_cannot_be_spent() -> None:
    recording, errors = RecordingBudget("plain", 0), list[InvalidParameter]()

    def take() -> None:
        try:
            recording.budget.take(1, wait=TIMEOUT_S)
        except InvalidParameter as error:
            errors.append(error)

    thread = Thread(target=take, daemon=True)
    thread.start()
    assert recording.waited.wait(TIMEOUT_S)
    recording.receive(rule(kind="in_flight"))
    thread.join(TIMEOUT_S)
    assert "use acquire" in str(errors[0])


def test_what_runs_ends_with_the_process(kind: str) -> None:
    """Nothing is handed in for it, also if the process is killed."""
    recording = in_flight(kind)
    recording.budget.acquire(4)
    assert recording.saved in (None, 0)
    with recording.lock:
        recording.budget.end()
    assert [leave.spent for leave in recording.budget.hand_ins()] in ([0], [])
