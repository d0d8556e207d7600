"""`SiteSession` with a clock that is a number and a stream that is a list."""

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from math import prod
from threading import RLock
from time import time

import pytest

from countless.client.kinds.counter import CounterMember
from countless.client.local_counter import LocalCounter
from countless.client.session.protocol import HELLO_TIMEOUT_S, Origin, SessionRetired, SiteSession, new_incarnation
from countless.client.surroundings import ClientSurroundings
from countless.client.transport.base import ConnectionLost
from countless.core.budget.messages import BudgetId, Quota
from countless.core.messages import Report, SiteId, Snapshot
from countless.core.site import Site
from countless.errors import ProtocolError
from countless.randomness import SeededRandom, SystemRandom
from countless.wire.budgets import BudgetLeave
from countless.wire.frames import (
    VERSION,
    CounterRejected,
    DownItem,
    Hello,
    HelloAck,
    IncarnationExpired,
    IncarnationRetired,
    Inherited,
    Join,
    KnownCounts,
    Leave,
    LeaveAck,
    Rejoin,
    Sync,
    SyncAck,
    UpItem,
    decode_up,
    encode_frames,
)
from countless.wire.incarnations import MAX_INCARNATION, first_of, second_of
from countless.wire.keys import COUNTER, Key

SITE_ID = SiteId("here", 1)
HITS = Key(COUNTER, "hits")
HEARTBEAT_S = 10.0


class Stream:
    """A session with one counter, on a stream that the test answers."""

    def __init__(self, origin: Origin = Origin.MEMORY) -> None:
        self.time = 0.0
        self.sent: list[UpItem] = []
        lock = RLock()
        self.session = SiteSession(SITE_ID, lock, lambda: None, ClientSurroundings(lambda: self.time), origin=origin)
        site = Site("hits", SITE_ID, SeededRandom(1))
        self.counter = LocalCounter(site, lock, lambda site, messages: self.member.queue(messages))
        self.member = CounterMember(HITS, self.counter)
        self.session.add(self.member)
        self.connect()

    def connect(self) -> None:
        self._steps = self.session.run(lambda frame: self.sent.extend(decode_up(frame)), lambda: None)
        self.timeout = next(self._steps)

    def acknowledge_hello(self) -> None:
        self.receive(HelloAck(1, int(HEARTBEAT_S * 1000)))

    def expire(self, least: int) -> None:
        """The answer to a hello; it continues as another incarnation."""
        with pytest.raises(SessionRetired) as retired:
            self.receive(IncarnationExpired(least))
        self.session.renew(retired.value, lambda site_id: nullcontext())
        self.connect()
        self.acknowledge_hello()

    def receive(self, *items: DownItem) -> None:
        self.timeout = self._steps.send(list(encode_frames(items)))

    def wait(self, seconds: float) -> None:
        self.time += seconds
        self.timeout = self._steps.send([])

    def tally(self) -> dict[str, int]:
        return dict(Counter(type(item).__name__ for item in self.sent))


@pytest.fixture
def stream() -> Stream:
    """A session whose hello was acknowledged."""
    stream = Stream()
    stream.acknowledge_hello()
    stream.sent.clear()
    return stream


def test_idle_session_sends_a_sync_each_heartbeat(stream: Stream) -> None:
    for _ in range(5):
        assert stream.timeout == HEARTBEAT_S
        stream.wait(HEARTBEAT_S)
        stream.receive(SyncAck(0))
    assert stream.tally() == {"Sync": 5}


def test_session_that_reports_all_the_time_sends_a_sync_each_heartbeat_too(stream: Stream) -> None:
    syncs = 0
    for _ in range(100):  # ten heartbeats
        stream.counter.add()
        stream.wait(1.0)
        if stream.tally().get("Sync", 0) > syncs:
            syncs += 1
            stream.receive(SyncAck(0))  # all that the coordinator ever sends
    assert stream.tally()["Sync"] == syncs == 10


def test_coordinator_that_sends_nothing_for_three_heartbeats_has_timed_out(stream: Stream) -> None:
    for _ in range(30):
        stream.counter.add()
        stream.wait(1.0)
    assert stream.tally()["Sync"] == 3
    with pytest.raises(ConnectionLost, match=r"connection timed out: nothing received for 31\.0 s"):
        stream.wait(1.0)


