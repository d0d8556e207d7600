"""A step for each slot of a `dithered` round (design/proofs/dithered.md, section 7).

A plan is made for equal steps. It covers other steps if, at every tilt that its slacks use, the tail bound of the sum
of these errors is no larger than the plan's own, or by so little that the risks still add up to eta. Given that, the
reports are fewest if a step is as the cube root of the events that its site will count.
"""

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import log, log2, pi

from countless.planning.dithered.plan import DitheredPlan
from countless.planning.dithered.tails import cumulant, variance

MOVED_SHARE = 0.2  # of the events are expected at sites at random, the others where they were so far (by trial)
_MIN_PART = 5  # no step is below this part of the plan's: traffic that moves costs at most so many times its reports
_CLASSES_PER_OCTAVE = 4  # sites whose expected events round to the same class have the same step
_MIN_SAVING = 0.005  # of the reports; if other steps save less, all have the plan's
_GRID = 1.05  # ratio of the tilts at which tails are compared
_PARTS = [1 - n / 2000 for n in range(600)]  # of the wanted steps, whose root mean square is the plan's step


def steps_for(plan: DitheredPlan, step: int, expected: Sequence[float]) -> list[int]:
    """The step of each slot, from the events that it is expected to count; `step` is what the plan allows to all.

    >>> from countless.planning.dithered.planner import plan_dithered
    >>> plan = plan_dithered(100, 0.01, 1e-4)
    >>> steps = steps_for(plan, 1000, [8000.0] * 10 + [1000.0] * 90)
    >>> steps[0], steps[-1], steps_for(plan, 1000, [1000.0] * 100)[0]
    (1744, 872, 1000)
    """
    wanted = [_size(events) for events in expected]
    slots = Counter(wanted)
    rms = (sum(number * size**2 for size, number in slots.items()) / len(wanted)) ** 0.5
    least = -(-step // _MIN_PART)
    for part in _PARTS if rms else ():
        steps = {size: max(least, round(part * step * size / rms)) for size in slots}
        if covers(plan, step, _count(steps, slots)):
            break
    else:
        return [step] * len(wanted)
    chosen = [steps[size] for size in wanted]
    reports = sum(events / own for events, own in zip(expected, chosen, strict=True))
    return chosen if reports <= (1 - _MIN_SAVING) * sum(expected) / step else [step] * len(wanted)


def _size(events: float) -> float:
    """The cube root, rounded."""
    return 2.0 ** (round(_CLASSES_PER_OCTAVE * log2(events)) / (3 * _CLASSES_PER_OCTAVE)) if events > 0 else 0.0


def _count(steps: dict[float, int], slots: Counter[float]) -> Counter[int]:
    counted: Counter[int] = Counter()
    for size, number in slots.items():
        counted[steps[size]] += number
    return counted


def covers(plan: DitheredPlan, step: int, steps: Counter[int]) -> bool:
    """True if the plan's guarantee holds for slots with these steps, so many of each; `step` is what it allows to all.

    The root mean square may not be larger than `step`. Then between two tilts of the grid both the advantage in the
    exponent and the gains from the densities only grow. All risks may grow by the same factor, until they add up to
    eta: those of a ready-made plan are less.
    """
    k = plan.sites
    if steps == {step: k}:
        return True
    if steps.total() != k or sum(number * size**2 for size, number in steps.items()) > k * step**2:
        return False
    widths = sorted(((size / step, number) for size, number in steps.items()), reverse=True)
    room = _room(plan)
    for tilt in _tilts(plan):
        advantage = k * cumulant(tilt)[0] - sum(number * cumulant(width * tilt)[0] for width, number in widths)
        if not tilt or advantage + room < density_gain([(1.0, k)], tilt * _GRID) - density_gain(widths, tilt):
            return False
    return True


def density_gain(widths: list[tuple[float, int]], tilt: float) -> float:
    """-ln of the largest density of the tilted sum, times the tilt; at least 0. The widest come first.

    By Hoelder's inequality any m of the errors, with v the geometric mean of their variances under the tilt, bound it
    by 1/sqrt(2 pi v (m - 3/2)).
    """
    best, logs, many = 0.0, 0.0, 0
    for width, number in widths:
        logs += number * log((width * tilt) ** 2 * variance(width * tilt))
        many += number
        if many >= 2:
            best = max(best, (log(2 * pi * (many - 1.5)) + logs / many) / 2)
    return best


@lru_cache(maxsize=256)
def _room(plan: DitheredPlan) -> float:
    """By how many nats all risks may grow; none if they are not stated."""
    risk = sum(phase.risk for phase in plan.phases)
    return max(0.0, log(plan.eta / risk) - 1e-9) if risk else 0.0


@lru_cache(maxsize=256)
def _tilts(plan: DitheredPlan) -> tuple[float, ...]:
    """A grid from the smallest tilt to the largest that the plan's slacks use; none where they are certain."""
    slacks = [slack - plan.resolution for phase in plan.phases for slack in (phase.slack_early, phase.slack_late)]
    uncertain = [slack for slack in slacks if slack < plan.sites / 2]
    if not uncertain:
        return ()
    grid, last = [_tilt_below(min(uncertain) / plan.sites)], _tilt_below(max(uncertain) / plan.sites)
    while 0 < grid[-1] * _GRID <= last:
        grid.append(grid[-1] * _GRID)
    return tuple(grid)


def _tilt_below(mean: float) -> float:
    """The tilt at which an error has this mean, rounded down; 0 if there is none."""
    low, high = 0.0, 1.0
    while cumulant(high)[1] < mean:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if cumulant(middle)[1] < mean else (low, middle)
    return low
