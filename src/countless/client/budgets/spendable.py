"""The calls that programs make to spend a budget, or several together."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from countless.client.budgets.requests import WAIT_S, Request, UntilUnitsReturn, decide, refusal
from countless.core.budget.decision import Decision
from countless.core.budget.hold import Hold, Slot

if TYPE_CHECKING:
    from countless.client.budgets.asynchronous import AsyncHold


class Spendable(ABC):
    """The calls of one budget, and of several together."""

    @abstractmethod
    def _request(self, n: int, *, hold: bool) -> Request:
        """A request for `n` units, to spend or to hold."""

    def take(self, n: int = 1, wait: float = WAIT_S) -> Decision:
        """Spend `n` units. The decision is true if they may be used.

        Only if this process has too few units does it ask the coordinator, and wait at most `wait` seconds. Raises
        `UnknownBudget` if the coordinator has no such budget.
        """
        return decide(self._request(n, hold=False), wait)

    def reserve(self, n: int, wait: float = WAIT_S) -> Hold:
        """Hold `n` units until you know how many are used. Raises `LimitExceeded`, `Starved` or `Unreachable`."""
        request = self._request(n, hold=True)
        decision = decide(request, wait)
        if not decision:
            raise refusal(request.budget, decision, n, wait)
        return Hold(n, request.settle)

    def acquire(self, n: int = 1, wait: float = WAIT_S) -> Slot:
        """Hold `n` units while something runs, as a limit on what runs at the same time. None is spent.

        Waits at most `wait` seconds, even while all units are in use. Raises `LimitExceeded`, `Starved` or
        `Unreachable`.
        """
        request = UntilUnitsReturn(self._request(n, hold=True))
        decision = decide(request, wait)
        if not decision:
            raise refusal(request.budget, decision, n, wait)
        return Slot(n, request.settle)

    async def atake(self, n: int = 1, wait: float = WAIT_S) -> Decision:
        """`take` for asyncio, while other tasks run."""
        from countless.client.budgets.asynchronous import decide_async  # a program without asyncio need not import it

        return await decide_async(self._request(n, hold=False), wait)

    def areserve(self, n: int, wait: float = WAIT_S) -> "AsyncHold[Hold]":
        """`reserve` for asyncio: `async with budget.areserve(n) as hold`, or `hold = await budget.areserve(n)`."""
        from countless.client.budgets.asynchronous import AsyncHold

        return AsyncHold(self._request(n, hold=True), n, wait, Hold)

    def aacquire(self, n: int = 1, wait: float = WAIT_S) -> "AsyncHold[Slot]":
        """`acquire` for asyncio."""
        from countless.client.budgets.asynchronous import AsyncHold

        return AsyncHold(UntilUnitsReturn(self._request(n, hold=True)), n, wait, Slot)
