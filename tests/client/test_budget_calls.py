"""Async twins, budgets that are spent together, and limits on what runs at the same time."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import inf
from threading import Event

import pytest

from countless.client.budgets.group import BudgetGroup
from countless.client.budgets.requests import Waiter
from countless.client.client import Client, connect
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.messages import BudgetId
from countless.errors import AboveLimit, InvalidParameter, LimitExceeded, Starved, UnknownBudget
from countless.wire.budgets import BudgetRejected, SetBudgetRule
from support.interrupts import interrupt, is_free, points, run_until
from support.local_budgets import TOKENS, ConnectedProcesses, Process, RecordingBudget
from support.local_counters import together
from support.service import TIMEOUT_S
from support.waiting import eventually

RULE = SetBudgetRule(TOKENS, 10, None, "UTC", None, 0.01, "spending", "charge", "refuse")


def refused(recording: RecordingBudget) -> RecordingBudget:
    recording.receive(RULE)
    recording.refuse(11, keep=True)
    return recording


def test_request_above_the_limit_is_an_error_and_changes_nothing() -> None:
    recording = refused(RecordingBudget("plain", 10))
    other = refused(RecordingBudget("plain", 10))
    group = BudgetGroup((recording.budget, other.budget), recording.lock)
    for request in (recording.budget.take, recording.budget.reserve, recording.budget.acquire, group.take):
        with pytest.raises(AboveLimit, match="n must be an integer from 1 to 10, the limit of budget 'tokens'"):
            request(11)
    assert recording.budget.take(10)
    assert other.budget.remaining == 10


def test_request_above_a_limit_that_was_not_known_is_an_error_when_the_answer_arrives() -> None:
    recording = RecordingBudget("plain", 0)
    with ThreadPoolExecutor(1) as pool:
        decision = pool.submit(recording.budget.take, 11, wait=TIMEOUT_S)
        assert recording.waited.wait(TIMEOUT_S)
        refused(recording)
        with pytest.raises(AboveLimit):
            decision.result()


def test_request_may_wait_for_ever() -> None:
    recording = RecordingBudget("plain", 0)
    with ThreadPoolExecutor(1) as pool:
        decision = pool.submit(recording.budget.take, 2, wait=inf)
        assert recording.waited.wait(TIMEOUT_S)
        recording.lend(2)
        assert decision.result()


# asyncio


async def test_atake_within_the_limit_does_not_wait() -> None:
    recording = RecordingBudget("plain", 10)
    assert await recording.budget.atake()
    assert await recording.budget.atake()
    assert await recording.budget.atake(8)
    assert (await recording.budget.atake(wait=0)).reason is Reason.STARVED


async def test_thousand_tasks_wait_for_the_coordinator_without_a_thread_each() -> None:
    recording = RecordingBudget("plain", 0)
    threads = threading.active_count()
    tasks = [asyncio.create_task(recording.budget.atake(1 + number % 3, wait=TIMEOUT_S)) for number in range(1000)]
    await eventually(lambda: recording.sent)
    assert threading.active_count() == threads
    await asyncio.to_thread(recording.lend, 5000)
    assert all(await asyncio.gather(*tasks))
    assert recording.recall().spent == sum(1 + number % 3 for number in range(1000))


async def test_cancelled_request_is_withdrawn() -> None:
    recording = RecordingBudget("plain", 0)
    task = asyncio.create_task(recording.budget.atake(5, wait=TIMEOUT_S))
    await eventually(lambda: recording.sent)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    recording.lend(10)
    ask = recording.recall()
    assert (ask.want, ask.spent) == (0, 0)


async def test_reservation_that_is_allowed_and_cancelled_returns_its_units() -> None:
    recording = RecordingBudget("plain", 0)

    async def reserve() -> None:
        await recording.budget.areserve(5, wait=TIMEOUT_S)

    task = asyncio.create_task(reserve())
    await eventually(lambda: recording.sent)
    recording.lend(10)
    assert recording.budget.remaining == 5
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert recording.budget.remaining == 10


async def test_areserve_settles_what_was_used_and_an_exception_settles_nothing() -> None:
    recording = RecordingBudget("plain", 10)
    async with recording.budget.areserve(6) as hold:
        hold.settle(2)
    with pytest.raises(RuntimeError):
        async with recording.budget.areserve(6):
            raise RuntimeError
    hold = await recording.budget.areserve(3)
    ask = recording.recall()
    assert (ask.spent, ask.held, hold.units) == (2, 3, 3)


async def test_areserve_raises_why_it_was_refused() -> None:
    recording = RecordingBudget("plain", 0)
    with pytest.raises(Starved):
        await recording.budget.areserve(6, wait=0)
    with pytest.raises(InvalidParameter, match="wait must be"):
        await recording.budget.areserve(6, wait=-1)
    recording.refuse(6)
    with pytest.raises(LimitExceeded):
        async with recording.budget.areserve(6, wait=TIMEOUT_S):
            pass


async def test_atake_of_an_unknown_budget_raises() -> None:
    recording = RecordingBudget("plain", 0)
    task = asyncio.create_task(recording.budget.atake(wait=TIMEOUT_S))
    await eventually(lambda: recording.sent)
    await asyncio.to_thread(recording.receive, BudgetRejected(TOKENS, "there is none"))
    with pytest.raises(UnknownBudget, match="there is none"):
        await task


# Together


def group(process: Process) -> BudgetGroup:
    return BudgetGroup(tuple(process.budgets.values()), process.lock)


def granted(**limits: int) -> Process:
    """A process that was granted these units, and whose messages are lost."""
    process = Process(0, list(limits), lambda site_id, ask: None)
    for name, limit in limits.items():
        process.receive(process.quotas.lend(BudgetId(name), limit))
    return process


def remaining(process: Process) -> list[int]:
    return [budget.remaining for budget in process.budgets.values()]


def test_budgets_together_admit_all_or_nothing() -> None:
    process = granted(key=10, team=5, org=20)
    assert group(process).take(5)
    assert remaining(process) == [5, 0, 15]
    assert group(process).take(1, wait=0).reason is Reason.STARVED
    assert remaining(process) == [5, 0, 15]


def test_budgets_together_are_held_and_settled_together() -> None:
    process = granted(key=10, org=20)
    with group(process).reserve(6) as hold:
        assert remaining(process) == [4, 14]
        hold.settle(2)
    assert remaining(process) == [8, 18]
    with pytest.raises(RuntimeError), group(process).reserve(6):
        raise RuntimeError
    assert remaining(process) == [8, 18]
    with group(process).acquire(8):
        assert remaining(process) == [0, 10]
    assert remaining(process) == [8, 18]


def test_budgets_together_are_not_spent_if_one_limits_what_runs_at_the_same_time() -> None:
    process = granted(key=10, slots=20)
    process.receive(SetBudgetRule(BudgetId("slots"), 20, None, "UTC", None, 0, "in_flight", "charge", "refuse"))
    for amount in (1, 4):
        with pytest.raises(InvalidParameter, match="use acquire"):
            group(process).take(amount)
    assert remaining(process) == [10, 20]
    with group(process).reserve(4):
        assert remaining(process) == [6, 16]
    assert remaining(process) == [6, 20]


def test_refusal_of_one_budget_names_it_and_changes_no_other() -> None:
    process = granted(key=10, team=5)
    process.receive(process.quotas.refuse(BudgetId("team"), 6, keep=True))
    assert group(process).take(6).reason is Reason.EXHAUSTED
    with pytest.raises(LimitExceeded, match="'team' has fewer than 6 units left"):
        group(process).reserve(6)
    assert remaining(process) == [10, 5]


def test_budgets_together_that_have_too_few_units_ask_at_the_same_time() -> None:
    world = ConnectedProcesses(1, key=10, team=10, org=10)
    process = world.processes[0]
    assert not group(process).take(2, wait=0)
    world.deliver()
    assert group(process).take(2, wait=0)


def test_unknown_budget_undoes_the_others() -> None:
    process = granted(key=10, team=0)
    request = group(process)._request(3, hold=True)
    assert request.attempt() is None
    process.budgets["key"].take(10)
    process.receive(process.quotas.lend(BudgetId("key"), 13))
    with process.lock:
        process.budgets["team"].receive(BudgetRejected(BudgetId("team"), "gone"))
    with pytest.raises(UnknownBudget, match="gone"):
        request.ask()
    assert remaining(process) == [3, 0]


async def test_budgets_together_wait_without_blocking_the_event_loop() -> None:
    world = ConnectedProcesses(1, key=10, team=10)
    waiting = asyncio.create_task(group(world.processes[0]).atake(7, wait=TIMEOUT_S))
    for _ in range(3):
        await asyncio.sleep(0)
        await asyncio.to_thread(world.deliver)
    assert await waiting


@pytest.fixture
def client() -> Client:
    return connect("http://127.0.0.1:9")


def test_together_takes_different_budgets_of_the_client(client: Client) -> None:
    key, team, foreign = client.budget("key"), client.budget("team"), connect("http://127.0.0.1:9").budget("key")
    assert repr(client.together(key, team)) == "<BudgetGroup of 'key', 'team'>"
    for budgets in ((), (key, key), (key, foreign), ("key",), ([key, team],), (None,)):
        with pytest.raises(InvalidParameter, match="budgets must be"):
            client.together(*budgets)


def test_threads_of_two_processes_spend_budgets_together_exactly(frequent_switches: None) -> None:
    """The smallest limit decides, and no budget is charged for what another one has refused."""
    world, admitted, ended = ConnectedProcesses(2, key=3_000, team=2_000, org=9_999), [0] * 4, [Event() for _ in "1234"]

    def spend(thread: int) -> Callable[[], None]:
        def job() -> None:
            try:
                while group(world.processes[thread % 2]).take(1 + thread % 2, wait=TIMEOUT_S):
                    admitted[thread] += 1 + thread % 2
            finally:
                ended[thread].set()

        return job

    together(*[spend(thread) for thread in range(4)], partial(world.deliver_until, ended))
    assert 1_999 <= sum(admitted) <= 2_000
    for process in world.processes:
        with process.lock:
            for budget in process.budgets.values():
                budget.end()
    for name in world.coordinators:
        handed_in = [leave.spent for process in world.processes for leave in process.budgets[name].hand_ins()]
        assert sum(handed_in) == sum(admitted)


def test_group_request_interrupted_anywhere_admits_no_unit_twice() -> None:
    for point in points():
        process, decisions = granted(key=10, team=10), list[Decision]()
        job = partial(_take_into, decisions, group(process))
        if not run_until(job, point, interrupt):
            break
        assert is_free(process.lock)
        assert all(room <= 10 - 3 * len(decisions) for room in remaining(process))
    assert point > 10


def _take_into(decisions: list[Decision], budgets: BudgetGroup) -> None:
    decisions.append(budgets.take(3))


# What runs at the same time


def test_acquire_waits_until_another_process_releases(frequent_switches: None) -> None:
    world, ended = ConnectedProcesses(3, exports=2), [Event() for _ in "123"]
    running, most = [0], [0]
    counting = threading.Lock()

    def export(process: Process, ended: Event) -> Callable[[], None]:
        def job() -> None:
            try:
                for _ in range(100):
                    with process.budgets["exports"].acquire(wait=TIMEOUT_S):
                        with counting:
                            running[0] += 1
                            most[0] = max(most[0], running[0])
                        with counting:
                            running[0] -= 1
            finally:
                ended.set()

        return job

    jobs = [export(process, event) for process, event in zip(world.processes, ended, strict=True)]
    together(*jobs, partial(world.deliver_until, ended))
    assert 1 <= most[0] <= 2


def test_acquire_beyond_the_time_is_refused() -> None:
    world = ConnectedProcesses(1, exports=2)
    slots = world.processes[0].budgets["exports"]
    with pytest.raises(Starved):
        slots.acquire(2, wait=0)
    world.deliver()
    slot = slots.acquire(2, wait=0)
    with pytest.raises(Starved):
        slots.acquire(wait=0)
    world.deliver()
    with pytest.raises(LimitExceeded):
        slots.acquire(wait=0)
    slot.release()
    slot.release()
    with pytest.raises(Starved):
        slots.acquire(2, wait=0)
    world.deliver()
    with slots.acquire(2, wait=0):
        pass


def test_units_of_a_request_that_waits_for_another_budget_stay_until_it_is_decided() -> None:
    world, ended = ConnectedProcesses(2, key=1, team=1), list[str]()
    process, other = world.processes
    assert other.budgets["team"].take(wait=0).reason is Reason.STARVED
    world.deliver()
    slot = other.budgets["team"].acquire(wait=0)
    request = group(process)._request(1, hold=False)
    request.start_waiting(Waiter(request, partial(ended.append, "ended")))
    world.deliver()
    assert (ended, remaining(process)) == (["ended"], [0, 0])  # the team has refused, and the unit of the key is back
    slot.release()
    world.deliver()
    assert world.coordinators["key"].usage.upper == 0
    assert not group(process).take(1, wait=0)
    world.deliver()
    assert group(process).take(1, wait=0)


async def test_aacquire_returns_the_units() -> None:
    recording = RecordingBudget("plain", 2)
    async with recording.budget.aacquire(2):
        assert recording.budget.remaining == 0
    (await recording.budget.aacquire()).release()
    ask = recording.recall()
    assert (ask.spent, ask.held) == (0, 0)
