"""Processes that count and spend: the production client, driven by virtual time instead of a thread."""

import asyncio
from collections import Counter
from collections.abc import Callable
from copy import copy
from functools import partial
from pathlib import Path
from threading import Thread

from countless.client import forks
from countless.client.budgets.budget import BudgetPart
from countless.client.client import Client
from countless.client.durable.count_file import SUFFIX, CountFile
from countless.client.durable.family import families_in
from countless.client.durable.recovery import OrphanDelivery
from countless.client.durable.state import DurableState
from countless.client.durable.word_file import StateError
from countless.client.families.local_family import LocalFamily
from countless.client.session.loop import ClientLoop, Wakeup
from countless.client.surroundings import ClientSurroundings
from countless.client.transport.base import ConnectionLost, Transport
from countless.client.transport.endpoint import Endpoint
from countless.core.family.messages import Steps
from countless.core.messages import SiteId
from countless.core.site import Site
from countless.wire.keys import Key
from countless.wire.nats_url import Broker
from simulator.coordinator import AnyTransport
from simulator.forked import inherited
from simulator.fuse import Fuse, FusedCountFile
from simulator.truth import Label

OpenTransport = Callable[[Callable[[], None]], AnyTransport]  # with what is called when something has arrived
_LATE_S = 1e-5
RETRY_S = 10.0  # between two attempts to deliver what other processes have left


class Notification(Wakeup):
    """Calls a function, where a thread would be notified."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify

    def notify(self) -> None:
        self._notify()

    def drain(self) -> None: ...

    def close(self) -> None: ...


class LoopDriver:
    """Runs a `ClientLoop` as its thread would."""

    def __init__(self, open_transport: OpenTransport, on_done: Callable[[], None], fuse: Fuse) -> None:
        self._fuse = fuse
        self.transport = open_transport(self.notify)
        self.stopped = False
        self._events = asyncio.get_running_loop()
        self._on_done = on_done
        self._wakeup = Notification(self.notify)
        self._loop: ClientLoop | None = None
        self._soon = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, loop: ClientLoop) -> None:
        self._loop = loop
        loop.open(self._wakeup)
        self.notify()

    def notify(self) -> None:
        if not self._soon and self._loop is not None:
            self._soon = True
            self._events.call_soon(self._step)

    def stop(self) -> None:
        """The process was killed, or the loop is done."""
        self.stopped = True
        self.transport.abandon()
        if self._timer is not None:
            self._timer.cancel()

    def _step(self) -> None:
        self._soon = False
        if self.stopped or self._loop is None:
            return
        with self._fuse:
            self._loop.step(self.transport.receive(), self._wakeup)
            self._go_on(self._loop)

    def _go_on(self, loop: ClientLoop) -> None:
        if loop.done:
            self.transport.close()
            self.stop()
            self._on_done()
            return
        if self._timer is not None:
            self._timer.cancel()
        if loop.next_wakeup != float("inf"):
            # A little later, as a thread is: sums of times are rounded.
            at = max(loop.next_wakeup, self._events.time()) + _LATE_S
            self._timer = self._events.call_at(at, self.notify)


class SimulatedState(DurableState):
    """`Process` delivers the counts that other processes have left."""

    files = FusedCountFile

    def start_recovery(self) -> None: ...

    def kill(self) -> None:
        self._file.release()

    @property
    def file(self) -> CountFile:
        return self._file


def in_file(file: CountFile) -> Counter[str | Label]:
    counters = {str(key): record.count for key, record in file.records(Key).items()}
    families = families_in(file)
    return _together(counters, {(str(each.key), label): n for each in families for label, n in each.counts.items()})


def _together(counters: dict[str, int], labels: dict[Label, int]) -> Counter[str | Label]:
    counted = Counter[str | Label]()
    counted.update(dict[str | Label, int]([*counters.items(), *labels.items()]))
    return counted


class SimulatedClient(Client):
    def __init__(
        self,
        driver: LoopDriver,
        endpoint: Endpoint | Broker,
        site: str,
        state_dir: Path | None,
        surroundings: ClientSurroundings,
    ) -> None:
        self._driver = driver
        super().__init__(endpoint, None, site, state_dir, surroundings=surroundings)

    def _open_transport(self, site: str | None = None) -> Transport:
        return self._driver.transport

    def _open_state_dir(self, directory: Path) -> DurableState:
        sharded = isinstance(self._endpoint, Broker)
        return SimulatedState(directory, self._site_id, self._open_transport, self._lock, sharded)

    def budget_part(self, name: str) -> BudgetPart:
        return self._budget_part(name)

    def _start(self) -> None:
        self._thread = Thread()  # is never started
        self._driver.start(self._loop)

    def leave(self) -> None:
        """As `close` begins."""
        with self._lock:
            self._leave()

    def end(self) -> bool:
        """As `close` ends; whether everything was delivered."""
        forks.forget(self)
        delivered = self._thread is None or self._loop.delivered
        if self._durable is not None:
            self._durable.close(delivered, 0.0)
        return delivered

    def kill(self) -> None:
        forks.forget(self)
        if isinstance(self._durable, SimulatedState):
            self._durable.kill()

    @property
    def counts(self) -> dict[str, int]:
        """The counts of its counters and their windows, by the texts of their keys."""
        with self._lock:
            return {str(key): counter.count for key, counter in self._local_counters.items()}

    @property
    def sites(self) -> list[Site]:
        """The sites of its counters and their windows."""
        return [counter.debug_state() for counter in self._local_counters.values()]

    @property
    def labels(self) -> dict[Label, int]:
        """The counts of its families, by family and label."""
        with self._lock:
            families = self._families
        return {(str(key), label): n for key, family in families.items() for label, n in family.counts.items()}

    @property
    def _families(self) -> dict[Key, LocalFamily]:
        return {key: local for key, local in self._locals.items() if isinstance(local, LocalFamily)}

    @property
    def family_steps(self) -> dict[tuple[str, SiteId], Steps]:
        """Those that are in force, by family, and by the incarnation that its shard has."""
        return {(str(key), self.site_id_of(key)): family._site.steps for key, family in self._families.items()}

    def site_id_of(self, family: Key) -> SiteId:
        return self._loop._session_of(family).site_id if self._loop._sessions else self._site_id

    @property
    def counted(self) -> Counter[str | Label]:
        """By counter, window, or label; what is in its file, if it has one, because that is not lost."""
        if not isinstance(self._durable, SimulatedState):
            return _together(self.counts, self.labels)
        return in_file(self._durable.file)

    @property
    def forked_unnoticed(self) -> bool:
        """It is a copy of its parent's client, and has not found out."""
        return self._lock.page.inherited

    @property
    def done(self) -> bool:
        return self._thread is None or self._loop.done

    @property
    def open(self) -> bool:
        return not self._closing

    @property
    def delivered(self) -> bool:
        return self._thread is not None and self._loop.delivered

    @property
    def site_ids(self) -> set[SiteId]:
        """Its incarnations, as the shards know them."""
        return {session.site_id for session in self._loop._sessions}

    @property
    def error(self) -> str | None:
        return self._last_error

    @property
    def client_loop(self) -> ClientLoop:
        return self._loop


