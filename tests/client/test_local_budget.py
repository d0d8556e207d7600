"""The part of a budget that a process may spend: many threads, signal handlers, and messages of the coordinator."""

from collections.abc import Callable
from functools import partial
from math import inf
from threading import Event, RLock, Thread

import pytest

from countless.client.budgets.budget import LINGER_S, BudgetLink, BudgetPart, BudgetRequest
from countless.client.budgets.requests import Waiter
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.hold import Hold
from countless.core.budget.messages import Ask, Quota
from countless.core.messages import SiteId
from countless.errors import InvalidParameter
from countless.wire.budgets import BudgetRejected
from support.interrupts import interrupt, is_free, points, run_until
from support.local_budgets import TOKENS, ConnectedProcesses, RecordingBudget
from support.local_counters import together
from support.service import TIMEOUT_S, until


def _limit(ask: Ask) -> int:
    return ask.granted - ask.returned


def test_units_are_taken_one_by_one_up_to_the_limit(kind: str) -> None:
    recording = RecordingBudget(kind, 1000)
    taken = 0
    while recording.budget.take(wait=0):
        taken += 1
        assert recording.budget.remaining == 1000 - taken
        assert recording.saved in (None, taken)
    assert taken == 1000
    assert [(ask.spent, ask.want) for ask in recording.sent] == [(901, 0), (1000, 1)]  # early, and for the last


def test_units_set_aside_are_there_for_larger_requests(kind: str) -> None:
    recording = RecordingBudget(kind, 10)
    assert recording.budget.take()
    assert recording.budget.take(9)
    assert recording.budget.remaining == 0


def test_repr_shows_what_was_taken(kind: str) -> None:
    recording = RecordingBudget(kind, 100)
    for _ in range(3):
        recording.budget.take()
    recording.budget.reserve(10)
    recording.budget.take()
    assert repr(recording.budget) == "<BudgetPart 'tokens': 4 spent, 10 held, 86 remaining>"


def test_waiting_request_is_served_before_a_recall_that_follows_its_grant(kind: str) -> None:
    recording, decisions = RecordingBudget(kind, 0), list[Decision]()
    thread = Thread(target=lambda: decisions.append(recording.budget.take(wait=TIMEOUT_S)), daemon=True)
    thread.start()
    assert recording.waited.wait(TIMEOUT_S)
    with recording.lock:
        recording.lend(1)
        assert recording.recall().spent == 1
    thread.join(TIMEOUT_S)
    assert decisions == [Decision(Reason.ALLOWED)]


@pytest.mark.parametrize("n", [0, -1, 1.0, "1", None, True])
def test_invalid_amount_changes_nothing(kind: str, n: int) -> None:
    recording = RecordingBudget(kind, 10)
    recording.budget.take()
    for request in (recording.budget.take, recording.budget.reserve):
        with pytest.raises(InvalidParameter, match="n must be"):
            request(n)
    assert (recording.budget.remaining, recording.sent) == (9, [])


@pytest.mark.parametrize("wait", [-1, float("nan"), None, "1"])
def test_invalid_wait_changes_nothing(kind: str, wait: float) -> None:
    recording = RecordingBudget(kind, 10)
    recording.budget.take()
    for request in (partial(recording.budget.take, 1), partial(recording.budget.take, 2)):
        with pytest.raises(InvalidParameter, match="wait must be"):
            request(wait=wait)
    assert recording.budget.remaining == 9


@pytest.mark.parametrize("used", [-1, 6, 1.5])
def test_invalid_settlement_leaves_the_hold_open(kind: str, used: int) -> None:
    recording = RecordingBudget(kind, 10)
    hold = recording.budget.reserve(5)
    with pytest.raises(InvalidParameter, match="used must be"):
        hold.settle(used)
    hold.settle(2)
    assert recording.budget.remaining == 8


def test_disabled_budget_allows_everything() -> None:
    link = BudgetLink(lambda name, asks: None, lambda: False, lambda number: None, disabled=True)
    budget = BudgetPart("tokens", SiteId("s"), RLock(), link)
    for n in (1, 2, 2**62, 1, 2**62):
        assert budget.take(n, wait=0)
        budget.reserve(n, wait=0).settle(n)


