"""Rolling budgets: units come back when a window has passed since they were taken.

A site keeps what it has taken in panes. A pane is open for a twentieth of the window; its units come back, all at once,
when the window has passed since its last unit was taken. Until then they count as used. So the units taken in any
interval as long as the window are all used at its end, and are at most the limit, as of any budget.

    taken      |-pane-|         |-pane-|
    come back         |---- window ----|-> all units of the first pane

Units that came back stay in the room of the site, without a message. If the coordinator has refused requests because of
them, the site reports them: at once, or a pane later if it has refused requests itself and may use them.

What a site hands in when it leaves counts for another window (`Returns`).
"""

from collections import deque
from math import floor, inf

from countless.core.budget.messages import Ask
from countless.core.budget.site import BudgetSite

PANES = 20
MARGIN_S = 1e-6  # units come back so much later, so that intervals may include both ends, and sums may be rounded


class RollingWindow:
    """The units that a site has taken and that have not come back yet.

    The owner calls `advance` with the time of a clock before each request, settlement and message, `record` after
    requests and settlements, and `advance` also at `next_at`. Until `ends_at` it may admit requests without a call:
    they count as late as possible.

    >>> from countless.core.budget.messages import BudgetId, Grant
    >>> site = BudgetSite(BudgetId("logins"))
    >>> window = RollingWindow(site, 60.0)
    >>> site.receive(Grant(BudgetId("logins"), 0, 5)), window.advance(100.0), site.take(5).verdict.value
    ((), (), 'allowed')
    >>> window.record()
    >>> window.advance(101.0), site.room, window.returns_at(1)
    ((), 0, 160.000002)
    >>> window.advance(160.000002), site.room
    ((), 5)
    """

    __slots__ = ("_empty_since", "_now", "_open", "_panes", "_report_at", "_site", "ends_at", "length")

    def __init__(self, site: BudgetSite, length: float) -> None:
        site.rolling = True
        self.length = length
        self.ends_at = -inf  # of the open pane
        self._site = site
        self._panes: deque[tuple[float, int]] = deque()  # when the last unit was taken, at the latest; units
        self._open = False  # whether the last of them is open
        self._now = -inf
        self._empty_since = inf
        self._report_at = inf

    def advance(self, now: float) -> tuple[Ask, ...]:
        """The time is `now`. What was taken and not recorded was taken before that, and before the pane ended."""
        site = self._site
        if site.closed:
            return ()
        now = self._now = max(now, self._now)  # a clock that goes back keeps units longer
        self._add(min(now, self.ends_at))
        if now >= self.ends_at:
            self.ends_at, self._open = now + self.length / PANES, False
        self._release(now)
        self._empty_since = inf if site.used or site.want else min(self._empty_since, now)
        if not site.may_report:
            self._report_at = inf
        elif now >= self._report_at:
            self._report_at = inf
            return (site.resend(),)
        return ()

    def record(self) -> None:
        """What was taken since the last `advance` was taken at its time."""
        self._add(self._now)

    @property
    def _unrecorded(self) -> int:
        return self._site.spent - sum(units for _, units in self._panes)

    def _add(self, moment: float) -> None:
        units = self._unrecorded
        if units and self._open:
            self._panes[-1] = (moment, self._panes[-1][1] + units)
        elif units:
            self._panes.append((moment, units))
            self._open = True

    def _release(self, now: float) -> None:
        site, first = self._site, None
        while self._panes and self._panes[0][0] + self.length + MARGIN_S <= now:
            moment, units = self._panes.popleft()
            first = moment if first is None else first
            site.expire(units)  # an exception of a signal handler before this makes them count for another window
        if first is None:
            return
        if site.may_report and self._report_at == inf:
            self._report_at = first + self.length + (self.length / PANES if site.refused else 0.0)
        site.refused = False

    # For the owner

    @property
    def next_at(self) -> float:
        """When to call `advance` next, if nothing happens before."""
        site = self._site
        if self._unrecorded:
            return self.ends_at
        if site.exhausted_from is not None and self._panes:
            return min(self._report_at, self._return_of(self._panes[0]))
        return min(self._report_at, self._return_of(self._panes[-1]) if self._panes else inf)

    @property
    def idle_at(self) -> float:
        """When the site has used nothing for a window: it should leave, because it may not be needed any more."""
        return self._empty_since + self.length

    def returns_at(self, units: int) -> float | None:
        """When so many units have come back; None if the site has not so many."""
        for pane in self._panes:
            units -= pane[1]
            if units <= 0:
                return self._return_of(pane)
        return None

    def _return_of(self, pane: tuple[float, int]) -> float:
        return pane[0] + self.length + 2 * MARGIN_S


class Returns:
    """When units that sites have handed in come back. They are collected in panes, so there are few entries."""

    def __init__(self, length: float) -> None:
        self._pane = length / PANES
        self._units: dict[int, int] = {}

    def add(self, moment: float, units: int) -> None:
        """They come back after this moment."""
        if units:
            pane = floor(moment / self._pane) + 1
            self._units[pane] = self._units.get(pane, 0) + units

    def due(self, now: float) -> int:
        """The units that come back now."""
        panes = [pane for pane in self._units if pane * self._pane <= now]
        return sum(self._units.pop(pane) for pane in panes)
