"""The `limits` library with Redis: every decision is a round trip.

The window is a year, so it does not end during a run. The library cannot return units. So a hold is what proxies make
of it: `test` before the call, and a `hit` with the units that were used after it.
"""

import redis
from limits import RateLimitItemPerYear
from limits.storage import RedisStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from race.limits.contestants.base import Case, Fleet, Outcome
from race.limits.contestants.connections import retry_once
from race.limits.workloads import Request

Strategy = type[FixedWindowRateLimiter] | type[MovingWindowRateLimiter]


class LibraryFleet(Fleet):
    """A storage, with a connection, for each site."""

    def __init__(self, address: str, case: Case, strategy: Strategy) -> None:
        url = f"redis://127.0.0.1:{address}"
        self._storages = [RedisStorage(url, retry=retry_once()) for _ in range(case.sites)]  # type: ignore[arg-type]
        self._limiters = [strategy(storage) for storage in self._storages]
        self._item = RateLimitItemPerYear(case.limit)
        self._name = case.name

    def take(self, site: int, units: int) -> Outcome:
        try:
            allowed = self._limiters[site].hit(self._item, self._name, cost=units)
        except redis.ConnectionError:
            return Outcome.UNDECIDED
        return Outcome.ALLOWED if allowed else Outcome.REFUSED

    def reserve(self, request: Request) -> Outcome:
        try:
            allowed = self._limiters[request.site].test(self._item, self._name, cost=request.units)
        except redis.ConnectionError:
            return Outcome.UNDECIDED
        return Outcome.ALLOWED if allowed else Outcome.REFUSED

    def settle(self, request: Request) -> None:
        if request.used:
            self.take(request.site, request.used)

    def close(self) -> None:
        for storage in self._storages:
            storage.storage.close()