def test_units_that_a_hold_returns_after_exhausted_are_free_at_once(kind: str) -> None:
    recording = RecordingBudget(kind, 10)
    hold = recording.budget.reserve(10)
    recording.refuse(1, keep=True)
    assert recording.budget.take(1, wait=0).reason is Reason.EXHAUSTED
    hold.settle(4)
    assert recording.budget.take(6, wait=0)


def test_units_that_a_hold_returns_go_back_at_once_if_they_were_not_lent(kind: str) -> None:
    recording = RecordingBudget(kind, 10)
    hold = recording.budget.reserve(10)
    assert recording.budget.take(1, wait=0).reason is Reason.STARVED
    recording.refuse(1)
    recording.now += LINGER_S
    hold.settle(4)
    assert [(ask.spent, ask.held, ask.returned, ask.want) for ask in recording.sent] == [(0, 10, 0, 1), (4, 0, 6, 0)]


def test_request_that_comes_again_finds_what_was_granted_for_it(kind: str) -> None:
    recording = RecordingBudget(kind, 0)
    for _ in range(3):
        assert recording.budget.take(2, wait=0).reason is Reason.STARVED
    recording.grant(2)
    assert recording.budget.take(2, wait=0)
    assert [(ask.want, ask.more) for ask in recording.sent] == [(2, 0)]


def test_grant_for_a_request_that_does_not_come_again_goes_back_after_a_moment(kind: str) -> None:
    recording = RecordingBudget(kind, 0)
    assert recording.budget.take(2, wait=0).reason is Reason.STARVED
    assert recording.looked_after == 1
    recording.grant(2)
    with recording.lock:
        recording.now += recording.budget.seconds_to_tick()
        recording.budget.tick()
    assert [(ask.want, ask.returned) for ask in recording.sent] == [(2, 0), (0, 2)]
    assert recording.budget.seconds_to_tick() == inf


def test_requests_that_wait_are_asked_for_together_and_admitted_in_order(kind: str) -> None:
    recording, ended = RecordingBudget(kind, 0), list[int]()
    for n in (3, 1, 2):
        request = BudgetRequest(recording.budget, n, hold=False)
        request.start_waiting(Waiter(request, partial(ended.append, n)))
    recording.grant(3)
    assert ended == [3]
    assert [(ask.want, ask.more) for ask in recording.sent] == [(3, 0), (1, 2)]
    recording.grant(6)
    assert ended == [3, 1, 2]
    assert recording.budget.remaining == 0


def test_site_without_a_connection_keeps_what_it_was_granted(kind: str) -> None:
    recording = RecordingBudget(kind, 10)
    recording.connected = lambda: False
    assert recording.budget.take(11, wait=0).reason is Reason.UNREACHABLE
    hold = recording.budget.reserve(5)
    hold.settle(1)
    assert recording.budget.take(9, wait=0)
    assert recording.sent == []
    assert recording.budget.take(1, wait=0).reason is Reason.UNREACHABLE
    recording.connected = lambda: True
    [ask] = recording.budget.resend()
    assert isinstance(ask, Ask)
    assert (ask.spent, ask.held, ask.want, ask.more) == (10, 0, 11, 1)


def test_answer_to_an_ask_that_was_under_way_counts_after_a_rejection(kind: str) -> None:
    """The budget was deleted, and made again before the second Ask arrived."""
    recording = RecordingBudget(kind, 0)
    assert recording.budget.take(2, wait=0).reason is Reason.STARVED
    with recording.lock:
        [ask] = recording.budget.resend()
    assert isinstance(ask, Ask)
    recording.receive(BudgetRejected(TOKENS, "deleted"))
    recording.receive(Quota(TOKENS, since=ask.seq, number=1, granted=2))
    assert [(each.seq, each.since, each.returned) for each in recording.sent] == [(1, 0, 0), (3, 2, 2)]


def test_budget_that_was_made_again_starts_from_nothing_and_decides_what_waits(kind: str) -> None:
    recording, ended = RecordingBudget(kind, 10), list[str]()
    hold = recording.budget.reserve(4)
    request = BudgetRequest(recording.budget, 7, hold=False)
    request.start_waiting(Waiter(request, partial(ended.append, "ended")))
    [ask] = recording.sent
    recording.receive(recording.quotas.begin_again(TOKENS, ask.seq))
    assert recording.sent[1:] == [Ask(TOKENS, ask.seq + 1, ask.seq, 1, 0, 0, 0, 0, 7)]
    assert recording.saved in (None, 0)
    recording.grant(7)
    hold.settle(0)  # of the budget that was deleted
    assert (ended, recording.budget.remaining) == (["ended"], 0)


