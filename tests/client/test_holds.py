"""Holds that expire: their units count as spent, and a later settlement changes nothing."""

from functools import partial
from math import inf, nan
from typing import Any

import pytest

from countless.client.budgets.group import BudgetGroup
from countless.client.budgets.holds import HOLD_S, MAX_ENDED, Expiries, OpenHold
from countless.core.budget.hold import Hold
from countless.errors import HoldExpired, InvalidParameter
from countless.wire.budgets import SetBudgetRule
from support.interrupts import points, run_until
from support.local_budgets import TOKENS, RecordingBudget

SPENDING = SetBudgetRule(TOKENS, 100, None, "UTC", None, 0.01, "spending", "charge", "refuse")
IN_FLIGHT = SPENDING._replace(kind="in_flight")


def used(recording: RecordingBudget) -> tuple[int, int]:
    """The units that are spent, and held."""
    site = recording.budget._local.site
    return site.spent, site.held


def tick(recording: RecordingBudget) -> None:
    with recording.lock:
        recording.budget.tick()


def seconds_to_tick(recording: RecordingBudget) -> float:
    with recording.lock:
        return recording.budget.seconds_to_tick()


def test_hold_that_is_not_settled_in_time_counts_as_spent(kind: str) -> None:
    recording = RecordingBudget(kind, 100)
    hold = recording.budget.reserve(40, expires_in=5)
    recording.now += 4.9
    tick(recording)
    assert used(recording) == (0, 40)
    recording.now += 0.1
    tick(recording)
    assert used(recording) == (40, 0)
    assert (recording.expired, hold.expires_in, recording.saved) == (1, 5, None if kind == "plain" else 40)
    for _ in range(2):
        with pytest.raises(HoldExpired, match="the hold of 40 units of budget 'tokens' has expired"):
            hold.settle(3)
    assert used(recording) == (40, 0)


def test_settlement_that_comes_too_late_is_refused_before_the_client_has_looked(kind: str) -> None:
    recording = RecordingBudget(kind, 100)
    early, late = recording.budget.reserve(10, expires_in=5), recording.budget.reserve(20, expires_in=5)
    recording.now += 4.9
    early.settle(1)
    recording.now += 0.1
    with pytest.raises(HoldExpired):
        late.settle(2)
    early.settle(1)  # the second call has no effect
    assert (used(recording), recording.expired) == ((21, 0), 1)


def test_any_request_ends_the_holds_whose_time_is_over(kind: str) -> None:
    recording = RecordingBudget(kind, 10)
    recording.receive(IN_FLIGHT)
    recording.budget.acquire(10, expires_in=5)
    recording.now += 5
    assert recording.budget.acquire(10, wait=0)


def test_holds_of_spent_units_expire_after_the_default_and_those_of_units_in_flight_never() -> None:
    recording = RecordingBudget("plain", 100)
    recording.receive(SPENDING)
    assert recording.budget.reserve(1).expires_in == HOLD_S
    assert recording.budget.reserve(1, expires_in=inf).expires_in is None
    assert recording.budget.acquire(1).expires_in is None
    recording.receive(IN_FLIGHT)
    assert recording.budget.reserve(1).expires_in is None
    assert recording.budget.acquire(1, expires_in=3).expires_in == 3
    recording.now += 1e9
    tick(recording)
    assert (recording.expired, used(recording)) == (2, (0, 3))


def test_slot_that_expires_returns_its_units_while_the_work_runs() -> None:
    recording = RecordingBudget("plain", 1)
    recording.receive(IN_FLIGHT)
    with recording.budget.acquire(expires_in=3) as slot:
        recording.now += 3
        tick(recording)
        assert recording.budget.remaining == 1
        with pytest.raises(HoldExpired):
            slot.release()
    assert used(recording) == (0, 0)


@pytest.mark.parametrize("error", [None, ValueError])
def test_block_that_takes_too_long_ends_as_it_would(error: type[Exception] | None) -> None:
    """What it may have used is counted, and the error of the program is not replaced."""
    recording = RecordingBudget("plain", 100)

    def work() -> None:
        with recording.budget.reserve(40, expires_in=1):
            recording.now += 1
            if error is not None:
                raise error

    if error is None:
        work()
    else:
        with pytest.raises(error):
            work()
    assert (used(recording), recording.expired) == ((40, 0), 1)