def test_hello_without_an_answer_times_out() -> None:
    stream = Stream()
    assert stream.sent == [Hello(VERSION, "here", 1)]
    with pytest.raises(ConnectionLost, match="connection timed out: no answer to the hello"):
        stream.wait(HELLO_TIMEOUT_S)


def test_session_that_gets_its_first_work_notifies_the_loop_though_an_earlier_notification_is_pending() -> None:
    notified: list[str] = []
    session = SiteSession(SITE_ID, RLock(), lambda: notified.append("notified"))
    site = Site("hits", SITE_ID, SeededRandom(1))
    member = CounterMember(HITS, LocalCounter(site, RLock(), lambda site, messages: None))
    session.add(member)
    session.request_ack(1)  # nothing is due, so no stream is opened
    member.queue(())
    member.queue(())
    assert (session.has_work, notified) == (True, ["notified"] * 2)


def test_later_report_replaces_an_earlier_one_that_was_not_sent(stream: Stream) -> None:
    stream.counter.add()
    stream.wait(1.0)
    assert stream.sent == [Join("hits", 0, 1), Snapshot("hits", 0, 0), Report("hits", 0, 1, 1)]
    stream.sent.clear()
    for _ in range(5):
        stream.counter.add()
    stream.wait(1.0)
    assert stream.sent == [Report("hits", 0, 6, 6)]


def test_new_stream_starts_with_the_exact_count_and_all_unacknowledged_messages(stream: Stream) -> None:
    stream.counter.add(7)
    stream.connect()
    stream.sent.clear()
    stream.acknowledge_hello()
    assert stream.sent == [Join("hits", 0, 7), Snapshot("hits", 0, 0), Report("hits", 0, 7, 7), Sync(0)]


def test_counter_that_was_deleted_begins_again_from_zero(stream: Stream) -> None:
    stream.counter.add(7)
    stream.wait(1.0)
    stream.sent.clear()
    stream.receive(Rejoin("hits"))
    stream.wait(1.0)
    assert (stream.counter.count, stream.sent) == (0, [])
    stream.counter.add(2)
    stream.wait(1.0)
    assert stream.sent[0] == Join("hits", 0, 2)


def test_retired_incarnation_continues_with_the_events_that_are_not_known(stream: Stream) -> None:
    stream.counter.add(7)
    stream.connect()
    with pytest.raises(SessionRetired) as retired:
        stream.receive(IncarnationRetired((("hits", 4),)))
    assert retired.value.known.members == {HITS: 4}


def test_known_counts_of_a_retired_incarnation_may_come_in_parts(stream: Stream) -> None:
    stream.counter.add(7)
    stream.connect()
    stream.receive(KnownCounts((("hits", 4), ("misses", 2))))
    with pytest.raises(SessionRetired) as retired:
        stream.receive(IncarnationRetired((("errors", 1),)))
    assert {str(key): n for key, n in retired.value.known.members.items()} == {"hits": 4, "misses": 2, "errors": 1}


@pytest.mark.parametrize("draw", [lambda n: 0, lambda n: n - 1], ids=["least", "largest"])
def test_incarnation_has_46_bits_to_guess_and_stays_within_a_day(
    draw: Callable[[int], int],
) -> None:
    drawn: list[int] = []

    class Drawn(SystemRandom):
        def randbelow(self, n: int) -> int:
            drawn.append(n)
            return draw(n)

    def begun_at(now: float) -> int:
        return new_incarnation(ClientSurroundings(wall_clock=lambda: now, rng=Drawn()))

    assert 0 <= second_of(begun_at(1_700_000_000.5)) - 1_700_000_000 < 86_400
    assert prod(drawn) >= 2**46  # two drawings that differ give two numbers: see the next line
    assert begun_at(1_700_000_000.5) == first_of(1_700_000_000 + draw(drawn[0])) | draw(drawn[1])
    assert begun_at(1e15) <= MAX_INCARNATION


def test_incarnation_that_has_sent_nothing_expires_and_sends_everything_as_a_later_one(stream: Stream) -> None:
    stream.counter.add(7)
    stream.connect()
    least = first_of(int(time()) + 800 * 86_400)
    stream.expire(least)
    assert least <= stream.session.site_id.incarnation <= MAX_INCARNATION
    assert [item for item in stream.sent if isinstance(item, Join)] == [Join("hits", 0, 7)]


