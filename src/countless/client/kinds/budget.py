"""The budgets of one session: what is due to be sent, and when the periods of each must be looked after.

A program may use a budget for each key of its users, and thousands of keys. So the session keeps only those that are
active: the coordinator has granted something that was not handed in yet, or is being asked. The others belong to the
program alone; when it has dropped such a budget, nothing is left of it.
"""

from collections.abc import Iterator, Sequence
from threading import RLock
from typing import Protocol
from weakref import WeakValueDictionary

from countless.client.ticks import TICKS_AT_ONCE, Ticks
from countless.core.budget.messages import Ask, BudgetId
from countless.core.messages import SiteId
from countless.wire.budgets import BudgetDownItem, BudgetLeave


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

    def resend(self) -> Sequence[Ask | BudgetLeave]:
        """The messages that begin a new connection."""

    def receive(self, item: BudgetDownItem) -> None: ...

    def seconds_to_tick(self) -> float:
        """Until `tick` should be called."""

    def tick(self) -> None:
        """A period ends, or ends soon."""

    def renew(self, site_id: SiteId) -> None:
        """The incarnation was retired: continue as a new one."""


class SessionBudgets:
    """Everything but `tick` is called with the lock held."""

    def __init__(self, lock: RLock) -> None:
        self.leased = False  # whether one of them is, or was
        self._lock = lock
        self._all: WeakValueDictionary[str, SessionBudget] = WeakValueDictionary()
        self._active: dict[str, SessionBudget] = {}
        self._unsent: dict[tuple[BudgetId, int], Ask | BudgetLeave] = {}
        self._returned: list[BudgetLeave] = []  # to send before those
        self._ticks = Ticks[str]()

    def add(self, name: str, budget: SessionBudget) -> None:
        self._all[name] = budget
        if budget.active:
            self._activate(name)

    def queue(self, items: Sequence[Ask | BudgetLeave]) -> None:
        """Send the last of these soon, of each period of a budget: it has all that the earlier ones have, but panes."""
        for item in items:
            key = item.budget, item.seq if isinstance(item, Ask) and item.panes else 0
            self._unsent.pop(key, None)  # a later one comes after those with panes
            self._unsent[key] = item
            self._activate(item.budget.name)

    def drain(self) -> list[Ask | BudgetLeave]:
        items = [*self._returned, *self._unsent.values()]
        self._returned, self._unsent = [], {}
        return items

    def resend(self) -> list[Ask | BudgetLeave]:
        """The messages that begin a new connection."""
        self._returned.clear()
        self._unsent.clear()
        items: list[Ask | BudgetLeave] = []
        for budget in list(self._active.values()):
            last = budget.resend()
            items += [*self.drain(), *last]  # what others have asked for at this moment, as for a request to several
        return items

    def hand_ins(self) -> Iterator[BudgetLeave]:
        return (item for budget in self._active.values() for item in budget.hand_ins())

    @property
    def settled(self) -> bool:
        return all(budget.settled for budget in self._active.values())

    def receive(self, item: BudgetDownItem) -> bool:
        """False: nothing of this budget is kept, and nothing is spent that was not handed in."""
        name = item.budget.name
        budget = self._active.get(name)
        if budget is None:
            return False
        budget.receive(item)
        self.leased = self.leased or budget.leased
        self._ticks.schedule(name, 0.0)  # its rule, or what it has granted, may be new
        return True

    def give_back(self, budget: BudgetId, incarnation: int) -> None:
        """The coordinator has granted units of a budget of which nothing is kept.

        It had answered before that there is no such budget, while another `Ask` was under way.
        """
        self._returned.append(BudgetLeave(budget, incarnation, 0))

    def renew(self, site_id: SiteId) -> None:
        for budget in list(self._all.values()):
            budget.renew(site_id)

    def on_contact(self) -> None:
        """The coordinator has answered after a long time: requests that wait for this can be decided."""
        for budget in list(self._active.values()):
            if budget.leased:
                budget.tick()

    def look_after(self, name: str) -> bool:
        """Ask the budget when its next tick is due: sooner than it said. False: the session need not know."""
        if name not in self._active:
            return False
        self._ticks.schedule(name, 0.0)
        return True

    def _activate(self, name: str) -> None:
        if name not in self._active:
            self._active[name] = self._all[name]
            self._ticks.schedule(name, 0.0)

    # Periods

    @property
    def next_tick(self) -> float:
        """The time of the next `tick`."""
        return self._ticks.next_tick

    def tick(self, now: float) -> None:
        """Look after the budgets whose time has come. The lock is released after each, for threads that spend."""
        for _ in range(TICKS_AT_ONCE):
            with self._lock:
                name = self._ticks.pop(now)
                if name is None:
                    return
                self._look_after(name, self._active[name], now)

    def _look_after(self, name: str, budget: SessionBudget, now: float) -> None:
        if budget.seconds_to_tick() <= 0:
            budget.tick()
        if not budget.active:
            del self._active[name]
        else:
            self._ticks.schedule_after(name, now, budget.seconds_to_tick())
