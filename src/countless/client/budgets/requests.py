"""Requests to budgets that may have to wait for the coordinator.

A request is repeated whenever something has changed, until it is decided or its time is over. Nothing is held while it
waits. The thread that has changed something repeats it, and all others that wait, in order (a *round*): what they do
not use is returned to the coordinator before the other threads run. A request that has ended undecided lingers for a
moment, with its place in line: the program may come again, and finds then what was granted for it.
"""

from collections.abc import Callable
from itertools import count
from math import inf
from threading import TIMEOUT_MAX, Event
from typing import NamedTuple, Protocol, TypeVar

from countless.core.budget.decision import Decision, Reason
from countless.core.budget.hold import Hold
from countless.core.parameters import require_seconds
from countless.errors import BudgetRefused, CountlessError, LimitExceeded, Starved, Unreachable

WAIT_S = 1.0  # how long a request waits, unless the program says otherwise

ALLOWED = Decision(Reason.ALLOWED)
EXHAUSTED = Decision(Reason.EXHAUSTED)
STARVED = Decision(Reason.STARVED)
UNREACHABLE = Decision(Reason.UNREACHABLE)


HoldType = TypeVar("HoldType", bound=Hold)
RequestKey = tuple[str | int, ...]  # the budgets and the units of a request: which others are as good for a program

_numbers = count()


class PeriodRefusal(NamedTuple):
    """The smallest request that was refused in a period, and the end of that period."""

    refused_from: int
    ends_at: int  # seconds since 1970


class Request(Protocol):
    @property
    def budget(self) -> str:
        """The name of the budget that has decided."""

    @property
    def key(self) -> RequestKey: ...

    def attempt(self) -> Decision | None:
        """None: it must wait for the coordinator. Raises `UnknownBudget`."""

    def ask(self) -> Decision | None:
        """As `attempt`; but if it must wait, the coordinator is asked. Once in a round, and once outside of any."""

    def stay_queued(self) -> None:
        """Keep waiting if it is refused."""

    def linger(self, wants: bool) -> None:
        """In a round, in place of `ask`: it has ended, and may come again. `wants`: no answer has come for it."""

    def start_waiting(self, waiter: "Waiter") -> None:
        """Call `waiter.serve` now, and in every round, until `stop_waiting`; if it was not decided, a moment longer."""

    def stop_waiting(self, waiter: "Waiter") -> None: ...

    @property
    def waits_for_connection(self) -> bool:
        """True if the time does not count: there is no connection, and the budget's rule is to wait for it."""

    def timed_out(self) -> Decision:
        """The decision if the time is over."""

    def hold(self, kind: type[HoldType], n: int, expires_in: float | None) -> HoldType:
        """The hold of a reservation that was allowed. None: it expires when those of the budget usually do."""

    def undo(self) -> None:
        """It was allowed, and the program does not know it: end the hold. Units that were taken stay spent."""


class Waiter:
    """A request that waits. `serve` and `ended` are for threads that hold the client's lock."""

    __slots__ = (
        "_cut_off",
        "_decision",
        "_error",
        "_notify",
        "_request",
        "_serving",
        "answered",
        "asked",
        "ended",
        "lingers_until",
        "number",
    )

    def __init__(self, request: Request, notify: Callable[[], None]) -> None:
        self.ended = False
        self.number = next(_numbers)  # its place in line
        self.lingers_until = inf  # finite once the program waits no longer
        self.asked = False  # an Ask was sent while it was in line
        self.answered = False  # ... and units were granted, or refused, while it lingered
        self._request = request
        self._notify = notify  # called once, from any thread
        self._decision: Decision | None = None
        self._error: CountlessError | None = None
        self._serving = False
        self._cut_off = False  # when its time was over last

    @property
    def key(self) -> RequestKey:
        return self._request.key

    def order(self) -> tuple[float, int]:
        """First those for which a program waits."""
        return (self.lingers_until if self.lingers_until < inf else 0.0), self.number

    def serve(self) -> None:
        if self.ended or self._serving:  # a handler came in between
            return
        if self.lingers_until < inf:
            self._request.linger(not self.answered)
            return
        self._serving = True
        try:
            self._decision = self._request.ask()
        except CountlessError as error:
            self._error = error
        finally:
            self._serving = False
        if self._decision is not None or self._error is not None:
            self.ended = True
            self._notify()

    def waits_on(self, wait: float) -> bool:
        """Its time is over. True if it waits as long again, for the connection or once more after that is back."""
        before, self._cut_off = self._cut_off, wait > 0 and self._request.waits_for_connection
        return before or self._cut_off

    def result(self) -> Decision:
        """The time from which it waits no longer."""
        if self._error is not None:
            raise self._error
        return self._request.timed_out() if self._decision is None else self._decision

    def undo(self) -> None:
        """An exception has ended the wait."""
        if self._decision:
            self._request.undo()


class UntilUnitsReturn:
    """A request that also waits while nothing is left: units that are held come back."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._last: Decision | None = None
        request.stay_queued()
        self.stay_queued = request.stay_queued
        self.key = request.key
        self.linger = request.linger
        self.start_waiting = request.start_waiting
        self.stop_waiting = request.stop_waiting
        self.hold = request.hold
        self.undo = request.undo

    @property
    def budget(self) -> str:
        return self._request.budget

    @property
    def waits_for_connection(self) -> bool:
        return self._request.waits_for_connection

    def attempt(self) -> Decision | None:
        return self._unless_exhausted(self._request.attempt())

    def ask(self) -> Decision | None:
        return self._unless_exhausted(self._request.ask())

    def _unless_exhausted(self, decision: Decision | None) -> Decision | None:
        self._last = decision
        return None if decision is not None and decision.reason is Reason.EXHAUSTED else decision

    def timed_out(self) -> Decision:
        return self._request.timed_out() if self._last is None else self._last


def decide(request: Request, wait: float) -> Decision:
    """Wait until the request is decided, at most `wait` seconds."""
    require_seconds("wait", wait)
    decision = request.attempt()
    if decision is not None:
        return decision
    ended = Event()
    waiter = Waiter(request, ended.set)
    try:
        request.start_waiting(waiter)
        while not ended.wait(min(wait, TIMEOUT_MAX)) and waiter.waits_on(wait):
            pass
    except BaseException:
        request.stop_waiting(waiter)
        waiter.undo()
        raise
    request.stop_waiting(waiter)
    return waiter.result()


def refusal(budget: str, decision: Decision, n: int, wait: float) -> BudgetRefused:
    if decision.reason is Reason.EXHAUSTED:
        return LimitExceeded(budget, n, decision.retry_after)
    if decision.reason is Reason.STARVED:
        return Starved(f"no answer about budget {budget!r} in {wait} s")
    return Unreachable(f"no connection to the coordinator of budget {budget!r}")
