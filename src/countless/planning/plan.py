"""The base of all plans. A plan holds numbers only: it draws nothing and reads no clock.

A plan is a pure function of (sites, alpha, eta), plus a least step where the proof needs one. It fixes a whole round:
from one exact synchronisation to the next. Only `step` also depends on the total, through the plan's `allowance`: the
error, in steps, that the proof lets the round have.
"""

from dataclasses import dataclass
from typing import Protocol

from countless.core.parameters import exact_fraction, require_alpha, require_probability
from countless.errors import InvalidParameter

MAX_SITES = 10_000_000  # beyond, planning takes too long


@dataclass(frozen=True, slots=True)
class Cause:
    """The inequality that fixed one number of a plan."""

    number: str
    value: float
    because: str


class Plan(Protocol):
    """A round whose guarantee is proved: with probability 1 - eta the answer stays within 1 ± alpha."""

    @property
    def scheme(self) -> str: ...

    @property
    def sites(self) -> int:
        """The most sites (slots) that the round may have."""

    @property
    def alpha(self) -> float: ...

    @property
    def eta(self) -> float:
        """Failure probability of the round."""

    @property
    def least_step(self) -> int:
        """Smallest step that the proof covers."""

    @property
    def messages_per_efold(self) -> float:
        """Expected messages while the total grows by a factor e, synchronisation included."""

    @property
    def reasons(self) -> tuple[Cause, ...]: ...

    def step(self, total: int) -> int:
        """Largest step allowed when the round starts at `total` (a lower bound is safe); may be below `least_step`."""


class RoundPlan(Plan, Protocol):
    """A plan for a scheme that has rounds."""

    @property
    def allowance(self) -> float:
        """The error, in steps, that the proof lets the round have: alpha N0/step must be at least this."""

    @property
    def steps_per_round(self) -> float:
        """About how many steps the total grows by in a round."""

    @property
    def messages_per_round(self) -> float:
        """Expected messages of a round, with a synchronisation of two messages for each of the plan's sites."""


def step_within(alpha: float, allowance: float, total: int) -> int:
    """floor(alpha * total / allowance), in integers so that rounding can only be downwards."""
    part, whole = exact_fraction(alpha).as_integer_ratio()
    steps, unit = allowance.as_integer_ratio()
    return part * total * unit // (whole * steps)


def least_total(plan: RoundPlan, least_step: int) -> int:
    """The first total at which the plan's step is at least `least_step`: the exact inverse of `step_within`.

    >>> from countless.planning.oblivious import plan_lattice
    >>> plan = plan_lattice(100, 0.01, 1e-4)
    >>> [plan.step(least_total(plan, 7) - event) for event in (0, 1)]
    [7, 6]
    """
    part, whole = exact_fraction(plan.alpha).as_integer_ratio()
    steps, unit = plan.allowance.as_integer_ratio()
    return -(-least_step * steps * whole // (unit * part))


def check_request(sites: int, alpha: float, eta: float) -> None:
    if isinstance(sites, bool) or not isinstance(sites, int) or not 1 <= sites <= MAX_SITES:
        raise InvalidParameter("sites", sites, f"an integer of at least 1 and at most {MAX_SITES:,}")
    require_alpha(alpha)
    require_probability("eta", eta)
