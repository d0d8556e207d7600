"""`dithered` and a slow reference: one lattice point at a time, B as a sum of fractions (docs/theory/dithered.md)."""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from countless import Tracker
from countless.core.estimator import Effect
from countless.core.ledger import Entry
from countless.core.messages import Report, SetTrigger, SiteId
from countless.core.site import Site
from countless.core.site_states import Presence
from countless.planning.dithered_plan import DitheredPlan
from countless.randomness import SeededRandom
from countless.schemes.dithered import DitheredEstimator, _fraction
from support.plans import dithered_plan
from support.rng import ScriptedRandom

HITS = "hits"
SLOTS = 5


class Reference:
    """One round as the theory page defines it, without shortcuts."""

    def __init__(self, plan: DitheredPlan, step: int, rng: SeededRandom) -> None:
        offsets, thresholds = rng.spawn("offsets"), rng.spawn("thresholds")
        self.plan, self.step = plan, step
        self.offsets = [offsets.randbelow(step) for _ in range(plan.sites)]
        finer = thresholds.spawn("finer")
        drawn = plan.thresholds([thresholds.random() + finer.random() / 2**53 for _ in plan.phases])
        self.thetas = self.with_fresh_digits([Fraction(theta) for theta in drawn], thresholds)
        self.bases = [0] * plan.sites
        self.counts = [0] * plan.sites
        self.total = 0
        self.phase = 0

    def with_fresh_digits(self, drawn: list[Fraction], rng: SeededRandom) -> list[Fraction]:
        """Where a grain has several values of B, another one of the same block of them."""
        grain = int(self.step * self.plan.resolution)
        if grain < 2:
            return drawn
        lowest = Fraction(self.plan.sites * (self.step - 1), 2)  # B in events, when all last points add up to 0
        blocks = [ceil(theta * self.step - lowest) // grain for theta in drawn]
        return sorted((block * grain + rng.randbelow(grain) + lowest) / self.step for block in blocks)

    def join(self, slot: int, count: int) -> None:
        """The slot's offset, shifted to the newcomer's count."""
        self.offsets[slot] = (self.offsets[slot] + count) % self.step
        self.bases[slot] = self.counts[slot] = count
        self.total += count

    def last_point(self, slot: int) -> int:
        return self.counts[slot] - (self.counts[slot] - self.offsets[slot]) % self.step

    def B(self) -> Fraction:  # noqa: N802 - the letter of the proof
        estimates = [self.last_point(slot) + Fraction(self.step - 1, 2) for slot in range(self.plan.sites)]
        return (sum(estimates, Fraction(0)) - sum(self.bases)) / self.step

    def add(self, slot: int, n: int) -> None:
        """Event after event; those between two lattice points do nothing, and are skipped."""
        end = self.counts[slot] + n
        while not self.over and (point := self.last_point(slot) + self.step) <= end:
            self.counts[slot] = point
            if self.B() >= self.theta:
                above = floor((self.B() - self.theta) * self.step)
                self.offsets[slot] = (self.offsets[slot] - min(above, self.step - 1)) % self.step
                while not self.over and self.B() >= self.theta:
                    self.phase += 1
        self.counts[slot] = end

    @property
    def theta(self) -> Fraction:
        return self.thetas[self.phase]

    @property
    def over(self) -> bool:
        return self.phase >= len(self.plan.phases)

    def answer_range(self) -> tuple[Fraction, Fraction]:
        phase, alpha = self.plan.phases[self.phase], Fraction(repr(self.plan.alpha))
        lowest = (1 - alpha) * (self.total + self.step * Fraction(phase.high))
        return lowest, (1 + alpha) * (self.total + self.step * Fraction(phase.low))


class Round:
    """The estimator with production sites around it: what the coordinator does, without the coordinator."""

    def __init__(self, plan: DitheredPlan, step: int, seed: int, bases: list[int]) -> None:
        self.estimator = DitheredEstimator(plan, step, SeededRandom(seed))
        self.reference = Reference(plan, step, SeededRandom(seed))
        self.entries: list[Entry] = []
        self.sites: list[Site] = []
        self.over = False
        self.changes = 0
        for slot, base in enumerate(bases):
            self.entries.append(Entry(SiteId(slot), base, slot))
            self.reference.bases[slot] = self.reference.counts[slot] = base
        self.reference.total = sum(bases)
        self.estimator.start(self.entries, departed=0)
        for entry in self.entries:
            self._place(entry)

    def _place(self, entry: Entry) -> None:
        trigger = self.estimator.trigger(entry.slot)
        self.sites.append(Site(HITS, entry.site_id, SeededRandom(0), trigger=trigger, count=entry.round_start))

    def B(self) -> Fraction:  # noqa: N802
        step = self.reference.step
        return Fraction(2 * self.estimator.debug_state().lead + SLOTS * (step - 1), 2 * step)

    def join(self, count: int) -> None:
        entry = Entry(SiteId(len(self.entries)), count, len(self.entries))
        self.entries.append(entry)
        self.estimator.join(entry)
        self.reference.join(entry.slot, count)
        self._place(entry)

    def leave(self, slot: int) -> None:
        entry = self.entries[slot]
        before, entry.reported = entry.reported, self.sites[slot].count
        entry.presence = Presence.DEPARTED
        assert self.estimator.leave(entry, before) is None

    def add(self, slot: int, n: int) -> None:
        self.reference.add(slot, n)
        messages = self.sites[slot].add(n)
        while messages and not self.over:
            [report] = messages
            assert isinstance(report, Report)
            messages = self._on_report(self.entries[slot], report)

    def _on_report(self, entry: Entry, report: Report) -> tuple[Report, ...]:
        before, entry.reported = entry.reported, report.count
        effect = self.estimator.on_report(entry, before, report.crossings - entry.crossings)
        entry.crossings = report.crossings
        if effect is None:
            return ()
        self.over = effect is Effect.END_ROUND
        if self.over:
            return ()
        self.changes += 1
        change = SetTrigger(HITS, 0, self.estimator.trigger(entry.slot), report.count)
        return tuple(answer for answer in self.sites[entry.slot].receive(change) if isinstance(answer, Report))

    def check(self) -> None:
        reference = self.reference
        assert self.over == reference.over
        if self.over:
            return
        assert self.estimator.phase == reference.phase
        assert [self.estimator.trigger(slot).offset for slot in range(SLOTS)] == reference.offsets  # type: ignore[union-attr]
        assert self.B() == reference.B()
        low, high = reference.answer_range()
        assert low <= Fraction(self.estimator.estimate) <= high


moves = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, SLOTS - 1), st.integers(1, 40)),
        st.tuples(st.just("join"), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("leave"), st.integers(0, SLOTS - 1), st.just(0)),
    ),
    min_size=1,
    max_size=40,
)


