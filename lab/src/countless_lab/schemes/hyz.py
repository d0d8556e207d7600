"""`hyz`: the classical randomised tracker of Huang, Yi and Zhang, one copy."""

from collections.abc import Sequence

from countless.core.estimator import Effect, Estimator, RoundContext
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import BernoulliSampling, Trigger
from countless.planning.cache import PlanCache
from countless.planning.oblivious import ObliviousPlan
from countless.schemes.planned import PlannedScheme
from countless_lab.planning.hyz import plan_hyz


class LastReportEstimator(Estimator):
    """Per site: its base until its first report of the round, then the count it last reported, minus 1, plus a step.

    Since its last report a site has counted step - 1 events on average, so the sum is unbiased.
    """

    def __init__(self, step: int, reports: int) -> None:
        self._trigger = BernoulliSampling(step)
        self._left = reports

    def trigger(self, slot: int) -> Trigger:
        return self._trigger

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        self.estimate: int = departed + sum(entry.round_start for entry in entries)

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        """Replace a site's last report. Its first report of a round also adds the step for unreported events."""
        first = entry.crossings == crossings
        self.estimate += entry.reported - (entry.round_start - self._trigger.step + 1 if first else before)
        self._left -= crossings
        return Effect.END_ROUND if self._left <= 0 else None

    def join(self, entry: Entry) -> None:
        """The count that a joining site brings is known exactly."""
        self.estimate += entry.round_start

    def on_late_start(self, entry: Entry, before: int, gain: int) -> Effect | None:
        """Before its first report a site counts as its base; after it, the base no longer matters."""
        self.estimate += gain if not entry.crossings else 0
        return None


class Hyz(PlannedScheme[ObliviousPlan]):
    """Each event is reported with probability 1/step; the events since the last report are replaced by their mean.

    Formal guarantees: with probability 1 - delta within 1 ± alpha at every moment, for streams fixed in advance only.
    This is what "randomised count tracking" usually means, and what `countless lab attack` breaks.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=16, alpha=0.05, scheme="hyz", adversary="oblivious", seed=1)
    >>> for i in range(50_000): tracker.site(i % 16).add()
    >>> tracker.answer.lower <= 50_000 <= tracker.answer.upper
    True

    References: Huang, Yi, Zhang (PODS 2012); design/proofs/oblivious.md for the bound used here, which holds at all
    times for one copy; theirs takes medians of several copies and costs more.
    """

    name = "hyz"
    safe_against = "oblivious"
    caches = (PlanCache(plan_hyz),)

    def estimator(self, plan: ObliviousPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return LastReportEstimator(step, plan.reports)
