"""The client: counts events of a program towards totals that a coordinator keeps.

    client = countless.connect("http://127.0.0.1:2686")
    client.counter("requests").add(5)
    client.counter("requests").labels(route="/a").inc()
    client.counter("orders", per="day", tz="Europe/Berlin").inc()
    client.counter("pages", family=True).labels(page="/a").inc()
    client.distribution("latency_ms").observe(17)

Counting is local: `add` increments a number and sometimes queues a message. One background thread exchanges frames with
the coordinator and reconnects when the connection is lost. What was counted meanwhile is delivered later, exactly once,
because every message is cumulative.
"""

import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from threading import Condition, RLock, Thread
from time import monotonic, time
from typing import TYPE_CHECKING
from weakref import WeakSet, WeakValueDictionary

from countless.client import forks, goodbye
from countless.client.budgets.budget import BudgetLink, ClientBudget, in_memory
from countless.client.clock import Clock, steady_clock
from countless.client.counter import LABEL_CAP, Counter
from countless.client.environment import token_for, url_or_default
from countless.client.families.local_family import ClientDistribution, LabelOfFamily, LocalFamily
from countless.client.families.local_family_windows import LocalFamilyWindows
from countless.client.local_counter import LocalCounter
from countless.client.local_windows import LocalWindows, spread_of
from countless.client.session.loop import ClientLoop
from countless.client.session.protocol import new_incarnation
from countless.client.transport.base import Transport
from countless.client.transport.endpoint import Endpoint
from countless.client.transport.websocket import WebSocketTransport
from countless.core.budget.messages import Ask
from countless.core.calendar import Calendar, calendar_of, require_calendar
from countless.core.family.messages import UpMessage as FamilyMessage
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.family.site import LABEL_CAP as MAX_LABEL_CAP
from countless.core.messages import SiteId, UpMessage
from countless.core.parameters import require_integer
from countless.core.site import Site
from countless.core.triggers import EveryNth
from countless.errors import CounterRefused, InvalidParameter
from countless.randomness import SystemRandom
from countless.wire.frames import BudgetLeave
from countless.wire.names import validate_name
from countless.wire.nats_url import SCHEMES as NATS_SCHEMES
from countless.wire.nats_url import Broker
from countless.wire.windows import parse_window, window_name

if TYPE_CHECKING:
    from countless.client.budgets.group import BudgetGroup
    from countless.client.durable.state import DurableState
    from countless.client.reader import Quantiles, Rate, Reader, RollingCount, TopCounts, TotalCount, WindowCount
    from countless.client.watch import Callback, Watch

log = logging.getLogger("countless")

CalendarFields = tuple[str | None, str, int | None]  # per, tz, anchor
FAMILY_LABEL_CAP = 10_000  # of a family in one process, unless the program says otherwise
_DISABLED_TRIGGER = EveryNth(1 << 62)  # a client that is switched off never reports


def connect(
    url: str | None = None,
    token: str | None = None,
    site: str | None = None,
    state_dir: str | os.PathLike[str] | None = None,
) -> "Client":
    """A client of the coordinator at `url`, or of the coordinators behind the broker at `nats://...`.

    It does not wait for the coordinator. With a `state_dir` counts are kept in a file there, and what a killed process
    could not deliver is delivered by the next process that uses the directory. Processes may share the directory; it
    belongs to one coordinator, or to the coordinators behind one broker.

    What is not given comes from the environment: `COUNTLESS_URL`, `COUNTLESS_TOKEN` (or `COUNTLESS_TOKEN_FILE`, which
    is read for each connection), `COUNTLESS_SITE` and `COUNTLESS_CLIENT_STATE_DIR`; the default of the site's name is
    the host's name. Processes may share a name. With `COUNTLESS_DISABLE=1` nothing is ever sent or kept. To a
    coordinator on this machine the client shows the operator's token from its state directory, if it may read it.

    If the program has no handler for SIGTERM, one is installed that closes the client first; it replaces no other.
    """
    environment = os.environ
    url = url_or_default(url)
    endpoint = Broker.parse(url) if url.startswith(NATS_SCHEMES) else Endpoint.parse(url)
    token = token or environment.get("COUNTLESS_TOKEN")
    if isinstance(endpoint, Endpoint):
        token_for(endpoint, token)  # raises here if it cannot be used
    directory = state_dir or environment.get("COUNTLESS_CLIENT_STATE_DIR")
    disabled = environment.get("COUNTLESS_DISABLE") == "1"
    client = Client(
        endpoint,
        token,
        validate_name(site or environment.get("COUNTLESS_SITE") or socket.gethostname()),
        Path(directory) if directory else None,
        disabled=disabled,
    )
    if not disabled:
        goodbye.install()
    return client


