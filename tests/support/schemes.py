"""Schemes without any calibration, whose numbers a test chooses, so that a person can follow every message."""

from countless.core.estimator import Case, Consequence, Counting, Opening, Publisher, Scheme, Stay
from countless.core.ledger import Entry
from countless.core.random_source import Dice
from countless.core.triggers import Blocks, Sampled
from countless.errors import PlanError
from countless.schemes.crossing_estimator import Crossings
from countless.schemes.dithered import Phases
from countless.schemes.lattice import LatticePoints
from countless.schemes.offsets import Lattices
from support.plans import dithered_plan


class Redrawn(LatticePoints):
    """Gives a site another lattice after every report."""

    def hear(self, entry: Entry, before: int, crossings: int) -> Consequence | None:
        super().hear(entry, before, crossings)
        self._lattices.place(entry.slot, entry.known + 2)
        return Consequence(repace=self._lattices[entry.slot])


class Plain(Scheme):
    """Exact up to a total of `start`; then rounds of `reports` crossings, with `step`, for at most `slots` sites."""

    name = "plain"
    safe_against = "oblivious"
    asks = True

    def __init__(
        self, kind: str = "lattice", *, start: int = 10, step: int = 5, reports: int = 4, slots: int | None = None
    ) -> None:
        self.kind, self.start, self.step, self.reports, self.slots = kind, start, step, reports, slots
        self.most_sites: int | None = None

    def open(self, case: Case, dice: Dice) -> Opening | Stay:
        if self.most_sites is not None and len(case.counts) > self.most_sites:
            raise PlanError(f"no plan for {len(case.counts)} sites")
        if case.total < self.start:
            return Opening(self.name, Counting(self.start))
        slots = None if self.slots is None else max(self.slots, case.sites)
        return Opening(self.name, self._publisher(case, dice), slots, asks=self.asks)

    def _publisher(self, case: Case, dice: Dice) -> Publisher:
        if self.kind == "blocks":
            return Crossings(Blocks(self.step), self.reports)
        if self.kind == "sampled":
            return Crossings(Sampled(self.step), self.reports)
        kind = Redrawn if self.kind == "redrawn" else LatticePoints
        return kind(Lattices(self.step, max(self.slots or 0, case.sites) + 10, dice), self.reports)


class PlainDithered(Scheme):
    """Exact up to a total of `start`, then dithered rounds of a few short phases."""

    name = "plain-dithered"
    safe_against = "adaptive"
    asks = True

    def __init__(self, *, start: int = 10, step: int = 5, phases: int = 4, reserve: int = 2) -> None:
        self.start, self.step, self.phases, self.reserve = start, step, phases, reserve

    def open(self, case: Case, dice: Dice) -> Opening | Stay:
        if case.total < self.start:
            return Opening(self.name, Counting(self.start))
        plan = dithered_plan(case.sites + self.reserve, self.phases)
        return Opening(self.name, Phases(plan, self.step, dice), plan.sites, plan, self.asks)
