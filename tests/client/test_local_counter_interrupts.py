"""`LocalCounter.add` interrupted anywhere: by another thread, by a signal handler that raises, by one that counts."""

from collections.abc import Callable
from functools import partial

import pytest

from countless.core.messages import Report, SetTrigger, StartRound, UpMessage
from countless.core.site import Site
from countless.core.triggers import EveryNth
from support.interrupts import Interrupt, interrupt, is_free, points, run_until
from support.local_counters import HITS, RecordingCounter


@pytest.mark.parametrize("what", ["reads the count", "adds nothing", "an old message"])
def test_event_that_is_due_is_reported_if_another_thread_takes_the_lock_first(kind: str, what: str) -> None:
    """Another thread, or a signal handler, reads or updates the counter at any point of an `add`."""
    for point in points():
        recording = RecordingCounter(kind, EveryNth(3))
        meanwhile: dict[str, Callable[[], object]] = {
            "reads the count": partial(getattr, recording.counter, "count"),
            "adds nothing": partial(recording.counter.add, 0),
            "an old message": partial(recording.counter.receive, SetTrigger(HITS, 0, EveryNth(3), 0)),
        }
        recording.counter.add()
        recording.counter.add()
        interrupted = run_until(recording.counter.add, point, meanwhile[what])
        assert recording.sent == [Report(HITS, 0, 3, 1)]
        if not interrupted:
            break
    assert point > 3


@pytest.mark.parametrize("n", [1, 7])
def test_interrupted_add_leaves_count_file_and_lock_consistent(kind: str, n: int) -> None:
    for point in points():
        recording = RecordingCounter(kind, EveryNth(3))
        recording.counter.add()
        recording.counter.add()
        if not run_until(partial(recording.counter.add, n), point, interrupt):
            break
        assert is_free(recording.lock)
        counted = recording.counter.count
        assert counted in (2, 2 + n)
        assert recording.record is None or recording.record.count == counted
        recording.counter.add(100)
        assert recording.sent[-1] == Report(HITS, 0, (counted + 100) // 3 * 3, (counted + 100) // 3)
    assert point > 3


@pytest.mark.parametrize("n", [1, 7])
@pytest.mark.parametrize("nested", [1, 100])
def test_signal_handler_that_adds_anywhere_in_add_loses_and_delays_nothing(kind: str, n: int, nested: int) -> None:
    """A signal handler, or a finaliser, counts at any point of an `add`: both are reported before it returns."""
    for point in points():
        recording = RecordingCounter(kind, EveryNth(3))
        recording.counter.add()
        recording.counter.add()
        handler = partial(recording.counter.add, nested)
        if not run_until(partial(recording.counter.add, n), point, handler):
            break
        total = 2 + n + nested
        assert recording.counter.count == total
        assert recording.record is None or recording.record.count == total
        assert max(message.count for message in recording.sent) == total // 3 * 3
        assert is_free(recording.lock)
    assert point > 3


def test_signal_handler_that_adds_anywhere_in_receive_loses_nothing(kind: str) -> None:
    for point in points():
        recording = RecordingCounter(kind, EveryNth(3))
        recording.counter.add(2)
        replies: list[UpMessage] = []

        def job(recording: RecordingCounter = recording, replies: list[UpMessage] = replies) -> None:
            replies += recording.counter.receive(StartRound(HITS, 1, EveryNth(5)))

        if not run_until(job, point, partial(recording.counter.add, 100)):
            break
        assert recording.counter.count == 102
        recording.counter.add(5)
        assert recording.sent[-1] == Report(HITS, 1, 105, 21 - replies[0].count // 5)
    assert point > 3


class InterruptedLock:
    """A lock held by this thread; the second `acquire` is interrupted, as one that waits for another thread may be."""

    def __init__(self) -> None:
        self.depth = 0

    def acquire(self) -> None:
        if self.depth:
            raise Interrupt
        self.depth += 1

    def release(self) -> None:
        self.depth -= 1

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def test_interrupted_nested_add_does_not_release_the_lock_of_the_outer_add() -> None:
    """A signal handler calls `add` while the interrupted `add` holds the lock, and a second signal ends the handler."""
    lock = InterruptedLock()
    recording = RecordingCounter("plain", EveryNth(10), lock)
    depth_after_handler: list[int] = []

    class InterruptedSite(Site):
        __slots__ = ()

        def advance(self, count: int) -> tuple[UpMessage, ...]:
            with pytest.raises(Interrupt):
                recording.counter.add(100)
            depth_after_handler.append(lock.depth)
            return super().advance(count)

    recording.site.__class__ = InterruptedSite
    recording.counter.add(10)
    assert depth_after_handler == [1]
    assert lock.depth == 0
    assert recording.sent == [Report(HITS, 0, 10, 1)]


def test_add_interrupted_while_it_waits_for_the_lock_raises_and_is_not_counted() -> None:
    lock = InterruptedLock()
    recording = RecordingCounter("plain", EveryNth(1), lock)
    lock.depth = 1
    with pytest.raises(Interrupt):
        recording.counter.add(3)
    lock.depth = 0
    assert (recording.counter.count, recording.sent) == (0, [])


def test_add_nested_in_a_report_is_reported_before_the_outer_add_returns(kind: str) -> None:
    recording = RecordingCounter(kind, EveryNth(10))

    class CountingSite(Site):
        __slots__ = ()

        def advance(self, count: int) -> tuple[UpMessage, ...]:
            messages = super().advance(count)
            if messages and count == 10:
                recording.counter.add(100)
            return messages

    recording.site.__class__ = CountingSite
    for _ in range(30):
        recording.counter.add()
    assert [report.count for report in recording.sent] == [10, 110, 120, 130]