class Process:
    """One run of a program, with its client."""

    def __init__(
        self,
        site: str,
        state_dir: Path | None,
        endpoint: Endpoint | Broker,
        open_transport: Callable[["Process", str], OpenTransport],
        surroundings: ClientSurroundings,
        on_killed: Callable[["Process"], None],
    ) -> None:
        self.site = site
        self.fuse = Fuse(lambda: on_killed(self))
        self.state_dir = state_dir
        self.offset = 0.0  # of its wall clock
        self.cut_until = 0.0  # no connection before
        self.epsilon = 0.0  # of its families
        self.copied = False  # its state_dir was, so that another process may deliver in its name
        self.accepted = False  # the coordinator has opened a session for it
        self._true_clock = surroundings.wall_clock
        self._surroundings = surroundings._replace(wall_clock=self.wall_clock)
        self._sharded = isinstance(endpoint, Broker)
        self._open_transport = open_transport
        self._events = asyncio.get_running_loop()
        self.driver = LoopDriver(open_transport(self, site), lambda: None, self.fuse)
        self.client = SimulatedClient(self.driver, endpoint, site, state_dir, self._surroundings)
        self.budgets: dict[str, BudgetPart] = {}  # a client forgets those that its program has forgotten
        self.recoveries: dict[Path, LoopDriver] = {}
        self.refused: set[Path] = set()  # files that cannot be delivered
        self.open_files: list[CountFile] = []
        self.killed = self.retrying = False  # it tries again soon to deliver files
        self._try_all()

    def fork(self, on_killed: Callable[["Process"], None]) -> "Process":
        """As C does it: a child that inherits everything but the threads, and no hook runs."""
        with self.client._lock:  # a child that has not found out does so here: its numbers could not be copied
            child = copy(self)
        child.fuse = Fuse(lambda: on_killed(child))
        child.driver = LoopDriver(child._open_transport(child, child.site), lambda: None, child.fuse)
        child.recoveries, child.open_files, child.refused = {}, [], set(self.refused)
        child.accepted = child.retrying = False
        child._surroundings = self._surroundings._replace(wall_clock=child.wall_clock)
        others = [(self, child), (self.driver, child.driver), (self._events, self._events)]
        child.client, child.budgets = inherited(self.client, self.budgets, child.driver.transport, others)
        forks.register(child.client, close_at_exit=False)
        return child

    def wall_clock(self) -> float:
        return self._true_clock() + self.offset

    def budget(self, name: str) -> BudgetPart:
        return self.budgets.setdefault(name, self.client.budget_part(name))

    @property
    def drivers(self) -> list[LoopDriver]:
        return [self.driver, *self.recoveries.values()]

    def kill(self) -> None:
        self.killed = True
        for driver in self.drivers:
            driver.stop()
        for file in self.open_files:
            file.release()
        self.client.kill()

    # What other processes have left

    def _try_all(self) -> None:
        """As `OrphanRecovery` does it, with all files at once."""
        self.retrying = False
        if self.killed or self.state_dir is None:
            return
        for path in sorted(self.state_dir.glob(f"*{SUFFIX}")):
            if path not in self.recoveries and path not in self.refused:
                self._try(path)

    def _try(self, path: Path) -> None:
        file = FusedCountFile.open_orphan(path)
        if file is None:
            return
        self.open_files.append(file)
        on_done = partial(self._on_delivered, path, file)
        open_transport = self._open_transport(self, str(file.site_id.site))
        driver = self.recoveries[path] = LoopDriver(open_transport, lambda: on_done(delivery), self.fuse)
        delivery = OrphanDelivery(file, driver.transport, self._surroundings, self._sharded)
        if delivery.needed:
            driver.start(delivery.loop)
            delivery.loop.leave()
        else:
            on_done(delivery)

    def _on_delivered(self, path: Path, file: CountFile, delivery: OrphanDelivery) -> None:
        del self.recoveries[path]
        try:
            delivery.finish()
        except ConnectionLost:
            if not self.retrying:  # for all files: with one for each, they would double
                self.retrying = True
                self._events.call_later(RETRY_S, self._try_all)
        except StateError:
            self.refused.add(path)
        file.release()
        self.open_files.remove(file)
