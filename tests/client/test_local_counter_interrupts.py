"""The meter, broken off anywhere: by another thread, by a signal handler that raises, by one that counts."""

import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from threading import RLock

import pytest

from countless.client.local_counter import LocalCounter
from countless.core.messages import Report, SetTrigger, UpMessage
from countless.core.site import Site
from countless.core.triggers import EveryNth
from support.meters import HITS, Heard, together


class InterruptedTickets:
    """Tickets whose taker is interrupted, just after the `at`-th one, by whatever `meanwhile` does."""

    def __init__(self, meter: LocalCounter, at: int, meanwhile: Callable[[], object]) -> None:
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
    heard = Heard(kind, EveryNth(3))
    meanwhile: dict[str, Callable[[], object]] = {
        "reads the count": lambda: heard.meter.count,
        "adds nothing": lambda: heard.meter.add(0),
        "an old message": lambda: heard.meter.receive(SetTrigger(HITS, 0, EveryNth(3), 0)),
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
        heard, free = Heard(kind, EveryNth(3)), list[bool]()
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
    heard = Heard("plain", EveryNth(1))
    heard.meter._lock = ContestedLock()  # type: ignore[assignment]
    with pytest.raises(_Interrupted):
        heard.meter.add(3)
    heard.meter._lock = heard.lock
    assert (heard.meter.count, heard.said) == (0, [])


def test_whoever_counts_in_the_middle_of_it_delays_nothing(kind: str) -> None:
    """A signal handler, or a finaliser, that adds events while a report is on its way."""
    heard = Heard(kind, EveryNth(10))

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