# Threads


def test_eight_threads_of_three_processes_admit_exactly_the_limit(kind: str, frequent_switches: None) -> None:
    """With recalls while the threads take units."""
    world, admitted, ended = ConnectedProcesses(3, tokens=100_000), [0] * 8, [Event() for _ in range(8)]

    def spend(thread: int) -> Callable[[], None]:
        def job() -> None:
            budget, weight = world.processes[thread % 3].budgets["tokens"], 1 if thread < 6 else 7
            try:
                while budget.take(weight, wait=TIMEOUT_S):
                    admitted[thread] += weight
            finally:
                ended[thread].set()

        return job

    together(*[spend(thread) for thread in range(8)], partial(world.deliver_until, ended))
    assert sum(admitted) == 100_000


def test_recall_among_threads_returns_no_unit_that_was_admitted(kind: str, frequent_switches: None) -> None:
    recording, admitted, stopped = RecordingBudget(kind, 0), [0] * 4, Event()

    def spend(thread: int) -> Callable[[], None]:
        def job() -> None:
            while not stopped.is_set():
                if recording.budget.take(1, wait=0):
                    admitted[thread] += 1

        return job

    def coordinate() -> None:
        try:
            for _ in range(300):
                with recording.lock:
                    ask = recording.recall()
                    spent = ask.spent
                    recording.lend(ask.granted + 100)
                assert spent <= sum(admitted) + 4  # a thread that was admitted may not have counted it yet
        finally:
            stopped.set()

    together(*[spend(thread) for thread in range(4)], coordinate)
    assert recording.saved in (None, sum(admitted))
    assert recording.recall().spent == sum(admitted)


def test_end_among_threads_hands_in_every_admitted_unit(kind: str, frequent_switches: None) -> None:
    recording, admitted = RecordingBudget(kind, 10**12), [0] * 4

    def spend(thread: int) -> Callable[[], None]:
        def job() -> None:
            while recording.budget.take(1, wait=0):
                admitted[thread] += 1

        return job

    def end() -> None:
        until(lambda: sum(admitted) >= 5_000, "units taken")
        with recording.lock:
            recording.budget.end()

    together(*[spend(thread) for thread in range(4)], end)
    assert [leave.spent for leave in recording.budget.hand_ins()] in ([sum(admitted)], [])


# Interrupted anywhere


@pytest.mark.parametrize("n", [1, 3])
def test_request_interrupted_by_a_recall_of_another_thread_is_admitted_only_if_reported(kind: str, n: int) -> None:
    for point in points():
        recording, replies = RecordingBudget(kind, 10), list[int]()
        recording.budget.take()
        admitted = 1

        def recall(recording: RecordingBudget = recording, replies: list[int] = replies) -> None:
            if is_free(recording.lock):  # another thread would wait
                replies.append(_limit(recording.recall()))

        decisions: list[Decision] = []
        job = partial(_take_into, decisions, recording.budget, n)
        if not run_until(job, point, recall):
            break
        admitted += n * sum(map(bool, decisions))
        assert not replies or replies == [admitted]
        assert recording.recall().spent == admitted
    assert point > 3


def _take_into(decisions: list[Decision], budget: BudgetPart, n: int) -> None:
    decisions.append(budget.take(n, wait=0))


ACTIONS: dict[str, Callable[[RecordingBudget, Hold], object]] = {
    "take(1)": lambda recording, hold: recording.budget.take(1, wait=0),
    "take(3)": lambda recording, hold: recording.budget.take(3, wait=0),
    "settle": lambda recording, hold: hold.settle(1),
    "grant": lambda recording, hold: recording.lend(40),
    "recall": lambda recording, hold: recording.recall(),
    "resend": lambda recording, hold: recording.budget.resend(),
}


