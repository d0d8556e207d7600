"""`lattice`: random lattices, for streams that do not react to the answers."""

from collections.abc import Sequence

from countless.core.estimator import Effect, Estimator, RoundContext
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import Trigger
from countless.planning.cache import PlanCache
from countless.planning.oblivious import ObliviousPlan, plan_lattice
from countless.schemes.offsets import OffsetTable
from countless.schemes.planned import PlannedScheme


class LatticeEstimator(Estimator):
    """The sum over sites of the last lattice point at or below the count, plus half a step each."""

    def __init__(self, lattices: OffsetTable, reports: int) -> None:
        self._lattices = lattices
        self._step = lattices.steps[0]  # of all sites
        self._left = reports
        self._points = 0
        self._sites = 0

    def trigger(self, slot: int) -> Trigger:
        return self._lattices[slot]

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        """Only lattice points enter the estimate, not the exact counts: errors of lattice points cancel better."""
        self._points = departed + sum(self._lattices.floor(entry.slot, entry.round_start) for entry in entries)
        self._sites = len(entries)
        self._estimate()

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        gain = self._lattices.gain(entry.slot, before, entry.reported)
        self._points += gain
        self._left -= gain // self._step
        self._estimate()
        return Effect.END_ROUND if self._left <= 0 else None

    def join(self, entry: Entry) -> None:
        self._points += self._lattices.floor(entry.slot, entry.round_start)
        self._sites += 1
        self._estimate()

    def leave(self, entry: Entry, before: int) -> Effect | None:
        """The estimate of the site stays on its lattice. The final snapshot includes reports that it has overtaken."""
        return self.on_report(entry, before, 0)

    def debug_state(self) -> dict[str, int]:
        """The exact sum of lattice points, for tests: the estimate may be a float."""
        return {"points": self._points}

    def _estimate(self) -> None:
        doubled = 2 * self._points + self._sites * (self._step - 1)
        whole = doubled >> 1
        self.estimate = whole + 0.5 if doubled & 1 else whole


class Lattice(PlannedScheme[ObliviousPlan]):
    """Each site reports on its own random lattice; a report tells its count to within half a step.

    Formal guarantees: with probability 1 - delta within 1 ± alpha at every moment, for streams fixed in advance. One
    that reacts to the answers breaks it: feed a site until the answer moves and leave it there, and all errors add up.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=16, alpha=0.05, scheme="lattice", adversary="oblivious", seed=1)
    >>> for i in range(50_000): tracker.site(i % 16).add()
    >>> tracker.answer.lower <= 50_000 <= tracker.answer.upper
    True

    References: design/proofs/oblivious.md.
    """

    name = "lattice"
    safe_against = "oblivious"
    caches = (PlanCache(plan_lattice),)

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return LatticeEstimator(OffsetTable([step] * plan.sites, rng), plan.reports)
