"""Ready-made `dithered` plans: to search for a plan takes a second, to take it from a table some hundredths.

The table, `ready_made.json`, has plans for common alphas, for the first rounds of a counter with delta = 0.05, and for
powers of two of sites; `python -m tools.ready_made` writes it. Of a phase it has four numbers, in units of the square
root of the sites, and of a round only some phases. What is between them is interpolated.

So a plan from the table is a guess, which is repaired where it fails too often. `check_dithered` verifies the result,
as it verifies every plan.
"""

import json
from bisect import bisect_right
from contextlib import suppress
from functools import cache, lru_cache
from math import log, log2, prod, sqrt
from pathlib import Path
from typing import NamedTuple

from countless.errors import PlanError
from countless.planning.dithered import plan_dithered
from countless.planning.dithered_check import check_dithered, equal_widths, risks
from countless.planning.dithered_plan import DitheredPlan, Phase
from countless.planning.plan import Reason

TABLE = Path(__file__).with_name("ready_made.json")
MAX_EXCESS = 1e6  # times a phase's share of eta that it may fail before repairs: else its neighbours are too different
MAX_RATIO = 2.0  # to the nearest alpha of the table, for a price
MAX_REPAIRS = 5  # of shares of the failure probability, or of slacks; more than two are rare
MIN_STEPS = 1.0  # of any number: a parabola may pass below
MARGIN = 1.006  # on every slack: what interpolation misses, nearly always
FIRST, SPREAD = 8, 20  # phases of a round that the table has: the first ones, and others up to the last
_SAFETY = 1 + 1e-9  # far above the rounding of the sums here, far below what costs a message

Numbers = list[float]  # length, dither, slack_early, slack_late


class Entry(NamedTuple):
    """How many phases, and the numbers of those at `places(phases)`."""

    phases: int
    numbers: list[Numbers]


def quick_plan_dithered(sites: int, alpha: float, eta: float) -> DitheredPlan:
    """A verified plan: from the table, if that has one for this request, else the result of a search."""
    return ready_made(sites, alpha, eta) or plan_dithered(sites, alpha, eta)


@lru_cache(maxsize=256)
def quote_dithered(sites: int, alpha: float, eta: float) -> DitheredPlan | None:
    """What the table says about a plan, or None. It is good for a price; nothing about it is verified."""
    entry = _entry(sites, alpha, eta)
    if entry is None:
        return None
    return _plan(_phases(entry, sites), [0.0] * entry.phases, sites, alpha, eta)


@lru_cache(maxsize=256)
def ready_made(sites: int, alpha: float, eta: float) -> DitheredPlan | None:
    """A verified plan from the table, or None."""
    entry = _entry(sites, alpha, eta)
    if entry is None or alpha not in _rows():
        return None
    phases, shares = _phases(entry, sites), [eta / _SAFETY / entry.phases] * entry.phases
    for _ in range(MAX_REPAIRS):
        plan = _plan(phases, shares, sites, alpha, eta)
        with suppress(PlanError):
            check_dithered(plan)
            return plan
        shares = [risk * _SAFETY for risk in risks(plan, equal_widths(plan))]
        if max(shares) > MAX_EXCESS * eta / entry.phases:
            return None
        if sum(shares) * _SAFETY > eta:
            for phase, share in zip(phases, shares, strict=True):
                excess = max(0.0, log(share * len(phases) / eta))  # in nats, of which a step of slack x is 12 x/sites
                phase[2:] = [slack + excess * sites / (12 * slack) for slack in phase[2:]]
            shares = [eta / _SAFETY / entry.phases] * entry.phases
    return None