def _count_admitted(admitted: list[int], action: str, recording: RecordingBudget, hold: Hold) -> None:
    result = ACTIONS[action](recording, hold)
    if action.startswith("take") and result:
        admitted.append(int(action[5]))


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("nested", ["take(1)", "take(3)", "settle"])
def test_signal_handler_anywhere_in_an_action_leaves_exact_sums(kind: str, action: str, nested: str) -> None:
    for point in points():
        recording = RecordingBudget(kind, 20)
        recording.budget.take()
        holds = recording.budget.reserve(2), recording.budget.reserve(2)
        recording.budget.take()
        admitted = [2]
        job, handler = (
            partial(_count_admitted, admitted, name, recording, hold)
            for name, hold in zip((action, nested), holds, strict=True)
        )
        if not run_until(job, point, handler):
            break
        settled = (action, nested).count("settle")
        assert recording.saved in (None, sum(admitted) + settled + 4 - 2 * settled)
        ask = recording.recall()
        assert (ask.spent, ask.held) == (sum(admitted) + settled, 4 - 2 * settled)
        assert _limit(ask) == ask.spent + ask.held <= 40
        assert is_free(recording.lock)
    assert point > 3


@pytest.mark.parametrize("action", ACTIONS)
def test_interrupted_action_leaves_lock_and_budget_usable_and_admits_no_unit_twice(kind: str, action: str) -> None:
    for point in points():
        recording = RecordingBudget(kind, 20)
        recording.budget.take()
        hold = recording.budget.reserve(2)
        recording.budget.take()
        admitted = [2]
        if not run_until(partial(_count_admitted, admitted, action, recording, hold), point, interrupt):
            break
        assert is_free(recording.lock)
        assert recording.saved is None or sum(admitted) <= recording.saved <= 20
        ask = recording.recall()
        assert recording.saved is None or ask.spent <= recording.saved <= _limit(ask)
        assert sum(admitted) <= ask.spent <= ask.spent + ask.held <= 20
        recording.lend(ask.granted + 1)
        assert recording.budget.take(1, wait=0)
        while recording.budget.take(1, wait=0):  # the units that the settlement returned
            pass
        assert _limit(recording.recall()) == _limit(ask) + 1
    assert point > 3


def test_waiting_request_is_admitted_once_if_a_handler_returns_units_meanwhile(kind: str) -> None:
    for point in points():
        recording, ended = RecordingBudget(kind, 4), list[str]()
        hold = recording.budget.reserve(4)
        request = BudgetRequest(recording.budget, 3, hold=False)
        request.start_waiting(Waiter(request, partial(ended.append, "ended")))
        if not run_until(partial(recording.lend, 8), point, partial(hold.settle, 0)):
            break
        assert ended == ["ended"]
        ask = recording.recall()
        assert (ask.spent, ask.held) == (3, 0)
    assert point > 3


@pytest.mark.parametrize("kind", ["durable", "locked"], indirect=True)
@pytest.mark.parametrize("action", ACTIONS)
def test_process_killed_anywhere_has_saved_what_it_admitted_and_no_more_than_the_coordinator_may_know(
    kind: str, action: str
) -> None:
    """Read the file at every point, as the next process would."""
    for point in points():
        recording, saved = RecordingBudget(kind, 20), list[int | None]()
        recording.budget.take()
        hold = recording.budget.reserve(2)
        recording.budget.take()
        admitted = [2]
        job = partial(_count_admitted, admitted, action, recording, hold)
        if not run_until(job, point, lambda recording=recording, saved=saved: saved.append(recording.saved)):  # type: ignore[misc]
            break
        low, high = sorted((4, 3 if action == "settle" else 2 + sum(admitted)))
        assert saved[0] is not None
        assert low <= saved[0] <= high
    assert point > 3


def test_settlement_that_is_interrupted_is_not_repeated(kind: str) -> None:
    """Otherwise it would free the units of another hold."""
    for point in points():
        recording = RecordingBudget(kind, 10)
        other = recording.budget.reserve(5)

        def job(recording: RecordingBudget = recording) -> None:
            with recording.budget.reserve(5) as hold:
                hold.settle(3)

        if not run_until(job, point, interrupt):
            break
        ask = recording.recall()
        assert recording.saved is None or ask.spent <= recording.saved <= _limit(ask)
        assert ask.held >= other.units
        assert _limit(ask) <= 10
    assert point > 3
