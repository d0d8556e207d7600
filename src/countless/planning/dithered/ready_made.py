"""Ready-made `dithered` plans: to search for a plan takes a second, to take it from a table some hundredths.

The table, `ready_made.json`, has rounds for some alphas, failure probabilities and numbers of sites;
`python -m tools.ready_made` writes it. Other requests take the next round that is safe for them:

    sites  the next larger number, with all lengths in units of the square root of the sites: risks nearly stay
           the same, and fall a little
    eta    the next smaller one
    alpha  the next smaller one. The risks do not depend on alpha; the allowance is computed for the alpha asked for

Of a phase the table has four numbers, and of a round only some phases; others are interpolated. So a plan from the
table is a guess, which is used only if `dithered_check` verifies it.
"""

import json
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from math import sqrt
from pathlib import Path
from typing import NamedTuple

from countless.errors import PlanError
from countless.planning.dithered.check import with_risks
from countless.planning.dithered.plan import (
    MIN_STEP,
    DitheredPlan,
    Phase,
    messages_per_efold,
    messages_per_round,
)
from countless.planning.dithered.planner import plan_dithered
from countless.planning.plan import Cause, step_within

TABLE = Path(__file__).with_name("ready_made.json")
MIN_SITES = 33  # with fewer, rounds without dither are as cheap, and are found in no time
FIRST, SPREAD = 8, 20  # phases of a round that the table has: the first ones, and others up to the last
_SAFETY = 1 + 1e-9  # far above the rounding of the sums here, far below what costs a message

Numbers = list[float]  # length, dither, slack_early, slack_late


class Row(NamedTuple):
    """The number of phases, and the numbers at `places(phases)`, in units of the square root of the sites."""

    sites: int
    phases: int
    numbers: list[Numbers]


@dataclass(frozen=True, slots=True)
class Quote:
    """The cost of a round of the table. Nothing about it is verified."""

    sites: int
    alpha: float
    eta: float
    allowance: float
    steps_per_round: float
    phases: int

    scheme = "dithered"
    least_step = MIN_STEP
    reasons = ()

    @property
    def messages_per_round(self) -> float:
        return messages_per_round(self.sites, self.steps_per_round, self.phases)

    @property
    def messages_per_efold(self) -> float:
        return messages_per_efold(self.sites, self.alpha, self.allowance, self.steps_per_round, self.phases)

    def step(self, total: int) -> int:
        return step_within(self.alpha, self.allowance, total)


def quick_plan_dithered(sites: int, alpha: float, eta: float) -> DitheredPlan:
    """A verified plan: from the table, if that has one for this request, else the result of a search."""
    return ready_made(sites, alpha, eta) or plan_dithered(sites, alpha, eta)


def quote_dithered(sites: int, alpha: float, eta: float) -> Quote | None:
    """The price of `ready_made`, or None."""
    row = _row(sites, alpha, eta)
    if row is None:
        return None
    allowance, steps = _priced(alpha, row.sites, _alpha_below(alpha), _eta_below(alpha, eta))
    scale = sqrt(sites / row.sites)
    return Quote(sites, alpha, eta, allowance * scale, steps * scale, row.phases)


@lru_cache(maxsize=256)
def ready_made(sites: int, alpha: float, eta: float) -> DitheredPlan | None:
    """A verified plan from the table, or None."""
    row = _row(sites, alpha, eta)
    if row is not None:
        with suppress(PlanError):
            return with_risks(plan_of(row, sites, alpha, eta))
    return None


@lru_cache(maxsize=256)
def _priced(alpha: float, sites: int, row_alpha: float, row_eta: float) -> tuple[float, float]:
    """Allowance and steps of a round of the table, at its own number of sites."""
    row = _table(row_alpha)[row_eta][sites]
    plan = plan_of(row, sites, alpha, row_eta)
    return plan.allowance, plan.steps_per_round


@cache
def _lines() -> dict[float, list[str]]:
    """By alpha. A line is parsed when it is needed: all of them take too long."""
    lines: dict[float, list[str]] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:-1]:
        lines.setdefault(float(line[1 : line.index(",")]), []).append(line.rstrip(","))
    return lines


@cache
def _table(alpha: float) -> dict[float, dict[int, Row]]:
    """By eta and sites."""
    table: dict[float, dict[int, Row]] = {}
    for line in _lines()[alpha]:
        _, eta, sites, phases, numbers = json.loads(line)
        table.setdefault(eta, {})[sites] = Row(sites, phases, numbers)
    return table


def _alpha_below(alpha: float) -> float:
    return max(known for known in _lines() if known <= alpha)


def _eta_below(alpha: float, eta: float) -> float:
    return max(known for known in _table(_alpha_below(alpha)) if known <= eta)


def _row(sites: int, alpha: float, eta: float) -> Row | None:
    """The cheapest that is safe for this request."""
    if sites < MIN_SITES or alpha < min(_lines()) or eta < min(_table(_alpha_below(alpha))):
        return None
    rows = _table(_alpha_below(alpha))[_eta_below(alpha, eta)]
    larger = [known for known in rows if known >= sites]
    return rows[min(larger)] if larger else None


def places(phases: int) -> list[float]:
    """The places of a round for which the table has numbers: fractions are between two phases."""
    parts = (part / SPREAD for part in range(SPREAD + 1))
    return [*range(FIRST), *(FIRST + (phases - 1 - FIRST) * part**2 * (3 - 2 * part) for part in parts)]


def plan_of(row: Row, sites: int, alpha: float, eta: float) -> DitheredPlan:
    """The plan with the numbers of the row, and the least allowance that they permit. It states no risks."""
    span = 2 * alpha / (1 - alpha)
    phases: list[Phase] = []
    position = low = late = dither = allowance = 0.0
    for length, wanted, early, slack_late in _interpolated(row, sqrt(sites)):
        late = max(late, slack_late)
        if phases:  # windows of thresholds stay in order
            dither = min(max(wanted, dither - 1.9 * length), dither + 1.9 * length)
        else:
            dither, length = wanted, max(length, (wanted / 2 + early) * _SAFETY)
        high = position + length + dither / 2 + late
        phases.append(Phase(length, dither, position, early, late, low, high, 0.0))
        allowance = max(allowance, alpha * ((high - low) / span - low) * _SAFETY)
        position += length
        low = max(low, position - dither / 2 - early)
    reason = Cause("allowance", allowance, "from the table of ready-made plans; every inequality is verified")
    return DitheredPlan(sites, alpha, eta, allowance, tuple(phases), (reason,))


def _interpolated(row: Row, unit: float) -> list[Numbers]:
    known = places(row.phases)
    numbers: list[Numbers] = []
    for index in range(row.phases):
        left = min(bisect_right(known, index), len(known) - 1) - 1
        mix = (index - known[left]) / (known[left + 1] - known[left])
        here, there = row.numbers[left], row.numbers[left + 1]
        numbers.append([unit * ((1 - mix) * a + mix * b) for a, b in zip(here, there, strict=True)])
    return numbers
