"""`SiteSession` with a budget that has periods: the session looks after their ends."""

from collections.abc import Sequence
from threading import RLock

import pytest

from countless.client.budgets.budget import BudgetLink, BudgetPart
from countless.client.session.protocol import LINGER_S, SiteSession
from countless.client.surroundings import ClientSurroundings
from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.messages import SiteId
from countless.wire.budgets import BudgetLeave, BudgetLeaveAck, BudgetRejected, SetBudgetRule
from countless.wire.frames import DownItem, HelloAck, Sync, SyncAck, UpItem, decode_up, encode_frames
from support.local_budgets import Told, told

SITE_ID = SiteId("here", 1)
HEARTBEAT_S = 10.0
MINUTE = 30_000_000  # by its number
RULE = SetBudgetRule(BudgetId("tokens"), 100, "minute", "UTC", None, 0.01, "spending", "charge", "refuse")


def tokens(period: int) -> BudgetId:
    return BudgetId("tokens", period)


def lent(budget: BudgetId, granted: int) -> Quota:
    return Quota(budget, since=1, number=1, granted=granted, keep=True)


class Stream:
    """A session with one budget, on a stream that the test answers. The wall clock may jump."""

    def __init__(self) -> None:
        self.time = 0.0
        self.jump = 0.0  # of the wall clock
        self.sent: list[UpItem] = []
        lock = RLock()
        self.session = SiteSession(SITE_ID, lock, lambda: None, ClientSurroundings(lambda: self.time))
        link = BudgetLink(
            self._queue, lambda: True, lambda number: None, clock=lambda: MINUTE * 60 + self.time + self.jump
        )
        self.budget = BudgetPart("tokens", SITE_ID, lock, link)
        self.session.budgets.add("tokens", self.budget)
        self.connect()

    def _queue(self, name: str, items: Sequence[Ask | BudgetLeave]) -> None:
        self.session.budgets.queue(items)

    def connect(self) -> None:
        self._steps = self.session.run(lambda frame: self.sent.extend(decode_up(frame)), lambda: None)
        next(self._steps)
        self.receive(HelloAck(1, int(HEARTBEAT_S * 1000)))

    def receive(self, *items: DownItem) -> None:
        self.timeout = self._steps.send(list(encode_frames(items)))

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.timeout = self._steps.send([])

    def wait_until(self, time: float) -> None:
        """As the owner of the sockets does; the coordinator acknowledges every heartbeat."""
        while self.time + self.timeout <= time:
            self.wait(max(self.timeout, 0.001))  # a real clock goes on
            if self.sent and isinstance(self.sent[-1], Sync):
                self.receive(SyncAck(0))
        self.wait(time - self.time)

    def take_sent(self) -> list[Told | BudgetLeave]:
        sent, self.sent = self.sent, []
        return told(item for item in sent if isinstance(item, Ask | BudgetLeave))


@pytest.fixture
def stream() -> Stream:
    """A site that was granted units of this minute, and has used some."""
    stream = Stream()
    assert stream.timeout == HEARTBEAT_S
    stream.budget.take(3, wait=0)
    stream.wait(LINGER_S)
    assert stream.take_sent() == [Told(tokens(0), 1, 0, 0, 0, 3)]
    stream.receive(RULE)
    stream.budget.take(3, wait=0)
    stream.wait(LINGER_S)
    stream.receive(lent(tokens(MINUTE), 10))
    assert stream.budget.take(3)
    stream.take_sent()
    return stream


def test_units_of_the_next_period_are_asked_for_before_it_begins(stream: Stream) -> None:
    stream.wait_until(19.9)
    assert stream.take_sent() == []
    stream.wait_until(40.1)
    assert stream.take_sent() == [Told(tokens(MINUTE + 1), 2, 0, 0, 0, 1)]
    stream.receive(lent(tokens(MINUTE + 1), 20))
    stream.wait_until(61)
    assert stream.budget.remaining == 20
    assert stream.take_sent() == []


def test_period_before_the_last_one_is_handed_in_once(stream: Stream) -> None:
    stream.wait_until(130)
    assert stream.take_sent()[-1] == BudgetLeave(tokens(MINUTE), 1, 3)
    stream.connect()
    assert BudgetLeave(tokens(MINUTE), 1, 3) in stream.take_sent()
    stream.receive(BudgetLeaveAck(tokens(MINUTE), 1))
    stream.connect()
    assert not [item for item in stream.take_sent() if isinstance(item, BudgetLeave)]


def test_ask_that_was_not_sent_is_replaced_by_what_is_handed_in(stream: Stream) -> None:
    stream.wait_until(50)
    stream.take_sent()
    for _ in range(3):
        stream.budget.take(50, wait=0)
        stream.jump += 60
    stream.wait(LINGER_S)
    found = [(type(item), item.budget.period - MINUTE) for item in stream.take_sent()]
    assert found == [(BudgetLeave, 0), (Told, 2)]  # the next period was asked for before it began


def rejected_with_an_ask_under_way() -> tuple[Stream, Quota]:
    """The coordinator deletes the budget, creates it again, and then receives the Ask. Its answer."""
    stream = Stream()
    stream.budget.take(1, wait=0)
    stream.wait(LINGER_S)
    stream.receive(Quota(tokens(0), since=1, number=1, granted=1))
    assert stream.budget.take(1, wait=0)
    stream.budget.take(2, wait=0)
    stream.wait(LINGER_S)
    assert stream.take_sent() == [Told(tokens(0), 1, 0, 0, 0, 1), Told(tokens(0), 2, 1, 0, 1, 2)]
    return stream, Quota(tokens(0), since=2, number=1, granted=0)


def test_site_leaves_a_budget_that_it_has_forgotten() -> None:
    stream, answer = rejected_with_an_ask_under_way()
    stream.receive(BudgetRejected(tokens(0), "deleted"))
    stream.receive(answer)
    assert stream.budget.take(2, wait=0).reason == "starved"
    stream.wait(1)
    assert stream.take_sent() == [  # first it leaves: then it is a new holder
        BudgetLeave(tokens(0), 1, 0),
        Told(tokens(0), 3, 0, 0, 0, 2),
    ]


def test_site_goes_on_in_the_membership_that_began_before_it_knew_of_the_rejection() -> None:
    stream, answer = rejected_with_an_ask_under_way()
    stream.receive(BudgetRejected(tokens(0), "deleted"), answer)
    assert stream.budget.take(2, wait=0).reason == "starved"
    stream.wait(1)
    [ask] = [item for item in stream.sent if isinstance(item, Ask)]
    assert (ask.seq, ask.since, ask.number, ask.want) == (3, 2, 1, 2)
