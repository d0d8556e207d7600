"""One budget at the coordinator: its rule, and a state machine for each period that is open.

| step    | when                                                                                                     |
|---------|----------------------------------------------------------------------------------------------------------|
| opened  | a site asks for the present period of our clock, the one before or the one after it                       |
| closed  | our clock has shown a later period for as long as the period itself lasted, and for a day at most         |
|         | or MAX_ENDED later ones have ended as well: a restart begins to measure anew, and may come every day      |

A site decides by its own clock to which period a request belongs, so clocks may differ by a period. A closed period is
never opened again, also if our clock goes back: its accounts are deleted, and sites could spend its limit twice.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import BudgetState, HolderRow, PersistentBudget, SavedSite, Usage
from countless.core.messages import SiteId
from countless.server.kinds.rolling_units import RollingUnits, SavedPanes
from countless.server.sessions.readable import MessageCount
from countless.server.storage.base import StoreError
from countless.server.storage.rows import KeyRows, Rows, Saved, alone, row_of, value_of, values_of
from countless.wire.keys import BUDGET, Key

MAX_GRACE_S = 86_400.0
MAX_ENDED = 3
MAX_OPEN_PERIODS = 8  # far more than clocks that go forward can open


class BudgetFields(NamedTuple):
    """The saved fields of a budget beside its periods."""

    rule: BudgetRule
    first_period: int = 0  # earlier ones are closed for good


class PeriodFields(NamedTuple):
    """The saved fields of a period beside its sites. The limit is in the rule."""

    forgiven: int
    gone: int
    lost: int
    resetting: bool
    panes: SavedPanes = ()  # rolling: of `gone`


class SavedPeriod(NamedTuple):
    fields: PeriodFields
    sites: dict[SiteId, SavedSite]

    def state(self, limit: int) -> PersistentBudget:
        forgiven, gone, lost, resetting, _ = self.fields
        return PersistentBudget(limit, forgiven, gone, tuple(self.sites.items()), (), lost, resetting)


class SavedBudget(NamedTuple):
    fields: BudgetFields
    periods: dict[int, SavedPeriod]

    @classmethod
    def of(cls, loaded: Iterable[tuple[Key, KeyRows]]) -> "SavedBudget":
        """The first has the rule, and a period of its own if the budget has only one."""
        periods: dict[int, SavedPeriod] = {}
        fields: BudgetFields | None = None
        for key, rows in loaded:
            fields = fields or value_of(key, rows, "rule", BudgetFields)
            if "period" in rows:
                sites = {SiteId(*place): site for place, site in values_of(key, rows, "holder", SavedSite)}
                periods[key.period] = SavedPeriod(value_of(key, rows, "period", PeriodFields), sites)
        if fields is None:
            raise StoreError("a budget has no rows")
        return cls(fields, periods)


def budget_key(budget: BudgetId) -> Key:
    return Key(BUDGET, budget.name, period=budget.period)


class BudgetPeriod:
    """A period that is open, as sessions are members of it."""

    part_of = None

    def __init__(self, budget: "BudgetPeriods", coordinator: BudgetCoordinator) -> None:
        self.budget = budget
        self.coordinator = coordinator
        self.key = budget_key(coordinator.budget)

    @property
    def id(self) -> BudgetId:
        return self.coordinator.budget

    @property
    def traffic(self) -> MessageCount:
        return self.budget.traffic

    def mark(self) -> None:
        """After each input. What it has handed over of a rolling budget is saved in the same step."""
        if self.budget.rolling is not None:
            self.budget.rolling.add_handed_over(self.coordinator.take_panes())
        self.budget.mark_period(self.key.period, ())

    def mark_site(self, site_id: SiteId) -> None:
        self.budget.mark_period(self.key.period, (site_id,))

    mark_left = mark_site


class BudgetPeriods:
    """`clock` is monotonic, so a wrong wall clock that is corrected in time closes nothing.

    | row      | of each         | value          |
    |----------|-----------------|----------------|
    | `rule`   | budget          | `BudgetFields` |
    | `period` | period          | `PeriodFields` |
    | `holder` | site, of period | `SavedSite`    |

    Without periods all of them have the same key.
    """

    part_of: Saved | None = None

    def __init__(
        self,
        name: str,
        rule: BudgetRule,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        first_period: int = 0,
        restoring: Callable[[], bool] = lambda: False,
        on_change: Callable[[Saved], None] = lambda saved: None,
    ) -> None:
        self.name = name
        self.key = Key(BUDGET, name)
        self.rule = rule
        self.calendar = rule.calendar
        self.first_period = first_period  # earlier ones are closed for good
        self.periods: dict[int, BudgetPeriod] = {}
        self.traffic = MessageCount(0, True, wall_clock())
        self.rolling = None if rule.rolling is None else RollingUnits(rule, clock)
        self._clock = clock
        self._wall_clock = wall_clock
        self._restoring = restoring  # whether a period that is opened now grants nothing yet
        self._asks_before = self._recalls_before = 0  # of periods that are closed
        self._ended: dict[int, float] = {}  # by period: since when our clock has shown a later one
        self._on_change = on_change
        self._changed_fields = False
        self._changed_periods: dict[int, set[SiteId]] = {}

    def load(self, saved: SavedBudget) -> None:
        for period, each in saved.periods.items():
            self.periods[period] = self._period(period, saved_state=each.state(self.rule.limit))
            if self.rolling is not None:
                self.rolling = RollingUnits(self.rule, self._clock, each.fields.panes)

    def start_again(self) -> None:
        """Forget all accounts. The caller deletes what is saved of them."""
        self._asks_before, self._recalls_before = self.asks, self.recalls
        self.periods.clear()
        self._changed_periods.clear()
        self.rolling = None if self.rolling is None else RollingUnits(self.rule, self._clock)

    # Saving

    def mark(self) -> None:
        """It is new, or its rule or its first period has changed."""
        self._changed_fields = True
        self._on_change(self)

    def mark_period(self, period: int, sites: Iterable[SiteId]) -> None:
        """A period has changed, and with it these sites of it."""
        self._changed_periods.setdefault(period, set()).update(sites)
        self._on_change(self)

    def take(self, rows: Rows) -> None:
        if self._changed_fields:
            rows.setdefault(self.key, {})["rule"] = alone(BudgetFields(self.rule, self.first_period))
        for number, sites in self._changed_periods.items():
            period = self.periods[number].coordinator
            panes = () if self.rolling is None else self.rolling.save()
            fields = PeriodFields(period.forgiven, period.gone, period.lost, period.resetting, panes)
            changed = rows.setdefault(self.key._replace(period=number), {})
            changed["period"] = alone(fields)
            if sites:
                changed["holder"] = [row_of(site_id, period.saved_site(site_id)) for site_id in sites]
        self._changed_fields, self._changed_periods = False, {}

    # Reading

    @property
    def present(self) -> int:
        """The period of our clock; 0 without periods."""
        return 0 if self.calendar is None else self.calendar.period_at(self._wall_clock())

    @property
    def coordinator(self) -> BudgetCoordinator | None:
        """The coordinator of the present period, if that is open."""
        period = self.periods.get(self.present)
        return None if period is None else period.coordinator

    @property
    def window(self) -> tuple[int, int] | None:
        """The bounds of the present period, in seconds since 1970."""
        return None if self.calendar is None else self.calendar.bounds(self.present)

    @property
    def usage(self) -> Usage:
        """The use of the present period. It may be closed, if our clock was ahead for long and has been put back."""
        coordinator, limit = self.coordinator, self.rule.limit
        if coordinator is None and self.calendar is not None and self.present < self.first_period:
            return Usage(limit, 0, limit, 0, BudgetState.CLOSED)
        if coordinator is None:
            return Usage(limit, 0, 0, 0, BudgetState.RESTORING if self._restoring() else BudgetState.OPEN)
        return coordinator.usage

    @property
    def held(self) -> int:
        """The units that sites held when they last reported."""
        return 0 if self.coordinator is None else self.coordinator.held

    @property
    def holders(self) -> int:
        return 0 if self.coordinator is None else self.coordinator.holders

    @property
    def holder_rows(self) -> list[HolderRow]:
        return [] if self.coordinator is None else self.coordinator.holder_rows

    @property
    def refused_from(self) -> int | None:
        return None if self.coordinator is None else self.coordinator.refused_from

    @property
    def asks(self) -> int:
        """Requests that got in line, in all periods; of a template, those of names that follow it no longer."""
        return self._asks_before + sum(each.coordinator.asks for each in self.periods.values())

    @property
    def recalls(self) -> int:
        """Recalls of all sites that were lent room, in all periods."""
        return self._recalls_before + sum(each.coordinator.recalls for each in self.periods.values())

    def add_asks(self, former: "BudgetPeriods") -> None:
        """Keep the asks and recalls of a name that follows this template no longer."""
        self._asks_before += former.asks
        self._recalls_before += former.recalls

    @property
    def unused(self) -> bool:
        """True if nothing of it has to be remembered: no period is open, or nothing of it is spent, held or granted."""
        coordinators = (each.coordinator for each in self.periods.values())
        return all(each.free == each.limit and not each.site_ids for each in coordinators)

    # Periods

    def period(self, period: int) -> BudgetPeriod | None:
        """Open the period if it is not open; None if that is not allowed."""
        found = self.periods.get(period)
        if found is None and self._may_open(period):
            found = self.periods[period] = self._period(period, self._expected_holders(period))
        return found

    def _period(
        self, period: int, expected_holders: int = 1, saved_state: PersistentBudget | None = None
    ) -> BudgetPeriod:
        coordinator = BudgetCoordinator(
            BudgetId(self.name, period),
            self.rule.limit,
            slack=self.rule.slack,
            rolling=self.rolling is not None,
            expected_holders=expected_holders,
            saved_state=saved_state,
        )
        return BudgetPeriod(self, coordinator)

    def _may_open(self, period: int) -> bool:
        if self.calendar is None:
            return period == 0
        present = self.present
        near = (self.calendar.previous(present), present, self.calendar.next(present))
        return period in near and period >= self.first_period and len(self.periods) < MAX_OPEN_PERIODS

    def _expected_holders(self, period: int) -> int:
        """Sites ask for a period before it begins, at different times. The first shares leave enough for the others."""
        before = None if self.calendar is None else self.periods.get(self.calendar.previous(period))
        return 1 if before is None else max(1, before.coordinator.holders)

    def why_not(self, period: int) -> str:
        """The reason for which a period cannot be opened."""
        if self.calendar is None:
            return f"budget {self.name!r} has no periods"
        start, end = self.calendar.bounds(self.present)
        if period == self.present:
            first = self.calendar.local_time(self.calendar.bounds(self.first_period)[0])
            return (
                f"the present period of budget {self.name!r} was closed when the coordinator's clock was ahead: it can "
                f"be used from {first} on, or when it is deleted and created again"
            )
        return (
            f"period {period} of budget {self.name!r} is closed, or not near: check the clock of the site; the "
            f"coordinator's is between {self.calendar.local_time(start)} and {self.calendar.local_time(end)}"
        )

    def set_rule(self, rule: BudgetRule) -> None:
        """The calendar stays."""
        self.rule = rule

    def close_ended(self) -> list[BudgetPeriod]:
        """Close periods that ended long enough ago. The caller deletes what is saved of them."""
        if self.calendar is None or not self.periods:
            return []
        now, present = self._clock(), self.present
        closed = []
        ended = sum(period < present for period in self.periods)
        for number, period in enumerate(sorted(self.periods)):
            if period >= present:
                self._ended.pop(period, None)
            elif number < ended - MAX_ENDED or now - self._ended.setdefault(period, now) >= self._grace(period):
                closed.append(self.periods.pop(period))
                self._changed_periods.pop(period, None)
                self._asks_before += closed[-1].coordinator.asks
                self._recalls_before += closed[-1].coordinator.recalls
                self._ended.pop(period, None)
                self.first_period = max(self.first_period, period + 1)
        return closed

    def _grace(self, period: int) -> float:
        if self.calendar is None:
            return MAX_GRACE_S
        start, end = self.calendar.bounds(period)
        return min(float(end - start), MAX_GRACE_S)
