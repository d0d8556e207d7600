"""The theorem of design/proofs/dithered.md against the best adaptive adversary, on small rounds.

Two phases, a few sites, small steps, equal or not. The adversary chooses, event by event, which site counts next, and
sees only when the answer moves. What it knows is then fully described by where the counters stand, and where they stood
when the answer last moved, so its best strategy is found by dynamic programming over these, with exact probabilities
(up to floating point) over offsets and thresholds, which also move the lattices.
"""

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from math import ceil, exp, floor, inf

import pytest

from countless.planning.dithered.check import log_volumes, risks
from countless.planning.dithered.plan import DitheredPlan, Phase

Counts = tuple[int, ...]


@dataclass(frozen=True)
class Game:
    """A round of two phases: lengths, dithers, and one slack for all four ways to fail."""

    steps: tuple[int, ...]  # of each site, in events
    step: int  # of the plan
    lengths: tuple[float, float]
    dithers: tuple[float, float]
    slack: float

    def plan(self) -> DitheredPlan:
        first, second = self.lengths
        w0, w1 = self.dithers
        low = first - w0 / 2 - self.slack
        phases = (
            Phase(first, w0, 0.0, self.slack, self.slack, 0.0, first + w0 / 2 + self.slack, 0.0),
            Phase(second, w1, first, self.slack, self.slack, low, first + second + w1 / 2 + self.slack, 0.0),
        )
        return DitheredPlan(len(self.steps), 0.1, 0.5, 1.0, phases, ())

    def bound(self) -> float:
        widths = sorted(((step / self.step, slots) for step, slots in Counter(self.steps).items()), reverse=True)
        return sum(risks(self.plan(), widths))

    def sharp_bound(self) -> float:
        """The same with exact tails and weights: only the count of transcripts stays generous."""
        errors = [Fraction(0)]
        for step in self.steps:
            errors = [x + Fraction(2 * i - step + 1, 2 * self.step) for x in errors for i in range(step)]
        phases = self.plan().phases
        windows = [(phases[1].low - 0.5, phases[0].high + 0.5), (phases[1].low, phases[1].high + 0.5)]
        second_early = phases[1].position + phases[1].length - phases[1].dither / 2 - self.slack
        volumes, below, _ = log_volumes(windows, [0.0, second_early])
        thresholds = Thresholds(self.lengths, self.dithers)
        total = 0.0
        for error in errors:
            over = float(error) - self.slack  # so far the estimate is beyond the slack: above it, or below it
            if over > 0:
                total += exp(below[0]) * min(over, self.dithers[0]) * self.dithers[1]
                total += exp(volumes[0]) * thresholds.area(thresholds.windows[0][1] - over, inf, -inf)
                total += (exp(below[1]) + exp(volumes[1])) * min(over, self.dithers[1])
        return total / len(errors) / thresholds.area(-inf, inf, -inf)


class Thresholds:
    """Two thresholds, uniform on the pairs in order, each in its window."""

    def __init__(self, lengths: tuple[float, float], dithers: tuple[float, float]) -> None:
        (t0, t1), (w0, w1) = lengths, dithers
        self.windows = ((t0 - w0 / 2, t0 + w0 / 2), (t0 + t1 - w1 / 2, t0 + t1 + w1 / 2))

    def area(self, left: float, right: float, above: float) -> float:
        """Area of { left < theta_0 <= right, theta_1 > above, theta_1 >= theta_0 } in both windows."""
        (low, high), (bottom, top) = self.windows
        left, right, bottom = max(left, low), min(right, high, top), max(bottom, above)
        if right <= left or top <= bottom:
            return 0.0
        bend = min(max(bottom, left), right)  # from here on theta_0 is the floor of theta_1
        return (bend - left) * (top - bottom) + (right - bend) * (top - (bend + right) / 2)


