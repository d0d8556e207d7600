"""`dithered`: secret lattices and secret thresholds; theorem and proof in design/proofs/dithered.md."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

from countless.core.estimator import Effect, Estimator, RoundContext
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import EveryNth, Trigger
from countless.planning.cache import PlanCache, round_up_sites
from countless.planning.dithered.plan import DitheredPlan
from countless.planning.dithered.ready_made import quick_plan_dithered, quote_dithered
from countless.planning.dithered.steps import MOVED_SHARE, steps_for
from countless.planning.failure_budget import round_down_pow16
from countless.planning.plan import RoundPlan
from countless.schemes.offsets import OffsetTable
from countless.schemes.planned import PlannedScheme

_WHOLE = 1 << 53  # a float in [0.5, 1) has this many values
_EVERY_EVENT = EveryNth(1)
MAX_EXPECTED = 2  # a site expected to count fewer events in a round reports each: a snapshot costs two messages
MAX_EXACT = 3  # events of such a site in a round; then it gets a lattice, which costs a trigger and a snapshot
FREE_SHARE = 0.25  # of a present site's events: half of the free slots are used, on average for half of the round


class HiddenState(NamedTuple):
    """For `debug_state`: the total at the start of the round, the hidden sum, where each phase ends, the steps."""

    total: int
    lead: int
    goals: list[int]
    steps: Sequence[int]


class DitheredEstimator(Estimator):
    """One public answer for each phase; a phase ends when the hidden sum passes its secret threshold.

    Each slot has its own step; `step` is what the plan allows to all, the unit of its phases.

    `_lead` is the hidden sum in events: over all slots, last lattice point minus the count at which the slot entered.
    The proof's B is _lead plus (step-1)/2 for each slot. Free slots are in it from the start, so neither a join nor a
    departure moves it: that would reveal something that the proof does not count.

    The sites in `exact` report every event. Their slots count as free: what they count is added to the total at the
    start, as if they had joined with it. After a few events they do join, and get the lattice of their slot.
    """

    def __init__(
        self,
        plan: DitheredPlan,
        step: int,
        rng: RandomSource,
        steps: Sequence[int] | None = None,
        exact: Iterable[int] = (),
    ) -> None:
        self._plan = plan
        self._step = step
        self._lattices = OffsetTable(steps or [step] * plan.sites, rng.spawn("offsets"))
        self._goals = _goals(plan, step, self._lattices.steps, rng.spawn("thresholds"))
        self._joins_at = dict.fromkeys(exact, 0)  # for each slot that is exact, the count at which it gets its lattice
        self._total = 0  # at the start of the round; what joiners and exact sites bring is added
        self._lead = 0
        self._phase = -1

    @property
    def phase(self) -> int:
        """From 0, once the round has begun."""
        return max(0, self._phase)

    def debug_state(self) -> HiddenState:
        """The secrets, for tests."""
        return HiddenState(self._total, self._lead, self._goals, self._lattices.steps)

    def trigger(self, slot: int) -> Trigger:
        return _EVERY_EVENT if slot in self._joins_at else self._lattices[slot]

    def stays_exact(self, slot: int) -> bool:
        return slot in self._joins_at

    def exact_below_of(self, entry: Entry) -> float:
        return inf if entry.slot in self._joins_at else 0

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        """Every slot starts on its lattice: a site at its base, a free slot at 0."""
        bases = [0] * len(self._lattices)
        for entry in entries:
            if entry.slot in self._joins_at:
                self._joins_at[entry.slot] = entry.round_start + MAX_EXACT
            else:
                bases[entry.slot] = entry.round_start
        self._total = departed + sum(entry.round_start for entry in entries)
        self._lead = sum(self._lattices.floor(slot, base) - base for slot, base in enumerate(bases))
        self._next_phase()

    def join(self, entry: Entry) -> None:
        """The joining site's count is known exactly. The position of its slot on the lattice stays the same."""
        self._lattices.shift(entry.slot, entry.round_start)
        self._total += entry.round_start
        self._announce()

    def leave(self, entry: Entry, before: int) -> Effect | None:
        """The estimate of the site stays on its lattice. The final snapshot includes reports that it has overtaken."""
        return self.on_report(entry, before, 0)

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        """Move one site to its new lattice point. Nearly always that ends no phase."""
        if entry.slot in self._joins_at:
            return self._on_exact(entry, before)
        lead = self._lead + self._lattices.gain(entry.slot, before, entry.reported)
        if lead < self._goal:
            self._lead = lead
            return None
        return self._replay(entry, before)

    def _on_exact(self, entry: Entry, before: int) -> Effect | None:
        """The count of the site is known. At `joins_at` it gets its lattice, and what it counts beyond is hidden."""
        joins_at = self._joins_at[entry.slot]
        known = max(before, min(entry.reported, joins_at))
        self._total += known - before
        self._announce()
        if entry.reported < joins_at:
            return None
        del self._joins_at[entry.slot]
        self._lattices.shift(entry.slot, known)
        return self.on_report(entry, known, 0) or Effect.CHANGE_TRIGGER

    def _replay(self, entry: Entry, before: int) -> Effect | None:
        """The same, one crossing after the other: a batch must equal its events.

        At the very point that ends a phase the public learns that this site stood on its lattice there. So the lattice
        moves there, before the rest of the batch is looked at: down, until the hidden sum is the threshold itself.
        Where in the last step the threshold lay is a secret like any offset. (Moving it after the batch would let B
        rise.) Two thresholds at the same place end two phases at once.
        """
        lattices, slot, at, moved = self._lattices, entry.slot, before, False
        step = lattices.steps[slot]
        while (point := lattices.floor(slot, at) + step) <= entry.reported:
            passed = (entry.reported - point) // step + 1
            needed = max(1, -((self._lead - self._goal) // step))
            if passed < needed:
                self._lead += passed * step
                break
            at = point + (needed - 1) * step
            self._lead += needed * step
            drop = min(self._lead - self._goal, step - 1)
            self._lead -= drop
            while self._lead >= self._goal:
                if not self._next_phase():
                    return Effect.END_ROUND
            lattices.place(slot, at - drop)
            moved = True
        return Effect.CHANGE_TRIGGER if moved else None

    def _next_phase(self) -> bool:
        """Publish the answer of the next phase and take its threshold. False if the round is over."""
        self._phase += 1
        if self._phase >= len(self._plan.phases):
            return False
        self._goal = self._goals[self._phase]
        self._announce()
        return True

    def _announce(self) -> None:
        self.estimate = self._plan.answer(self._total, self._step, self._phase)


def _goals(plan: DitheredPlan, step: int, steps: Sequence[int], rng: RandomSource) -> list[int]:
    """For each phase, the hidden sum in events from which on it is over: the threshold, rounded up to an event.

    The sum lies half of each slot's step below B. Where a step has more events than a threshold has trusted digits,
    the rest are drawn again.
    """
    goals = []
    below, grain = sum(steps) - len(steps), max(1, int(step * plan.resolution))
    for threshold in plan.thresholds(_fractions(rng, len(plan.phases))):
        over, unit = threshold.as_integer_ratio()
        goal = -((below * unit - 2 * over * step) // (2 * unit))
        goals.append(goal - goal % grain + rng.randbelow(grain))
    return sorted(goals)


def _fractions(rng: RandomSource, times: int) -> list[float]:
    """Uniform on [0, 1), with all the digits of a float however small they are.

    The density of a threshold may be small at the lower end of its window. There two uniform numbers that differ by
    2^-53 may give thresholds many steps apart.
    """
    coarse, finer = ([source.randbelow(_WHOLE) for _ in range(times)] for source in (rng, rng.spawn("finer")))
    return [_fraction(high, low, rng) for high, low in zip(coarse, finer, strict=True)]


def _fraction(high: int, low: int, rng: RandomSource) -> float:
    unit = 1 / _WHOLE
    while not high:
        high, unit = rng.randbelow(_WHOLE), unit / _WHOLE
    return min(unit * (high + low / _WHOLE), 1 - 1 / _WHOLE)


class Dithered(PlannedScheme[DitheredPlan]):
    """Sites report on secret lattices; the public answer moves only when their hidden sum passes a secret threshold.

    What the public can learn is when the answer moves: that one site was on its lattice just then (its lattice moves at
    once, by a secret part of a step), and that a threshold lay in the step before. The proof counts all transcripts
    this allows.

    Formal guarantees: with probability 1 - delta the answer is within 1 ± alpha of the total at every moment, against
    every adaptive adversary that sees the answers and nothing else - not message counts, report times or rounds.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=16, alpha=0.05, scheme="dithered", seed=1)
    >>> for i in range(50_000): tracker.site(i % 16).add()
    >>> tracker.answer.lower <= 50_000 <= tracker.answer.upper
    True

    References: design/proofs/dithered.md.
    """

    name = "dithered"
    safe_against = "adaptive"
    caches = (PlanCache(quick_plan_dithered),)
    kind = DitheredEstimator

    def eta(self, context: RoundContext) -> float:
        """Rounded down to a power of 16: more rounds share a plan, for one or two per cent more messages."""
        return round_down_pow16(super().eta(context))

    def quotes(self, context: RoundContext, may_block: bool) -> Sequence[RoundPlan]:
        quote = quote_dithered(round_up_sites(context.slots), context.alpha, self.eta(context))
        return self.plans(context, may_block) if quote is None or self._given is not None else [quote]

    def estimator(self, plan: DitheredPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        events, total = step * plan.steps_per_round, max(1, sum(context.counts))
        mean = events / max(1, len(context.counts))
        stable = [events * count / total for count in context.counts]
        expected = [MOVED_SHARE * mean + (1 - MOVED_SHARE) * number for number in stable]
        expected += [FREE_SHARE * mean] * (min(context.slots, plan.sites) - len(expected))
        expected += [0.0] * (plan.sites - len(expected))  # spare: plans are for rounded numbers
        exact = [slot for slot, number in enumerate(stable) if number < MAX_EXPECTED]
        return self.kind(plan, step, rng, steps_for(plan, step, expected), exact)