class Client:
    """The counters of one process and their connection to the coordinator. Use `connect` to make one."""

    def __init__(
        self,
        endpoint: Endpoint | Broker,
        token: str | None,
        site: str,
        state_dir: Path | None = None,
        *,
        disabled: bool = False,
        wall_clock: Clock = time,
        clock: Clock = steady_clock,
    ) -> None:
        self._endpoint = endpoint
        self._site = site
        self._last_error: str | None = None
        self._token = token
        self._disabled = disabled
        self._wall_clock = wall_clock  # decides to which window an event belongs, and a request to which period
        self._clock = clock
        self._lock = RLock()
        self._local_counters: dict[str, LocalCounter] = {}
        # By series; their windows are among the local counters, or the families.
        self._windows: dict[str, LocalWindows | LocalFamilyWindows] = {}
        self._counters: dict[str, tuple[Counter, CalendarFields]] = {}
        self._families: dict[str, LocalFamily] = {}  # and distributions; and windows of both, under their wire names
        self._used_families: dict[str, tuple[LocalFamily | LocalFamilyWindows, CalendarFields]] = {}  # by name
        self._budgets: WeakValueDictionary[str, ClientBudget] = WeakValueDictionary()  # sessions keep the active ones
        self._new_incarnation()
        self._durable = None if state_dir is None or disabled else self._open_state_dir(state_dir)
        if not disabled:
            forks.register(self)

    def _new_incarnation(self) -> None:
        self._site_id = SiteId(self._site, new_incarnation(self._wall_clock()))
        self._thread: Thread | None = None
        self._changed = Condition(self._lock)  # something was acknowledged, or the thread has ended
        self._loop = ClientLoop(
            self._site_id,
            self._local_counters,
            self._lock,
            self._open_transport(),
            self._on_status,
            self._renew_incarnation,
            self._budgets,
            self._windows,
            self._families,
            self._clock,
            self._wall_clock,
        )
        self._watches: WeakSet[Watch] = WeakSet()
        self._closing = False

    def _open_transport(self, site: str | None = None) -> Transport:
        """`site`: whose counts it delivers, if not ours."""
        if isinstance(self._endpoint, Endpoint):
            return WebSocketTransport(self._endpoint, partial(token_for, self._endpoint, self._token))
        from countless.client.transport.nats_transport import NatsTransport  # most programs never need it

        return NatsTransport(self._endpoint, site or self._site)

    def _open_state_dir(self, directory: Path) -> "DurableState":
        from countless.client.durable.state import DurableState  # most clients need none, and it needs `fcntl`

        sharded = isinstance(self._endpoint, Broker)
        return DurableState(directory, self._site_id, self._open_transport, self._lock, sharded)

    def __repr__(self) -> str:
        state = "closed" if self._closing else f"error: {self._last_error}" if self._last_error else "open"
        return f"<Client of {self._endpoint.base}, site {self._site!r}: {len(self._local_counters)} counters, {state}>"

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except CounterRefused:
            if kind is None:  # otherwise the program's own exception goes on
                raise

    # For programs

    @property
    def site(self) -> str:
        """The name under which this process counts."""
        return self._site

    @property
    def last_error(self) -> str | None:
        """Why there is no connection; None while there is one, and before one was needed."""
        return self._last_error

    @property
    def connected(self) -> bool:
        """Whether a coordinator has answered on the present connection. There is none before something is counted."""
        return self._loop.connected

    def counter(
        self,
        name: str,
        *,
        per: str | None = None,
        tz: str = "UTC",
        anchor: int | None = None,
        label_cap: int | None = None,
        family: bool = False,
        epsilon: float | None = None,
    ) -> Counter:
        """The counter of this name, the same object every time.

        At most `label_cap` combinations of labels are counted by name: 2,000, or 10,000 of a family.

        With `per`, which is minute, hour, day or month, it has windows: every event belongs to the one that the clock
        of this process shows when it is counted. `tz` and `anchor` say when a window begins: at that second of a
        minute, minute of an hour, hour of a day or day of a month, by the clocks of the time zone.

        With `family`, each combination of labels is known to within `epsilon` of the total of all, which is 0.01 unless
        given, and the messages do not depend on how many there are. With `per`, of the total of each window.
        """
        fields = per, tz, anchor
        if family:
            rule = FamilyRule(LABELS, 0.01 if epsilon is None else epsilon)
            return self._family_counter(name, rule, fields, label_cap)
        if epsilon is not None:
            raise InvalidParameter("epsilon", epsilon, "left out without family=True: alpha is set at the coordinator")
        if name in self._used_families:
            raise InvalidParameter("family", family, f"True, as when this program first used {name!r}")
        label_cap = LABEL_CAP if label_cap is None else label_cap
        counter, first_fields = self._counters.get(name) or self._new_counter(name, fields, label_cap)
        if fields != first_fields:
            _require_same_windows(name, fields, first_fields)
        return counter

    def _new_counter(self, name: str, fields: CalendarFields, label_cap: int) -> tuple[Counter, CalendarFields]:
        validate_name(name)
        if parse_window(name) or parse_window(f"{name}:0"):
            raise InvalidParameter("counter", name, "a name that does not end like that of a window; use `per` instead")
        calendar = _calendar(*fields)
        new = self._local_counter if calendar is None or self._disabled else partial(self._local_windows, calendar)
        with self._lock:
            return self._counters.setdefault(name, (Counter(name, new, label_cap), fields))

    def _family_counter(self, name: str, rule: FamilyRule, fields: CalendarFields, label_cap: int | None) -> Counter:
        cap = FAMILY_LABEL_CAP if label_cap is None else label_cap
        require_integer("label_cap", cap, 0, MAX_LABEL_CAP)
        with self._lock:
            family = self._family(name, rule, cap, fields)
            found = self._counters.get(name)
            if found is None:
                found = self._counters[name] = Counter(name, partial(LabelOfFamily, family), cap), fields
            return found[0]

    def distribution(
        self,
        name: str,
        *,
        epsilon: float = 0.01,
        accuracy: float = 0.01,
        per: str | None = None,
        tz: str = "UTC",
        anchor: int | None = None,
    ) -> ClientDistribution:
        """The distribution of this name: values that all processes observe, such as latencies, for their quantiles.

        The rank of a quantile is right to within `epsilon` of all observations, and its value to within `accuracy`.
        With `per`, `tz` and `anchor` it has windows, as a counter has.
        """
        rule, fields = FamilyRule(VALUES, epsilon, accuracy), (per, tz, anchor)
        with self._lock:
            return ClientDistribution(self._family(name, rule, MAX_LABEL_CAP, fields))

    def _family(
        self, name: str, rule: FamilyRule, cap: int, fields: CalendarFields
    ) -> LocalFamily | LocalFamilyWindows:
        if name not in self._used_families:
            validate_name(name)
            if name in self._counters or "{" in name or parse_window(f"{name}:0") or parse_window(name):
                raise InvalidParameter("counter", name, "a name of its own, without labels and windows")
            calendar = _calendar(*fields)
            family = (
                self._local_family(name, rule, cap)
                if calendar is None or self._disabled
                else self._local_family_windows(name, rule, cap, calendar)
            )
            self._used_families[name] = family, fields
        found, first_fields = self._used_families[name]
        if fields != first_fields:
            _require_same_windows(name, fields, first_fields)
        if (found.rule, found.cap) != (rule, cap):
            allowed = f"used as when this program first did: {found.rule}, label_cap {found.cap}"
            raise InvalidParameter("counter", name, allowed)
        return found

    def _local_family(self, name: str, rule: FamilyRule, cap: int) -> LocalFamily:
        records = None if self._durable is None else self._durable.family(name, rule)
        family = self._families[name] = LocalFamily(name, rule, cap, self._lock, self._deliver_family, records)
        self._loop.add_family(name)
        if self._closing:
            family.close()
        return family

    def _local_family_windows(self, name: str, rule: FamilyRule, cap: int, calendar: Calendar) -> LocalFamilyWindows:
        validate_name(window_name(name, calendar, calendar.period_at(self._wall_clock())))
        windows = self._windows[name] = LocalFamilyWindows(
            *(name, rule, cap, calendar, spread_of(self._site_id, name), self._lock, self._wall_clock),
            *(self._local_family, self._remove_family),
        )
        self._loop.add_windows(name)
        if self._closing:
            windows.close()
        return windows

    def _remove_family(self, name: str) -> None:
        """A window of a family is finished, and everything delivered."""
        self._families.pop(name).forget()

    def budget(self, name: str) -> ClientBudget:
        """The budget of this name, the same object every time. An operator creates it at the coordinator.

        The client forgets budgets that the program does not use any more, once what they spent is handed in.
        With `COUNTLESS_DISABLE=1` every request is allowed.
        """
        with self._lock:
            budget = self._budgets.get(name)
            if budget is None:
                validate_name(name, "budget")
                link = BudgetLink(
                    send=self._send_of_budget,
                    connected=partial(self._connected_for, name),
                    count_waiter=self._count_waiter,
                    new_local=in_memory if self._durable is None else self._durable.budget,
                    disabled=self._disabled,
                    clock=self._wall_clock,
                    steady_clock=self._clock,
                    contact=partial(self._contact_of, name),
                )
                budget = self._budgets[name] = ClientBudget(name, self._loop.site_id_for(name), self._lock, link)
                self._loop.add_budget(name)
                if self._closing:
                    budget.end()
            return budget

    def together(self, *budgets: ClientBudget) -> "BudgetGroup":
        """Several budgets, as of a key, its team and its organisation: they admit a request all, or none of them.

        It has the calls of a budget: `take`, `reserve`, `acquire` and their async twins.
        """
        from countless.client.budgets.group import BudgetGroup  # most programs never need it

        known = all(isinstance(each, ClientBudget) and self._budgets.get(each.name) is each for each in budgets)
        if not budgets or not known or len(set(budgets)) < len(budgets):
            raise InvalidParameter("budgets", budgets, "different budgets of this client, at least one")
        return BudgetGroup(budgets, self._lock)

    # Reading. Each call is a request to the coordinator, by HTTP: with a broker, use a `Reader` with its address. Where
    # tokens are used, that of the client needs the scope read.

    def answer(self, counter: str) -> "TotalCount":
        """The total over all sites, with its bounds."""
        return self._reader.answer(counter)

    async def aanswer(self, counter: str) -> "TotalCount":
        """`answer`, without blocking the event loop."""
        from asyncio import to_thread

        return await to_thread(self.answer, counter)

    def window(self, counter: str, which: str = "now") -> "WindowCount":
        """The count of `now`, `last`, `today`, `yesterday` ... of a counter with windows, as `Reader.window`."""
        return self._reader.window(counter, which)

    def rolling(self, counter: str, over: str) -> "RollingCount":
        """The count of the last `15m`, `1h`, `7d`."""
        return self._reader.rolling(counter, over)

    def rate(self, counter: str, over: str = "5m") -> "Rate":
        """Events per second, on average over the last so many minutes."""
        return self._reader.rate(counter, over)

    def top(
        self, counter: str, share: float = 0.02, *, window: str | None = None, rolling: str | None = None
    ) -> "TopCounts":
        """The labels that may have this share of the counter's count, as `Reader.top`."""
        return self._reader.top(counter, share, window=window, rolling=rolling)

    def quantile(self, distribution: str, *shares: float, window: str | None = None) -> "Quantiles":
        """Quantiles of a distribution: the median, 0.9 and 0.99, or these `shares`, as `Reader.quantile`."""
        return self._reader.quantile(distribution, *shares, window=window)

    @cached_property
    def _reader(self) -> "Reader":
        from countless.client.reader import Reader  # a program that only counts need not import it

        return Reader(self._endpoint.base, self._token)

    def watch(
        self,
        counter: str,
        *,
        over: int,
        possibly: "Callback | None" = None,
        certainly: "Callback | None" = None,
        token: str | None = None,
    ) -> "Watch":
        """Call back when the total of all sites may have passed a threshold, and then when it certainly has.

        Each function is called once, in this order, from a thread of the watch, with the answer. If the client's token
        has not the scope read, pass one that has. A forked child does not inherit the watch.
        """
        from countless.client.api import ApiClient  # a program that only counts need not import it
        from countless.client.watch import Watch

        watch = Watch(ApiClient(self._endpoint.base, token or self._token), counter, over, possibly, certainly)
        if not self._disabled:
            self._watches.add(watch)
            watch.start()
        return watch

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until all reports that were due so far are on the coordinator's disk; False if that took too long.

        Raises CounterRefused if the coordinator does not count a counter of this program, for instance because there
        are too many.

        Not every event is reported: the site's trigger decides when, and the bounds of the answer cover the rest.
        """
        with self._lock:
            if self._disabled or self._thread is None:
                return True
            loop = self._loop
            number = loop.request_ack()
            loop.waiters += 1
            try:
                self._changed.wait_for(lambda: loop.acked >= number or self._thread is None, timeout)
            finally:
                loop.waiters -= 1
            self._require_accepted()
            return loop.acked >= number

    def close(self, timeout: float = 5.0) -> bool:
        """Deliver the exact counts and disconnect; False if they were not delivered in time.

        What was not reported is lost then; with a `state_dir` it stays there for the next process. Raises
        CounterRefused, after all that, if the coordinator does not count a counter of this program.
        """
        forks.unregister(self)
        for watch in list(self._watches):
            watch.close()
        deadline = monotonic() + timeout
        with self._lock:
            thread = self._thread
            self._leave()
        if thread is not None:
            thread.join(timeout)
        with self._lock:
            self._loop.stop()
            unsent = any(counter.count for counter in self._local_counters.values())
            unsent = unsent or not all(budget.settled for budget in self._budgets.values())
            unsent = unsent or any(family.active for family in self._families.values())
            delivered = self._loop.delivered or not unsent
        if self._durable is not None:
            self._durable.close(delivered, deadline - monotonic())
        if not delivered:
            self._require_accepted()
        return delivered or self._disabled

    def _require_accepted(self) -> None:
        with self._lock:
            rejected = self._loop.rejected
        if rejected:
            raise CounterRefused(rejected)

    def debug_state(self) -> dict[str, int]:
        """For tests: what each counter of this process has counted, by its full name."""
        with self._lock:
            return {name: counter.count for name, counter in self._local_counters.items()}

    # With the lock held

    def _leave(self) -> None:
        """Nothing more is counted; the final counts are due."""
        self._closing = True
        for windows in self._windows.values():
            windows.close()
        for counter in self._local_counters.values():
            if counter.open:
                counter.close()
        for budget in self._budgets.values():
            budget.end()
        for family in self._families.values():
            family.close()
        if self._thread is not None:
            self._loop.leave()

    def _local_counter(self, name: str) -> LocalCounter:
        with self._lock:
            if name not in self._local_counters:
                site = Site(name, self._site_id, SystemRandom(), trigger=_DISABLED_TRIGGER if self._disabled else None)
                make = LocalCounter if self._durable is None else self._durable.counter
                self._local_counters.setdefault(name, make(site, self._lock, self._deliver))  # a handler may have come
                self._loop.add_counter(name)
            return self._local_counters[name]

    def _local_windows(self, calendar: Calendar, series: str) -> LocalWindows:
        validate_name(window_name(series, calendar, calendar.period_at(self._wall_clock())))
        with self._lock:
            windows = self._windows.get(series)
            if not isinstance(windows, LocalWindows):
                windows = self._windows[series] = LocalWindows(
                    series,
                    calendar,
                    spread_of(self._site_id, series),
                    self._lock,
                    self._wall_clock,
                    self._local_counter,
                    self._remove_counter,
                )
                self._loop.add_windows(series)
            return windows

    def _remove_counter(self, name: str) -> None:
        """A window is finished, and its count delivered."""
        del self._local_counters[name]
        if self._durable is not None:
            self._durable.remove_counter(name)

    def _deliver(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        if self._thread is None and not self._closing:
            self._start()
        self._loop.queue(site.counter, messages)

    def _deliver_family(self, name: str, messages: tuple[FamilyMessage, ...]) -> None:
        if self._disabled:
            return
        if self._thread is None and not self._closing:
            self._start()
        self._loop.queue_family(name, messages)

    def _send_of_budget(self, budget: str, items: Sequence[Ask | BudgetLeave]) -> None:
        if self._thread is None and not self._closing:
            self._start()
        self._loop.queue_budget(budget, items)

    def _connected_for(self, budget: str) -> bool:
        return self._loop.connected_for(budget)

    def _contact_of(self, budget: str) -> float:
        return self._loop.contact_of(budget)

    def _count_waiter(self, number: int) -> None:
        self._loop.waiters += number

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

    # Around a fork

    def _before_fork(self) -> None:
        """Take the lock, so that no other thread is changing a count while the process is copied."""
        self._lock.acquire()

    def _holds_lock(self) -> bool:
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]  # of every RLock, and used by Condition

    def _after_fork_parent(self) -> None:
        self._lock.release()

    def _after_fork_child(self) -> None:
        """Continue as a new incarnation that has counted nothing. The connection belongs to the parent."""
        if self._thread is not None:
            self._loop.abandon()
        closing = self._closing
        self._new_incarnation()
        self._closing = closing
        if not closing:
            for name in [name for name in self._local_counters if parse_window(name)]:
                window = self._local_counters.pop(name)
                if window.open:
                    window.close()
            if self._durable is not None:
                self._durable.after_fork(self._site_id, self._local_counters)
            for counter in self._local_counters.values():
                counter.after_fork(self._site_id)
            for windows in self._windows.values():
                windows.reset(spread_of(self._site_id, windows.series))
            for budget in self._budgets.values():
                budget.after_fork(self._site_id)
            for name in [name for name in self._families if parse_window(name)]:
                self._families.pop(name).close()
            for name, family in self._families.items():
                family.after_fork(None if self._durable is None else self._durable.family(name, family.rule))
        self._lock.release()

    # The thread

    def _run(self) -> None:
        self._loop.run()
        with self._lock:
            self._thread = None
            self._changed.notify_all()

    def _on_status(self, error: str | None) -> None:
        if error is not None and error != self._last_error:
            log.warning("%s; counting continues, and the counts are delivered later", error)
        self._last_error = error
        if error is None:
            with self._lock:
                self._changed.notify_all()

    @contextmanager
    def _renew_incarnation(self, site_id: SiteId, shard: int) -> Iterator[None]:
        with self._durable.new_incarnation(site_id.incarnation, shard) if self._durable else nullcontext():
            yield
        self._site_id = site_id


def _calendar(per: str | None, tz: str, anchor: int | None) -> Calendar | None:
    require_calendar(per, tz, anchor, "a counter without windows (per)")
    return None if per is None else calendar_of(per, tz, anchor)


def _require_same_windows(name: str, fields: CalendarFields, first_fields: CalendarFields) -> None:
    calendar, first = _calendar(*fields), _calendar(*first_fields)
    for field, default in {"per": None, "tz": "UTC", "anchor": None}.items():
        value, allowed = getattr(calendar, field, default), getattr(first, field, default)
        if value != allowed:
            raise InvalidParameter(field, value, f"{allowed!r}, as when this program first used the counter {name!r}")
