"""Client budgets without a connection: one whose messages are recorded, and those of several processes."""

from collections.abc import Callable, Iterable, Sequence
from threading import Event, RLock
from time import monotonic
from typing import Any, NamedTuple

from countless.client.budgets.budget import BudgetLink, BudgetPart, in_memory
from countless.client.durable.budget import DurableBudget
from countless.client.durable.count_file import CountFile
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.budget.site import BudgetSite
from countless.core.messages import SiteId
from countless.wire.budgets import BudgetDownItem, BudgetLeave, SetBudgetRule
from support.service import TIMEOUT_S

TOKENS = BudgetId("tokens")
SITE = SiteId("s", 7)


class Told(NamedTuple):
    """What a test looks at in an `Ask`."""

    budget: BudgetId
    seq: int
    spent: int
    held: int
    limit: int
    want: int


def told(items: Iterable[Ask | BudgetLeave]) -> list[Told | BudgetLeave]:
    return [_told(item) if isinstance(item, Ask) else item for item in items]


def _told(ask: Ask) -> Told:
    return Told(ask.budget, ask.seq, ask.spent, ask.held, ask.granted - ask.returned, ask.want)


class Quotas:
    """What a coordinator sends to one site, numbered and with what was granted before."""

    def __init__(self) -> None:
        self._last: dict[BudgetId, Quota] = {}

    def lend(self, budget: BudgetId, granted: int) -> Quota:
        """So many units are granted in all, and the site may keep what it does not use."""
        return self._next(budget, granted=granted, keep=True)

    def grant(self, budget: BudgetId, granted: int) -> Quota:
        """... and the site must return what it does not use."""
        return self._next(budget, granted=granted)

    def refuse(self, budget: BudgetId, refuse_from: int, keep: bool = False) -> Quota:
        return self._next(budget, refuse_from=refuse_from, keep=keep)

    def recall(self, budget: BudgetId) -> Quota:
        return self._next(budget, reply=True)

    def begin_again(self, budget: BudgetId, since: int) -> Quota:
        """The budget was deleted and made again; the site had sent an Ask with this `seq`."""
        self._last[budget] = Quota(budget, since, 1, 0)
        return self._last[budget]

    def _next(self, budget: BudgetId, **fields: Any) -> Quota:
        last = self._last.get(budget) or Quota(budget, 1, 0, 0)
        self._last[budget] = Quota(budget, last.since, last.number + 1, last.granted)._replace(**fields)
        return self._last[budget]


class RecordingBudget:
    """A client budget ("plain", "durable", "locked") that was granted `limit` units, and the messages it has sent."""

    def __init__(self, kind: str, limit: int) -> None:
        self.sent: list[Ask] = []
        self.lock = RLock()
        self.file = CountFile.in_memory(SITE)
        new_local = in_memory if kind == "plain" else self._new_durable
        self.waited = Event()  # a request has waited for the coordinator
        self.connected: Callable[[], bool] = lambda: True
        self.now = 1000.0  # by the steady clock
        self.looked_after = 0
        self.expired = 0
        link = BudgetLink(
            self._send,
            lambda: self.connected(),
            lambda number: self.waited.set(),
            new_local,
            steady_clock=lambda: self.now,
            look_after=self._look_after,
            count_expired=self._count_expired,
        )
        self.budget = BudgetPart(TOKENS.name, SITE, self.lock, link)
        self.quotas = Quotas()
        if limit:
            self.lend(limit)

    def _new_durable(self, site: BudgetSite, site_id: SiteId) -> DurableBudget:
        return DurableBudget(site, site_id.incarnation, self.file)

    @property
    def saved(self) -> int | None:
        """What is handed in if the process is killed now; None without a file."""
        return self.file.budgets[0].used if self.file.budgets else None

    def lend(self, granted: int) -> None:
        self.receive(self.quotas.lend(TOKENS, granted))

    def grant(self, granted: int) -> None:
        self.receive(self.quotas.grant(TOKENS, granted))

    def refuse(self, refuse_from: int, keep: bool = False) -> None:
        self.receive(self.quotas.refuse(TOKENS, refuse_from, keep))

    def recall(self) -> Ask:
        self.connected = lambda: True
        self.receive(self.quotas.recall(TOKENS))
        return self.sent.pop()

    def receive(self, item: BudgetDownItem) -> None:
        with self.lock:
            self.budget.receive(item)

    def _look_after(self, name: str) -> None:
        self.looked_after += 1

    def _count_expired(self) -> None:
        self.expired += 1

    def _send(self, name: str, items: Sequence[Ask | BudgetLeave]) -> None:
        self.sent += [item for item in items if isinstance(item, Ask)]


class Process:
    """The budgets of one process, which share a lock."""

    def __init__(self, number: int, names: Sequence[str], send: Callable[[SiteId, Ask], None]) -> None:
        self.site_id = SiteId(number)
        self.lock = RLock()
        self._send_up = send
        self.quotas = Quotas()
        self.connected: Callable[[], bool] = lambda: True
        link = BudgetLink(self._send, lambda: self.connected(), _ignore)
        self.budgets = {name: BudgetPart(name, self.site_id, self.lock, link) for name in names}

    def receive(self, message: Quota | SetBudgetRule) -> None:
        with self.lock:
            self.budgets[message.budget.name].receive(message)

    def _send(self, name: str, items: Sequence[Ask | BudgetLeave]) -> None:
        for item in items:
            if isinstance(item, Ask):
                self._send_up(self.site_id, item)


class ConnectedProcesses:
    """Processes that spend the same budgets, and the coordinators. `deliver` exchanges what is on its way."""

    def __init__(self, processes: int, **limits: int) -> None:
        self.coordinators = {name: BudgetCoordinator(BudgetId(name), limit, slack=0) for name, limit in limits.items()}
        self._asks: list[tuple[SiteId, Ask]] = []
        self.processes = [
            Process(number, list(limits), lambda *ask: self._asks.append(ask)) for number in range(processes)
        ]

    def deliver(self) -> None:
        """For one thread."""
        while self._asks:
            site_id, ask = self._asks.pop(0)
            for receiver, message in self.coordinators[ask.budget.name].receive(site_id, ask):
                self.processes[int(receiver.site)].receive(message)

    def deliver_until(self, ended: Sequence[Event]) -> None:
        deadline = monotonic() + TIMEOUT_S
        while not all(event.is_set() for event in ended):
            if monotonic() > deadline:
                raise AssertionError(f"not everything is spent after {TIMEOUT_S:.0f} seconds")
            self.deliver()


def _ignore(number: int) -> None:
    pass
