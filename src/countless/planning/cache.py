"""A cache of plans. Plans are pure, so sharing a cache changes no plan, only the time taken.

Plans repeat because they depend on (sites, alpha, eta) only and eta is a power of two. A coordinator must not plan for
a second while messages wait, so it calls `cached`: the plan itself if it is in the cache, else the cheapest cached plan
that is safe in its place (for at least as many sites and at most as much failure), else None.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

from countless.planning.plan import Plan

P = TypeVar("P", bound=Plan)


class PlanCache(Generic[P]):
    """Plans of one calibration. Nothing is evicted: a plan is a few kilobytes, a counter needs a few dozen."""

    def __init__(self, calibrate: Callable[[int, float, float], P]) -> None:
        self._calibrate = calibrate
        self._plans: dict[tuple[int, float, float], P] = {}

    def plan(self, sites: int, alpha: float, eta: float) -> P:
        key = (sites, alpha, eta)
        if key not in self._plans:
            self._plans[key] = self._calibrate(sites, alpha, eta)
        return self._plans[key]

    def cached(self, sites: int, alpha: float, eta: float) -> P | None:
        """The best plan that needs no computation, or None."""
        plans = self._plans
        if (sites, alpha, eta) in plans:
            return plans[sites, alpha, eta]
        # A copy, because another thread may be planning.
        safe = [p for (k, a, e), p in list(plans.items()) if a == alpha and k >= sites and e <= eta]
        return min(safe, key=lambda plan: plan.messages_per_efold, default=None)