@given(
    moves,
    st.one_of(st.integers(1, 12), st.sampled_from([8_192, 30_000, 2**60])),
    st.sampled_from([(2.5, 1.2), (0.8, 3.0), (0.1, 0.2)]),  # apart; mixed; many in one place
    st.integers(0, 10**6),
    st.lists(st.integers(0, 30), min_size=1, max_size=3),
)
def test_dithered_estimator_equals_the_slow_reference(
    moves: list[tuple[str, int, int]], step: int, shape: tuple[float, float], seed: int, bases: list[int]
) -> None:
    """Phases, offsets, B and answers agree after every batch, also with joins and departures."""
    length, dither = shape
    played = Round(dithered_plan(SLOTS, phases=8, length=length, dither=dither), step, seed, bases)
    unit = max(1, step // 12)  # for batches as long, in steps, as with small ones
    played.check()
    for move, number, n in moves:
        present = [slot for slot, entry in enumerate(played.entries) if entry.presence is not Presence.DEPARTED]
        if move == "join" and len(played.entries) < SLOTS:
            played.join(number)
        elif move == "leave" and len(present) > 1:
            played.leave(present[number % len(present)])
        elif move == "add":
            played.add(present[number % len(present)], n * unit - number % unit)
        played.check()
        if played.over:
            break


@given(st.integers(1, 12), st.integers(0, 10**6), st.integers(0, 100), st.integers(0, 60))
def test_joins_and_departures_do_not_change_the_hidden_sum(step: int, seed: int, n: int, count: int) -> None:
    played = Round(dithered_plan(SLOTS, phases=50), step, seed, [3, 4])
    played.add(0, n)
    before, phase = played.B(), played.estimator.phase
    played.join(count)
    played.leave(0)
    assert (played.B(), played.estimator.phase) == (before, phase)


def batches(events: int, seed: int) -> Iterator[tuple[int, int]]:
    rng = SeededRandom(seed)
    while events > 0:
        n = rng.geometric(30)
        events -= n
        yield rng.randbelow(3), n


@pytest.mark.parametrize("seed", range(20))
def test_dithered_batch_equals_its_events_and_costs_no_more(seed: int) -> None:
    plan = dithered_plan(SLOTS, phases=60)
    batched, unit = Round(plan, 6, seed, [0, 0, 0]), Round(plan, 6, seed, [0, 0, 0])
    for slot, n in batches(700, seed):
        changes = batched.changes
        batched.add(slot, n)
        for _ in range(n):
            unit.add(slot, 1)
        assert batched.over == unit.over
        if batched.over:
            break
        assert batched.estimator.phase == unit.estimator.phase
        assert batched.estimator.estimate == unit.estimator.estimate
        assert batched.B() == unit.B()
        # One for the report, and one more if the first look at the new lattice ends a phase too.
        assert batched.changes - changes <= 2
    assert batched.estimator.phase > 10


def test_dithered_estimate_is_constant_in_a_phase_and_grows_with_phases() -> None:
    played = Round(dithered_plan(SLOTS, phases=30), 5, 7, [0, 0])
    estimates = {played.estimator.phase: played.estimator.estimate}
    for event in range(800):
        played.add(event % 2, 1)
        if played.over:
            break
        phase, estimate = played.estimator.phase, played.estimator.estimate
        assert estimates.setdefault(phase, estimate) == estimate
    assert list(estimates.values()) == sorted(set(estimates.values()))
    assert len(estimates) == 30


@pytest.mark.slow
def test_lattice_that_a_report_exposes_is_redrawn_at_once() -> None:
    """With a step so large that it rarely stays where it was (pinned seed)."""
    step = 997
    played = Round(dithered_plan(SLOTS, phases=30), step, 3, [0, 0])
    known = [played.estimator.trigger(slot) for slot in range(2)]
    for event in range(60):
        slot, phase = event % 2, played.estimator.phase
        played.add(slot, step)
        if played.over:
            break
        moved = played.estimator.phase != phase
        assert (played.estimator.trigger(slot) != known[slot]) == moved
        assert played.sites[slot].trigger == played.estimator.trigger(slot)
        known[slot] = played.estimator.trigger(slot)
    assert played.changes > 5


def test_low_digits_of_a_threshold_are_drawn_separately() -> None:
    """A float holds a threshold to a few events of such a step, and an offset must not reveal them.

    The windows are eight grains wide: many thresholds share one, and are still in order.
    """
    step, plan = 10**12, dithered_plan(SLOTS, phases=30, length=1e-4, dither=2e-3)
    estimator, rng = DitheredEstimator(plan, step, SeededRandom(4)), SeededRandom(4).spawn("thresholds")
    goals = estimator.debug_state().goals
    thresholds = plan.thresholds([rng.random() for _ in plan.phases])
    exact = [Fraction(theta) * step - Fraction(SLOTS * (step - 1), 2) for theta in thresholds]
    moves = [goal - place for goal, place in zip(goals, exact, strict=True)]
    assert goals == sorted(goals)
    assert all(abs(move) <= plan.resolution * step for move in moves)
    assert min(moves) < -plan.resolution * step / 4
    assert max(moves) > plan.resolution * step / 4


def test_small_fractions_have_full_precision() -> None:
    """Where the density of a threshold is small, fractions below 2^-40 decide between many grains."""
    quarter, half, last = 2**51, 2**52, 2**53 - 1
    assert _fraction(quarter, half, ScriptedRandom()) == 0.25 + 2.0**-54
    assert _fraction(0, half, ScriptedRandom([0, quarter])) == 2.0**-106 * (0.25 + 2.0**-54)
    assert _fraction(last, last, ScriptedRandom()) < 1


def test_equal_thresholds_end_their_phases_together() -> None:
    plan = dithered_plan(SLOTS, phases=40, length=0.2, dither=1.5)
    played = Round(plan, 3, 6, [0, 0])
    skipped = 0
    for event in range(60):
        phase = played.estimator.phase
        played.add(event % 2, 1)
        if played.over:
            break
        played.check()
        skipped += played.estimator.phase > phase + 1
    assert skipped > 3


def test_dithered_round_of_a_tracker_has_a_checked_plan() -> None:
    tracker = Tracker(sites=50, alpha=0.1, delta=0.01, scheme="dithered", seed=5)
    for event in range(30_000):
        tracker.site(event % 50).add()
    assert isinstance(tracker.plan, DitheredPlan)
    assert tracker.answer.scheme == "dithered"
    assert tracker.answer.round >= 1
    assert tracker.plan.eta <= 0.01
