"""The book of plans: every plan is worked out once. A pure memory: sharing it changes no plan, only the time taken.

Plans repeat because they depend on (sites, alpha, eta) only and eta is a power of two. A coordinator must not think for
a second while messages wait, so it asks with `ready`: the plan itself if it is in the book, else the cheapest one in
the book that is safe in its place - for at least as many sites and at most as much failure - else nothing.
"""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from countless.planning.plan import Plan

P = TypeVar("P", bound=Plan)


class PlanBook(Generic[P]):
    """Plans of one calibration, kept for ever (a plan is a few kilobytes; a long life needs a few dozen)."""

    def __init__(self, calibrate: Callable[[int, float, float], P]) -> None:
        self._calibrate = calibrate
        self._plans: dict[tuple[int, float, float], P] = {}

    def plan(self, sites: int, alpha: float, eta: float) -> P:
        """The plan, worked out now if need be."""
        key = (sites, alpha, eta)
        if key not in self._plans:
            self._plans[key] = self._calibrate(sites, alpha, eta)
        return self._plans[key]

    def ready(self, sites: int, alpha: float, eta: float) -> P | None:
        """The best plan that needs no work, or None."""
        exact = self._plans.get((sites, alpha, eta))
        if exact is not None:
            return exact
        return min(self._safe(sites, alpha, eta), key=lambda plan: plan.messages_per_efold, default=None)

    def _safe(self, sites: int, alpha: float, eta: float) -> Iterator[P]:
        for (other_sites, other_alpha, other_eta), plan in list(self._plans.items()):
            if other_alpha == alpha and other_sites >= sites and other_eta <= eta:
                yield plan
