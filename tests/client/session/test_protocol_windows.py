"""Windows in a session: they are announced, finished and forgotten, on one stream after another."""

import logging
from contextlib import nullcontext

import pytest

from countless.client.kinds.counter import CounterMember
from countless.client.local_counter import LocalCounter
from countless.client.session.protocol import SessionRetired, SiteSession
from countless.client.surroundings import ClientSurroundings
from countless.client.ticks import MAX_TICK_S
from countless.core.messages import Report, SetTrigger, UpMessage
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.wire.frames import (
    CounterRejected,
    DownItem,
    HelloAck,
    IncarnationRetired,
    Join,
    Leave,
    LeaveAck,
    Rejoin,
    Sync,
    UpItem,
    decode_up,
    encode_frames,
)
from countless.wire.keys import Key
from support.local_windows import MINUTE, SITE_ID, RecordedWindows, name

ACCEPTED = HelloAck(1, 1_000_000)
THIS, NEXT, THIRD = name(MINUTE), name(MINUTE + 1), name(MINUTE + 2)


class WindowsSession(RecordedWindows):
    """A session with the windows of one counter, on a stream that the test answers."""

    def __init__(self, kind: str = "plain") -> None:
        super().__init__(kind, spread=0.5)
        self.items: list[UpItem] = []
        self.session = SiteSession(SITE_ID, self.lock, lambda: None, ClientSurroundings(lambda: self.monotonic))
        self.members: dict[Key, CounterMember] = {}
        self.session.add_windows(self.windows)
        self.connect()

    def _new(self, key: Key) -> LocalCounter:
        counter = super()._new(key)
        self.members[key] = CounterMember(key, counter)
        self.session.add(self.members[key])
        return counter

    def _deliver(self, key: Key, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.members[key].queue(messages)

    def connect(self, answer: DownItem = ACCEPTED) -> None:
        self._steps = self.session.run(self._send, lambda: None)
        next(self._steps)
        self.items.clear()
        self.receive(answer)

    def _send(self, frame: bytes) -> None:
        self.items += [item for item in decode_up(frame) if not isinstance(item, Sync)]

    def receive(self, *items: DownItem) -> None:
        self.pass_time(0.01)
        self._timeout = self._steps.send(list(encode_frames(items)))

    def wait(self, seconds: float) -> None:
        """The session continues at the times that it asks for."""
        while seconds > 0:
            step = min(seconds, self._timeout + 1e-3)
            self.pass_time(step)
            self._timeout = self._steps.send([])
            seconds -= step

    def sent(self) -> list[UpItem]:
        self.receive()
        items, self.items = self.items, []
        return items


@pytest.fixture
def stream() -> WindowsSession:
    """Five events in the present window are known to the coordinator."""
    stream = WindowsSession()
    stream.windows.add(5)
    stream.wait(0.1)
    assert stream.sent()[0] == Join(THIS, 0, 5)
    stream.receive(SetTrigger(THIS, 1, EveryNth(100), 5))
    return stream


def to_the_next_window(stream: WindowsSession) -> None:
    stream.wait(60 - stream.now % 60)


def finish(stream: WindowsSession) -> None:
    """Let this window end and be finished; the next one was announced."""
    to_the_next_window(stream)
    stream.wait(3.1)


def test_next_window_is_announced_with_a_join_and_gets_its_trigger_before_it_begins(stream: WindowsSession) -> None:
    stream.wait(56.5 - stream.now % 60)
    assert stream.sent() == [Join(NEXT, 0, 0)]
    stream.receive(SetTrigger(NEXT, 3, EveryNth(10), 0))
    to_the_next_window(stream)
    stream.windows.add(9)
    assert stream.sent() == []
    stream.windows.add()
    assert stream.sent() == [Report(NEXT, 3, 10, 1)]


def test_finished_window_leaves_with_its_exact_count_and_is_forgotten(stream: WindowsSession) -> None:
    stream.windows.add(3)
    finish(stream)
    assert stream.sent() == [Join(NEXT, 0, 0), Leave(THIS, 1, 8)]
    assert stream.left == {}
    stream.receive(LeaveAck(THIS))
    stream.receive(LeaveAck(THIS))
    assert (stream.left, list(stream.counters)) == ({THIS: 8}, [NEXT])
    stream.connect()
    assert stream.sent() == [Join(NEXT, 0, 0)]


def test_window_costs_four_messages_beside_its_reports(stream: WindowsSession) -> None:
    finish(stream)
    stream.receive(SetTrigger(NEXT, 3, EveryNth(100), 0), LeaveAck(THIS))
    stream.sent()
    stream.windows.add(5)
    finish(stream)
    assert stream.sent() == [Join(THIRD, 0, 0), Leave(NEXT, 3, 5)]


def test_window_without_events_that_was_announced_leaves_too(stream: WindowsSession) -> None:
    finish(stream)
    stream.receive(LeaveAck(THIS))
    stream.sent()
    finish(stream)
    assert stream.sent() == [Leave(NEXT, 0, 0)]
    stream.receive(LeaveAck(NEXT))
    assert stream.counters == {}
    stream.wait(600)
    assert stream.sent() == []
    stream.windows.add()
    assert stream.sent()[0] == Join(name(int(stream.now // 60)), 0, 1)


def test_leave_is_sent_again_on_the_next_stream_until_it_is_acknowledged(stream: WindowsSession) -> None:
    finish(stream)
    for _ in range(3):
        stream.connect()
        items = stream.sent()
        assert [item for item in items if isinstance(item, Join)] == [Join(THIS, 1, 5), Join(NEXT, 0, 0)]
        assert items[-1] == Leave(THIS, 1, 5)
    stream.receive(LeaveAck(THIS))
    stream.connect()
    assert stream.sent() == [Join(NEXT, 0, 0)]


def test_windows_that_ended_while_there_was_no_connection_leave_one_after_the_other(stream: WindowsSession) -> None:
    for n in (2, 3):
        stream.pass_time(60.0)
        stream.windows.add(n)
    stream.pass_time(60.0)
    stream.connect()
    items = stream.sent()
    assert {item for item in items if isinstance(item, Join)} == {Join(THIS, 1, 5), Join(NEXT, 0, 2), Join(THIRD, 0, 3)}
    assert [item for item in items if isinstance(item, Leave)] == [Leave(THIS, 1, 5)]
    stream.receive(LeaveAck(THIS))
    assert stream.sent() == [Leave(NEXT, 0, 2)]
    stream.receive(LeaveAck(NEXT))
    stream.wait(3.0)
    assert stream.sent() == [Leave(THIRD, 0, 3)]
    stream.receive(LeaveAck(THIRD))
    assert stream.left == {THIS: 5, NEXT: 2, THIRD: 3}


def test_closing_delivers_all_windows_in_their_order(stream: WindowsSession) -> None:
    to_the_next_window(stream)
    stream.windows.add(2)
    stream.sent()
    with stream.lock:
        stream.windows.close()
        for counter in stream.counters.values():
            counter.close()
        stream.session.leave()
    assert stream.sent() == [Leave(THIS, 1, 5)]
    stream.receive(LeaveAck(THIS))
    assert stream.sent() == [Leave(NEXT, 0, 2)]
    with pytest.raises(StopIteration):
        stream.receive(LeaveAck(NEXT))
    assert stream.session.delivered


def retire(stream: WindowsSession, known: dict[str, int]) -> None:
    with pytest.raises(SessionRetired) as retired:
        stream.connect(IncarnationRetired(tuple(known.items())))
    stream.session.renew(retired.value, lambda site_id: nullcontext())
    stream.connect()


def test_new_incarnation_sends_what_the_retired_one_had_not_delivered(stream: WindowsSession) -> None:
    stream.windows.add(3)
    to_the_next_window(stream)
    stream.windows.add(4)
    retire(stream, {THIS: 5})
    assert {item for item in stream.sent() if isinstance(item, Join)} == {Join(THIS, 0, 3), Join(NEXT, 0, 4)}


def test_windows_before_the_last_that_left_are_delivered_completely(stream: WindowsSession) -> None:
    finish(stream)
    stream.windows.add(4)  # the acknowledgement of the Leave is lost
    retire(stream, {"hits@minute": MINUTE + 1})
    assert {item for item in stream.sent() if not isinstance(item, Report)} >= {Join(NEXT, 0, 4)}
    assert stream.left == {THIS: 0}
    assert list(stream.counters) == [NEXT]


def test_counter_that_was_deleted_begins_again_with_the_next_event(stream: WindowsSession) -> None:
    finish(stream)
    stream.sent()
    stream.receive(Rejoin(THIS), Rejoin(NEXT))
    assert stream.sent() == []
    assert list(stream.counters) == [NEXT]
    stream.windows.add(2)
    assert stream.sent()[0] == Join(NEXT, 0, 2)


def sent_of(stream: WindowsSession, *names: str) -> list[UpItem]:
    return [item for item in stream.sent() if isinstance(item, Join | Leave) and item.counter in names]


def test_rejected_window_is_tried_again_each_minute_and_later_ones_after_it(
    stream: WindowsSession, caplog: pytest.LogCaptureFixture
) -> None:
    finish(stream)
    stream.windows.add(2)
    stream.receive(CounterRejected(THIS, "too far ahead"), CounterRejected(NEXT, "too far ahead"))
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    stream.sent()
    for _ in range(3):
        stream.wait(MAX_TICK_S - 4)
        assert sent_of(stream, THIS, NEXT) == []
        stream.wait(4.1)
        assert sent_of(stream, THIS, NEXT) == [Join(THIS, 1, 5), Leave(THIS, 1, 5)]
        stream.receive(CounterRejected(THIS, "too far ahead"))
    stream.connect()
    stream.wait(0.1)
    assert sent_of(stream, THIS, NEXT) == [Join(THIS, 1, 5), Leave(THIS, 1, 5)]  # the others wait on a new stream, too
    stream.receive(LeaveAck(THIS))
    stream.wait(0.1)
    assert sent_of(stream, THIS, NEXT) == [Join(NEXT, 0, 2), Leave(NEXT, 0, 2)]
    stream.receive(LeaveAck(NEXT))
    assert len(caplog.records) == 1
    assert stream.left == {THIS: 5, NEXT: 2}


def test_closing_ends_though_the_coordinator_rejects_a_window(stream: WindowsSession) -> None:
    to_the_next_window(stream)
    stream.windows.add(2)
    stream.sent()
    with stream.lock:
        for counter in stream.counters.values():
            counter.close()
        stream.session.leave()
    assert stream.sent() == [Leave(THIS, 1, 5)]
    with pytest.raises(StopIteration):
        stream.receive(CounterRejected(THIS, "no room"))
    assert (stream.session.done, stream.session.delivered) == (True, False)


def test_session_that_sent_nothing_ends_at_once() -> None:
    stream = WindowsSession()
    stream.windows.add(0)
    with stream.lock:
        stream.session.leave()
    assert (stream.session.done, stream.session.delivered) == (True, True)


def test_window_that_is_rejected_last_stays_in_the_reasons_of_a_session_that_is_done(stream: WindowsSession) -> None:
    """Otherwise `close`, and the recovery of what a process has left, had no reason to show."""
    stream.wait(56.5 - stream.now % 60)
    stream.session.leave()
    assert stream.sent() == [Join(NEXT, 0, 0), Leave(THIS, 1, 5)]
    stream.receive(CounterRejected(NEXT, "too early"))
    with pytest.raises(StopIteration):
        stream.receive(LeaveAck(THIS))
    assert (stream.session.done, stream.session.delivered) == (True, False)
    assert stream.session.rejected == {"hits (minute from 2027-01-15T08:01:00+00:00)": "too early"}
