"""Budgets whose coordinator continues from an older copy of its state, as with `--after-restore`."""

from collections.abc import Iterable
from dataclasses import dataclass

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask, BudgetId, Outbox
from countless.core.budget.site import BudgetSite, Verdict
from countless.core.budget.state import PersistentBudget
from countless.core.messages import SiteId
from countless_lab.tightness.search import Group, Ratios, Row, Run

BUDGET = BudgetId("b")
KINDS = 10
MAX_COPIES = 4


@dataclass(frozen=True)
class Setting:
    limit: int
    sites: int
    slack: float


SETTINGS = (Setting(10, 2, 0.0), Setting(100, 3, 0.05), Setting(1000, 5, 0.01), Setting(20, 8, 0.0))
ROWS = (Row("C72", "C72", "units spent and held before and after restores of older copies <= limit"),)


class World:
    """No site leaves; after a restore each site that has asked connects before the phase ends, as the claim assumes."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.coordinator = self._new()
        self.sites = {SiteId(number): BudgetSite(BUDGET) for number in range(setting.sites)}
        self.connected = dict.fromkeys(self.sites)
        self.waiting: dict[SiteId, int] = {}
        self.holds: list[tuple[SiteId, int]] = []
        self.copies: list[PersistentBudget] = []

    @property
    def used(self) -> int:
        return sum(site.used for site in self.sites.values())

    def _new(self, saved: PersistentBudget | None = None) -> BudgetCoordinator:
        setting = self.setting
        return BudgetCoordinator(BUDGET, setting.limit, slack=setting.slack, saved_state=saved)

    def up(self, site_id: SiteId, asks: Iterable[Ask]) -> None:
        for ask in asks:
            if site_id in self.connected:
                self.down(self.coordinator.receive(site_id, ask))

    def down(self, outbox: Outbox) -> None:
        for site_id, quota in outbox:
            if site_id in self.connected:
                site = self.sites[site_id]
                site.receive(quota)
                site.repeat()
                units = self.waiting.get(site_id)
                if units is not None and site.take(units).verdict is not Verdict.WAITING:
                    del self.waiting[site_id]
                self.up(site_id, site.proceed())

    def ask(self, site_id: SiteId, units: int, *, hold: bool = False) -> None:
        site = self.sites[site_id]
        if units < 1 or site_id in self.waiting:
            return
        taken = site.reserve(units) if hold else site.take(units)
        if taken.verdict is Verdict.WAITING:
            self.waiting[site_id] = units  # decided by the answer; a hold is then spent at once
        elif hold and taken.verdict is Verdict.ALLOWED:
            self.holds.append((site_id, units))
        self.up(site_id, taken.messages)

    def settle(self, number: int, used: int) -> None:
        site_id, units = self.holds.pop(number)
        site = self.sites[site_id]
        site.settle(units, min(units, used))
        site.repeat()
        units = self.waiting.pop(site_id, 0)
        if units and site.take(units).verdict is Verdict.WAITING:
            self.waiting[site_id] = units
        self.up(site_id, site.proceed())

    def connect(self, site_id: SiteId) -> None:
        if site_id not in self.connected and self.sites[site_id].seq:
            self.connected[site_id] = None
            self.down(self.coordinator.join(site_id, self.sites[site_id].resend()))

    def end(self) -> None:
        """The phase that follows a restore."""
        for site_id in self.sites:
            self.connect(site_id)
        self.connected = dict.fromkeys(self.sites)
        if self.coordinator.restoring:
            self.down(self.coordinator.end_restore())

    def take(self, kind: int, who: int, amount: int) -> None:
        site_id = [*self.sites][who % len(self.sites)]
        site = self.sites[site_id]
        match kind:
            case 0:
                self.ask(site_id, 1 + amount)
            case 1:
                self.ask(site_id, site.room + 1)
            case 2 | 3:
                for each in self.sites:
                    self.ask(each, self.sites[each].room + kind % 2)
            case 4:
                self.ask(site_id, 1 + amount, hold=True)
            case 5 if self.holds:
                self.settle(who % len(self.holds), amount)
            case 6 if len(self.copies) < MAX_COPIES and not self.coordinator.restoring:
                self.copies.append(self.coordinator.saved_state)
            case 7 if self.copies:
                self.connected = {}
                self.coordinator = self._new(self.copies[amount % len(self.copies)])
                self.coordinator.restore()
            case 8:
                self.connect(site_id)
            case 9:
                self.end()


def play(run: Run) -> Ratios:
    world, worst = World(SETTINGS[run[0]]), 0
    for operation in run[1]:
        world.take(*operation)
        worst = max(worst, world.used)
    return {"C72": worst / world.setting.limit}


GROUP = Group(ROWS, len(SETTINGS), KINDS, play)
