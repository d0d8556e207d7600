"""The budgets of one session: what is due to be sent, and when the periods of each must be looked after.

A program may use a budget for each key of its users, and thousands of keys. So the session keeps only those that are
active: the coordinator has granted something that was not handed in yet, or is being asked. The others belong to the
program alone; when it has dropped such a budget, nothing is left of it.
"""

from collections.abc import Callable, Sequence
from math import inf
from threading import RLock
from typing import Protocol
from weakref import WeakValueDictionary

from countless.client.kinds.member import ItemEffect, Known, SessionPart
from countless.client.ticks import Ticks
from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.messages import SiteId
from countless.wire.budgets import BudgetDownItem, BudgetLeave, BudgetUpItem
from countless.wire.frames import DownItem


class SessionBudget(Protocol):
    """A budget of this incarnation."""

    @property
    def active(self) -> bool:
        """True if there is anything to tell the coordinator."""

    @property
    def leased(self) -> bool:
        """True if it needs an answer from the coordinator now and then."""

    @property
    def settled(self) -> bool:
        """True if nothing is left to hand in."""

    def hand_ins(self) -> Sequence[BudgetLeave]:
        """The spending of incarnations that ended, until it is acknowledged."""

    def resend(self) -> Sequence[BudgetUpItem]:
        """The messages that begin a new connection."""

    def receive(self, item: BudgetDownItem) -> None: ...

    def seconds_to_tick(self) -> float:
        """Until `tick` should be called."""

    def tick(self) -> None:
        """A period ends, or ends soon."""

    def renew(self, site_id: SiteId) -> None:
        """The incarnation was retired: continue as a new one."""


class SessionBudgets(SessionPart):
    """`notify`: there is something to `drain`, or `next_tick` is sooner. `inherited`: other processes may know budgets
    of which nothing is kept here.
    """

    may_lease = True

    def __init__(self, lock: RLock, notify: Callable[[], None], inherited: bool = False) -> None:
        self.leased = False  # whether one of them is, or was
        self._lock = lock
        self._notify = notify
        self._inherited = inherited
        self._all: WeakValueDictionary[str, SessionBudget] = WeakValueDictionary()
        self._active: dict[str, SessionBudget] = {}
        self._unsent: dict[tuple[BudgetId, int], BudgetUpItem] = {}
        self._returned: list[BudgetLeave] = []  # to send before those
        self._ticks = Ticks[str](lock, self._look_after)

    def add(self, name: str, budget: SessionBudget) -> None:
        self._all[name] = budget
        if budget.active:
            self._activate(name)
            self._notify()

    def queue(self, items: Sequence[BudgetUpItem]) -> None:
        """Send the last of these soon, of each period of a budget: it has all that the earlier ones have, but panes."""
        for item in items:
            key = item.budget, item.seq if isinstance(item, Ask) and item.panes else 0
            self._unsent.pop(key, None)  # a later one comes after those with panes
            self._unsent[key] = item
            self._activate(item.budget.name)
        if items:
            self._notify()

    def drain(self) -> list[BudgetUpItem]:
        items: list[BudgetUpItem] = [*self._returned, *self._unsent.values()]
        self._returned, self._unsent = [], {}
        return items

    def initial_items(self) -> list[BudgetUpItem]:
        items: list[BudgetUpItem] = []
        with self._lock:
            self._returned.clear()
            self._unsent.clear()
            for budget in list(self._active.values()):
                last = budget.resend()
                items += [*self.drain(), *last]  # what others have asked for now, as for a request to several
        return items

    def leave_items(self) -> list[BudgetLeave]:
        return [item for budget in self._active.values() for item in budget.hand_ins()]

    @property
    def all_left(self) -> bool:
        return all(budget.settled for budget in self._active.values())

    def receive(self, item: DownItem, site_id: SiteId) -> ItemEffect:
        if isinstance(item, BudgetDownItem):
            budget = self._active.get(item.budget.name)
            if budget is not None:
                budget.receive(item)
                self.leased = self.leased or budget.leased
                self._ticks.schedule(item.budget.name, 0.0)  # its rule, or what it has granted, may be new
            elif isinstance(item, Quota) and not self._inherited:
                # Nothing of it is kept, for there was no such budget when an earlier `Ask` was answered.
                self._returned.append(BudgetLeave(item.budget, site_id.incarnation, 0))
                self._notify()
        return ItemEffect.NONE

    def renew(self, site_id: SiteId, known: Known) -> None:
        for budget in list(self._all.values()):
            budget.renew(site_id)

    def on_contact(self) -> None:
        """Requests that wait for this can be decided."""
        for budget in list(self._active.values()):
            if budget.leased:
                budget.tick()

    def look_after(self, name: str) -> None:
        """Ask the budget when its next tick is due: sooner than it said."""
        if name in self._active:
            self._ticks.schedule(name, 0.0)
            self._notify()

    def _activate(self, name: str) -> None:
        if name not in self._active:
            self._active[name] = self._all[name]
            self._ticks.schedule(name, 0.0)

    # Periods

    @property
    def next_tick(self) -> float:
        return self._ticks.next_tick

    def tick(self, now: float) -> None:
        self._ticks.tick(now)

    def _look_after(self, name: str, now: float) -> float:
        budget = self._active[name]
        if budget.seconds_to_tick() <= 0:
            budget.tick()
        if budget.active:
            return budget.seconds_to_tick()
        del self._active[name]
        return inf
