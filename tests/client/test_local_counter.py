"""The meter: many threads, one count, nothing lost. No test sleeps; threads start together at a barrier."""

import sys
from collections.abc import Callable, Iterator

import pytest

from countless import Tracker
from countless.core.messages import Report, SetTrigger, Snapshot, StartRound
from countless.core.triggers import EveryNth, GeometricGrowth
from countless.errors import InvalidParameter, ProtocolError
from support.meters import HITS, Heard, together

THREADS = 8


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def test_one_thread_one_event_at_a_time(kind: str) -> None:
    heard = Heard(kind, EveryNth(3))
    for _ in range(7):
        heard.meter.add()
    assert heard.said == [Report(HITS, 0, 3, 1), Report(HITS, 0, 6, 2)]
    assert heard.meter.count == 7


def test_reading_the_count_moves_nothing(kind: str) -> None:
    heard = Heard(kind, EveryNth(3))
    for _ in range(6):
        heard.meter.add()
        assert heard.meter.count == heard.meter.count
    heard.meter.add(5)
    assert heard.meter.count == 11
    assert heard.said == [Report(HITS, 0, 3, 1), Report(HITS, 0, 6, 2), Report(HITS, 0, 9, 3)]


def test_inc_is_add(kind: str) -> None:
    heard = Heard(kind)
    heard.meter.inc()
    assert heard.meter.count == 1


@pytest.mark.parametrize("n", [-1, 1.0, "1", None, True])
def test_what_cannot_be_counted_changes_nothing(kind: str, n: int) -> None:
    heard = Heard(kind)
    with pytest.raises(InvalidParameter, match="n = "):
        heard.meter.add(n)
    assert (heard.meter.count, heard.said) == (0, [])


def test_nothing_is_lost_by_eight_threads(kind: str, frequent_switches: None) -> None:
    heard, each = Heard(kind, GeometricGrowth(0.05)), 20_000

    def single() -> None:
        for _ in range(each):
            heard.meter.add()

    def batches() -> None:
        for _ in range(each // 100):
            heard.meter.add(60)
            heard.meter.add(40)

    def mixed() -> None:
        for number in range(each // 10):
            for _ in range(5):
                heard.meter.add()
            heard.meter.add(5)
            if number % 50 == 0:
                assert heard.meter.count > 0

    together(*[single] * 4, *[batches] * 2, *[mixed] * 2)
    assert heard.meter.count == THREADS * each
    counts = [message.count for message in heard.said]
    assert counts == sorted(set(counts))
    assert counts[-1] <= THREADS * each <= GeometricGrowth(0.05).max_count_covered(counts[-1])


def test_new_rounds_and_readers_in_the_middle_lose_nothing(kind: str, frequent_switches: None) -> None:
    heard, each, rounds = Heard(kind, EveryNth(7)), 10_000, 200

    def count() -> None:
        for _ in range(each):
            heard.meter.add()

    def coordinate() -> None:
        for number in range(1, rounds + 1):
            with heard.lock:
                trigger = EveryNth(1 + number % 13)
                heard.said += heard.meter.receive(StartRound(HITS, number, trigger))

    def read() -> None:
        last = 0
        for _ in range(500):
            now = heard.meter.count
            assert now >= last
            last = now

    together(*[count] * 6, coordinate, read)
    assert heard.meter.count == 6 * each
    # In each round every point was reported: the last report and its crossings agree with the snapshot.
    snapshots = {message.round: message.count for message in heard.said if isinstance(message, Snapshot)}
    assert len(snapshots) == rounds
    for message in heard.said:
        if isinstance(message, Report) and message.round:
            step = 1 + message.round % 13
            assert message.count % step == 0
            assert message.crossings == message.count // step - snapshots[message.round] // step


def test_a_tracker_shared_by_eight_threads(frequent_switches: None) -> None:
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


def test_a_message_that_is_refused_changes_nothing(kind: str) -> None:
    heard = Heard(kind, EveryNth(3))
    with pytest.raises(ProtocolError):
        heard.meter.receive(SetTrigger(HITS, 1, EveryNth(1), 99))
    for _ in range(3):
        heard.meter.add()
    assert heard.said == [Report(HITS, 0, 3, 1)]


def test_a_closed_meter_says_so_and_stays_as_it_is(kind: str) -> None:
    heard = Heard(kind, EveryNth(10))
    heard.meter.add(4)
    assert heard.meter.close() == Snapshot(HITS, 0, 4)
    for _ in range(2):
        for n in (1, 5):
            with pytest.raises(InvalidParameter, match="has not been removed"):
                heard.meter.add(n)
        assert heard.meter.count == 4
        assert "4 counted" in repr(heard.meter)
    assert heard.said == []


def test_closing_among_threads_counts_every_event_that_was_accepted(frequent_switches: None) -> None:
    tracker = Tracker(sites=2, alpha=0.1, scheme="deterministic")
    meter, accepted = tracker.site(0), [0] * 4

    def count(thread: int) -> Callable[[], None]:
        def job() -> None:
            for _ in range(20_000):
                try:
                    meter.add()
                except InvalidParameter:
                    return
                accepted[thread] += 1

        return job

    def close() -> None:
        while meter.count < 10_000:
            pass
        tracker.remove_site(0)

    together(*[count(thread) for thread in range(4)], close)
    # An add that was interrupted by the closing may be told that the site is gone although its event is in the total.
    assert sum(accepted) <= tracker.total <= sum(accepted) + 4


def test_repr_shows_the_count() -> None:
    tracker = Tracker(sites=["a"], alpha=0.1, seed=1)
    tracker.site("a").add(1234)
    assert repr(tracker.site("a")) == "<LocalCounter of site 'a': 1,234 counted, GeometricGrowth(alpha=0.1)>"
