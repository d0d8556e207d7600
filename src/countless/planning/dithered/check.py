"""An independent check of a finished `dithered` plan (design/proofs/dithered.md, theorem and conditions 1-6).

It shares with the planner the data of the plan and nothing else:

    what            planner                                   check
    volumes         integrates polynomials phase by phase     goes along the axis cell by cell, points per cell
    tails           solves for the best tilt                  takes some tilt, which only makes the bound larger
    steps           compares tails with those of equal steps  recomputes all risks with the steps of the slots
    allowance       floats, inflated                          exact fractions

A refused plan raises PlanError with the condition, the phase and the numbers.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from math import e, exp, inf, isfinite, log, pi, sinh, sqrt, ulp
from operator import mul
from typing import NamedTuple

from countless.errors import PlanError
from countless.planning.dithered.plan import DitheredPlan, Phase

# What our own rounding may have lost, as a part of every recomputed probability, and what that of drawn thresholds may
# add, for that many phases and while a unit in the last place of a threshold is that: below 2^20 steps. See "Rounding"
# in the docs, and the end of its section 4.
_ROUNDING, _PHASES, _LAST_PLACE = 0.007, 800, 2.0**-33
# Positions are sums of up to thousands of floats: this much relative difference is the order of summation.
_SAME = 1e-9
# Volumes that become smaller than this part of the others lose digits, and the plan is refused.
_LEAST_HELD = 1e-200
_NEWTON_STEPS = 40

Window = tuple[float, float]
Widths = list[tuple[float, int]]  # steps in units of the plan's, the widest first, and how many slots have each


def check_dithered(plan: DitheredPlan, step: int = 1, steps: Iterable[int] | None = None) -> None:
    """Recompute every inequality of the theorem from the plan; raise PlanError at the first that fails.

    For a round whose slots have these `steps`, in a plan that allows `step` to all; without them, for equal steps, to
    which the risks in the plan belong.
    """
    _check_shape(plan)
    widths = equal_widths(plan) if steps is None else _widths(plan, step, list(steps))
    certain = _reach(widths) + plan.resolution
    if not all(min(phase.slack_early, phase.slack_late) >= certain for phase in plan.phases):
        _check_dithers(plan.phases)
        found = risks(plan, widths)
        if steps is not None and sum(map(Fraction, found)) > Fraction(plan.eta):
            raise _refuse("sum of the risks with these steps <= eta", None, f"{sum(found):.9g} > {plan.eta:.9g}")
        for index, (risk, phase) in enumerate(zip(found, plan.phases, strict=True)):
            if steps is None and risk > phase.risk:
                numbers = f"{risk:.9g} > {phase.risk:.9g}"
                raise _refuse("transcripts x density x tails <= risk", index, numbers)
    _check_sum_of_risks(plan)


def with_risks(plan: DitheredPlan) -> DitheredPlan:
    """A plan that states no risks, with those that are computed here; PlanError if it is refused."""
    _check_shape(plan)
    _check_dithers(plan.phases)
    found = zip(plan.phases, risks(plan, equal_widths(plan)), strict=True)
    filled = replace(plan, phases=tuple(replace(phase, risk=risk) for phase, risk in found))
    _check_sum_of_risks(filled)
    return filled


def equal_widths(plan: DitheredPlan) -> Widths:
    return [(1.0, plan.sites)]


def _widths(plan: DitheredPlan, step: int, steps: list[int]) -> Widths:
    if len(steps) != plan.sites or min(steps) < 1:
        raise _refuse("a step of at least 1 for each slot", None, f"{len(steps)} steps for {plan.sites} slots")
    return sorted(((size / step, slots) for size, slots in Counter(steps).items()), reverse=True)


def _refuse(condition: str, phase: int | None, numbers: str) -> PlanError:
    where = "" if phase is None else f" in phase {phase}"
    return PlanError(f"dithered plan refused{where}: {condition} does not hold: {numbers}")


def _check_shape(plan: DitheredPlan) -> None:
    """Everything but condition 6."""
    _check_numbers(plan)
    _check_geometry(plan.phases)
    _check_bounds(plan)
    _check_accuracy(plan)


def _check_numbers(plan: DitheredPlan) -> None:
    if plan.sites < 1 or not 0 < plan.alpha < 0.5 or not 0 < plan.eta < 1:
        request = f"sites={plan.sites}, alpha={plan.alpha}, eta={plan.eta}"
        raise _refuse("sites >= 1, 0 < alpha < 1/2, 0 < eta < 1", None, request)
    if not (isfinite(plan.allowance) and plan.allowance > 0):
        raise _refuse("allowance > 0", None, f"allowance={plan.allowance}")
    if plan.least_step < 2:
        raise _refuse("least_step >= 2", None, f"least_step={plan.least_step}")
    if not plan.phases:
        raise _refuse("at least one phase", None, "phases=0")
    for index, phase in enumerate(plan.phases):
        slacks = (phase.slack_early, phase.slack_late, phase.dither, phase.risk)
        if not all(isfinite(x) and x >= 0 for x in (*slacks, phase.position, phase.low, phase.high)):
            raise _refuse("finite numbers of at least 0", index, repr(phase))
        if not (isfinite(phase.length) and phase.length > 0):
            raise _refuse("length > 0", index, f"length={phase.length}")


def _check_geometry(phases: tuple[Phase, ...]) -> None:
    """Conditions 1 to 3: positions add up, thresholds keep in order, no phase ends before the first event."""
    position = 0.0
    for index, phase in enumerate(phases):
        if abs(phase.position - position) > _SAME * max(1.0, position):
            raise _refuse("position = sum of the lengths before", index, f"{phase.position} != {position}")
        position += phase.length
    for index, (before, phase) in enumerate(pairwise(phases), 1):
        if abs(phase.dither - before.dither) / 2 > phase.length:
            numbers = f"|{phase.dither} - {before.dither}|/2 > {phase.length}"
            raise _refuse("|w_j - w_(j-1)|/2 <= T_j (threshold windows in order)", index, numbers)
        if phase.slack_late < before.slack_late:
            numbers = f"{phase.slack_late} < {before.slack_late}"
            raise _refuse("slack_late does not decrease", index, numbers)
    first = phases[0]
    if first.length - first.dither / 2 < first.slack_early:
        numbers = f"{first.length} - {first.dither}/2 < {first.slack_early}"
        raise _refuse("T_0 - w_0/2 >= slack_early", 0, numbers)


def _earliest(phases: tuple[Phase, ...]) -> list[float]:
    """a_j: no phase j ends at or below it, unless something unlikely happened. Never falls."""
    ends: list[float] = []
    for phase in phases:
        end = phase.position + phase.length - phase.dither / 2 - phase.slack_early
        ends.append(max(end, ends[-1] if ends else 0.0))
    return ends


def _latest(phases: tuple[Phase, ...]) -> list[float]:
    """b_j: phase j has ended by then, unless something unlikely happened."""
    return [phase.position + phase.length + phase.dither / 2 + phase.slack_late for phase in phases]


def _check_bounds(plan: DitheredPlan) -> None:
    """Condition 4: the total is where the plan says it is while a phase's answer is public."""
    lows = [0.0, *_earliest(plan.phases)]
    highs = _latest(plan.phases)
    for index, phase in enumerate(plan.phases):
        if phase.low > lows[index] + _SAME * lows[index]:
            raise _refuse("low <= a_(j-1)", index, f"{phase.low} > {lows[index]}")
        if phase.high < highs[index] - _SAME * highs[index]:
            raise _refuse("high >= b_j", index, f"{phase.high} < {highs[index]}")


