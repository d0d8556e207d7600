"""Connections of sites: messages to one, the limit on those from one, turns, and the ones that were refused."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import time
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

from countless.wire.frames import DownItem

ITEMS_PER_WRITE = 1000  # of one connection; then the loop does other work
BURST_S = 4.0  # a site may send this many seconds' worth at once: after a reconnect it has items for every counter
FORGET_AFTER_S = 120.0  # a refused client tries again after 22 seconds at most
MAX_ADDRESSES = 1_000


class Connection(Protocol):
    """A WebSocket and a NATS stream are its implementations."""

    def send(self, items: list[DownItem]) -> None:
        """Queue items. Does not block; after `close` nothing is sent."""

    def close(self, code: int, reason: str) -> None:
        """Close with a WebSocket close code once everything queued was sent."""


class RateLimit:
    """The limit on the messages of one site."""

    __slots__ = ("_available", "_clock", "_per_second", "_refilled_at")

    def __init__(self, per_second: int, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._available = BURST_S * per_second
        self._clock = clock
        self._refilled_at = clock()

    def take(self, messages: int) -> float:
        """Count these messages; the seconds until they are within the limit, 0 if they are.

        It refills only when nothing is left, so that the clock is not read for every frame.
        """
        self._available -= messages
        if self._available >= 0:
            return 0.0
        now = self._clock()
        self._available += min(BURST_S, now - self._refilled_at) * self._per_second
        self._refilled_at = now
        return max(0.0, -self._available / self._per_second)


class Turns:
    """Callers take turns: a caller waits for one turn of each other caller, however many turns those want."""

    def __init__(self) -> None:
        self._all = asyncio.Lock()
        self._callers: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        mine = self._callers.setdefault(caller, asyncio.Lock())
        async with mine, self._all:
            yield

    async def wait(self, caller: str) -> None:
        """A turn is one turn of the loop: some requests take 20 ms, and between two of them sites are served."""
        async with self.turn(caller):
            await asyncio.sleep(0)


class RefusedSite(NamedTuple):
    address: str
    reason: str
    attempts: int
    last: float  # seconds since 1970


class RefusedSites:
    """Addresses from which sites try to connect in vain: a site that is refused looks like one that does not exist.

    The last refusal of each; of more than MAX_ADDRESSES, of those that tried last.

    >>> refused = RefusedSites(clock=lambda: 5.0)
    >>> refused.add("192.0.2.1", "no token")
    >>> refused.add("192.0.2.1", "no token")
    >>> refused.recent()
    [RefusedSite(address='192.0.2.1', reason='no token', attempts=2, last=5.0)]
    """

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self.listener: Callable[[str, str], None] | None = None  # is told every address and reason
        self._by_address: dict[str, RefusedSite] = {}  # the one that tried last is last

    def add(self, address: str, reason: str) -> None:
        if self.listener is not None:
            self.listener(address, reason)
        before = self._by_address.pop(address, None)
        attempts = before.attempts + 1 if before else 1
        self._by_address[address] = RefusedSite(address, reason, attempts, self._clock())
        if len(self._by_address) > MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]

    def recent(self) -> list[RefusedSite]:
        """Those that still try, the last one first."""
        now = self._clock()  # an attempt of later was made before the clock was put back
        self._by_address = {
            address: each for address, each in self._by_address.items() if 0 <= now - each.last <= FORGET_AFTER_S
        }
        return list(self._by_address.values())[::-1]
