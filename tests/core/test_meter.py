"""The meter: many threads, one count, nothing lost. No test sleeps; threads start together at a barrier."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from threading import Barrier, RLock, Thread

import pytest

from countless import Tracker
from countless.client import cells
from countless.client.cells import Cells
from countless.client.countfile import CountFile
from countless.client.keeper import KeptMeter
from countless.client.meter import Meter
from countless.core.messages import Address, Repace, Report, Snapshot, StartRound, UpMessage
from countless.core.paces import Every, Growth, Pace
from countless.core.site import Site
from countless.errors import InvalidParameter, ProtocolError
from support.dice import NO_DICE

HITS = "hits"
THREADS = 8


@pytest.fixture
def frequent_switches() -> Iterator[None]:
    """Let the interpreter change threads as often as it can."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


@pytest.fixture(params=["plain", "kept", "guarded"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A meter, one that writes down what it counts, and the same on an interpreter without a GIL."""
    monkeypatch.setattr(cells, "GIL", request.param != "guarded")
    return str(request.param)


class Heard:
    """A meter and what it has said."""

    def __init__(self, kind: str, pace: Pace | None = None) -> None:
        self.said: list[UpMessage] = []
        self.site = Site(HITS, Address("s"), NO_DICE, pace=pace)
        self.lock = RLock()
        self.file: Cells | None = None
        if kind == "plain":
            self.meter = Meter(self.site, self.lock, self._deliver)
        else:
            self.file = CountFile.in_memory(self.site.address).record(HITS)
            self.meter = KeptMeter(self.site, self.lock, self._deliver, self.file)

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.said += messages


def together(*jobs: Callable[[], None]) -> None:
    """Run the jobs in one thread each, all at the same time; a job's exception is the test's."""
    barrier, failures = Barrier(len(jobs)), list[BaseException]()

    def run(job: Callable[[], None]) -> None:
        barrier.wait()
        try:
            job()
        except BaseException as failure:
            failures.append(failure)

    threads = [Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_one_thread_one_event_at_a_time(kind: str) -> None:
    heard = Heard(kind, Every(3))
    for _ in range(7):
        heard.meter.add()
    assert heard.said == [Report(HITS, 0, 3, 1), Report(HITS, 0, 6, 2)]
    assert heard.meter.count == 7


def test_reading_the_count_moves_nothing(kind: str) -> None:
    heard = Heard(kind, Every(3))
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
    heard, each = Heard(kind, Growth(0.05)), 20_000

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
    assert counts[-1] <= THREADS * each <= Growth(0.05).reach(counts[-1])


def test_new_rounds_and_readers_in_the_middle_lose_nothing(kind: str, frequent_switches: None) -> None:
    heard, each, rounds = Heard(kind, Every(7)), 10_000, 200

    def count() -> None:
        for _ in range(each):
            heard.meter.add()

    def coordinate() -> None:
        for number in range(1, rounds + 1):
            with heard.lock:
                pace = Every(1 + number % 13)
                heard.said += heard.meter.receive(StartRound(HITS, number, pace))

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


class InterruptedTickets:
    """Tickets whose taker is interrupted, just after the `at`-th one, by whatever `meanwhile` does."""

    def __init__(self, meter: Meter, at: int, meanwhile: Callable[[], object]) -> None:
        self._tickets, self._at, self._meanwhile = meter._tickets, at, meanwhile

    def __iter__(self) -> "InterruptedTickets":
        return self

    def __next__(self) -> int:
        ticket = next(self._tickets)
        if ticket == self._at:
            self._meanwhile()
        return ticket


@pytest.mark.parametrize("what", ["reads the count", "adds nothing", "an old message"])
def test_the_event_that_should_speak_is_interrupted_before_it_looks(kind: str, what: str) -> None:
    """It has its ticket but has not compared it yet, when another thread passes through the lock."""
    heard = Heard(kind, Every(3))
    meanwhile: dict[str, Callable[[], object]] = {
        "reads the count": lambda: heard.meter.count,
        "adds nothing": lambda: heard.meter.add(0),
        "an old message": lambda: heard.meter.receive(Repace(HITS, 0, Every(3), 0)),
    }
    heard.meter._tickets = InterruptedTickets(heard.meter, 3, meanwhile[what])
    for _ in range(3):
        heard.meter.add()
    assert heard.said == [Report(HITS, 0, 3, 1)]


class _Interrupted(BaseException):
    """As Ctrl-C, or an alarm, whose handler raises."""


def interrupted(job: Callable[[], object], at: int) -> bool:
    """Run it until the `at`-th of the points at which CPython looks for signals; False if it has not so many."""
    left = at

    def count_down(frame: object, event: str, arg: object) -> None:
        nonlocal left
        if event in ("call", "c_return"):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise _Interrupted

    sys.setprofile(count_down)
    try:
        job()
    except _Interrupted:
        return True
    finally:
        sys.setprofile(None)
    return False


def try_lock(lock: RLock, free: list[bool]) -> None:
    free.append(lock.acquire(blocking=False))
    if free[-1]:
        lock.release()


@pytest.mark.parametrize("n", [1, 7])
def test_an_interrupted_add_leaves_nothing_torn(kind: str, n: int) -> None:
    """Wherever it was broken off, file and count agree, nobody is locked out, and what is said next is right."""
    for point in count():
        heard, free = Heard(kind, Every(3)), list[bool]()
        heard.meter.add()
        heard.meter.add()
        if not interrupted(partial(heard.meter.add, n), point):
            break
        together(partial(try_lock, heard.lock, free))
        assert free == [True]
        counted = heard.meter.count
        assert counted in (2, 2 + n)
        assert heard.file is None or heard.file.count == counted
        heard.meter.add(100)
        assert heard.said[-1] == Report(HITS, 0, (counted + 100) // 3 * 3, (counted + 100) // 3)
    assert point > 3


class ContestedLock:
    """Whoever waits for it is interrupted."""

    def acquire(self) -> None:
        raise _Interrupted

    def release(self) -> None:
        raise RuntimeError("cannot release un-acquired lock")


def test_an_add_that_is_interrupted_while_it_waits_is_told_so_and_not_counted() -> None:
    heard = Heard("plain", Every(1))
    heard.meter._lock = ContestedLock()  # type: ignore[assignment]
    with pytest.raises(_Interrupted):
        heard.meter.add(3)
    heard.meter._lock = heard.lock
    assert (heard.meter.count, heard.said) == (0, [])


def test_whoever_counts_in_the_middle_of_it_delays_nothing(kind: str) -> None:
    """A signal handler, or a finaliser, that adds events while a report is on its way."""
    heard = Heard(kind, Every(10))

    class Restless(Site):
        __slots__ = ()

        def advance(self, count: int) -> tuple[UpMessage, ...]:
            messages = super().advance(count)
            if messages and count == 10:
                heard.meter.add(100)
            return messages

    heard.site.__class__ = Restless
    for _ in range(30):
        heard.meter.add()
    assert [report.count for report in heard.said] == [110, 10, 120, 130]


def test_a_message_that_is_refused_changes_nothing(kind: str) -> None:
    heard = Heard(kind, Every(3))
    with pytest.raises(ProtocolError):
        heard.meter.receive(Repace(HITS, 1, Every(1), 99))
    for _ in range(3):
        heard.meter.add()
    assert heard.said == [Report(HITS, 0, 3, 1)]


def test_a_closed_meter_says_so_and_stays_as_it_is(kind: str) -> None:
    heard = Heard(kind, Every(10))
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
    assert repr(tracker.site("a")) == "<Meter of site 'a': 1,234 counted, Growth(alpha=0.1)>"
