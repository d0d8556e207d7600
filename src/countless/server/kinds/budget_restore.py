"""After a restore of the coordinator's state from an older copy: which budgets still wait.

The copy does not have what was granted since it was made, but the sites do. A period of a budget grants nothing until

* `seconds` have passed, so that sites that the copy does not know have connected and asked, and
* every holder that the copy knows has asked, left, or was dropped by an operator; or, of a rolling budget, a lease and
  a window have passed, so that nothing counts any more of what a site took that has not asked.

What a site says is believed: its totals, and what it hands in (design/proofs/budgets.md has the theorem).
Nothing of this is saved. A coordinator that is restarted meanwhile begins again, if its state is a copy that `countless
backup` made, or with `--after-restore`.
"""

import logging
from collections.abc import Callable, Iterable

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.messages import SiteId

log = logging.getLogger("countless.budgets")

REMINDER_S = 60.0
MAX_NAMED = 10  # sites in one line of the log
MAX_HANDED_IN = 100_000  # remembered until the restore is over


class BudgetRestore:
    """`seconds` is None unless the state was restored from a copy."""

    def __init__(self, seconds: float | None, clock: Callable[[], float]) -> None:
        self.active = seconds is not None
        self._clock = clock
        self._seconds = seconds or 0.0
        self._started = clock()
        self._until = self._started + self._seconds
        self._remind_at = self._until
        self._handed_in: set[tuple[BudgetId, SiteId]] = set()
        if self.active:
            log.warning("restore began, no budget grants anything until sites have connected: seconds=%.0f", seconds)

    @property
    def waiting(self) -> bool:
        """True while sites that the copy does not know may connect. A period that is opened now is restored, too."""
        return self.active and self._clock() < self._until

    def await_hand_ins(self) -> None:
        """A session was renewed: what it was granted since the copy was made, it hands in as a new incarnation."""
        if self.active:
            self._until = max(self._until, self._clock() + self._seconds)

    def note_handed_in(self, budget: BudgetId, site_id: SiteId) -> None:
        """Remember that an incarnation has handed in, and is no holder. That is believed once: it may be sent again
        before it is acknowledged. Beyond a limit, and if the coordinator is restarted in between, it is charged again.
        """
        if len(self._handed_in) < MAX_HANDED_IN:
            self._handed_in.add((budget, site_id))

    def was_handed_in(self, budget: BudgetId, site_id: SiteId) -> bool:
        return (budget, site_id) in self._handed_in

    def is_over(self, coordinator: BudgetCoordinator, rule: BudgetRule) -> bool:
        returned = rule.rolling is not None and self._clock() >= self._started + rule.lease + rule.rolling
        return not self.waiting and (returned or not coordinator.unheard)

    def update(self, restoring: Iterable[BudgetCoordinator]) -> None:
        """These are not done yet."""
        if self.waiting:
            return
        unheard = {str(site_id.site): each.budget.name for each in restoring for site_id in each.unheard}
        if not unheard:
            self.active = False
            self._handed_in.clear()
            log.warning("restore complete, budgets grant again: start without --after-restore next time")
        elif self._clock() >= self._remind_at:
            self._remind_at = self._clock() + REMINDER_S
            log.warning(
                "restore waits for sites: missing=%d sites='%s' (only if one was granted nothing since the copy was "
                "made: countless site forget NAME)",
                len(unheard),
                ", ".join(f"{name} of {unheard[name]}" for name in sorted(unheard)[:MAX_NAMED]),
            )
