"""From a shape to a round: the exact numbers of the `dithered` theorem (design/proofs/dithered.md).

A *shape* is the list of phase lengths T_j and dither widths w_j. `solve` computes from it, without approximation, every
slack and the allowance. So every shape gives a round with a proof; `dithered_search` looks for a cheap one.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from math import exp, inf, log, ulp
from operator import itemgetter
from typing import NamedTuple

from countless.planning.dithered.ordered_volume import OrderedVolume
from countless.planning.dithered.plan import (
    MIN_STEP,
    THRESHOLD_RESOLUTION,
    Phase,
    messages_per_efold,
    threshold_windows,
)
from countless.planning.dithered.tails import slack

# An update happens at a whole event, so a window of update times is wider by one event, at most this many steps, on
# both sides than the window of the proof.
_EVENT = 1 / MIN_STEP
# Relative inflation: far above the rounding of the sums here, far below what costs a message.
_SAFETY = 1e-9
# Nats added to every union bound: a thousand times what rounding in the volumes and tails can lose, and 0.007 for the
# rounding of drawn thresholds while a unit in their last place is this one, as it is below 2^20 steps. `solve` adds
# what the resolution of the thresholds may add to their density.
_MARGIN, _LAST_PLACE = 0.007 + 1e-6, 2.0**-33
_MIN_LENGTH = 1.05
# `candidate_rounds` moves the phases' needs this part of the way towards their mean.
_RELAXATION = 0.5
# More phases make planning slow; what they would save at very many sites, where `sampled` wins, is not measured.
MAX_PHASES = 800


class Shape(NamedTuple):
    lengths: tuple[float, ...]
    dithers: tuple[float, ...]


class Round(NamedTuple):
    """An allowance and the phases it carries."""

    allowance: float
    phases: tuple[Phase, ...]

    def cost(self, sites: int, alpha: float) -> float:
        """Messages per e-fold."""
        steps = sum(phase.length for phase in self.phases)
        return messages_per_efold(sites, alpha, self.allowance, steps, len(self.phases))


class LaterThresholds:
    """Z_j: the volume of the ordered lists of thresholds j, j+1, .. - all, or those above a given point."""

    def __init__(self, windows: list[tuple[float, float]]) -> None:
        volumes = [OrderedVolume()]  # mirrored, so that the last threshold comes first
        for low, high in reversed(windows):
            volumes.append(volumes[-1].with_point(-high, -low))
        self._volumes = volumes[::-1]
        self.log_volume = self._volumes[0].log_total

    def log_share(self, first: int) -> float:
        """ln(Z_first / Z_0): the largest density of the thresholds before `first`."""
        return self._volumes[first].log_total - self.log_volume

    def tangent(self, first: int, point: float) -> tuple[float, float]:
        """Two numbers a, c with Z_first(above point - u) / Z_0 <= exp(a + c u) for every u.

        The volume is log-concave in the point: its logarithm lies below its tangent. Its derivative is the volume of
        one threshold less, as the first one is then fixed.
        """
        volume = self._volumes[first]
        if not volume.edges[0] < -point < volume.edges[-1]:
            return self.log_share(first), 0.0
        here = volume.log_below(-point)
        slope = exp(self._volumes[first + 1].log_below(-point) - here)
        return here - self.log_volume, slope


def solve(sites: int, alpha: float, eta: float, shape: Shape) -> Round:
    """Allowance and phases for this shape, every inequality of the theorem met."""
    later = LaterThresholds(threshold_windows(shape.lengths, shape.dithers))
    risk = eta * (1 - _SAFETY) / len(shape.lengths)
    tops = [last for _, last in threshold_windows(shape.lengths, shape.dithers)]
    crowd = _largest_crowd(threshold_windows(shape.lengths, shape.dithers))
    tangents = [later.tangent(index + 1, top) for index, top in enumerate(tops)]
    most = [later.log_share(index + 1) for index in range(len(tops))]
    # The largest density of a threshold, given the one before it: at the end of that one's window, or anywhere.
    hazards = [
        slope or exp(after - before) for (_, slope), (before, after) in zip(tangents, pairwise(most), strict=False)
    ]
    share = (
        log(2 / risk) + rounding_nats(1.1 * tops[-1]) + (crowd + 1) * THRESHOLD_RESOLUTION * max(hazards, default=0.0)
    )
    early, tilt_early = slack(sites, 0.0, _constant(share + later.log_share(1)))
    early += THRESHOLD_RESOLUTION
    # No phase may end before the first event. A longer first phase moves all windows alike: no volume changes.
    moved = max(0.0, (shape.dithers[0] / 2 + early) * (1 + _SAFETY) - shape.lengths[0])
    lengths = (shape.lengths[0] + moved, *shape.lengths[1:])
    windows = threshold_windows(lengths, shape.dithers)
    volume = OrderedVolume()
    phases: list[Phase] = []
    position = low = late = 0.0
    tilt_late = 1.0
    for index, (length, dither) in enumerate(zip(lengths, shape.dithers, strict=True)):
        first, last = windows[index]
        late_before = late
        # The density is below its tangent, and below its largest value: the smaller slack counts.
        bounds = {tangents[index], (most[index], 0.0)}
        late, tilt_late = min(
            slack(sites, slope, _constant(share + weight + volume.log_total), tilt_late) for weight, slope in bounds
        )
        late = max(late + THRESHOLD_RESOLUTION, late_before)
        if index:
            nats = _below(volume, first, low, share + most[index])
            early, tilt_early = slack(sites, 0.0, nats, tilt_early)
            early += THRESHOLD_RESOLUTION
        high = last + late
        phases.append(Phase(length, dither, position, early, late, low, high, risk))
        position, low = position + length, max(low, first - early)
        volume = volume.with_point(max(0.0, low - _EVENT), high + _EVENT)
    return Round(_least_allowance(alpha, phases), tuple(phases))


def rounding_nats(last: float) -> float:
    """For thresholds up to `last`. A unit in the last place doubles at each power of two."""
    return _MARGIN * max(1.0, ulp(last) / _LAST_PLACE)


def _largest_crowd(windows: list[tuple[float, float]]) -> int:
    """The most thresholds that can lie between one and the resolution below it."""
    return max(
        index + 1 - bisect_left(windows, low - THRESHOLD_RESOLUTION, hi=index, key=itemgetter(1))
        for index, (low, _) in enumerate(windows)
    )


def _constant(nats: float) -> Callable[[float], float]:
    return lambda _: nats


def _below(volume: OrderedVolume, edge: float, low: float, share: float) -> Callable[[float], float]:
    """A phase ends early only after a transcript whose last update lies below its window: only those count.

    The window never starts below `low`, where the one before it starts.
    """
    return lambda x: share + volume.log_below(max(edge - x, low))


def _needs(alpha: float, phases: Sequence[Phase]) -> list[float]:
    """The allowance each phase needs: n0 + high <= (1+alpha)/(1-alpha) (n0 + low), solved for alpha n0."""
    span = 2 * alpha / (1 - alpha)
    return [alpha * ((phase.high - phase.low) / span - phase.low) for phase in phases]


def _least_allowance(alpha: float, phases: Sequence[Phase]) -> float:
    return max(_needs(alpha, phases)) * (1 + _SAFETY)


def candidate_rounds(sites: int, alpha: float, eta: float, shape: Shape) -> list[Round]:
    """Solve the shape, then equalise what its phases need by changing their lengths, and solve again.

    Lengths also change the weight of transcripts, so going all the way to equal needs would overshoot.
    """
    rounds: list[Round] = []
    count = len(shape.lengths)
    for _ in range(4 if count < 300 else 3 if count < 600 else 2):  # long rounds take long to solve
        shape = _order_windows(shape)
        allowance, phases = solve(sites, alpha, eta, shape)
        rounds.append(Round(allowance, phases))
        needs = _needs(alpha, phases)
        target = sum(needs) / len(needs)
        pull = 2 * _RELAXATION / (1 - alpha)
        lengths = (p.length + pull * (target - need) for p, need in zip(phases, needs, strict=True))
        shape = Shape(tuple(max(_MIN_LENGTH, length) for length in lengths), shape.dithers)
    return rounds


def _order_windows(shape: Shape) -> Shape:
    """Cut the dithers so that no window of a threshold starts or ends before the one before it."""
    dithers: list[float] = []
    for length, dither in zip(shape.lengths, shape.dithers, strict=True):
        if dithers:
            room = 1.9 * length
            dither = min(max(dither, dithers[-1] - room), dithers[-1] + room)
        dithers.append(dither)
    return Shape(shape.lengths, tuple(dithers))


def solve_certain(sites: int, alpha: float) -> Round:
    """The cheapest round that cannot fail: slack sites/2, which the error never reaches, and no dither.

    With few sites no round with dither is cheaper. Each phase is the longest that the allowance permits.
    """
    rounds = [_fill_certain(sites, alpha, sites / 2 + 0.5 + (0.3 + 0.02 * i * i) * sites**0.5) for i in range(16)]
    return min(rounds, key=lambda found: found.cost(sites, alpha))


def _fill_certain(sites: int, alpha: float, allowance: float) -> Round:
    span = 2 * alpha / (1 - alpha)
    start = allowance / alpha
    certain = sites / 2
    phases: list[Phase] = []
    position = low = 0.0
    best, cheapest = inf, 0
    while len(phases) < MAX_PHASES:
        high = low + span * (start + low)
        length = (high - certain - position) * (1 - _SAFETY)
        if length < max(1.0, certain if not phases else 0.0):
            break
        high = position + length + certain
        phases.append(Phase(length, 0.0, position, certain, certain, low, high, 0.0))
        position += length
        low = max(low, position - certain)
        cost = messages_per_efold(sites, alpha, allowance, position, len(phases))
        if cost < best:
            best, cheapest = cost, len(phases)
        elif cost > 1.05 * best:
            break
    return Round(_least_allowance(alpha, phases[:cheapest]), tuple(phases[:cheapest]))
