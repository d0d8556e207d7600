"""`hyz`: the classical randomised tracker of Huang, Yi and Zhang, one copy (SPEC 3.0)."""

from collections.abc import Sequence

from countless.core.estimator import OVER, Case, Consequence, Publisher
from countless.core.ledger import Entry
from countless.core.random_source import Dice
from countless.core.triggers import Pace, Sampled
from countless.planning.cache import PlanBook
from countless.planning.hyz import plan_hyz
from countless.planning.oblivious import ObliviousPlan
from countless.schemes.planned import Calibrated


class LastReports(Publisher):
    """Per site: its base until its first report of the round, then the count it last reported, minus 1, plus a step.

    Since the last report a site has counted, on average, step - 1 events in silence: so the sum is unbiased.
    """

    def __init__(self, step: int, reports: int) -> None:
        self._pace = Sampled(step)
        self._left = reports

    def pace(self, slot: int) -> Pace:
        """The same for all; each site draws for itself."""
        return self._pace

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        """The exact total."""
        self.estimate: int = departed + sum(entry.base for entry in entries)

    def hear(self, entry: Entry, before: int, crossings: int) -> Consequence | None:
        """A site's last report has moved on; the first one of a round also brings the step for its silence."""
        first = entry.crossings == crossings
        self.estimate += entry.known - (entry.base - self._pace.step + 1 if first else before)
        self._left -= crossings
        return OVER if self._left <= 0 else None

    def join(self, entry: Entry) -> None:
        """What the newcomer brings is known exactly."""
        self.estimate += entry.base

    def late(self, entry: Entry, before: int, gain: int) -> Consequence | None:
        """Before its first report a site counts as its base; after it, the base no longer matters."""
        self.estimate += gain if not entry.crossings else 0
        return None


class Hyz(Calibrated[ObliviousPlan]):
    """Each event is reported with probability 1/step; the silence since the last report is filled in by its mean.

    Formal guarantees: with probability 1 - delta within 1 ± alpha at every moment, for streams fixed in advance only.
    This is what "randomised count tracking" usually means, and what `countless attack` breaks.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=16, alpha=0.05, scheme="hyz", adversary="oblivious", seed=1)
    >>> for i in range(50_000): tracker.site(i % 16).add()
    >>> tracker.answer.lower <= 50_000 <= tracker.answer.upper
    True

    References: Huang, Yi, Zhang (PODS 2012); docs/theory/oblivious.md for the bound used here, which holds at all times
    for one copy; theirs takes medians of several copies and costs more.
    """

    name = "hyz"
    safe_against = "oblivious"

    def books(self) -> list[PlanBook[ObliviousPlan]]:
        """One plan for a number of sites."""
        return [BOOK]

    def publisher(self, plan: ObliviousPlan, step: int, case: Case, dice: Dice) -> Publisher:
        """Remember last reports."""
        return LastReports(step, plan.reports)


BOOK: PlanBook[ObliviousPlan] = PlanBook(plan_hyz)