def _check_accuracy(plan: DitheredPlan) -> None:
    """Condition 5, exactly: one answer is within 1 ± alpha of both ends. With n0 = allowance/alpha, in integers."""
    part, whole = Fraction(repr(float(plan.alpha))).as_integer_ratio()
    for index, phase in enumerate(plan.phases):
        ratios = [number.as_integer_ratio() for number in (phase.high, phase.low, plan.allowance)]
        unit = max(power_of_two for _, power_of_two in ratios)
        high, low, allowance = (number * (unit // power_of_two) for number, power_of_two in ratios)
        if (whole - part) * high > (whole + part) * low + 2 * whole * allowance:
            numbers = f"low={phase.low}, high={phase.high} at n0 = allowance/alpha, allowance={plan.allowance}"
            raise _refuse("(1-alpha)(n0 + high_j) <= (1+alpha)(n0 + low_j)", index, numbers)


def _check_dithers(phases: tuple[Phase, ...]) -> None:
    for index, phase in enumerate(phases):
        if phase.dither <= 0:
            raise _refuse("dither > 0 where the slack is not certain", index, f"dither={phase.dither}")


def _check_sum_of_risks(plan: DitheredPlan) -> None:
    total = sum((Fraction(phase.risk) for phase in plan.phases), Fraction(0))
    if total > Fraction(plan.eta):
        raise _refuse("sum of the risks <= eta", None, f"{float(total):.17g} > {plan.eta:.17g}")


def risks(plan: DitheredPlan, widths: Widths) -> list[float]:
    """Condition 6, for each phase: transcripts so far x largest density of the thresholds x tail, early and late."""
    phases = plan.phases
    whole = 1 / plan.least_step  # an update happens at a whole event: windows are wider by one event at both ends
    early_ends, late_ends = _earliest(phases), _latest(phases)
    windows = [(max(0.0, a - whole), b + whole) for a, b in zip(early_ends, late_ends, strict=True)]
    all_before, below, _ = log_volumes(windows, early_ends)
    all_weights = _log_weights(phases)
    hazards = [before.slope or exp(after.most - before.most) for before, after in pairwise(all_weights)]
    # Nats: see "Drawing thresholds".
    drawn = (_most_in_one_block(plan) + 1) * plan.resolution * max(hazards, default=0.0)
    rounding = rounding_factor(len(phases), late_ends[-1])
    risks = []
    for j, (phase, weights) in enumerate(zip(phases, all_weights, strict=True)):
        tail = Tail(widths, phase.slack_late - plan.resolution)
        late = all_before[j] + min(weights.top + tail.log(weights.slope), weights.most + tail.log(0.0))
        early = below[j] + weights.most + Tail(widths, phase.slack_early - plan.resolution).log(0.0)
        risks.append((exp(min(late, 700.0)) + exp(min(early, 700.0))) * exp(min(drawn, 700.0)) * rounding)
    return risks


def rounding_factor(phases: int, last: float) -> float:
    """The factor by which rounding may make an error likelier, in a round of these phases with thresholds up to `last`.

    The last place doubles at each power of two, and is the same from one to the next.
    """
    return exp(log(1 + _ROUNDING) * max(1.0, phases / _PHASES) * max(1.0, ulp(last) / _LAST_PLACE))


def _most_in_one_block(plan: DitheredPlan) -> int:
    """The most thresholds that can lie in one block of the length of the resolution."""
    most = lowest = 0
    ends = [phase.position + phase.length + phase.dither / 2 for phase in plan.phases]
    for index, phase in enumerate(plan.phases):
        while ends[lowest] < ends[index] - phase.dither - plan.resolution:
            lowest += 1
        most = max(most, index + 1 - lowest)
    return most


class _Weights(NamedTuple):
    """Volume of the later thresholds over that of all, in nats: the most, and the tangent at the window's upper end."""

    most: float
    top: float
    slope: float


def _log_weights(phases: tuple[Phase, ...]) -> list[_Weights]:
    """The weight of each place of a threshold that the later ones leave, for each phase.

    Mirrored, the later thresholds come first, and the upper end of a window is where it opens.
    """
    mirrored: list[Window] = []
    for phase in reversed(phases):
        middle = phase.position + phase.length
        mirrored.append((-middle - phase.dither / 2, -middle + phase.dither / 2))
    # rounding may push two equal ends past each other by an ulp: restore their order
    for index in range(1, len(mirrored)):
        before, here = mirrored[index - 1], mirrored[index]
        mirrored[index] = (max(before[0], here[0]), max(before[1], here[1]))
    totals, above, fixed = log_volumes(mirrored, [low for low, _ in mirrored])
    weights = []
    for later in reversed(range(len(phases))):
        most = totals[later] - totals[-1]
        if later == 0 or mirrored[later - 1][1] <= mirrored[later][0]:
            weights.append(_Weights(most, most, 0.0))
        elif above[later] == -inf:
            weights.append(_Weights(most, most, inf))
        else:
            weights.append(_Weights(most, above[later] - totals[-1], exp(fixed[later] - above[later])))
    return weights


def log_volumes(windows: list[Window], queries: list[float]) -> tuple[list[float], list[float], list[float]]:
    """ln V_j for j = 0 .. len(windows), ln Phi_j(queries[j]) and ln Phi_(j-1)(queries[j]).

    The points are in order, x_i in windows[i]. Between two neighbouring marks every window is either open or shut, so m
    points that share a cell of width d have volume d^m/m!: exact, and every term is positive. `held[j]` is the volume
    with the first j points placed so far, divided by unit^j and by exp(scale) to stay in the range of floats.
    """
    count = len(windows)
    unit = e * (windows[-1][1] - windows[0][0]) / count  # about the volume that one more point adds
    marks = sorted({end for window in windows for end in window} | {q for q in queries if q > windows[0][0]})
    held = [1.0] + [0.0] * count
    scale = 0.0
    totals, below, fewer = [0.0] * (count + 1), [-inf] * len(queries), [-inf] * len(queries)
    if queries:
        below[0] = 0.0  # no point is placed before phase 0, and Phi_0 = 1 everywhere
    first = last = query = 0

    def log_held(j: int) -> float:
        return log(held[j]) + j * log(unit) + scale

    for left, right in pairwise(marks):
        while last < count and windows[last][0] <= left:
            last += 1
        _place(held, first, last, (right - left) / unit)
        while first < count and windows[first][1] <= right:
            first += 1
            if held[first] < _LEAST_HELD:
                raise _refuse("a volume in the range of floats", first - 1, f"{held[first]} of the largest")
            totals[first] = log_held(first)
        while query < len(queries) and queries[query] <= right:
            if queries[query] == right and query and held[query] > 0:
                below[query] = log_held(query)
                fewer[query] = totals[query - 1] if query - 1 <= first else log_held(query - 1)
            query += 1
        top = max(held[first : last + 1])
        if not 1e-30 < top < 1e30:
            held[first : last + 1] = [value / top for value in held[first : last + 1]]
            scale += log(top)
    return totals, below, fewer


def _place(held: list[float], first: int, last: int, width: float) -> None:
    """Let any number of the points first .. last-1 fall, in order, into a cell of this width."""
    weights = [1.0]
    for placed in range(1, last - first + 1):
        weights.append(weights[-1] * width / placed)
    weights.reverse()
    before = held[first : last + 1]
    for j in range(last, first, -1):
        held[j] = sum(map(mul, before, weights[last - j :]))


def _reach(widths: Widths) -> float:
    """A bound that the sum of the errors never reaches."""
    return sum(width * slots for width, slots in widths) / 2


class Tail:
    """A bound on the probability that the sum of the errors is beyond a slack, and by how much."""

    def __init__(self, widths: Widths, slack: float) -> None:
        self._tilt, self._nats = 1.0, -inf
        if slack >= _reach(widths):
            return
        self._tilt = s = _tilt(widths, slack)
        chernoff = sum(slots * _cumulant(width * s) for width, slots in widths) - s * slack
        self._nats = chernoff - max(0.0, log(s) - _log_density(widths, s))

    def log(self, slope: float) -> float:
        """ln of a bound on the integral over u > 0 of exp(slope u) Pr[X >= slack + u]."""
        if self._nats == -inf:
            return -inf
        return self._nats - log(self._tilt - slope) if self._tilt > slope else inf


def _tilt(widths: Widths, slack: float) -> float:
    """About the best tilt, where the tilted sum has the mean `slack`. Any other is valid, and the bound is flat there.

    The mean is concave in the tilt and below its tangent at 0: so Newton's method, from where that tangent has the
    value, comes from below and never passes the root.
    """
    s = max(12 * slack / sum(slots * width**2 for width, slots in widths), 1e-6)
    for _ in range(_NEWTON_STEPS):
        mean = sum(slots * width * _mean(width * s) for width, slots in widths)
        step = (slack - mean) / sum(slots * width**2 * _spread(width * s) for width, slots in widths)
        s = min(max(s + step, 1e-6), 500.0)
        if abs(step) < 1e-5 * s:
            break
    return s


def _log_density(widths: Widths, s: float) -> float:
    """ln of a bound on the density of the tilted sum: Hoelder's inequality for the widest m slots, the best m."""
    best, logs, m = inf, 0.0, 0
    for width, slots in widths:
        logs += slots * log(width**2 * _spread(width * s))
        m += slots
        if m >= 2:
            best = min(best, -log(sqrt(2 * pi * (m - 1.5))) - logs / (2 * m))
    return best


def _spread(s: float) -> float:
    """The variance of one tilted uniform, rounded down."""
    return 1 / 12 - s**2 / 240 if s < 0.1 else 1 / s**2 - (0.25 / sinh(s / 2) ** 2 if s < 200 else 0.0)


def _cumulant(s: float) -> float:
    """ln( sinh(s/2) / (s/2) ), rounded up."""
    if s < 1e-2:
        return s**2 / 24 - s**4 / 2880 + s**6 / 181440  # the series alternates, so this is above
    value = log(sinh(s / 2) / (s / 2)) if s < 100 else s / 2 - log(s)
    return value + 1e-15 * max(1.0, value)


def _mean(s: float) -> float:
    return s / 12 - s**3 / 720 if s < 1e-2 else (0.5 / (1 - 2 / (exp(s) + 1)) - 1 / s if s < 700 else 0.5 - 1 / s)
