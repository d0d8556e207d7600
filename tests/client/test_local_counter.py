"""`LocalCounter`: many threads, one count, no event lost. No test sleeps; threads start together at a barrier."""

from collections.abc import Callable
from contextlib import suppress

import pytest

from countless import Tracker
from countless.core.messages import Report, SetTrigger, Snapshot, StartRound
from countless.core.triggers import EveryNth, GeometricGrowth
from countless.errors import InvalidParameter, ProtocolError
from support.local_counters import HITS, RecordingCounter, together
from support.service import until

THREADS = 8


def test_single_events_are_reported_at_every_third(kind: str) -> None:
    recording = RecordingCounter(kind, EveryNth(3))
    for _ in range(7):
        recording.counter.add()
    assert recording.sent == [Report(HITS, 0, 3, 1), Report(HITS, 0, 6, 2)]
    assert recording.counter.count == 7


def test_reading_the_count_changes_nothing(kind: str) -> None:
    recording = RecordingCounter(kind, EveryNth(3))
    for _ in range(6):
        recording.counter.add()
        assert recording.counter.count == recording.counter.count
    recording.counter.add(5)
    assert recording.counter.count == 11
    assert recording.sent == [Report(HITS, 0, 3, 1), Report(HITS, 0, 6, 2), Report(HITS, 0, 9, 3)]


def test_inc_is_add(kind: str) -> None:
    recording = RecordingCounter(kind)
    recording.counter.inc()
    assert recording.counter.count == 1


@pytest.mark.parametrize("n", [-1, 1.0, "1", None, True])
def test_invalid_increment_changes_nothing(kind: str, n: int) -> None:
    recording = RecordingCounter(kind)
    with pytest.raises(InvalidParameter, match="n = "):
        recording.counter.add(n)
    assert (recording.counter.count, recording.sent) == (0, [])


def test_eight_threads_lose_no_event(kind: str, frequent_switches: None) -> None:
    recording, each = RecordingCounter(kind, GeometricGrowth(0.05)), 20_000

    def single() -> None:
        for _ in range(each):
            recording.counter.add()

    def batches() -> None:
        for _ in range(each // 100):
            recording.counter.add(60)
            recording.counter.add(40)

    def mixed() -> None:
        for number in range(each // 10):
            for _ in range(5):
                recording.counter.add()
            recording.counter.add(5)
            if number % 50 == 0:
                assert recording.counter.count > 0

    together(*[single] * 4, *[batches] * 2, *[mixed] * 2)
    assert recording.counter.count == THREADS * each
    counts = [message.count for message in recording.sent]
    assert counts == sorted(set(counts))
    assert counts[-1] <= THREADS * each <= GeometricGrowth(0.05).max_count_covered(counts[-1])


def test_round_starts_and_reads_among_threads_lose_no_event(kind: str, frequent_switches: None) -> None:
    recording, each, rounds = RecordingCounter(kind, EveryNth(7)), 10_000, 200

    def count() -> None:
        for _ in range(each):
            recording.counter.add()

    def coordinate() -> None:
        for number in range(1, rounds + 1):
            with recording.lock:
                trigger = EveryNth(1 + number % 13)
                recording.sent += recording.counter.receive(StartRound(HITS, number, trigger))

    def read() -> None:
        last = 0
        for _ in range(500):
            now = recording.counter.count
            assert now >= last
            last = now

    together(*[count] * 6, coordinate, read)
    assert recording.counter.count == 6 * each
    # In each round every point was reported: the last report and its crossings agree with the snapshot.
    snapshots = {message.round: message.count for message in recording.sent if isinstance(message, Snapshot)}
    assert len(snapshots) == rounds
    for message in recording.sent:
        if isinstance(message, Report) and message.round:
            step = 1 + message.round % 13
            assert message.count % step == 0
            assert message.crossings == message.count // step - snapshots[message.round] // step


def test_tracker_shared_by_eight_threads_loses_no_event(frequent_switches: None) -> None:
    tracker, each = Tracker(sites=4, alpha=0.1, delta=1e-9, scheme="lattice", seed=1), 5_000

    def work(thread: int) -> Callable[[], None]:
        def job() -> None:
            for number in range(each):
                tracker.site((thread + number) % 4).add()
                if number % 1000 == 0:
                    assert tracker.answer.estimate >= 0

        return job

    together(*[work(thread) for thread in range(THREADS)])
    assert tracker.total == THREADS * each
    assert abs(tracker.answer.estimate - tracker.total) <= 0.1 * tracker.total


def test_refused_message_changes_nothing(kind: str) -> None:
    recording = RecordingCounter(kind, EveryNth(3))
    with pytest.raises(ProtocolError):
        recording.counter.receive(SetTrigger(HITS, 1, EveryNth(1), 99))
    for _ in range(3):
        recording.counter.add()
    assert recording.sent == [Report(HITS, 0, 3, 1)]


def test_closed_counter_refuses_events_and_keeps_its_count(kind: str) -> None:
    recording = RecordingCounter(kind, EveryNth(10))
    recording.counter.add(4)
    assert recording.counter.close() == Snapshot(HITS, 0, 4)
    for _ in range(2):
        for n in (1, 5):
            with pytest.raises(InvalidParameter, match="has not been removed"):
                recording.counter.add(n)
        assert recording.counter.count == 4
        assert "4 counted" in repr(recording.counter)
    assert recording.sent == []


def test_close_among_threads_counts_every_accepted_event(frequent_switches: None) -> None:
    tracker = Tracker(sites=2, alpha=0.1, scheme="deterministic")
    counter, accepted = tracker.site(0), [0] * 4

    def count(thread: int) -> Callable[[], None]:
        def job() -> None:
            with suppress(InvalidParameter):
                while True:  # until it is closed
                    counter.add()
                    accepted[thread] += 1

        return job

    def close() -> None:
        until(lambda: counter.count >= 10_000, "events counted")
        tracker.remove_site(0)

    together(*[count(thread) for thread in range(4)], close)
    # The event of an add that raised because of the closing may be in the total.
    assert sum(accepted) <= tracker.total <= sum(accepted) + 4


def test_repr_shows_count() -> None:
    tracker = Tracker(sites=["a"], alpha=0.1, seed=1)
    tracker.site("a").add(1234)
    assert repr(tracker.site("a")) == "<CountingSite 'a': 1,234 counted>"
    shown = "<LocalCounter of site 'a': 1,234 counted, GeometricGrowth(alpha=0.1, extra=0, phase=0)>"
    assert repr(tracker.site("a")._local) == shown