def test_expired_incarnation_sends_what_it_has_never_sent(stream: Stream) -> None:
    stream.acknowledge_hello()
    stream.counter.add(5)
    stream.wait(1.0)
    assert stream.sent[-1] == Report("hits", 0, 5, 5)
    stream.connect()
    stream.counter.add(2)  # is not sent before the coordinator answers
    stream.sent.clear()
    stream.expire(1)
    assert stream.counter.count == 2
    assert [item for item in stream.sent if isinstance(item, Join)] == [Join("hits", 0, 2)]
    stream.counter.add(1)
    stream.wait(1.0)
    stream.connect()
    stream.sent.clear()
    stream.expire(1)
    assert stream.counter.count == 0


def test_count_of_the_process_includes_what_it_delivered_before_it_was_given_up(stream: Stream) -> None:
    stream.counter.add(5)
    stream.wait(1.0)
    stream.connect()
    with pytest.raises(SessionRetired) as retired:
        stream.receive(IncarnationRetired((("hits", 3),)))
    stream.session.renew(retired.value, lambda site_id: nullcontext())
    stream.counter.add(1)
    assert (stream.counter.count, stream.counter.counted) == (3, 6)
    stream.counter.after_fork(SITE_ID)
    assert stream.counter.counted == 0


def test_rejected_counter_has_its_reason_until_the_next_stream(stream: Stream) -> None:
    stream.counter.add(5)
    stream.wait(1.0)
    stream.receive(CounterRejected("hits", "one of at most 2 (max_counters)"))
    assert stream.session.rejected == {"hits": "one of at most 2 (max_counters)"}
    stream.connect()
    stream.acknowledge_hello()
    assert stream.session.rejected == {}


def test_counts_that_another_process_left_do_not_expire() -> None:
    stream = Stream(Origin.INHERITED)
    stream.counter.add(5)
    stream.connect()
    with pytest.raises(ProtocolError, match="may be in the totals already"):
        stream.receive(IncarnationExpired(1))
    assert stream.session.undeliverable


def test_least_incarnation_that_does_not_exist_is_refused(stream: Stream) -> None:
    stream.connect()
    with pytest.raises(ProtocolError, match="no incarnation"):
        stream.receive(IncarnationExpired(MAX_INCARNATION))


def test_acknowledged_leave_is_not_believed_by_a_session_that_does_not_leave(stream: Stream) -> None:
    """Another process has left in its name, with a copy of what it keeps."""
    stream.counter.add(7)
    stream.wait(1.0)
    stream.receive(LeaveAck("hits"))
    stream.counter.add(1)
    stream.wait(1.0)
    assert Report("hits", 0, 8, 8) in stream.sent
    stream.counter.close()
    stream.session.leave()
    stream.wait(1.0)
    assert Leave("hits", 0, 8) in stream.sent


@pytest.mark.parametrize("origin", Origin)
def test_only_copies_of_a_file_continue_as_the_same_incarnation(origin: Origin) -> None:
    def renewed() -> int:
        stream = Stream(origin)
        with pytest.raises(SessionRetired) as retired:
            stream.receive(IncarnationRetired((("hits", 4),), first_of(77)))
        stream.session.renew(retired.value, lambda site_id: nullcontext())
        return stream.session.site_id.incarnation

    first, second = renewed(), renewed()
    assert (first == second) == (origin is not Origin.MEMORY)
    assert min(first, second) >= first_of(77)


def test_delivery_says_that_another_process_has_counted_and_gives_back_nothing_of_its_budgets() -> None:
    stream = Stream(Origin.INHERITED)
    stream.counter.add(7)
    stream.acknowledge_hello()
    assert stream.sent[1:3] == [Inherited(), Join("hits", 0, 7)]
    stream.receive(Quota(BudgetId("tokens"), since=1, number=3, granted=0, reply=True))
    stream.wait(1.0)
    assert not [item for item in stream.sent if isinstance(item, BudgetLeave)]


def test_session_is_done_when_the_leave_is_acknowledged(stream: Stream) -> None:
    stream.counter.add(7)
    stream.counter.close()
    stream.session.leave()
    stream.wait(1.0)
    assert stream.sent[-1] == Leave("hits", 0, 7)
    assert not stream.session.done
    with pytest.raises(StopIteration):
        stream.receive(LeaveAck("hits"))
    assert stream.session.delivered
