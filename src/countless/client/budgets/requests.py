"""Requests to budgets that may have to wait for the coordinator.

A request is attempted again whenever something has changed, until it is decided or its time is over. Nothing is held
while it waits. The thread that has changed something attempts it, not the one that waits: a recall that follows the
grant of the last units would take them back before the other thread runs, and processes could pass these units on for
ever without using them.
"""

from collections.abc import Callable
from threading import TIMEOUT_MAX, Event
from typing import Protocol, TypeVar

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


class Request(Protocol):
    @property
    def budget(self) -> str:
        """The name of the budget that has decided."""

    def attempt(self) -> Decision | None:
        """None: it waits for the coordinator. Raises `UnknownBudget`."""

    def start_waiting(self, waiter: "Waiter") -> None:
        """Call `waiter.serve` now, and whenever another attempt is worth it, until it has ended."""

    def stop_waiting(self, waiter: "Waiter") -> None: ...

    @property
    def waits_for_connection(self) -> bool:
        """Whether the time does not count, because there is no connection and the budget's rule is to wait for it."""

    def timed_out(self) -> Decision:
        """The decision if the time is over."""

    def hold(self, kind: type[HoldType], n: int, expires_in: float | None) -> HoldType:
        """The hold of a reservation that was allowed. None: it expires when those of the budget usually do."""

    def undo(self) -> None:
        """It was allowed, and the program does not know it: end the hold. Units that were taken stay spent."""


class Waiter:
    """A request that waits. `serve` and `ended` are for threads that hold the client's lock."""

    __slots__ = ("_cut_off", "_decision", "_error", "_notify", "_request", "_serving", "ended")

    def __init__(self, request: Request, notify: Callable[[], None]) -> None:
        self.ended = False
        self._request = request
        self._notify = notify  # called once, from any thread
        self._decision: Decision | None = None
        self._error: CountlessError | None = None
        self._serving = False
        self._cut_off = False  # when its time was over last

    def serve(self) -> None:
        if self.ended or self._serving:  # an attempt can return units, which serves all that wait
            return
        self._serving = True
        try:
            self._decision = self._request.attempt()
        except CountlessError as error:
            self._error = error
        finally:
            self._serving = False
        if self._decision is not None or self._error is not None:
            self.ended = True
            self._notify()

    def waits_on(self, wait: float) -> bool:
        """Its time is over: whether it waits as long again, for the connection or once more after that is back."""
        before, self._cut_off = self._cut_off, wait > 0 and self._request.waits_for_connection
        return before or self._cut_off

    def result(self) -> Decision:
        """When it waits no longer."""
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
        self._last = self._request.attempt()
        return None if self._last is not None and self._last.reason is Reason.EXHAUSTED else self._last

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