class Adversary:
    """The largest probability that some phase ends outside its window, over all strategies."""

    def __init__(self, game: Game) -> None:
        self.sites, self.steps, self.step = len(game.steps), game.steps, game.step
        self.thresholds = Thresholds(game.lengths, game.dithers)
        windows = self.thresholds.windows
        self.early = [floor((low - game.slack) * game.step) for low, _ in windows]
        self.late = [ceil((high + game.slack) * game.step) for _, high in windows]
        self.offsets = list(product(*map(range, self.steps)))
        self.mass = cache(self._mass)
        self.area = self.thresholds.area(-inf, inf, -inf)

    def _mass(self, left: int, right: int, above: int) -> float:
        """Pr[left < theta_0 <= right, theta_1 > above], in units of 1/(2 step), where the estimate always is."""
        unit = 2 * self.step
        return self.thresholds.area(left / unit, right / unit, above / unit) / self.area

    def estimate(self, counts: Counts, offsets: Counts) -> int:
        """B in units of 1/(2 step)."""
        places = zip(counts, offsets, self.steps, strict=True)
        return sum(2 * (c - (c - r) % step) + step - 1 for c, r, step in places)

    def after(self, counts: Counts) -> list[Counts]:
        return [tuple(c + (s == other) for other, c in enumerate(counts)) for s in range(self.sites)]

    def reachable(self, counts: Counts, total: int) -> list[Counts]:
        """Every state with this total that lies at or above `counts`."""
        states = {counts}
        for _ in range(total - sum(counts)):
            states = {later for state in states for later in self.after(state)}
        return sorted(states)

    @cache  # noqa: B019 - one adversary per test
    def second_phase(self, counts: Counts, site: int) -> float:
        """The answer has just moved because of `site`: the best chance to make the second phase fail."""
        worlds, step = [], self.steps[site]
        for offsets in self.offsets:
            if (counts[site] - offsets[site]) % step:
                continue  # it was on its lattice
            reached = self.estimate(counts, offsets)
            for drop in range(step):  # theta_0 is in this event's part of the step just crossed
                moved = tuple((r - drop) % step if s == site else r for s, r in enumerate(offsets))
                worlds.append((reached - 2 * drop, moved))
        weight = 1 / len(self.offsets)

        def open_at(state: Counts) -> float:
            return weight * sum(self.mass(b - 2, b, self.estimate(state, r)) for b, r in worlds)

        if sum(counts) > self.early[1]:
            return max(open_at(end) for end in self.reachable(counts, self.late[1]))
        everything = weight * sum(self.mass(b - 2, b, -(10**6)) for b, _ in worlds)
        best = 0.0
        for state in self.reachable(counts, self.early[1]):
            late = max(open_at(end) for end in self.reachable(state, self.late[1]))
            best = max(best, everything - open_at(state) + late)
        return best

    @cache  # noqa: B019
    def first_phase(self, counts: Counts) -> float:
        """No update yet, and it is no longer early: the best chance from here on."""
        if sum(counts) >= self.late[0]:
            return self.still_open(counts)
        options = enumerate(self.after(counts))
        return max(self.first_phase(state) + self.second_phase(state, site) for site, state in options)

    def still_open(self, counts: Counts) -> float:
        floor_, ceiling = -(10**6), 10**6
        total = sum(self.mass(self.estimate(counts, r), ceiling, floor_) for r in self.offsets)
        return total / len(self.offsets)

    def value(self) -> float:
        starts = self.reachable((0,) * self.sites, self.early[0])
        return max(1 - self.still_open(state) + self.first_phase(state) for state in starts)


GAMES = [
    Game((3, 3), 3, (3.0, 3.0), (2.0, 2.0), 0.25),
    pytest.param(Game((4, 4), 4, (3.0, 3.0), (2.0, 2.0), 0.45), marks=pytest.mark.soak),
    Game((3, 3), 3, (4.0, 2.0), (3.0, 3.0), 0.45),  # windows overlap: the thresholds are not independent
    Game((3, 3), 3, (4.0, 2.5), (4.0, 3.0), 0.25),
    pytest.param(Game((2, 2, 2), 2, (3.0, 2.0), (2.0, 2.0), 0.45), marks=pytest.mark.soak),
    Game((3, 3), 3, (3.0, 0.5), (3.0, 3.0), 0.25),  # phases shorter than a step: both may end at once
    Game((2, 2, 2), 2, (3.0, 0.25), (2.0, 2.0), 0.3),
    Game((2, 4), 3, (3.0, 3.0), (2.0, 2.0), 0.25),
    Game((2, 5), 3, (4.0, 2.0), (3.0, 3.0), 0.3),
    Game((1, 5), 3, (3.0, 0.5), (3.0, 3.0), 0.25),
    Game((1, 1, 4), 2, (3.0, 0.25), (2.0, 2.0), 0.3),
]


@pytest.mark.slow
@pytest.mark.parametrize("game", GAMES)
def test_best_adversary_stays_below_the_dithered_bound(game: Game) -> None:
    value = Adversary(game).value()
    assert 0 < value <= game.sharp_bound() <= game.bound()
