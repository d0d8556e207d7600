"""A budget whose spending survives its process, and what a process that ended has left of one."""

import logging
from collections.abc import Iterable
from math import inf

from countless.client.budgets.local_budget import MAX_ASIDE, NONE_ASIDE, LocalBudget
from countless.client.budgets.requests import PeriodRefusal
from countless.client.durable.budget_record import UNKNOWN_BOOT, BudgetRecord
from countless.client.durable.count_file import CountFile
from countless.client.forks import present_page
from countless.core.budget.messages import Ask, Quota
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite, Taken
from countless.core.messages import SiteId
from countless.wire.budgets import BudgetDownItem, BudgetLeave, BudgetLeaveAck

log = logging.getLogger("countless")


class DurableBudget(LocalBudget):
    """A local budget whose units are in the file before they are admitted. It has a record there from its first use."""

    __slots__ = ("_ends_at", "_file", "_incarnation", "_numbered", "_record")

    def __init__(self, site: BudgetSite, incarnation: int, file: CountFile) -> None:
        super().__init__(site)
        self._incarnation = incarnation
        self._file: CountFile | None = file  # None: no more, because it was discarded or belongs to another process
        self._record: BudgetRecord | None = None
        self._ends_at: int | None = None  # the end of its period
        self._numbered = 0  # units of `spent` that are in the file's unit total, or are when they are taken

    def follow(self, rule: BudgetRule | None) -> None:
        super().follow(rule)
        calendar = None if rule is None else rule.calendar
        self._ends_at = None if calendar is None else calendar.bounds(self.site.budget.period)[1]

    def take(self, n: int) -> Taken:
        taken = super().take(n)
        self._save()
        return taken

    def reserve(self, n: int, queued: bool = False) -> Taken:
        taken = super().reserve(n, queued)
        self._save()
        return taken

    def advance(self, now: float) -> None:
        super().advance(now)
        self._save()

    def settle(self, units: int, used: int) -> None:
        super().settle(units, used)
        self._save()

    def receive(self, quota: Quota) -> None:
        super().receive(quota)
        self._save()
        if self._file is not None and self._record is not None and self._ends_at is not None:
            self._record.save_refusal(
                None if self.refused_from is None else PeriodRefusal(self.refused_from, self._ends_at)
            )

    def resend(self) -> Ask:
        message = super().resend()
        self._save()
        return message

    def close(self) -> int:
        spent = super().close()
        self._save()
        return spent

    def prefetch(self) -> tuple[Ask, ...]:
        messages = super().prefetch()
        self._save()
        return messages

    def discard(self) -> None:
        file, self._file = self._file, None
        if file is not None and self._record is not None:
            file.free_budget(self._record)

    def abandon(self) -> None:
        self._file = None
        super().abandon()

    def _save(self) -> None:
        if self._file is None:  # a late settlement must not change the file
            return
        if self._record is None:
            self._record = self._file.allocate_budget(self.site.budget, self._incarnation)
        used = self.site.spent if self.in_flight else self.site.used
        if self.rolling is not None:
            used += self.rolling.handed_over
        self._record.save(used - self._numbered)

    def _set_aside(self) -> None:
        self._save()
        units = 0 if self._record is None else self.site.set_aside(MAX_ASIDE)
        if units and self._record is not None:
            first = self._numbered + 1
            self._numbered += units
            self._aside = numbers = iter(range(first, first + units))
            self.units = self._record.sequence(present_page().items(numbers))

    def put_back(self) -> None:
        units = len(list(self._aside))
        # Before `put_back`: if an exception comes in between, too much is saved.
        self._numbered = 0 if self._record is None else self._record.unit_total
        self.site.put_back(units)
        self.units = self._aside = NONE_ASIDE


class OrphanedBudget:
    """A budget of a process that has ended: it only hands in what was spent and held."""

    active = True
    leased = False

    def __init__(self, records: Iterable[BudgetRecord]) -> None:
        self._records = {(record.budget, record.incarnation): record for record in records}

    @property
    def settled(self) -> bool:
        return not self._records

    def hand_ins(self) -> list[BudgetLeave]:
        return [BudgetLeave(*key, record.used) for key, record in self._records.items()]

    def resend(self) -> list[BudgetLeave]:
        return self.hand_ins()

    def receive(self, item: BudgetDownItem) -> None:
        if isinstance(item, BudgetLeaveAck):
            record = self._records.pop((item.budget, item.incarnation), None)
            if record is not None:
                record.free()

    def seconds_to_tick(self) -> float:
        return inf

    def tick(self) -> None:
        """Periods are as they were when the process ended."""

    def renew(self, site_id: SiteId) -> None:
        """Nothing changes: another incarnation of the site may hand in, too."""


def orphaned_budgets(file: CountFile) -> dict[str, OrphanedBudget]:
    """By name, what can be handed in."""
    by_name = dict[str, list[BudgetRecord]]()
    for record in file.budgets:
        if not record.incarnation:
            continue
        if record.boot == UNKNOWN_BOOT or record.boot != file.boot:
            log.warning(
                "granted units stay charged, machine restarted or file copied: budget=%r file=%s",
                record.name,
                file.path,
            )
        else:
            by_name.setdefault(record.name, []).append(record)
    return {name: OrphanedBudget(own) for name, own in by_name.items()}
