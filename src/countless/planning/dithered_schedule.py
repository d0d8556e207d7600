"""From a shape to a round: the exact numbers of the `dithered` theorem (SPEC 3.3, docs/theory/dithered.md).

A *shape* is the list of phase lengths T_j and dither widths w_j. `settle` computes from it, without
approximation, every slack and the allowance, so that whatever shape it is given, what it returns is a round
with a proof. Which shape to give it is the business of `dithered_search`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import exp, inf, log, log1p

from countless.planning.ordered_volume import OrderedVolume
from countless.planning.tails import slack

LEAST_STEP = 2
# A window of update times, in steps, is this much wider on both sides than the window of the proof: whole
# events.
_ROUNDING = 1 / LEAST_STEP
_SAFETY = 1e-9
GRAIN = 2.0**-12
"""Drawn thresholds are trusted to this part of a step. Finer digits are fresh dice: windows are so much wider."""
# Nats added to every union bound: what rounding may add to the density of thresholds as drawn, and a thousand times
# what the volumes and tails can lose by it.
_MARGIN = 0.01 + 1e-6
_SHORTEST = 1.05
_EVENING = 0.5
# More phases make planning slow; what they would save at very many sites, where `sampled` wins, is not measured.
MOST_PHASES = 800
# Messages a phase costs beyond its length: to move a lattice, and the half step by which that lowers the estimate.
REPORTS_AND_MOVE = 1.5


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a round; everything in steps, counted from the total at which the round started.

    `slack_early` and `slack_late` are how far the estimate may run ahead of the total, or behind it, before
    the phase ends outside its window; `low` and `high` bound the total while this phase's answer is public;
    `risk` bounds the probability that the phase is the first to end outside its window.
    """

    length: float
    dither: float
    position: float
    slack_early: float
    slack_late: float
    low: float
    high: float
    risk: float


Round = tuple[float, "tuple[Phase, ...]"]  # an allowance and the phases it carries


def messages_per_round(sites: int, reach: float, phases: int) -> float:
    """Reports, moved lattices, and a synchronisation of two messages per site."""
    return reach + REPORTS_AND_MOVE * phases + 2 * sites


def messages_per_efold(sites: int, alpha: float, allowance: float, reach: float, phases: int) -> float:
    """Messages of a round of total length `reach` over the e-folds by which the total grows in it."""
    return messages_per_round(sites, reach, phases) / log1p(alpha * reach / allowance)


@dataclass(frozen=True, slots=True)
class Shape:
    """Lengths and dither widths of a round's phases."""

    lengths: tuple[float, ...]
    dithers: tuple[float, ...]


def threshold_windows(lengths: tuple[float, ...], dithers: tuple[float, ...]) -> list[tuple[float, float]]:
    """Where each threshold may lie: around the end of its phase."""
    ends = accumulate(lengths)
    return [(end - dither / 2, end + dither / 2) for end, dither in zip(ends, dithers, strict=True)]


class LaterThresholds:
    """Z_j: the volume of the ordered lists of thresholds j, j+1, .. - all, or those above a given point."""

    def __init__(self, windows: list[tuple[float, float]]) -> None:
        volumes = [OrderedVolume()]  # mirrored, so that the last threshold comes first
        for low, high in reversed(windows):
            volumes.append(volumes[-1].then(-high, -low))
        self._volumes = volumes[::-1]
        self.log_volume = self._volumes[0].log_total

    def log_share(self, first: int) -> float:
        """ln(Z_first / Z_0): the largest density of the thresholds before `first`."""
        return self._volumes[first].log_total - self.log_volume

    def tangent(self, first: int, point: float) -> tuple[float, float]:
        """Two numbers a, c with Z_first(above point - u) / Z_0 <= exp(a + c u) for every u.

        The volume is log-concave in the point: ln of it lies below its tangent. Its derivative is the volume of
        one threshold less, as the first one is then fixed.
        """
        volume = self._volumes[first]
        if not volume.edges[0] < -point < volume.edges[-1]:
            return self.log_share(first), 0.0
        here = volume.log_below(-point)
        slope = exp(self._volumes[first + 1].log_below(-point) - here)
        return here - self.log_volume, slope


