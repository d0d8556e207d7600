"""`deterministic`: a site reports when its count has left the range that its last report covers."""

from collections.abc import Sequence
from fractions import Fraction

from countless.core.answer import midpoint
from countless.core.estimator import Effect, Estimator, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.ledger import Entry
from countless.core.random_source import RandomSource
from countless.core.triggers import GeometricGrowth, Trigger
from countless.planning.deterministic import plan_deterministic


class DeterministicEstimator(Estimator):
    """A site's count lies between its last report and the largest count that the report covers. Publish the middle.

    Any value from (1-alpha) * (sum of largest counts) to (1+alpha) * (sum of reports) is within 1 ± alpha of every
    total the reports allow. While no report stands for more than itself, the two sums agree and the answer is exact.
    """

    def __init__(self, alpha: float, reconsider_at: int | None = None) -> None:
        self._trigger = GeometricGrowth(alpha)
        part, self._unit = Fraction(repr(alpha)).as_integer_ratio()
        self._down, self._up = self._unit - part, self._unit + part
        self._least = self._most = 0
        self.reconsider_at = reconsider_at
        self.exact_below = self._trigger.exact_below

    def trigger(self, slot: int) -> Trigger:
        """The same for all sites: it depends on the site's own count only."""
        return self._trigger

    def start(self, entries: Sequence[Entry], departed: int) -> None:
        """Every count is known; from now on each site may have counted as far as its trigger lets it."""
        self._least = departed + sum(entry.round_start for entry in entries)
        self._most = departed + sum(self._trigger.max_count_covered(entry.round_start) for entry in entries)
        self._update_estimate()

    def on_report(self, entry: Entry, before: int, crossings: int) -> Effect | None:
        known, max_count_covered = entry.reported, self._trigger.max_count_covered
        self._least += known - before
        self._most += max_count_covered(known) - max_count_covered(before)
        return self._update_estimate()

    def join(self, entry: Entry) -> None:
        self._least += entry.round_start
        self._most += self._trigger.max_count_covered(entry.round_start)
        self._update_estimate()

    def leave(self, entry: Entry, before: int) -> Effect | None:
        self._least += entry.reported - before
        self._most += entry.reported - self._trigger.max_count_covered(before)
        return self._update_estimate()

    def _update_estimate(self) -> Effect | None:
        least, most = self._least, self._most
        self.exact = least == most  # and then the middle is both
        self.estimate = midpoint(self._down * most, self._up * least, self._unit)
        return Effect.END_ROUND if self.reconsider_at is not None and least >= self.reconsider_at else None


class Deterministic(Scheme):
    """Report at n, then at floor(n (1+alpha)/(1-alpha)) + 1, and so on: no randomness, no rounds, no secrets.

    Formal guarantees: |estimate - total| <= alpha * total at every moment, with certainty, against every adversary.
    About k / ln((1+alpha)/(1-alpha)) messages for each e-fold of the total; half of the one-sided version in the paper.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=2, alpha=0.1, scheme="deterministic")
    >>> for _ in range(1000): tracker.site(0).add()
    >>> tracker.messages.up, tracker.answer.lower <= 1000 <= tracker.answer.upper
    (29, True)

    References: Cormode, Muthukrishnan, Yi (2008); docs/theory/oblivious.md has the two-sided form.
    """

    name = "deterministic"
    safe_against = "sees-everything"

    def open_round(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        return RoundSetup(
            self.name, DeterministicEstimator(context.alpha), plan=plan_deterministic(context.sites, context.alpha)
        )
