"""The counts and spending of this process, and the thread that delivers them. `Client` gives programs access.

A window is a counter or a family with a key of its own.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet, WeakValueDictionary

from countless.client import forks
from countless.client.budgets.budget import BudgetLink, BudgetPart, in_memory
from countless.client.budgets.requests import PeriodRefusal
from countless.client.families.local_family import LocalFamily, LocalFamilyWindows
from countless.client.kinds.counter import CounterMember
from countless.client.kinds.member import AnyMember, LocalObject
from countless.client.local_counter import LocalCounter
from countless.client.local_windows import LocalCounterWindows, LocalWindows, spread_of
from countless.client.session.loop import ClientLoop
from countless.client.session.protocol import Origin, new_incarnation
from countless.client.surroundings import ClientSurroundings
from countless.client.transport.base import Transport
from countless.client.transport.endpoint import Endpoint, find_token
from countless.client.transport.websocket import WebSocketTransport
from countless.core.budget.messages import Ask
from countless.core.calendar import Calendar
from countless.core.family.rule import FamilyRule
from countless.core.messages import SiteId, UpMessage
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.wire.budgets import BudgetLeave
from countless.wire.keys import ALL, BUDGET, COUNTER, FAMILY, Key, calendar_text, validate_budget, validate_name
from countless.wire.nats_url import Broker

if TYPE_CHECKING:
    from countless.client.durable.state import DurableState
    from countless.client.watch import Watch

log = logging.getLogger("countless")

L = TypeVar("L", bound=LocalObject)
W = TypeVar("W", bound=LocalWindows[Any])
_DISABLED_TRIGGER = EveryNth(1 << 62)  # a client that is switched off never reports


class LocalState:
    """Belongs to one incarnation at a time: a forked child, or a process that was given up, continues as a new one."""

    def __init__(
        self,
        endpoint: Endpoint | Broker,
        token: str | None,
        site: str,
        state_dir: Path | None,
        disabled: bool,
        surroundings: ClientSurroundings,
    ) -> None:
        self._endpoint = endpoint
        self._site = site
        self._last_error: str | None = None
        self._token = token
        self._disabled = disabled
        self._surroundings = surroundings
        self._clock, self._wall_clock = surroundings.clock, surroundings.wall_clock
        self._lock = forks.ClientLock()
        self._local_counters: dict[Key, LocalCounter] = {}  # and windows
        self._windows: dict[Key, LocalWindows[Any]] = {}  # by the key of all windows together
        self._locals: dict[Key, LocalObject] = {}  # of the other kinds that are counted, and their windows
        self._members: dict[Key, AnyMember] = {}  # of these, as sessions need them
        self._budgets: WeakValueDictionary[str, BudgetPart] = WeakValueDictionary()  # sessions keep the active ones
        self._expired_holds = 0
        self._left = False  # the program has closed the client: a later `add` raises
        self._origin = Origin.MEMORY if state_dir is None else Origin.FILE
        self._new_incarnation()
        self._durable = None if state_dir is None or disabled else self._open_state_dir(state_dir)

    def _new_incarnation(self) -> None:
        self._site_id = SiteId(self._site, new_incarnation(self._surroundings))
        self._thread: Thread | None = None
        self._postponed = False  # there is something to deliver, and no thread yet
        self._changed = Condition(self._lock)  # something was acknowledged, or the thread has ended
        self._loop = ClientLoop(
            self._site_id,
            self._members,
            self._lock,
            self._open_transport(),
            self._on_status,
            self._renew_incarnation,
            self._budgets,
            self._windows,
            self._surroundings,
            origin=self._origin,
        )
        self._watches: WeakSet[Watch] = WeakSet()
        self._closing = False

    def _open_transport(self, site: str | None = None) -> Transport:
        """`site`: whose counts it delivers, if not ours."""
        if isinstance(self._endpoint, Endpoint):
            return WebSocketTransport(self._endpoint, partial(find_token, self._endpoint, self._token))
        from countless.client.transport.nats_transport import NatsTransport  # most programs never need it

        return NatsTransport(self._endpoint, site or self._site)

    def _open_state_dir(self, directory: Path) -> "DurableState":
        from countless.client.durable.state import DurableState  # most clients need none, and it needs `fcntl`

        sharded = isinstance(self._endpoint, Broker)
        return DurableState(directory, self._site_id, self._open_transport, self._lock, sharded)

    # Counters, families and budgets that the program uses for the first time; with the lock held

    def _local_counter(self, key: Key) -> LocalCounter:
        with self._lock:
            if key not in self._local_counters:
                trigger = _DISABLED_TRIGGER if self._disabled else None
                site = Site(str(key), self._site_id, self._surroundings.rng, trigger=trigger)
                deliver = partial(self._deliver_of_site, key)
                made = (
                    LocalCounter(site, self._lock, deliver, lambda: self._lock.page.endless(count(1)))
                    if self._durable is None or self._left
                    else self._durable.counter(key, site, self._lock, deliver)
                )
                counter = self._local_counters.setdefault(key, made)  # a handler may have come
                self._add_member(CounterMember(key, counter))
                if self._left:
                    counter.close()
            return self._local_counters[key]

    def _add_member(self, member: AnyMember) -> None:
        self._loop.add(self._members.setdefault(member.key, member))

    def _local_windows(self, calendar: Calendar, series: str) -> LocalCounterWindows:
        key = self._windows_key(COUNTER, series, calendar)
        with self._lock:
            windows = self._windows.get(key)
            if not isinstance(windows, LocalCounterWindows):
                windows = self._windows[key] = LocalCounterWindows(
                    key,
                    spread_of(self._site_id, series),
                    self._lock,
                    self._wall_clock,
                    self._local_counter,
                    self._remove_counter,
                )
                self._loop.add_windows(windows)
                if self._left:
                    windows.close()
            return windows

    def _add_local(self, local: L) -> L:
        self._locals[local.key] = local
        self._add_member(local.member())
        if self._closing:
            local.close()
        return local

    def _add_windows(self, windows: W) -> W:
        self._windows[windows.key] = windows
        self._loop.add_windows(windows)
        if self._closing:
            windows.close()
        return windows

    def _windows_key(self, kind: str, name: str, calendar: Calendar) -> Key:
        key = Key(kind, name, calendar_text(calendar), ALL)
        validate_name(str(key.window(calendar.period_at(self._wall_clock()))))
        return key

    def _local_family(self, key: Key, rule: FamilyRule, cap: int) -> LocalFamily:
        records = None if self._durable is None else partial(self._durable.family, key, rule)
        return self._add_local(LocalFamily(key, rule, cap, self._lock, self._deliver, records))

    def _local_family_windows(self, name: str, rule: FamilyRule, cap: int, calendar: Calendar) -> LocalFamilyWindows:
        key = self._windows_key(FAMILY, name, calendar)
        windows = LocalFamilyWindows(
            key=key,
            rule=rule,
            cap=cap,
            spread=spread_of(self._site_id, name),
            lock=self._lock,
            clock=self._wall_clock,
            new=partial(self._local_family, rule=rule, cap=cap),
            remove=self._remove_local,
        )
        return self._add_windows(windows)

    def _budget_part(self, name: str) -> BudgetPart:
        part = self._budgets.get(name)
        if part is None:
            key = Key(BUDGET, validate_budget(name))
            link = BudgetLink(
                send=self._send_of_budget,
                connected=partial(self._connected_for, key),
                count_waiter=self._count_waiter,
                new_local=in_memory if self._durable is None else self._durable.budget,
                refusal=self._refusal,
                disabled=self._disabled,
                clock=self._wall_clock,
                steady_clock=self._clock,
                contact=partial(self._contact_of, key),
                look_after=self._look_after_budget,
                count_expired=self._count_expired,
            )
            part = self._budgets[name] = BudgetPart(name, self._loop.site_id_for(key), self._lock, link)
            session = self._loop.session_of(key)
            if session is not None:
                session.budgets.add(name, part)
            if self._closing:
                part.end()
        return part

    def _refusal(self, budget: str) -> PeriodRefusal | None:
        return None if self._durable is None else self._durable.refusal(budget)

    # Windows that are finished, and everything delivered

    def _remove_counter(self, key: Key) -> None:
        del self._local_counters[key], self._members[key]
        if self._durable is not None:
            self._durable.remove_counter(key)

    def _remove_local(self, key: Key) -> None:
        del self._members[key]
        self._locals.pop(key).forget()

    # Delivery

    def _deliver_of_site(self, key: Key, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self._deliver(key, messages)

    def _deliver(self, key: Key, messages: Sequence[Any]) -> None:
        if self._disabled:
            return
        self._need_thread()
        member = self._members.get(key)
        if member is not None:  # a handler counts in one that is being made: it joins with its count
            member.queue(messages)

    def _send_of_budget(self, budget: str, items: Sequence[Ask | BudgetLeave]) -> None:
        self._need_thread()
        session = self._loop.session_of(Key(BUDGET, budget))
        if session is not None:
            session.budgets.queue(items)

    def _connected_for(self, budget: Key) -> bool:
        session = self._loop.session_of(budget)
        return session is not None and session.connected

    def _contact_of(self, budget: Key) -> float:
        session = self._loop.session_of(budget)
        return -inf if session is None else session.contact.at

    def _look_after_budget(self, budget: str) -> None:
        session = self._loop.session_of(Key(BUDGET, budget))
        if session is not None:
            session.budgets.look_after(budget)

    def _count_expired(self) -> None:
        self._expired_holds += 1

    def _count_waiter(self, number: int) -> None:
        self._loop.waiters += number
        if number > 0:
            self._start_postponed()

    def _need_thread(self) -> None:
        """Soon; but in the master of uWSGI not before a call waits for an answer."""
        if self._thread is not None or self._closing or self._postponed:
            return
        if forks.in_uwsgi_master():
            self._postponed = True
            log.warning("delivery postponed in the uWSGI master, a thread there may hang its workers: call flush")
        else:
            self._start()

    def _start_postponed(self) -> None:
        if self._postponed and not self._closing:
            self._postponed = False
            self._start()

    def _start(self) -> None:
        self._loop.open()
        self._thread = Thread(target=self._run, name="countless", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is shutting down, which `add` must not report
            self._closing, self._thread = True, None
            self._loop.abandon()
        if self._durable is not None:
            self._durable.start_recovery()
        forks.warn_if_threads_do_not_run()

    def _leave(self) -> None:
        """Nothing more is counted; the final counts are due."""
        self._closing = self._left = True
        for windows in self._windows.values():
            windows.close()
        for counter in self._local_counters.values():
            if counter.open:
                counter.close()
        for budget in self._budgets.values():
            budget.end()
        for local in self._locals.values():
            local.close()
        if self._thread is not None:
            self._loop.leave()

    # In a forked child

    def _after_fork(self) -> None:
        """Continue as a new incarnation that has counted nothing. The connection belongs to the parent."""
        if self._thread is not None:
            self._loop.abandon()
        for watch in self._watches:
            watch._abandon()
        closing = self._closing
        self._members.clear()
        self._new_incarnation()
        self._closing = closing
        if not closing:
            for key in [key for key in self._local_counters if key.is_window]:
                self._local_counters.pop(key).give_up()
            if self._durable is not None:
                self._durable.after_fork(self._site_id, self._local_counters)
            for counter in self._local_counters.values():
                counter.after_fork(self._site_id)
            for windows in self._windows.values():
                windows.reset(spread_of(self._site_id, windows.key.name))
            for budget in self._budgets.values():
                budget.after_fork(self._site_id)
            for key in [key for key in self._locals if key.is_window]:
                self._locals.pop(key).close()
            for local in self._locals.values():
                local.after_fork()
            for key, counter in self._local_counters.items():
                self._add_member(CounterMember(key, counter))
            for local in self._locals.values():
                self._add_member(local.member())
        else:
            for counter in self._local_counters.values():
                counter.give_up()
            for budget in self._budgets.values():
                budget.after_fork(self._site_id)
                budget.end()
            if self._durable is not None:
                self._durable.leave_to_parent()

    # The thread

    def _run(self) -> None:
        self._loop.run()
        with self._lock:
            self._thread = None
            self._changed.notify_all()

    def _on_status(self, error: str | None) -> None:
        if error is not None and error != self._last_error and not self._loop.done:
            log.warning("coordinator not reached, counting continues and delivers later: error=%s", error)
        self._last_error = error
        if error is None:
            with self._lock:
                self._changed.notify_all()

    @contextmanager
    def _renew_incarnation(self, site_id: SiteId, shard: int) -> Iterator[None]:
        with self._durable.new_incarnation(site_id.incarnation, shard) if self._durable else nullcontext():
            yield
        self._site_id = site_id
