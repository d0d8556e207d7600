"""What the schemes with rounds share: a plan from the book, the exact start, and the step (SPEC section 3).

A calibrated scheme never makes numbers up. It runs with the plan it was given, or with one from the planner; if neither
is at hand when a round must start, it lets every site go on deterministically, which is safe without any plan.
"""

from abc import abstractmethod
from math import ceil
from typing import Generic, TypeVar

from countless.core.estimator import Case, Counting, Opening, Publisher, Scheme, Stay
from countless.core.random_source import Dice
from countless.errors import PlanError
from countless.planning.cache import PlanBook
from countless.planning.failure_budget import round_eta
from countless.planning.plan import RoundPlan, exact_fraction, least_total
from countless.schemes.deterministic import Growing

P = TypeVar("P", bound=RoundPlan)

LEAST_STEP = 2  # below this a step saves nothing: every event is reported, and the answer is exact


def start_exactly(scheme: str, case: Case, until: int) -> Opening | Stay:
    """Count every event until the total reaches `until`; where that is what runs already, just go on."""
    if case.running is not None and isinstance(case.running.publisher, Counting):
        return Stay(until)
    return Opening(scheme, Counting(until))


class Calibrated(Scheme, Generic[P]):
    """A scheme whose rounds follow a plan."""

    def __init__(self, plan: P | None = None, *, patient: bool = True) -> None:
        self._given = plan
        self._patient = patient  # may `open` work out a plan while messages wait?

    @abstractmethod
    def books(self) -> list[PlanBook[P]]:
        """Where this scheme's plans are; where there are several for one round, the best is in the last."""

    @abstractmethod
    def publisher(self, plan: P, step: int, case: Case, dice: Dice) -> Publisher:
        """The publisher of a round with this plan and step."""

    def slots(self, plan: P) -> int | None:
        """How many sites the plan's proof allows."""
        return plan.sites

    def open(self, case: Case, dice: Dice) -> Opening | Stay:
        """Exact while the step would be below 2, then round after round by the plan."""
        plans = self.plans(case, self._patient)
        for plan in reversed(plans):
            step = plan.step(case.total)
            if worth_having(plan, step):
                return Opening(self.name, self.publisher(plan, step, case, dice), self.slots(plan), plan)
        if plans:
            return start_exactly(self.name, case, until=min(map(worth_having_from, plans)))
        return self._stopgap(case)

    def prepare(self, case: Case) -> None:
        """Work out the plans of the next round."""
        self.plans(case, patient=True)

    def plans(self, case: Case, patient: bool) -> list[P]:
        """The plan that was given, or those the books have; one not there is worked out only if nobody waits."""
        if self._given is not None:
            return [self._checked(self._given, case)]
        eta = self.eta(case)
        found = [(book.plan if patient else book.ready)(case.sites, case.alpha, eta) for book in self.books()]
        return [plan for plan in found if plan is not None]

    def eta(self, case: Case) -> float:
        """The failure probability that the round's plan is made for: at most the round's share of delta."""
        return round_eta(case.delta, case.round)

    def _checked(self, plan: P, case: Case) -> P:
        present = len(case.counts)  # a reserve for newcomers is welcome, but nothing to insist on
        if exact_fraction(plan.alpha) > exact_fraction(case.alpha) or plan.sites < present:
            raise PlanError(
                f"the given {self.name} plan is for {plan.sites} sites and alpha {plan.alpha}; "
                f"this round has {present} sites and alpha {case.alpha}"
            )
        return plan

    def _stopgap(self, case: Case) -> Opening | Stay:
        until = ceil(case.total * 1.05) + 1
        if case.running is not None and case.running.publisher.until is not None:
            return Stay(until)
        return Opening(self.name, Growing(case.alpha, until))


def worth_having(plan: RoundPlan, step: int) -> bool:
    """Whether a round with this step is both covered by the proof and better than reporting every event."""
    return step >= max(LEAST_STEP, plan.least_step)


def worth_having_from(plan: RoundPlan) -> int:
    """The first total at which a round of this plan is worth having."""
    return least_total(plan, max(LEAST_STEP, plan.least_step))
