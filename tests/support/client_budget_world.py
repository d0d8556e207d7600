"""Processes that spend budgets, alone and together, and the coordinators; a random run decides what happens next.

Requests wait, end before they are decided, and come again. Connections are lost, and coordinators are killed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from threading import RLock

from countless.client.budgets.budget import BudgetLink, BudgetPart, in_memory
from countless.client.budgets.group import BudgetGroup
from countless.client.budgets.requests import Request, UntilUnitsReturn, Waiter
from countless.client.durable.budget import DurableBudget
from countless.client.durable.count_file import CountFile
from countless.client.kinds.budget import SessionBudgets
from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.decision import Decision, Reason
from countless.core.budget.hold import Hold
from countless.core.budget.messages import Ask, BudgetId, Outbox
from countless.core.budget.rolling import Returns
from countless.core.budget.rule import BudgetRule
from countless.core.budget.site import BudgetSite
from countless.core.budget.state import PersistentBudget
from countless.core.messages import SiteId
from countless.wire.budgets import BudgetDownItem, BudgetLeave, BudgetLeaveAck, rule_item

REST_STEPS = 20_000


@dataclass
class Pending:
    """A request that waits."""

    request: Request
    waiter: Waiter
    names: list[str]
    n: int
    hold: bool


class Process:
    """One site, its budgets, and the messages on their way to and from it."""

    def __init__(self, number: int, world: "World") -> None:
        self.site_id = SiteId(number, 1)
        self.up: list[Ask | BudgetLeave] = []
        self.down: list[BudgetDownItem] = []
        self.connected = True
        self.asked: set[str] = set()  # budgets of which it has sent something on this connection
        self.waiting: list[Pending] = []
        self.holds: list[tuple[Hold, list[str], int]] = []
        self.lock = RLock()
        self.session = SessionBudgets(self.lock, lambda: None)
        self._file = CountFile.in_memory(self.site_id)
        link = BudgetLink(
            lambda name, items: self.session.queue(items),
            lambda: self.connected,
            lambda number: None,
            in_memory if number % 2 else self._durable,
            clock=lambda: world.now,
            steady_clock=lambda: world.now,
            contact=lambda: world.now,
            look_after=lambda name: self._look_after(name),
        )
        self.parts = {name: BudgetPart(name, self.site_id, self.lock, link) for name in world.coordinators}
        for name, part in self.parts.items():
            self.session.add(name, part)

    def _durable(self, site: BudgetSite, site_id: SiteId) -> DurableBudget:
        return DurableBudget(site, site_id.incarnation, self._file)

    def _look_after(self, name: str) -> None:
        self.session.look_after(name)

    def site(self, name: str) -> BudgetSite:
        return self.parts[name]._local.site

    def send(self) -> None:
        if self.connected:
            self.up += self.session.drain()

    def receive(self) -> None:
        item = self.down.pop(0)
        with self.lock:
            self.session.receive(item, self.site_id)

    def disconnect(self) -> None:
        self.connected = False
        self.asked.clear()
        self.up.clear()
        self.down.clear()

    def connect(self) -> None:
        self.disconnect()
        self.connected = True
        self.up += self.session.initial_items()


class Coordinator:
    """The coordinator of one budget, and what it keeps of the units that were handed over."""

    def __init__(self, name: str, rule: BudgetRule, world: "World") -> None:
        self.name, self.rule, self._world = name, rule, world
        self.core = self._new(None)
        self.returns = Returns(rule.rolling or 1.0)

    def _new(self, saved: PersistentBudget | None) -> BudgetCoordinator:
        rolling = self.rule.rolling is not None
        return BudgetCoordinator(
            BudgetId(self.name), self.rule.limit, slack=self.rule.slack, rolling=rolling, saved_state=saved
        )

    def restart(self) -> None:
        left = self.returns.left(self._world.now)
        self.core = self._new(self.core.saved_state)
        self.returns = Returns(self.rule.rolling or 1.0)
        for seconds, units in left:
            self.returns.add(self._world.now + seconds, units)
        self.send(self.core.recover())

    def send(self, outbox: Outbox) -> None:
        for pane in self.core.take_panes():
            self.returns.add(self._world.now + (self.rule.rolling or 0.0) - pane.age, pane.units)
        for site_id, quota in outbox:
            process = self._world.processes[int(site_id.site)]
            if self.name in process.asked:  # nothing is sent before it has asked on this connection
                process.down.append(quota)

    def receive(self, process: Process, item: Ask | BudgetLeave) -> None:
        if isinstance(item, BudgetLeave):
            self.send(self.core.leave(process.site_id, item.spent))
            self.core.forget(process.site_id)
            process.asked.discard(self.name)
            process.down.append(BudgetLeaveAck(item.budget, item.incarnation))
        elif self.name in process.asked:
            self.send(self.core.receive(process.site_id, item))
        else:
            process.asked.add(self.name)
            process.down.append(rule_item(self.name, self.rule))
            self.send(self.core.join(process.site_id, item))


@dataclass
class World:
    """`steps` makes a random run; `rest` delivers what is on its way, until nothing happens any more."""

    random: Random
    now: float = 1000.0
    coordinators: dict[str, Coordinator] = field(default_factory=dict)
    processes: list[Process] = field(default_factory=list)
    taken: list[tuple[float, str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        random = self.random
        window = random.choice([None, None, 10, 20])
        for name in ["a", "b", "c"][: random.randint(1, 3)]:
            rule = BudgetRule(random.randint(1, 30), slack=random.choice([0, 0.1]), rolling=window)
            self.coordinators[name] = Coordinator(name, rule, self)
        self.processes = [Process(number, self) for number in range(random.randint(1, 4))]

    def step(self) -> None:
        process, coordinator = self.random.choice(self.processes), self.random.choice([*self.coordinators.values()])
        rng = self.random.random()
        if rng < 0.3:
            self._request(process)
        elif rng < 0.4 and process.holds:
            self._settle(process)
        elif rng < 0.45 and process.waiting:
            self._end(process, self.random.choice(process.waiting))
        elif rng < 0.65:
            self._send_up(process)
        elif rng < 0.9 and process.down:
            process.receive()
        elif rng < 0.92:
            self.pass_time(self.random.choice([0.1, 0.5, 1.1, 3]))
        elif rng < 0.93:
            process.disconnect()
        elif rng < 0.95 and not process.connected:
            process.connect()
        elif rng < 0.955:
            for each in self.processes:
                each.disconnect()
            coordinator.restart()
        elif rng < 0.96 and (not process.connected or coordinator.core.awaited(process.site_id)):
            coordinator.send(coordinator.core.mark_unreachable(process.site_id))
        self._note_decisions()

    def rest(self) -> None:
        for process in self.processes:
            if not process.connected:
                process.connect()
        quiet = 0
        for _ in range(REST_STEPS):
            for process in self.processes:
                process.send()
            busy = [process for process in self.processes if process.up or process.down]
            quiet = 0 if busy else quiet + 1
            if quiet > 4:
                return
            if not busy:
                self.pass_time(0.6)
                continue
            process = self.random.choice(busy)
            if process.up and (not process.down or self.random.random() < 0.5):
                self._send_up(process)
            else:
                process.receive()
            self._note_decisions()
            self.check()
        raise AssertionError(f"something is sent after {REST_STEPS} steps without a request")

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for process in self.processes:
            if process.connected:
                process.session.tick(self.now)
        for coordinator in self.coordinators.values():
            units = coordinator.returns.due(self.now)
            if units:
                coordinator.send(coordinator.core.return_units(units))

    # What happens

    def _request(self, process: Process) -> None:
        random, names = self.random, list(self.coordinators)
        names = random.sample(names, random.randint(1, len(names))) if random.random() < 0.3 else [random.choice(names)]
        least = min(self.coordinators[name].rule.limit for name in names)
        n, hold = random.randint(1, max(1, least // random.choice([1, 2, 4]))), random.random() < 0.5
        parts = [process.parts[name] for name in names]
        spendable = parts[0] if len(parts) == 1 else BudgetGroup(tuple(parts), process.lock)
        request: Request = spendable._request(n, hold=hold)
        if hold and random.random() < 0.2:
            request = UntilUnitsReturn(request)
        waiter = Waiter(request, lambda: None)
        pending = Pending(request, waiter, names, n, hold)
        decision = request.attempt()
        if decision is not None:
            return self._decided(process, pending, decision)
        request.start_waiting(waiter)
        process.waiting.append(pending)
        if random.random() < 0.4:
            self._end(process, pending)
        return None

    def _end(self, process: Process, pending: Pending) -> None:
        pending.request.stop_waiting(pending.waiter)
        process.waiting.remove(pending)
        self._decided(process, pending, pending.waiter.result())

    def _note_decisions(self) -> None:
        for process in self.processes:
            for pending in [each for each in process.waiting if each.waiter.ended]:
                self._end(process, pending)

    def _decided(self, process: Process, pending: Pending, decision: Decision) -> None:
        if decision.reason is not Reason.ALLOWED:
            return
        if pending.hold:
            process.holds.append((pending.request.hold(Hold, pending.n, None), pending.names, pending.n))
        else:
            self._take(pending.names, pending.n)

    def _settle(self, process: Process) -> None:
        hold, names, n = process.holds.pop(self.random.randrange(len(process.holds)))
        used = self.random.choice([0, 0, n // 2, n])
        hold.settle(used)
        self._take(names, used)

    def _take(self, names: list[str], n: int) -> None:
        self.taken += [(self.now, name, n) for name in names]

    def _send_up(self, process: Process) -> None:
        process.send()
        if process.up:
            item = process.up.pop(0)
            self.coordinators[item.budget.name].receive(process, item)

    # What must be true

    def check(self) -> None:
        """In every window no more than the limit is used."""
        for name, coordinator in self.coordinators.items():
            since = self.now - (coordinator.rule.rolling or self.now)
            taken = sum(n for moment, each, n in self.taken if each == name and moment > since)
            held = sum(n for process in self.processes for _, names, n in process.holds if name in names)
            assert taken + held <= coordinator.rule.limit, (name, taken, held, coordinator.core)

    def check_at_rest(self) -> None:
        for process, name, site in self._sites():
            coordinator = self.coordinators[name].core
            waiting = [each for each in process.waiting if name in each.names]
            assert all(isinstance(each.request, UntilUnitsReturn) for each in waiting), (name, site, coordinator)
            assert site.keep or waiting or site.room == 0, (name, site)
            used = sum(self.processes[number].site(name).used for number in range(len(self.processes)))
            left = coordinator.limit - coordinator.gone - used
            if site.refuse_from is not None and not site.closed:
                assert left <= max(coordinator.slack * coordinator.limit, site.refuse_from - 1), (name, site, left)
            assert not coordinator.recalling, (name, coordinator)

    def _sites(self) -> Iterator[tuple[Process, str, BudgetSite]]:
        return ((process, name, process.site(name)) for process in self.processes for name in self.coordinators)