@cache
def _rows() -> dict[float, list[str]]:
    """By alpha. A row is parsed when it is needed: all of them take 14 ms."""
    rows: dict[float, list[str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:-1]:
        rows.setdefault(float(line[1 : line.index(",")]), []).append(line.rstrip(","))
    return rows


@cache
def _table(alpha: float) -> dict[float, dict[int, Entry]]:
    """By eta and sites."""
    table: dict[float, dict[int, Entry]] = {}
    for row in _rows()[alpha]:
        _, eta, sites, phases, numbers = json.loads(row)
        table.setdefault(eta, {})[sites] = Entry(phases, numbers)
    return table


def _entry(sites: int, alpha: float, eta: float) -> Entry | None:
    """Of the nearest alpha and eta in the table. The number of phases of a round is about as 1/alpha."""
    near_alpha = min(_rows(), key=lambda known: abs(log(known / alpha)))
    if not 1 / MAX_RATIO <= alpha / near_alpha <= MAX_RATIO:
        return None
    table = _table(near_alpha)
    entry = _between(table[min(table, key=lambda known: abs(log(known / eta)))], sites)
    return entry and entry._replace(phases=max(FIRST + 3, round(entry.phases * near_alpha / alpha)))


def _between(entries: dict[int, Entry], sites: int) -> Entry | None:
    """That of the table, or a parabola through three of them, on a logarithmic scale of sites."""
    if sites in entries:
        return entries[sites]
    known = sorted(entries)
    if len(known) < 3 or not known[0] < sites < known[-1]:
        return None
    first = min(max(0, bisect_right(known, sites) - 2), len(known) - 3)
    near = known[first : first + 3]
    weights = [prod(log2(sites / other) / log2(one / other) for other in near if other != one) for one in near]
    phases = sum(weight * entries[one].phases for weight, one in zip(weights, near, strict=True))
    numbers = [_mix(weights, at_place) for at_place in zip(*(entries[one].numbers for one in near), strict=True)]
    return Entry(round(phases), numbers)


def _mix(weights: list[float], numbers: tuple[Numbers, ...]) -> Numbers:
    return [sum(w * x for w, x in zip(weights, each, strict=True)) for each in zip(*numbers, strict=True)]


def places(phases: int) -> list[float]:
    """Where in a round the table has numbers: fractions are between two phases."""
    parts = (part / SPREAD for part in range(SPREAD + 1))
    return [*range(FIRST), *(FIRST + (phases - 1 - FIRST) * part**2 * (3 - 2 * part) for part in parts)]


def _phases(entry: Entry, sites: int) -> list[Numbers]:
    """The numbers of every phase, in steps."""
    known = places(entry.phases)
    phases: list[Numbers] = []
    for index in range(entry.phases):
        left = min(bisect_right(known, index), len(known) - 1) - 1
        mix = (index - known[left]) / (known[left + 1] - known[left])
        numbers = _mix([1 - mix, mix], (entry.numbers[left], entry.numbers[left + 1]))
        length, dither, early, late = (max(MIN_STEPS, sqrt(sites) * x) for x in numbers)
        if phases:  # windows of thresholds stay in order
            dither = min(max(dither, phases[-1][1] - 1.9 * length), phases[-1][1] + 1.9 * length)
        phases.append([length, dither, early * MARGIN, late * MARGIN])
    return phases


def _plan(numbers: list[Numbers], risks: list[float], sites: int, alpha: float, eta: float) -> DitheredPlan:
    """The plan with these numbers, and the least allowance that they permit."""
    span = 2 * alpha / (1 - alpha)
    phases: list[Phase] = []
    position = low = late = allowance = 0.0
    for (length, dither, early, slack_late), risk in zip(numbers, risks, strict=True):
        late = max(late, slack_late)
        if not phases:
            length = max(length, (dither / 2 + early) * _SAFETY)
        high = position + length + dither / 2 + late
        phases.append(Phase(length, dither, position, early, late, low, high, risk))
        allowance = max(allowance, alpha * ((high - low) / span - low) * _SAFETY)
        position += length
        low = max(low, position - dither / 2 - early)
    reason = Reason("allowance", allowance, "from the table of ready-made plans; every inequality is verified")
    return DitheredPlan(sites, alpha, eta, allowance, tuple(phases), (reason,))
