"""Units of a rolling budget that count although no site has them any more, and when they come back.

| what happened                   | its units count until                                                              |
|---------------------------------|------------------------------------------------------------------------------------|
| a site has handed them over     | a window after it took them, as it says                                            |
| a site sends nothing any more   | a lease and a window after its last frame: its lease began before that, and the    |
|                                 | site admits nothing when it has ended                                              |
| the coordinator was restarted   | as long as before, by the last save: it saves how many seconds are left            |

All times are those of the coordinator's monotonic clock.
"""

from collections.abc import Callable, Iterable

from countless.core.budget.messages import Pane
from countless.core.budget.rolling import PANES, Returns
from countless.core.budget.rule import BudgetRule

SavedPanes = tuple[tuple[float, int], ...]  # for how many seconds they still count; units


class RollingUnits:
    def __init__(self, rule: BudgetRule, clock: Callable[[], float], saved: SavedPanes = ()) -> None:
        self._window = rule.rolling or 0.0
        self._lost_after = self._window + rule.lease
        self._clock = clock
        self._returns = Returns(self._window)
        self._saved_at = clock()
        for seconds, units in saved:
            self._returns.add(self._saved_at + seconds, units)

    def add_handed_over(self, panes: Iterable[Pane]) -> None:
        for age, units in panes:
            self._returns.add(self._clock() + self._window - age, units)

    def add_lost(self, panes: Iterable[Pane], last_seen: float) -> None:
        for _, units in panes:
            self._returns.add(self.free_at(last_seen), units)

    def free_at(self, last_seen: float) -> float:
        """The time from which on nothing counts that a site has taken whose last frame came at `last_seen`."""
        return last_seen + self._lost_after

    def due(self) -> int:
        """The units that come back now."""
        return self._returns.due(self._clock())

    @property
    def is_outdated(self) -> bool:
        """True if what was saved would let units count for a pane longer than they do."""
        now = self._clock()
        return now - self._saved_at >= self._window / PANES and bool(self._returns.left(now))

    def save(self) -> SavedPanes:
        self._saved_at = self._clock()
        return tuple(self._returns.left(self._saved_at))