async def test_async_twins_expire_too() -> None:
    recording = RecordingBudget("plain", 100)
    hold = await recording.budget.areserve(40, expires_in=2)
    slot = await recording.budget.aacquire(10, expires_in=3)
    recording.now += 2
    tick(recording)
    assert used(recording) == (40, 10)
    with pytest.raises(HoldExpired):
        hold.settle(1)
    recording.now += 1
    with pytest.raises(HoldExpired):
        slot.release()
    assert used(recording) == (50, 0)  # a slot of units that are spent ends as any hold


@pytest.mark.parametrize("expires_in", [0, -1, nan, -inf, "5", True, [5]])
@pytest.mark.parametrize("call", ["reserve", "acquire", "areserve", "aacquire"])
def test_invalid_expiry_changes_nothing(call: str, expires_in: Any) -> None:
    recording = RecordingBudget("plain", 10)
    with pytest.raises(
        InvalidParameter, match=r"expires_in = .* is not allowed: expires_in must be a number of seconds"
    ):
        getattr(recording.budget, call)(1, expires_in=expires_in)
    assert (used(recording), recording.sent) == ((0, 0), [])


def test_hold_of_several_budgets_expires_in_all_of_them_at_once() -> None:
    recordings = [RecordingBudget("plain", 10), RecordingBudget("plain", 10)]
    first, second = recordings
    group = BudgetGroup((first.budget, second.budget), first.lock)
    hold = group.reserve(4, expires_in=5)
    assert group.reserve(2).expires_in == HOLD_S
    second.receive(IN_FLIGHT)
    assert group.reserve(2).expires_in is None
    first.now += 5
    tick(first)
    assert (used(first), used(second)) == ((4, 4), (0, 4))
    with pytest.raises(HoldExpired):
        hold.settle(0)
    assert (first.expired, second.expired) == (1, 0)


def test_session_is_notified_only_of_a_hold_that_expires_before_the_next_tick() -> None:
    recording = RecordingBudget("plain", 100)
    assert seconds_to_tick(recording) == inf
    first = recording.budget.reserve(1, expires_in=10)
    assert (recording.looked_after, seconds_to_tick(recording)) == (1, 10)
    recording.now += 1
    recording.budget.reserve(1, expires_in=10)
    first.settle(1)
    assert recording.looked_after == 1
    assert seconds_to_tick(recording) == 10  # the first has ended
    recording.budget.reserve(1, expires_in=2)
    assert (recording.looked_after, seconds_to_tick(recording)) == (2, 2)


def test_holds_that_have_ended_are_not_kept() -> None:
    recording = RecordingBudget("plain", 10)
    open_hold = recording.budget.reserve(1)
    for _ in range(100 * MAX_ENDED):
        recording.budget.reserve(1).settle(0)
    assert len(recording.budget._holds) <= 2 * MAX_ENDED + 2
    open_hold.settle(0)


def test_holds_expire_in_the_order_of_their_times() -> None:
    expiries = Expiries()
    holds = [OpenHold(number, lambda units, used: None) for number in range(4)]
    for hold, at in zip(holds, (4.0, 2.0, 2.0, 9.0), strict=True):
        expiries.add(hold, at)
    holds[1].end()
    expiries.settled()
    assert expiries.next_at() == 2.0
    assert [expiries.take_due(5.0), expiries.take_due(5.0), expiries.take_due(5.0)] == [holds[2], holds[0], None]
    assert expiries.next_at() == 9.0


def test_child_of_a_fork_has_no_holds_that_expire() -> None:
    recording = RecordingBudget("plain", 10)
    recording.budget.reserve(4, expires_in=1)
    with recording.lock:
        recording.budget.after_fork(recording.budget._periods._site_id)
    recording.now += 1
    tick(recording)
    assert recording.expired == 0


def test_hold_ends_once_wherever_a_handler_settles_it(kind: str) -> None:
    for point in points():
        recording, settled = RecordingBudget(kind, 10), list[bool]()
        hold = recording.budget.reserve(5, expires_in=1)
        recording.now += 1

        def handler(recording: RecordingBudget = recording, hold: Hold = hold, settled: list[bool] = settled) -> None:
            recording.now -= 1  # when it was called
            try:
                hold.settle(2)
                settled.append(True)
            except HoldExpired:
                settled.append(False)
            recording.now += 1

        if not run_until(partial(tick, recording), point, handler):
            break
        tick(recording)
        assert used(recording) == (2 if settled[0] else 5, 0), point
        assert recording.expired == (0 if settled[0] else 1)
