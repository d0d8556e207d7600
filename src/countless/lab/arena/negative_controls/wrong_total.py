"""Negative controls that estimate from something else than the exact counts of all sites."""

from collections.abc import Sequence

from countless.core.estimator import Effect, Estimator, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import GeometricGrowth, Trigger
from countless.planning.oblivious import ObliviousPlan
from countless.schemes.lattice import Lattice, LatticeEstimator
from countless.schemes.offsets import OffsetTable


class _FirstSiteTimesSites(Estimator):
    def __init__(self, alpha: float) -> None:
        self._trigger = GeometricGrowth(alpha)
        self._sites = 0

    def trigger(self, slot: int) -> Trigger:
        return self._trigger

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        self._sites = len(entries)
        self.estimate = self._sites * next((entry.round_start for entry in entries if not entry.slot), 0)

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        if entry.slot == 0:
            self.estimate = self._sites * entry.reported
        return None

    def join(self, entry: Entry) -> None:
        self._sites += 1


class Pollster(Scheme):
    """Multiplies the count of the first site by the number of sites."""

    name = "pollster"
    safe_against = "oblivious"

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        return RoundSetup(self.name, _FirstSiteTimesSites(context.alpha))


class _FromEstimate(LatticeEstimator):
    def __init__(self, lattices: OffsetTable, reports: int, last_estimate: float | None) -> None:
        super().__init__(lattices, reports)
        self._last_estimate = last_estimate

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        super().start(entries, departed)
        if self._last_estimate is not None:
            self._points += round(self._last_estimate - self.estimate)
            self._estimate()


class Drifting(Lattice):
    """Starts each round from the last estimate instead of the exact total: the errors of all rounds add up."""

    name = "drifting"

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        last = None if context.running is None else context.running.estimator.estimate
        return _FromEstimate(OffsetTable(step, plan.sites, rng), plan.reports, last)
