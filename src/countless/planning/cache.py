"""A cache of plans. Plans are pure, so sharing a cache changes no plan, only the time taken.

Plans repeat because they depend on (sites, alpha, eta) only, eta is a power of two, and a plan for more sites covers
fewer: so sites are rounded up. A coordinator must not plan for
a second while messages wait, so it calls `cached`: the plan itself if it is in the cache, else the cheapest cached plan
that is safe in its place (for at least as many sites and at most as much failure), else None.
"""

from collections.abc import Callable
from functools import cache
from typing import Generic, TypeVar

from countless.planning.plan import MAX_SITES, Plan

P = TypeVar("P", bound=Plan)


def round_up_sites(sites: int) -> int:
    """The next number with four significant bits: at most an eighth more.

    >>> [round_up_sites(sites) for sites in (1, 15, 17, 100, 1000)]
    [1, 15, 18, 104, 1024]
    """
    unit = 1 << max(0, sites.bit_length() - 4)
    return max(sites, min(-(-sites // unit) * unit, MAX_SITES))


class PlanCache(Generic[P]):
    """Plans of one calibration. Nothing is evicted: a plan is a few kilobytes, a counter needs a few dozen."""

    def __init__(self, calibrate: Callable[[int, float, float], P]) -> None:
        self.calibrate = calibrate
        self._computed = cache(calibrate)
        self._plans: dict[tuple[int, float, float], P] = {}

    def plan(self, sites: int, alpha: float, eta: float) -> P:
        key = (round_up_sites(sites), alpha, eta)
        if key not in self._plans:
            self._plans[key] = self._computed(*key)
        return self._plans[key]

    def forget(self) -> None:
        """Have no plan in the cache, as a process that has just started; what was computed is not computed again."""
        self._plans = {}

    def cached(self, sites: int, alpha: float, eta: float) -> P | None:
        """The best plan that needs no computation, or None."""
        plans = self._plans
        key = (round_up_sites(sites), alpha, eta)
        if key in plans:
            return plans[key]
        # A copy, because another thread may be planning.
        safe = [p for (k, a, e), p in list(plans.items()) if a == alpha and k >= sites and e <= eta]
        return min(safe, key=lambda plan: plan.messages_per_efold, default=None)
