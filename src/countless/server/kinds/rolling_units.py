"""Units of a rolling budget that count although no site has them any more, and when they come back.

| what happened                   | its units count until                                                              |
|---------------------------------|------------------------------------------------------------------------------------|
| a site has handed them in       | a window later: it took none of them after that                                    |
| a site sends nothing any more   | a lease and a window after its last frame: its lease began before that, and the    |
|                                 | site admits nothing when it has ended                                              |
| the coordinator was restarted   | a lease and a window later: when they were handed in is not saved                  |

All times are those of the coordinator's monotonic clock.
"""

from collections.abc import Callable

from countless.core.budget.rolling import Returns
from countless.core.budget.rule import BudgetRule


class RollingUnits:
    def __init__(self, rule: BudgetRule, clock: Callable[[], float]) -> None:
        self._window = rule.rolling or 0.0
        self._lost_after = self._window + rule.lease
        self._clock = clock
        self._returns = Returns(self._window)

    def add_handed_in(self, units: int) -> None:
        self._returns.add(self._clock() + self._window, units)

    def add_lost(self, units: int, last_seen: float) -> None:
        self._returns.add(self.free_at(last_seen), units)

    def add_saved(self, units: int) -> None:
        self.add_lost(units, self._clock())

    def free_at(self, last_seen: float) -> float:
        """When nothing counts any more that a site has taken whose last frame came then."""
        return last_seen + self._lost_after

    def due(self) -> int:
        """The units that come back now."""
        return self._returns.due(self._clock())
