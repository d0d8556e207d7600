"""Budgets in asyncio: a request that waits costs a future, no thread.

Attempts take the client's lock, as counting does: it is never held while anything waits for the network.
"""

from asyncio import Event, get_running_loop, timeout
from collections.abc import Generator
from contextlib import suppress
from types import TracebackType
from typing import Generic

from countless.client.budgets.holds import require_expires_in
from countless.client.budgets.requests import HoldType, Request, Waiter, refusal
from countless.core.budget.decision import Decision
from countless.core.parameters import require_seconds


async def decide_async(request: Request, wait: float) -> Decision:
    """As `decide`, without blocking the event loop."""
    require_seconds("wait", wait)
    decision = request.attempt()
    if decision is not None:
        return decision
    loop, ended = get_running_loop(), Event()

    def notify() -> None:
        with suppress(RuntimeError):  # the loop was closed while we waited
            loop.call_soon_threadsafe(ended.set)

    waiter = Waiter(request, notify)
    try:
        request.start_waiting(waiter)
        while not await _is_set(ended, wait) and waiter.waits_on(wait):
            pass
    except BaseException:
        request.stop_waiting(waiter)
        waiter.undo()
        raise
    request.stop_waiting(waiter)
    return waiter.result()


async def _is_set(event: Event, wait: float) -> bool:
    """Wait for it, at most so many seconds."""
    with suppress(TimeoutError):
        async with timeout(wait):
            await event.wait()
    return event.is_set()


class AsyncHold(Generic[HoldType]):
    """A hold that is not there yet: `async with` or `await` it."""

    def __init__(self, request: Request, n: int, wait: float, kind: type[HoldType], expires_in: float | None) -> None:
        require_expires_in(expires_in)
        self._request = request
        self._n = n
        self._wait = wait
        self._kind = kind
        self._expires_in = expires_in
        self._hold: HoldType | None = None

    async def _reserve(self) -> HoldType:
        decision = await decide_async(self._request, self._wait)
        if not decision:
            raise refusal(self._request.budget, decision, self._n, self._wait)
        return self._request.hold(self._kind, self._n, self._expires_in)

    def __await__(self) -> Generator[None, None, HoldType]:
        return self._reserve().__await__()

    async def __aenter__(self) -> HoldType:
        self._hold = await self._reserve()
        return self._hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._hold is not None:
            self._hold.__exit__(kind, error, traceback)
