"""The `proven` calibration of `partial_dp`: constants that prove its error, optimised.

A round has K = 2^p phases of threshold T, noise of scale b1 on the thresholds and b2 on the nodes of the tree. With
E = `allowance`, the answer `N0 + step (noisy prefix sum + offset)` is within 1 ± alpha throughout the round, with
probability at least 1 - eta, if alpha N0/step >= E and the sum over j < K of H_j + L_j is at most eta. H_j and L_j, the
chances to be too high or too low in phase j, and the proof: design/proofs/partial-dp.md, claims A and B.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, exp, inf, isfinite, log, sqrt, tanh

from countless.planning.round_length import messages_per_efold
from countless.planning.search import golden_section_min, nelder_mead
from countless.privacy.binary_mechanism import pair_sensitivity
from countless.privacy.tails import log_mgf, log_phase_sum, softplus

_SAFETY = 1.0 + 1e-9  # far above the rounding of the few hundred operations behind each number
_COARSE, _FINE = 1e-2, 1e-5  # precision of the best s while the search is far from its end, and near
_GRID = 2.0**-12  # noise scales are multiples of this: exact as doubles and as fractions


@dataclass(frozen=True, slots=True)
class Noisy:
    """The free numbers of a round. The threshold is whole in a plan; the search moves it as a real number."""

    levels: int
    threshold: float
    threshold_scale: float
    tree_scale: float

    @property
    def phases(self) -> int:
        return 1 << self.levels

    @property
    def epsilon(self) -> float:
        """Bound on log-likelihood ratios of transcripts off the leaked set, rounded up."""
        thresholds = min(2, self.phases) / self.threshold_scale
        nodes = pair_sensitivity(self.phases - 1)
        return (thresholds + (nodes / self.tree_scale if nodes else 0.0)) * _SAFETY


@dataclass(frozen=True, slots=True)
class Bound:
    """A proved bound of a round: at most `allowance` steps of error, with the answer shifted by `offset`."""

    allowance: float
    offset: int
    bias: float


def _sides(sites: int, alpha: float, eta: float, round_: Noisy) -> tuple[Callable[[float], float], ...]:
    """The error, without the offset, that each side needs, as a function of its Chernoff parameter s."""
    T, b1, b2 = round_.threshold, round_.threshold_scale, round_.tree_scale
    bias = sites * tanh(round_.epsilon / 4)
    half = log(2 / eta)

    def high(s: float) -> float:
        node, used = log_mgf(s, b2), log_mgf(alpha * s, b1)
        if not isfinite(node) or not isfinite(used):
            return inf
        weight = s * (1 + alpha - alpha * T) + used
        return (log_phase_sum(round_.levels, weight, node) + half) / s + (1 + alpha) * bias

    def low(s: float) -> float:
        node, used, stale = log_mgf(s, b2), log_mgf(alpha * s, b1), log_mgf((1 - alpha) * s, b1)
        if not (isfinite(node) and isfinite(used) and isfinite(stale)):
            return inf
        total = log_phase_sum(round_.levels, used - s * alpha * T, node)
        total += softplus(s * (1 - alpha) * (T - 1) + stale)
        return (total + half) / s + (1 - alpha) * bias

    return high, low


def bound(sites: int, alpha: float, eta: float, round_: Noisy, precision: float = 1e-6) -> Bound:
    """The least allowance the claim gives to this round, and the whole offset that balances its two sides."""
    high, low = _sides(sites, alpha, eta, round_)
    widest = max(round_.threshold_scale, round_.tree_scale if round_.levels else 0.0)
    up, down = _least(high, widest, precision), _least(low, widest, precision)
    offset = round((down - up) / 2)
    bias = sites * tanh(round_.epsilon / 4)
    return Bound(max(up + offset, down - offset) * _SAFETY, offset, bias)


def _least(function: Callable[[float], float], scale: float, precision: float = 1e-6) -> float:
    """The least value found for an s up to 1/scale, where moments end. Every s is valid: no need to be exact."""
    return function(golden_section_min(function, 1e-3 / scale, 1 / scale, precision))


def reports_per_round(round_: Noisy) -> float:
    """Expected reports: T each phase, and a little more because a threshold below 0 counts as 0."""
    return round_.phases * (round_.threshold + round_.threshold_scale * exp(-round_.threshold / round_.threshold_scale))


def reports_quantile(phases: int, threshold: float, scale: float, failure: float) -> float:
    """A number of reports that so many phases reach with probability at most `failure`.

    Chernoff for the sum over phases of max(T + noise, 0), whose exponential is at most `exp(s (T + noise))
    + 1`.
    """

    def at(s: float) -> float:
        return (phases * softplus(s * threshold + log_mgf(s, scale)) + log(1 / failure)) / s

    return _least(at, scale) * _SAFETY


def best_noisy(sites: int, alpha: float, eta: float) -> tuple[Noisy, Bound]:
    """The cheapest noisy round found: a search over p, and for each p a simplex search over T, b1, b2.

    The search is a heuristic: only the price depends on it, because `bound` has bounded the round it returns.
    """

    def round_at(levels: int, point: Sequence[float]) -> Noisy:
        threshold, b1, b2 = (exp(value) for value in point)
        return Noisy(levels, max(1, ceil(threshold)), _on_grid(b1), _on_grid(b2))

    def price(levels: int, point: Sequence[float], precision: float) -> float:
        if max(point) > 30 or min(point) < -8:
            return inf
        threshold, b1, b2 = (exp(value) for value in point)
        smooth = Noisy(levels, threshold, b1, b2)  # a real T keeps the search smooth
        found = bound(sites, alpha, eta, smooth, precision)
        if not isfinite(found.allowance):
            return inf
        return messages_per_efold(sites, alpha, found.allowance, smooth.phases * threshold)

    root = sqrt(sites)
    point = [log(8 * root + 2), log(0.4 * root + 1), log(0.4 * root + 1)]
    best: tuple[float, int, list[float]] = (inf, 1, point)
    worse = 0
    for levels in range(2, 15):
        point = nelder_mead(lambda at, p=levels: price(p, at, _COARSE), point, [0.4] * 3, 20)  # type: ignore[misc]
        value = price(levels, point, _COARSE)
        worse = 0 if value < best[0] else worse + 1
        best = min(best, (value, levels, list(point)))
        if worse == 2:
            break
    levels = best[1]
    point = nelder_mead(lambda at: price(levels, at, _FINE), best[2], [0.15] * 3, 40)
    chosen = round_at(levels, point)
    return chosen, bound(sites, alpha, eta, chosen)


def _on_grid(scale: float) -> float:
    return max(1, round(scale / _GRID)) * _GRID
