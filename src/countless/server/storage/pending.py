"""What has changed since the last save: the site server marks it, the commit pipeline takes it as one batch.

Fields are read from the trackers when the batch is taken, so that any number of changes of a site are saved once.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Protocol

from countless.core.answer import Answer
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import BudgetId
from countless.core.budget.rule import BudgetRule
from countless.core.coordinator import Coordinator
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.messages import OVERFLOW
from countless.core.messages import SiteId
from countless.server.storage.base import (
    BudgetFields,
    Changes,
    Config,
    CounterFields,
    FamilyChanges,
    FamilyFields,
    MemberFields,
    PeriodFields,
    Tombstone,
    WindowFields,
    WindowKey,
    tombstone_text,
)
from countless.wire.keys import COUNTER, FAMILY, Key


class PersistentCounter(Protocol):
    """What the pipeline saves and publishes."""

    @property
    def coordinator(self) -> Coordinator: ...

    @property
    def departed(self) -> int: ...

    @property
    def window(self) -> WindowKey | None: ...

    def publish(self, answer: Answer) -> None: ...


class PersistentWindows(Protocol):
    """A counter with windows. Its open windows are saved like counters."""

    def fields(self) -> CounterFields: ...

    def window_fields(self, period: int) -> WindowFields | None: ...

    def note(self, period: int, answer: Answer) -> None:
        """The answer of an open window, if it may have changed since the last `publication`."""

    def publication(self) -> Callable[[], None]:
        """What publishes the present state, once it is saved."""


class PersistentBudget(Protocol):
    @property
    def rule(self) -> BudgetRule: ...

    @property
    def first_period(self) -> int: ...

    @property
    def periods(self) -> Mapping[int, BudgetCoordinator]: ...


class PersistentFamily(Protocol):
    @property
    def coordinator(self) -> FamilyCoordinator: ...

    @property
    def windows(self) -> "PersistentFamilyWindows | None":
        """What it is a window of."""

    def fields(self) -> FamilyFields: ...

    def publication(self, labels: Mapping[str, int]) -> Callable[[], None]:
        """What publishes the present state, once it is saved. `labels` are the counts that have changed."""


class PersistentFamilyWindows(Protocol):
    """A family with windows. Each of them is saved like a family."""

    @property
    def name(self) -> str: ...

    def publication(self) -> Callable[[], None]:
        """What publishes the present state, once it is saved, and its windows are published."""


class PendingChanges:
    """`notify` is called when there is something to save."""

    def __init__(
        self,
        notify: Callable[[], None],
        counters: Mapping[str, PersistentCounter],
        budgets: Mapping[str, PersistentBudget] | None = None,
        windowed: Mapping[str, PersistentWindows] | None = None,
        families: Mapping[str, PersistentFamily] | None = None,
    ) -> None:
        self._notify = notify
        self._counters = counters
        self._budgets: Mapping[str, PersistentBudget] = {} if budgets is None else budgets
        self._windowed: Mapping[str, PersistentWindows] = {} if windowed is None else windowed
        self._families: Mapping[str, PersistentFamily] = {} if families is None else families
        self._changed: dict[str, set[SiteId]] = {}  # by counter: sites whose count may have changed
        self._changed_budgets: set[str] = set()  # those that are new, or have another rule
        self._changed_periods: dict[BudgetId, set[SiteId]] = {}
        self._changed_windows: dict[str, set[int]] = {}  # by counter with windows: periods; empty: only its own fields
        self._changed_families: dict[str, dict[SiteId | None, set[str]]] = {}  # by family and site: labels
        self._changes = Changes()

    @property
    def changed_sites(self) -> int:
        return sum(map(len, self._changed.values()))

    def mark_counter(self, name: str) -> None:
        """The round or the answer of a counter may have changed."""
        self._changed.setdefault(name, set())
        self._notify()

    def mark_site(self, name: str, site_id: SiteId) -> None:
        """The count of a site, and so the answer of the counter, may have changed."""
        sites = self._changed.get(name)
        if sites is None:
            self._changed[name] = {site_id}
            self._notify()
        else:
            sites.add(site_id)

    def mark_config(self, name: str, config: Config) -> None:
        """A counter is new or has another config."""
        self._changes.configs[name] = config
        self.mark_counter(name)

    def mark_departed(self, name: str, site_id: SiteId, tombstone: Tombstone) -> None:
        """A site left a counter."""
        self._changes.tombstones.append(tombstone)
        self._changes.counts.setdefault(name, {})[site_id] = None
        self._changed.get(name, set()).discard(site_id)

    def mark_deleted(self, key: Key) -> None:
        """A counter was deleted, and with it everything marked for it so far; or all windows, with their watermarks."""
        changes = self._changes
        changes.deleted.append(tombstone_text(key))
        changes.tombstones = [each for each in changes.tombstones if each.key != key]
        self._discard_marks(str(key))

    def _discard_marks(self, name: str) -> None:
        self._changes.configs.pop(name, None)
        self._changes.counts.pop(name, None)
        self._changed.pop(name, None)
        self._notify()

    def mark_windows(self, name: str, periods: Iterable[int] = ()) -> None:
        """The fields of a counter with windows have changed, and these windows of it."""
        self._changed_windows.setdefault(name, set()).update(periods)
        self._notify()

    def mark_window_closed(self, window: str) -> None:
        """A window is not open any more, and what was marked under its wire name so far is not saved."""
        self._changes.closed.append(window)
        self._discard_marks(window)

    def mark_windows_deleted(self, name: str) -> None:
        """A counter with windows was deleted; its open windows are closed already."""
        self._changed_windows.pop(name, None)
        self.mark_deleted(Key(COUNTER, name))

    def mark_budget(self, name: str) -> None:
        """A budget is new, or its rule or its first period has changed."""
        self._changed_budgets.add(name)
        self._notify()

    def mark_period(self, budget: BudgetId, sites: Iterable[SiteId]) -> None:
        """A period of a budget has changed, and with it these sites of it."""
        self._changed_periods.setdefault(budget, set()).update(sites)
        self._notify()

    def mark_period_closed(self, budget: BudgetId) -> None:
        """The period is never opened again: save the budget's first period as well."""
        self._changes.closed_periods.append(budget)
        self._changed_periods.pop(budget, None)
        self.mark_budget(budget.name)

    def mark_budget_deleted(self, name: str, periods: Iterable[int]) -> None:
        """A budget was deleted, with the periods that were open."""
        self._changes.deleted_budgets.append(name)
        self._changed_budgets.discard(name)
        for period in periods:
            self._changed_periods.pop(BudgetId(name, period), None)
        self._notify()

    def mark_family(self, name: str) -> None:
        """The round, the total or the answer of a family may have changed."""
        self._changed_families.setdefault(name, {})
        self._notify()

    def mark_family_site(self, name: str, site_id: SiteId, labels: Iterable[str] = ()) -> None:
        """The steps or the total of a site, and its counts of these labels, may have changed."""
        self._changed_families.setdefault(name, {}).setdefault(site_id, set()).update(labels)
        self._notify()

    def mark_family_labels(self, name: str, labels: Iterable[str]) -> None:
        """The counts of these labels may have changed, and that of no site."""
        self._changed_families.setdefault(name, {}).setdefault(None, set()).update(labels)
        self._notify()

    def mark_family_departed(self, name: str, site_id: SiteId, tombstones: Iterable[Tombstone]) -> None:
        """A site is not a member any more. It stays marked, so that its labels are saved as well."""
        self.mark_family_site(name, site_id)
        self._changes.tombstones += tombstones

    def mark_family_deleted(self, name: str) -> None:
        """A family was deleted, and with it everything marked for it so far."""
        changes, key = self._changes, Key(FAMILY, name)
        changes.deleted_families.append(name)
        changes.tombstones = [each for each in changes.tombstones if each.key != key]
        self._discard_family_marks(name)

    def mark_family_dropped(self, name: str) -> None:
        """A window of a family is not kept any more; its tombstones are."""
        self._changes.dropped_families.append(name)
        self._discard_family_marks(name)

    def _discard_family_marks(self, name: str) -> None:
        self._changed_families.pop(name, None)
        self._notify()

    def prune_tombstones(self, before: int) -> None:
        self._changes.prune_before = before
        self._notify()

    def take(self) -> tuple[Changes, list[Callable[[], None]]]:
        """Everything marked so far, and what publishes it once it is saved."""
        changes, self._changes = self._changes, Changes()
        changed, self._changed = self._changed, {}
        answers = []
        for name, sites in changed.items():
            counter = self._counters.get(name)
            if counter is None:  # it was deleted
                continue
            coordinator = counter.coordinator
            answer = coordinator.answer
            answers.append((counter, answer))
            changes.counters[name] = CounterFields(answer.round, answer.published, counter.departed)
            if sites:
                counts = changes.counts.setdefault(name, {})
                for site_id in sites:
                    counts[site_id] = coordinator.reported_by(site_id)
        self._add_budgets(changes)
        publications: list[Callable[[], None]] = [partial(counter.publish, answer) for counter, answer in answers]
        publications += self._add_windows(changes, [(each.window, answer) for each, answer in answers if each.window])
        publications += self._add_families(changes)
        return changes, publications

    def _add_windows(self, changes: Changes, answers: list[tuple[WindowKey, Answer]]) -> list[Callable[[], None]]:
        """`answers` are those of open windows."""
        for window, answer in answers:
            self._windowed[window.counter].note(window.period, answer)
        changed, self._changed_windows = self._changed_windows, {}
        counters = {window.counter for window, _ in answers} | changed.keys()
        found = [(name, self._windowed[name]) for name in counters]
        publications = [counter.publication() for _, counter in found]
        for name, counter in found:
            if name in changed:
                changes.counters[name] = counter.fields()
                for period in changed[name]:
                    changes.windows[WindowKey(name, period)] = counter.window_fields(period)
        return publications

    def _add_budgets(self, changes: Changes) -> None:
        for name in self._changed_budgets:
            changes.budgets[name] = BudgetFields(self._budgets[name].rule, self._budgets[name].first_period)
        for budget_id, sites in self._changed_periods.items():
            period = self._budgets[budget_id.name].periods[budget_id.period]
            changes.periods[budget_id] = PeriodFields(
                period.forgiven, period.gone, period.lost, period.round, period.resetting
            )
            if sites:
                changes.budget_sites[budget_id] = {site_id: period.saved_site(site_id) for site_id in sites}
        self._changed_budgets.clear()
        self._changed_periods.clear()

    def _add_families(self, changes: Changes) -> list[Callable[[], None]]:
        changed, self._changed_families = self._changed_families, {}
        publications = []
        windowed: dict[str, PersistentFamilyWindows] = {}
        for name, sites in changed.items():
            family = self._families[name]
            changes.families[name] = _family_changes(family.fields(), family.coordinator, sites)
            publications.append(family.publication(changes.families[name].labels))
            if family.windows is not None:
                windowed[family.windows.name] = family.windows
        return [*publications, *(each.publication() for each in windowed.values())]


def _family_changes(
    fields: FamilyFields, coordinator: FamilyCoordinator, sites: Mapping[SiteId | None, set[str]]
) -> FamilyChanges:
    """The counts of a site that has departed are not saved; those of its labels are, in the sums over all sites."""
    known = coordinator.known
    family = FamilyChanges(fields)
    for site_id, labels in sites.items():
        if site_id is not None:
            member = coordinator.saved_member(site_id)
            family.members[site_id] = None if member is None else MemberFields(member.steps, member.total)
            if member is not None and labels:
                family.counts[site_id] = {label: member.counts[label] for label in labels if label in member.counts}
        family.labels.update({label: known[label] for label in (*labels, OVERFLOW) if label in known})
    return family
