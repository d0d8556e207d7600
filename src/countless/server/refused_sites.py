"""Addresses from which sites try to connect in vain. A site that is refused looks like one that does not exist."""

from collections.abc import Callable
from time import time
from typing import NamedTuple

FORGET_AFTER_S = 120.0  # a client tries again after 22 seconds at most
MAX_ADDRESSES = 1_000


class Refused(NamedTuple):
    address: str
    reason: str
    attempts: int
    last: float  # seconds since 1970


class RefusedSites:
    """The last refusal of each address; of more than MAX_ADDRESSES, of those that tried last.

    >>> refused = RefusedSites(clock=lambda: 5.0)
    >>> refused.add("192.0.2.1", "no token")
    >>> refused.add("192.0.2.1", "no token")
    >>> refused.recent()
    [Refused(address='192.0.2.1', reason='no token', attempts=2, last=5.0)]
    """

    def __init__(self, clock: Callable[[], float] = time) -> None:
        self._clock = clock
        self.listener: Callable[[str, str], None] | None = None  # is told every address and reason
        self._by_address: dict[str, Refused] = {}  # the one that tried last is last

    def add(self, address: str, reason: str) -> None:
        if self.listener is not None:
            self.listener(address, reason)
        before = self._by_address.pop(address, None)
        attempts = before.attempts + 1 if before else 1
        self._by_address[address] = Refused(address, reason, attempts, self._clock())
        if len(self._by_address) > MAX_ADDRESSES:
            del self._by_address[next(iter(self._by_address))]

    def recent(self) -> list[Refused]:
        """Those that still try, the last one first."""
        now = self._clock()  # an attempt of later was made before the clock was put back
        self._by_address = {
            address: each for address, each in self._by_address.items() if 0 <= now - each.last <= FORGET_AFTER_S
        }
        return list(self._by_address.values())[::-1]