def settle(sites: int, alpha: float, eta: float, shape: Shape) -> Round:
    """Allowance and phases for this shape, every inequality of the theorem met."""
    later = LaterThresholds(threshold_windows(shape.lengths, shape.dithers))
    risk = eta * (1 - _SAFETY) / len(shape.lengths)
    share = log(2 / risk) + _MARGIN
    early, tilt_early = slack(sites, 0.0, _constant(share + later.log_share(1)))
    early += GRAIN
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
        least = late
        weight, slope = later.tangent(index + 1, last - moved)
        late, tilt_late = slack(sites, slope, _constant(share + weight + volume.log_total), tilt_late)
        late = max(late + GRAIN, least)
        if index:
            nats = _below(volume, first, low, share + later.log_share(index + 1))
            early, tilt_early = slack(sites, 0.0, nats, tilt_early)
            early += GRAIN
        high = last + late
        phases.append(Phase(length, dither, position, early, late, low, high, risk))
        position, low = position + length, max(low, first - early)
        volume = volume.then(max(0.0, low - _ROUNDING), high + _ROUNDING)
    return _least_allowance(alpha, phases), tuple(phases)


def _constant(nats: float) -> Callable[[float], float]:
    return lambda _: nats


def _below(volume: OrderedVolume, edge: float, low: float, share: float) -> Callable[[float], float]:
    """A phase ends early only after a transcript whose last update lies below its window: those count.

    The window never starts below `low`, where the one before it starts.
    """
    return lambda x: share + volume.log_below(max(edge - x, low))


def _needs(alpha: float, phases: Sequence[Phase]) -> list[float]:
    """The allowance each phase needs: n0 + high <= (1+alpha)/(1-alpha) (n0 + low), solved for alpha n0."""
    span = 2 * alpha / (1 - alpha)
    return [alpha * ((phase.high - phase.low) / span - phase.low) for phase in phases]


def _least_allowance(alpha: float, phases: Sequence[Phase]) -> float:
    return max(_needs(alpha, phases)) * (1 + _SAFETY)


def rounds_for(sites: int, alpha: float, eta: float, shape: Shape) -> list[Round]:
    """Settle the shape, then even out what its phases need by changing their lengths, and settle again.

    Lengths also change what transcripts weigh, so going all the way to equal needs would go too far.
    """
    rounds: list[Round] = []
    count = len(shape.lengths)
    for _ in range(4 if count < 300 else 3 if count < 600 else 2):  # long rounds take long to settle
        shape = _orderly(shape)
        allowance, phases = settle(sites, alpha, eta, shape)
        rounds.append((allowance, phases))
        needs = _needs(alpha, phases)
        target = sum(needs) / len(needs)
        pull = 2 * _EVENING / (1 - alpha)
        lengths = (p.length + pull * (target - need) for p, need in zip(phases, needs, strict=True))
        shape = Shape(tuple(max(_SHORTEST, length) for length in lengths), shape.dithers)
    return rounds


def _orderly(shape: Shape) -> Shape:
    """Cut the dithers so that no window of a threshold steps back behind the one before it."""
    dithers: list[float] = []
    for length, dither in zip(shape.lengths, shape.dithers, strict=True):
        if dithers:
            room = 1.9 * length
            dither = min(max(dither, dithers[-1] - room), dithers[-1] + room)
        dithers.append(dither)
    return Shape(shape.lengths, tuple(dithers))


def settle_sure(sites: int, alpha: float) -> Round:
    """The cheapest round that needs no luck: slack sites/2, which the error never reaches, and no dither.

    With few sites this is the whole story. Each phase is the longest that the allowance permits.
    """
    rounds = [_fill_sure(sites, alpha, sites / 2 + 0.5 + (0.3 + 0.02 * i * i) * sites**0.5) for i in range(16)]
    return min(
        rounds,
        key=lambda r: messages_per_efold(sites, alpha, r[0], r[1][-1].position + r[1][-1].length, len(r[1])),
    )


def _fill_sure(sites: int, alpha: float, allowance: float) -> Round:
    span = 2 * alpha / (1 - alpha)
    start = allowance / alpha
    slack_sure = sites / 2
    phases: list[Phase] = []
    position = low = 0.0
    best, cheapest = inf, 0
    while len(phases) < MOST_PHASES:
        high = low + span * (start + low)
        length = (high - slack_sure - position) * (1 - _SAFETY)
        if length < max(1.0, slack_sure if not phases else 0.0):
            break
        high = position + length + slack_sure
        phases.append(Phase(length, 0.0, position, slack_sure, slack_sure, low, high, 0.0))
        position += length
        low = max(low, position - slack_sure)
        cost = messages_per_efold(sites, alpha, allowance, position, len(phases))
        if cost < best:
            best, cheapest = cost, len(phases)
        elif cost > 1.05 * best:
            break
    return _least_allowance(alpha, phases[:cheapest]), tuple(phases[:cheapest])
