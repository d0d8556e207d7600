"""The calls that programs make to spend a budget, or several together."""

from abc import ABC, abstractmethod
from math import inf
from typing import TYPE_CHECKING

from countless.client.budgets.holds import require_expires_in
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

    def reserve(self, n: int, wait: float = WAIT_S, expires_in: float | None = None) -> Hold:
        """Hold `n` units until you know how many are used. Raises `LimitExceeded`, `Starved` or `Unreachable`.

        Args:
            n: Units.
            wait: Seconds to wait for the coordinator, at most.
            expires_in: Seconds until a hold that is not settled counts as spent. None: 600, or never if the budget
                limits what runs at the same time.
        """
        require_expires_in(expires_in)
        request = self._request(n, hold=True)
        decision = decide(request, wait)
        if not decision:
            raise refusal(request.budget, decision, n, wait)
        return request.hold(Hold, n, expires_in)

    def acquire(self, n: int = 1, wait: float = WAIT_S, expires_in: float = inf) -> Slot:
        """Hold `n` units while something runs, as a limit on what runs at the same time.

        Raises `LimitExceeded`, `Starved` or `Unreachable`.

        Args:
            n: Units.
            wait: Seconds to wait, at most, even while all units are in use.
            expires_in: Seconds until it ends like any `Hold`, even if the work still runs.
        """
        require_expires_in(expires_in)
        request = UntilUnitsReturn(self._request(n, hold=True))
        decision = decide(request, wait)
        if not decision:
            raise refusal(request.budget, decision, n, wait)
        return request.hold(Slot, n, expires_in)

    async def atake(self, n: int = 1, wait: float = WAIT_S) -> Decision:
        """`take` for asyncio, while other tasks run."""
        from countless.client.budgets.asynchronous import decide_async  # a program without asyncio need not import it

        return await decide_async(self._request(n, hold=False), wait)

    def areserve(self, n: int, wait: float = WAIT_S, expires_in: float | None = None) -> "AsyncHold[Hold]":
        """`reserve` for asyncio: `async with budget.areserve(n) as hold`, or `hold = await budget.areserve(n)`.

        Args:
            n, wait, expires_in: As for `reserve`.
        """
        from countless.client.budgets.asynchronous import AsyncHold

        return AsyncHold(self._request(n, hold=True), n, wait, Hold, expires_in)

    def aacquire(self, n: int = 1, wait: float = WAIT_S, expires_in: float = inf) -> "AsyncHold[Slot]":
        """`acquire` for asyncio.

        Args:
            n, wait, expires_in: As for `acquire`.
        """
        from countless.client.budgets.asynchronous import AsyncHold

        return AsyncHold(UntilUnitsReturn(self._request(n, hold=True)), n, wait, Slot, expires_in)
