"""Interrupting a call anywhere: by another thread, by a signal handler that raises, by one that does something."""

import gc
import sys
from collections.abc import Callable, Iterator
from threading import RLock

from support.local_counters import together

MAX_POINTS = 10_000  # many times what any call here has


class Interrupt(BaseException):
    """As Ctrl-C, or an alarm, whose handler raises."""


def points() -> Iterator[int]:
    """Where to interrupt, one after the other, until the caller breaks off because the call has no more."""
    yield from range(MAX_POINTS)
    raise AssertionError(f"the call has not ended after {MAX_POINTS:,} points")


def run_until(job: Callable[[], object], at: int, handler: Callable[[], object]) -> bool:
    """Run the job and call `handler` once, at the `at`-th point where CPython checks for signals; False: not so many.

    An exception of the handler is raised there, as by a signal.
    """
    left = at
    called = False

    def count_down(frame: object, event: str, arg: object) -> None:
        nonlocal left, called
        if event in ("call", "c_return"):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                called = True
                handler()

    gc.disable()  # a collection calls functions too, in the middle of an event
    sys.setprofile(count_down)
    try:
        job()
    except Interrupt:
        return True
    finally:
        sys.setprofile(None)
        gc.enable()
    return called


def interrupt() -> None:
    raise Interrupt


def is_free(lock: RLock) -> bool:
    """Whether another thread can take the lock."""
    free: list[bool] = []

    def attempt() -> None:
        free.append(lock.acquire(blocking=False))
        if free[-1]:
            lock.release()

    together(attempt)
    return free[0]
