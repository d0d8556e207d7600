"""Rolling budgets: units come back when a window has passed since they were taken.

A site keeps what it has taken in panes. A pane is open for a twentieth of the window; its units come back, all at once,
when the window has passed since its last unit was taken. Until then they count as used. So the units taken in any
interval as long as the window are all used at its end, and are at most the limit, as of any budget.

    taken      |-pane-|         |-pane-|
    come back         |---- window ----|-> all units of the first pane

A site that is lent room keeps its panes, and uses again what comes back. Any other hands them over with its next `Ask`:
the coordinator counts each until the window has passed, and frees it without a message (`Returns`).
"""

from collections import deque
from math import floor, inf

from countless.core.budget.messages import BudgetId, Pane
from countless.core.budget.site import EARLY_PERCENT, BudgetSite

PANES = 20
MARGIN_S = 1e-6  # units come back so much later, so that intervals may include both ends, and sums may be rounded


class RollingSite(BudgetSite):
    """A site of a budget whose units come back after `length` seconds.

    The owner calls `advance` with the time of a clock before everything else, `record` after requests and settlements,
    and `advance`, `repeat` and `proceed` also at `next_at`. Until `ends_at` it may admit requests without a call: they
    count as late as possible.

    >>> from countless.core.budget.messages import Quota
    >>> site = RollingSite(BudgetId("logins"), 60.0)
    >>> site.advance(100.0), site.take(5).verdict.value
    (None, 'waiting')
    >>> site.receive(Quota(BudgetId("logins"), since=1, number=1, granted=5, keep=True)), site.repeat()
    (None, None)
    >>> site.take(5).verdict.value, site.record(), site.proceed()
    ('allowed', None, ())
    >>> site.advance(101.0), site.room, site.returns_at(1)
    (None, 0, 160.000002)
    >>> site.advance(160.000002), site.room
    (None, 5)
    """

    __slots__ = ("_empty_since", "_gone", "_now", "_open", "_panes", "ends_at", "handed_over", "length")

    def __init__(
        self, budget: BudgetId, length: float, *, early_percent: int = EARLY_PERCENT, seq: int = 0, since: int = 0
    ) -> None:
        super().__init__(budget, early_percent=early_percent, seq=seq, since=since)
        self.length = length
        self.ends_at = -inf  # of the open pane
        self.handed_over = 0  # in all
        self._panes: deque[tuple[float, int]] = deque()  # when the last unit was taken, at the latest; units
        self._gone: deque[tuple[float, int]] = deque()  # handed over: they count up to a pane longer at the coordinator
        self._open = False  # whether the last of the panes is open
        self._now = -inf
        self._empty_since = inf

    def advance(self, now: float) -> None:
        """The time is `now`. What was taken and not recorded was taken before that, and before the pane ended."""
        if self.closed:
            return
        now = self._now = max(now, self._now)  # a clock that goes back keeps units longer
        self._add(min(now, self.ends_at))
        if now >= self.ends_at:
            self.ends_at, self._open = now + self.length / PANES, False
        while self._panes and self._counts_until(self._panes[0]) <= now:
            self.spent -= self._panes.popleft()[1]  # an exception of a signal handler before this counts it once more
        while self._gone and self._counts_until(self._gone[0]) <= now:
            self._gone.popleft()
        self._empty_since = inf if self.used or self.want else min(self._empty_since, now)

    def record(self) -> None:
        """Record that all that was taken since the last `advance` was taken at its time."""
        self._add(self._now)

    @property
    def _unrecorded(self) -> int:
        return self.spent - sum(units for _, units in self._panes)

    def _add(self, moment: float) -> None:
        units = self._unrecorded
        if units and self._open:
            self._panes[-1] = (moment, self._panes[-1][1] + units)
        elif units:
            self._panes.append((moment, units))
            self._open = True

    def _counts_until(self, pane: tuple[float, int]) -> float:
        return pane[0] + self.length + MARGIN_S

    def _hand_over(self) -> tuple[Pane, ...]:
        self._add(self._now)
        panes = tuple(Pane(self._now - moment, units) for moment, units in self._panes)
        self._gone += ((moment + self.length / PANES, units) for moment, units in self._panes)
        self._panes.clear()
        self._open = False
        self.handed_over += self.spent
        self.limit -= self.spent
        self.spent = 0
        return panes

    def _account(self) -> tuple[int, int]:
        return self.handed_over, self.used

    # For the owner

    @property
    def taken(self) -> int:
        """The units that were spent and have not come back, also those that were handed over."""
        return self.spent + sum(units for _, units in self._gone)

    @property
    def next_at(self) -> float:
        """The time to call `advance` next, if nothing happens before."""
        if self._unrecorded:
            return self.ends_at
        if not self._panes:
            return inf
        return self._counts_until(self._panes[-1 if self.keep else 0]) + MARGIN_S

    @property
    def idle_at(self) -> float:
        """The time at which the site has used nothing for a window. It should leave then: it may not be needed."""
        return self._empty_since + self.length

    def returns_at(self, units: int) -> float | None:
        """The time at which so many of the units that this site took are back; None if it has not taken so many."""
        latest = -inf
        for pane in (*self._gone, *self._panes):
            latest = max(latest, self._counts_until(pane) + MARGIN_S)
            units -= pane[1]
            if units <= 0:
                return latest
        return None


class Returns:
    """The times at which units that sites have handed over come back, collected in panes: so there are few."""

    def __init__(self, length: float) -> None:
        self._pane = length / PANES
        self._units: dict[int, int] = {}

    def add(self, moment: float, units: int) -> None:
        """They come back after this moment."""
        if units:
            pane = floor((moment + MARGIN_S) / self._pane) + 1
            self._units[pane] = self._units.get(pane, 0) + units

    def due(self, now: float) -> int:
        """The units that come back now."""
        panes = [pane for pane in self._units if pane * self._pane <= now]
        return sum(self._units.pop(pane) for pane in panes)

    def left(self, now: float) -> list[tuple[float, int]]:
        """For how long units still count, in seconds: to be saved."""
        return [(pane * self._pane - now, units) for pane, units in sorted(self._units.items())]
