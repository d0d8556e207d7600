"""`deterministic`: a site speaks when its count has outgrown what its last report can stand for (SPEC 3.0)."""

from collections.abc import Sequence
from fractions import Fraction

from countless.core.answer import midpoint
from countless.core.estimator import OVER, Case, Consequence, Opening, Publisher, Scheme, Stay
from countless.core.ledger import Entry
from countless.core.random_source import Dice
from countless.core.triggers import Growth, Pace
from countless.planning.deterministic import plan_deterministic


class Growing(Publisher):
    """Each site's count lies between its last report and the reach of its pace; publish the middle of what that allows.

    Any value from (1-alpha) * (sum of reaches) to (1+alpha) * (sum of reports) is within 1 ± alpha of every total the
    reports allow. While no report stands for more than itself, the two sums agree and the answer is exact.
    """

    def __init__(self, alpha: float, until: int | None = None) -> None:
        self._pace = Growth(alpha)
        part, self._unit = Fraction(repr(alpha)).as_integer_ratio()
        self._down, self._up = self._unit - part, self._unit + part
        self._least = self._most = 0
        self.until = until
        self.loud = self._pace.loud

    def pace(self, slot: int) -> Pace:
        """The same for all: it depends on the site's own count only."""
        return self._pace

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        """Every count is known; each site may already grow as far as its pace lets it."""
        self._least = departed + sum(entry.base for entry in entries)
        self._most = departed + sum(self._pace.reach(entry.base) for entry in entries)
        self._settle()

    def hear(self, entry: Entry, before: int, crossings: int) -> Consequence | None:
        """Move one site's range."""
        known, reach = entry.known, self._pace.reach
        self._least += known - before
        self._most += reach(known) - reach(before)
        return self._settle()

    def join(self, entry: Entry) -> None:
        """One more range."""
        self._least += entry.base
        self._most += self._pace.reach(entry.base)
        self._settle()

    def leave(self, entry: Entry, before: int) -> Consequence | None:
        """A range becomes a number."""
        self._least += entry.known - before
        self._most += entry.known - self._pace.reach(before)
        return self._settle()

    def _settle(self) -> Consequence | None:
        least, most = self._least, self._most
        self.exact = least == most  # and then the middle is both
        self.estimate = midpoint(self._down * most, self._up * least, self._unit)
        return OVER if self.until is not None and least >= self.until else None


class Deterministic(Scheme):
    """Report at n, then at floor(n (1+alpha)/(1-alpha)) + 1, and so on: no dice, no rounds, no secrets.

    Formal guarantees: |estimate - total| <= alpha * total at every moment, with certainty, against every adversary.
    About k / ln((1+alpha)/(1-alpha)) messages for each e-fold of the total; half of the one-sided version in the paper.

    >>> from countless import Tracker
    >>> tracker = Tracker(sites=2, alpha=0.1, scheme="deterministic")
    >>> for _ in range(1000): tracker.site(0).add()
    >>> tracker.messages.up, tracker.answer.lower <= 1000 <= tracker.answer.upper
    (29, True)

    References: Cormode, Muthukrishnan, Yi (2008), and SPEC 3.0 for the two-sided form; docs/theory/oblivious.md.
    """

    name = "deterministic"
    safe_against = "sees-everything"

    def open(self, case: Case, dice: Dice) -> Opening | Stay:
        """One round, for ever."""
        return Opening(self.name, Growing(case.alpha), plan=plan_deterministic(case.sites, case.alpha))
