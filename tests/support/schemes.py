"""Schemes without any calibration, whose numbers a test chooses, so that a person can follow every message."""

from countless.core.estimator import Effect, Estimator, ExactSum, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import BernoulliSampling, OncePerBlock
from countless.errors import PlanError
from countless.schemes.dithered import DitheredEstimator
from countless.schemes.lattice import LatticeEstimator
from countless.schemes.offsets import OffsetTable
from countless.schemes.sampled import CrossingEstimator
from support.plans import dithered_plan


class Redrawn(LatticeEstimator):
    """Gives a site another lattice after every report."""

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        super().on_report(entry, before, crossings)
        self._lattices.place(entry.slot, entry.reported + 2)
        return Effect.CHANGE_TRIGGER


class Plain(Scheme):
    """Exact up to a total of `start`; then rounds of `reports` crossings, with `step`, for at most `slots` sites."""

    name = "plain"
    safe_against = "oblivious"

    def __init__(
        self, kind: str = "lattice", *, start: int = 10, step: int = 5, reports: int = 4, slots: int | None = None
    ) -> None:
        self.kind, self.start, self.step, self.reports, self.slots = kind, start, step, reports, slots
        self.most_sites: int | None = None

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        if self.most_sites is not None and len(context.counts) > self.most_sites:
            raise PlanError(f"no plan for {len(context.counts)} sites")
        if context.total < self.start:
            return RoundSetup(self.name, ExactSum(self.start))
        slots = None if self.slots is None else max(self.slots, context.slots)
        return RoundSetup(self.name, self._estimator(context, rng), slots)

    def _estimator(self, context: RoundContext, rng: RandomSource) -> Estimator:
        if self.kind == "blocks":
            return CrossingEstimator(OncePerBlock(self.step), self.reports)
        if self.kind == "sampled":
            return CrossingEstimator(BernoulliSampling(self.step), self.reports)
        kind = Redrawn if self.kind == "redrawn" else LatticeEstimator
        return kind(OffsetTable([self.step] * (max(self.slots or 0, context.slots) + 10), rng), self.reports)


class PlainDithered(Scheme):
    """Exact up to a total of `start`, then dithered rounds of a few short phases.

    If `uneven`, the steps of the slots differ, and every third site stays exact.
    """

    name = "plain-dithered"
    safe_against = "adaptive"

    def __init__(self, *, start: int = 10, step: int = 5, phases: int = 4, reserve: int = 2, uneven: int = 0) -> None:
        self.start, self.step, self.phases, self.reserve, self.uneven = start, step, phases, reserve, uneven

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        if context.total < self.start:
            return RoundSetup(self.name, ExactSum(self.start))
        plan = dithered_plan(context.slots + self.reserve, self.phases)
        steps = [1 + (self.step * (slot + 1)) % 11 if self.uneven else self.step for slot in range(plan.sites)]
        exact = range(0, len(context.counts), 3) if self.uneven else ()
        return RoundSetup(self.name, DitheredEstimator(plan, self.step, rng, steps, exact), plan.sites, plan)
