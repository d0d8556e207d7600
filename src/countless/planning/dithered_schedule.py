"""From a shape to a round: the exact numbers of the `dithered` theorem (SPEC 3.3, proof in docs/theory/dithered.md).

A *shape* is the list of phase lengths T_j and dither widths w_j. `settle` computes from it, without approximation,
every slack and the allowance, so that whatever shape it is given, what it returns is a round with a proof. `fill`
proposes a good shape for a given allowance: phase after phase, the longest that the allowance permits.
"""

from dataclasses import dataclass
from math import inf, log, log1p

from countless.errors import PlanError
from countless.planning.tails import slack
from countless.planning.transcripts import OrderedVolume

LEAST_STEP = 2
# A window of update times, in steps, is this much wider on both sides than the window of the proof: whole events.
_ROUNDING = 1 / LEAST_STEP
_SAFETY = 1e-9
REPORTS_AND_REDRAW = 1.5
"""Messages a phase costs beyond its length: the redraw, and the half step by which it lowers the estimate."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a round; everything in steps, counted from the total at which the round started.

    `slack_early` and `slack_late` are how far the estimate may run ahead of the total, or behind it, before the phase
    ends outside its window; `low` and `high` bound the total while this phase's answer is public; `risk` bounds the
    probability that the phase is the first to end outside its window.
    """

    length: float
    dither: float
    position: float
    slack_early: float
    slack_late: float
    low: float
    high: float
    risk: float


def messages_per_round(sites: int, reach: float, phases: int) -> float:
    """Reports, redraws, and a synchronisation of two messages per site."""
    return reach + REPORTS_AND_REDRAW * phases + 2 * sites


def messages_per_efold(sites: int, alpha: float, allowance: float, reach: float, phases: int) -> float:
    """Messages of a round of total length `reach` over the e-folds by which the total grows in it."""
    return messages_per_round(sites, reach, phases) / log1p(alpha * reach / allowance)


@dataclass(frozen=True, slots=True)
class Shape:
    """Lengths and dither widths of a round's phases."""

    lengths: tuple[float, ...]
    dithers: tuple[float, ...]


def threshold_windows(lengths: tuple[float, ...], dithers: tuple[float, ...]) -> list[tuple[float, float]]:
    """Windows of theta_j - j: thresholds at least 1 apart are ordered points once each is moved down by its index."""
    windows = []
    end = 0.0
    for index, (length, dither) in enumerate(zip(lengths, dithers, strict=True)):
        end += length
        windows.append((end - dither / 2 - index, end + dither / 2 - index))
    return windows


def log_densities(windows: list[tuple[float, float]]) -> list[float]:
    """For each j, ln of the largest density of (theta_0 .. theta_(j-1)) when all are uniform on their polytope.

    It is reached where the first j leave all the others free: volume of the later ones / volume of all.
    """
    volume = OrderedVolume()
    suffixes = [0.0]
    for low, high in reversed(windows):
        volume = volume.then(-high, -low)
        suffixes.append(volume.log_total)
    suffixes.reverse()
    return [suffix - suffixes[0] for suffix in suffixes]


def settle(sites: int, alpha: float, eta: float, shape: Shape) -> tuple[float, tuple[Phase, ...]]:
    """Allowance and phases for this shape, every inequality of the theorem met."""
    densities = log_densities(threshold_windows(shape.lengths, shape.dithers))
    risk = eta * (1 - _SAFETY) / len(shape.lengths)
    volume = OrderedVolume()
    phases: list[Phase] = []
    position = low = early_end = late = 0.0
    tilt_early = tilt_late = 1.0
    for index, (length, dither) in enumerate(zip(shape.lengths, shape.dithers, strict=True)):
        share = densities[index + 1] + log(2 / risk)
        need = share + volume.log_total
        least = late
        late, tilt_late = slack(sites, dither, lambda x, need=need: need, tilt_late)  # type: ignore[misc]
        late = max(late, least)
        if index == 0:
            early, tilt_early = late, tilt_late
            length = max(length, (dither / 2 + early) * (1 + _SAFETY))
        else:
            early, tilt_early = _early(sites, dither, position + length - dither / 2, share, volume, tilt_early)
        end = position + length
        high = end + dither / 2 + late
        phases.append(Phase(length, dither, position, early, late, low, high, risk))
        early_end = max(early_end, end - dither / 2 - early)
        volume = volume.then(max(0.0, early_end - _ROUNDING), high + _ROUNDING)
        position, low = end, early_end
    ratio = (1 + alpha) / (1 - alpha)
    start = max((phase.high - ratio * phase.low) / (ratio - 1) for phase in phases)
    return alpha * start * (1 + _SAFETY), tuple(phases)


def _early(
    sites: int, dither: float, edge: float, share: float, volume: OrderedVolume, tilt: float
) -> tuple[float, float]:
    """Slack against a phase that ends early: only transcripts whose last update lies below the window count."""

    def nats(x: float) -> float:
        return share + volume.log_below(edge - x)

    return slack(sites, dither, nats, tilt)
