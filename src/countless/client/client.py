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
from functools import cached_property, partial
from pathlib import Path
from threading import TIMEOUT_MAX
from time import monotonic
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from countless.client import forks, goodbye
from countless.client.budgets.client_budget import ClientBudget
from countless.client.counter import LABEL_CAP, Counter
from countless.client.expected_rules import RATE, ExpectedRules
from countless.client.families.local_family import (
    ClientDistribution,
    LabelOfFamily,
    LocalFamily,
    LocalFamilyWindows,
)
from countless.client.local_counter import LocalCounter
from countless.client.local_state import LocalState
from countless.client.surroundings import REAL, ClientSurroundings
from countless.client.transport.endpoint import Endpoint, token_for, url_or_default
from countless.core.calendar import Calendar, Per, calendar_of, require_calendar
from countless.core.family.rule import LABELS, VALUES, FamilyRule
from countless.core.family.site import LABEL_CAP as MAX_LABEL_CAP
from countless.core.parameters import require_bool, require_integer, require_seconds
from countless.errors import CounterRefused, InvalidParameter
from countless.wire.keys import (
    COUNTER,
    FAMILY,
    NAME_RULE,
    Key,
    is_plain,
    validate_budget,
    validate_counter,
    validate_name,
)
from countless.wire.nats_url import SCHEMES as NATS_SCHEMES
from countless.wire.nats_url import Broker

if TYPE_CHECKING:
    from countless.client.answers import Quantiles, Rate, RollingCount, TopCounts, TotalCount, WindowCount
    from countless.client.budgets.group import BudgetGroup
    from countless.client.reader import Reader
    from countless.client.watch import Callback, Watch

CalendarFields = tuple[str | None, str, int | None]  # per, tz, anchor
_KINDS = {LABELS: "family", VALUES: "distribution"}
log = logging.getLogger("countless")
FAMILY_LABEL_CAP = 10_000  # of a family in one process, unless the program says otherwise


def connect(
    url: str | None = None,
    token: str | None = None,
    site: str | None = None,
    state_dir: str | os.PathLike[str] | None = None,
) -> "Client":
    """Return a client of a coordinator. It connects in the background when the program first counts something.

    Arguments that are left out come from the environment. On the coordinator's own machine the client uses the
    operator's token if it may read it. With `COUNTLESS_DISABLE=1` nothing is ever sent or kept.

    A program without a handler for SIGTERM gets one that closes the client first.

    Args:
        url: Address of the coordinator, or `nats://...` for coordinators behind a broker. `COUNTLESS_URL`, or else
            `http://127.0.0.1:2686`.
        token: Bearer token. `COUNTLESS_TOKEN`, or the file `COUNTLESS_TOKEN_FILE`, read for each connection.
        site: The name this process counts under; processes may share one. `COUNTLESS_SITE`, or else the host's name.
        state_dir: Directory for counts that survive `kill -9`: the next process that uses it delivers them. Processes
            may share it; it belongs to one coordinator or broker. `COUNTLESS_CLIENT_STATE_DIR`, or else none.
    """
    environment = os.environ
    for parameter, given in (("url", url), ("site", site), ("state_dir", state_dir)):
        if given == "":  # as from a variable that is not set where the program runs
            raise InvalidParameter(parameter, given, "not empty; None stands for the environment or the default")
    url = url_or_default(url)
    if not isinstance(url, str):
        raise InvalidParameter("url", url, "an address such as http://127.0.0.1:2686 or nats://127.0.0.1:4222")
    endpoint = Broker.parse(url) if url.startswith(NATS_SCHEMES) else Endpoint.parse(url)
    token = token or environment.get("COUNTLESS_TOKEN")
    if isinstance(endpoint, Endpoint):
        token_for(endpoint, token)  # raises here if it cannot be used
    directory = state_dir or environment.get("COUNTLESS_CLIENT_STATE_DIR")
    if directory and not isinstance(directory, str | os.PathLike):
        raise InvalidParameter("state_dir", directory, "the path of a directory")
    disabled = _is_disabled(environment.get("COUNTLESS_DISABLE", ""))
    client = Client(
        endpoint,
        token,
        validate_name(site or environment.get("COUNTLESS_SITE") or socket.gethostname(), "site"),
        Path(directory) if directory else None,
        disabled=disabled,
    )
    if disabled:
        log.warning("nothing is counted or limited: COUNTLESS_DISABLE=1")
    else:
        goodbye.install()
    return client


def _is_disabled(text: str) -> bool:
    if text not in ("", "0", "1"):
        raise InvalidParameter("COUNTLESS_DISABLE", text, "1, or 0 for a client that counts")
    return text == "1"


class Client(LocalState):
    """The counters and budgets of one process, and its connection to the coordinator. `connect` makes one."""

    def __init__(
        self,
        endpoint: Endpoint | Broker,
        token: str | None,
        site: str,
        state_dir: Path | None = None,
        *,
        disabled: bool = False,
        surroundings: ClientSurroundings = REAL,
    ) -> None:
        super().__init__(endpoint, token, site, state_dir, disabled, surroundings)
        self._counters: dict[str, tuple[Counter, CalendarFields]] = {}
        self._used_families: dict[str, tuple[LocalFamily | LocalFamilyWindows, CalendarFields]] = {}  # by name
        self._expected_rules = ExpectedRules()
        self._client_budgets: WeakValueDictionary[str, ClientBudget] = WeakValueDictionary()
        forks.register(self, close_at_exit=not disabled)

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
        """The name this process counts under."""
        return self._site

    @property
    def last_error(self) -> str | None:
        """The reason why the client is not connected. None while it is, and before it needed to be."""
        return self._last_error

    @property
    def connected(self) -> bool:
        """True while connected to a coordinator. The client connects when it first counts something."""
        with self._lock:  # a child that does not know of its fork has the parent's session
            return self._loop.connected

    @property
    def expired_holds(self) -> int:
        """Holds of budgets that expired before they were settled."""
        return self._expired_holds

    def counter(
        self,
        name: str,
        *,
        per: Per | None = None,
        tz: str = "UTC",
        anchor: int | None = None,
        label_cap: int | None = None,
        family: bool = False,
        epsilon: float | None = None,
    ) -> Counter:
        """Return the counter of this name: the same object every time.

        Args:
            name: Its name, up to 500 characters.
            per: Length of its windows. An event belongs to the window this process's clock shows when it is counted.
            tz: Time zone of the windows.
            anchor: Where windows begin: second of a minute, minute of an hour, hour of a day or day of a month. None:
                the first.
            label_cap: How many combinations of labels are counted by name; further ones share a series. None: 2,000,
                or 10,000 for a family.
            family: Count thousands of labels for the messages of one counter, each to within `epsilon` of the total
                (of the window, with `per`).
            epsilon: For a family. None: 0.01.
        """
        fields = per, tz, anchor
        if not isinstance(name, str):
            raise InvalidParameter("counter", name, NAME_RULE)
        require_bool("family", family)
        if family:
            rule = FamilyRule(LABELS, 0.01 if epsilon is None else epsilon)
            return self._family_counter(name, rule, fields, label_cap)
        if epsilon is not None:
            message = "epsilon needs family=True; a counter has alpha, which is set at the coordinator"
            raise InvalidParameter("epsilon", epsilon, message=message)
        if name in self._used_families:
            raise InvalidParameter("family", family, f"True, as when this program first used {name!r}")
        label_cap = LABEL_CAP if label_cap is None else label_cap
        counter, first_fields = self._counters.get(name) or self._new_counter(name, fields, label_cap)
        if fields != first_fields:
            _require_same_windows(name, fields, first_fields)
        return counter

    def _new_counter(self, name: str, fields: CalendarFields, label_cap: int) -> tuple[Counter, CalendarFields]:
        validate_counter(name)
        require_integer("label_cap", label_cap, 0)
        if not is_plain(name):
            raise InvalidParameter("counter", name, "a name that does not end like a window's; use `per` instead")
        calendar = _calendar(*fields)
        new = self._plain_counter if calendar is None or self._disabled else partial(self._local_windows, calendar)
        with self._lock:
            return self._counters.setdefault(name, (Counter(name, new, label_cap), fields))

    def _plain_counter(self, series: str) -> LocalCounter:
        return self._local_counter(Key(COUNTER, series))

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
        per: Per | None = None,
        tz: str = "UTC",
        anchor: int | None = None,
    ) -> ClientDistribution:
        """Return the distribution of this name: values that processes observe, such as latencies, for their quantiles.

        Args:
            name: Its name.
            epsilon: How far the rank of a quantile may be off, as a share of all observations.
            accuracy: How far its value may be off, relatively.
            per, tz, anchor: Windows, as for `counter`.
        """
        rule, fields = FamilyRule(VALUES, epsilon, accuracy), (per, tz, anchor)
        with self._lock:
            return ClientDistribution(self._family(name, rule, MAX_LABEL_CAP, fields))

    def _family(
        self, name: str, rule: FamilyRule, cap: int, fields: CalendarFields
    ) -> LocalFamily | LocalFamilyWindows:
        if name not in self._used_families:
            validate_counter(name)
            if name in self._counters:
                message = f"this program counts {name!r} as a counter already: a {_KINDS[rule.kind]} needs another name"
                raise InvalidParameter("counter", name, message=message)
            if not is_plain(name):
                raise InvalidParameter("counter", name, "a name that does not end like that of a window")
            calendar = _calendar(*fields)
            family = (
                self._local_family(Key(FAMILY, name), rule, cap)
                if calendar is None or self._disabled
                else self._local_family_windows(name, rule, cap, calendar)
            )
            self._used_families[name] = family, fields
        found, first_fields = self._used_families[name]
        if fields != first_fields:
            _require_same_windows(name, fields, first_fields)
        if (found.rule, found.cap) != (rule, cap):
            first = found.rule
            rest = f"accuracy={first.accuracy:g}" if first.kind == VALUES else f"label_cap={found.cap}"
            message = (
                f"this program first used {name!r} as a {_KINDS[first.kind]} with epsilon={first.epsilon:g}, {rest}: "
                "use the same again"
            )
            raise InvalidParameter("counter", name, message=message)
        return found

    def budget(self, name: str) -> ClientBudget:
        """Return the budget of this name: the same object every time. An operator creates it at the coordinator.

        The client forgets budgets that the program no longer uses, once their spending is handed in. With
        `COUNTLESS_DISABLE=1` every request is allowed.
        """
        if not isinstance(name, str):
            raise InvalidParameter("budget", name, NAME_RULE)
        with self._lock:
            budget = self._client_budgets.get(name)
            if budget is None:
                budget = self._client_budgets[name] = ClientBudget(self._budget_part(name))
            return budget

    def expect(self, budget: str, options: str = RATE) -> None:
        """Let `ready` ask for this budget, or for a rule such as `keys/*`. Limits do so for theirs.

        Args:
            budget: The name, or the rule.
            options: Of the command that `ready` logs if it is missing.
        """
        self._expected_rules.add(validate_budget(budget), options)

    def ready(self, timeout: float = 5.0) -> bool:
        """Return whether the coordinator answers, and has a rule for each limit of this client. For health checks.

        A rule that is missing is logged once, with the command that creates it.
        """
        require_seconds("timeout", timeout)
        if self._disabled:
            return True
        deadline = monotonic() + timeout
        if not self._expected_rules.check(self.budget, timeout):
            return False
        try:
            return self.flush(max(0.0, deadline - monotonic()))
        except CounterRefused:  # it answers
            return True

    def together(self, *budgets: ClientBudget) -> "BudgetGroup":
        """Spend from several budgets at once (a key, its team, its organisation): all admit, or none is charged.

        The result has the calls of a budget: `take`, `reserve`, `acquire` and their async twins.
        """
        from countless.client.budgets.group import BudgetGroup  # most programs never need it

        known = all(isinstance(each, ClientBudget) and self._client_budgets.get(each.name) is each for each in budgets)
        if not budgets or not known or len(set(budgets)) < len(budgets):
            raise InvalidParameter("budgets", budgets, "different budgets of this client, at least one")
        return BudgetGroup(tuple(self._budgets[each.name] for each in budgets), self._lock)

    # Reading. Each call is a request to the coordinator, by HTTP: with a broker, use a `Reader` with its address. Where
    # tokens are used, that of the client needs the scope read.

    def answer(self, counter: str) -> "TotalCount":
        """Read the total over all sites."""
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
        """Call back when the total may have passed a threshold, and again when its lower bound has.

        Each function is called once, in this order, with a `TotalCount`, from a thread of the watch. A forked child
        does not inherit the watch.

        Args:
            counter: Its name; it need not exist yet.
            over: The threshold.
            possibly: Called when the upper bound is over it.
            certainly: Called when the lower bound is: then the total is over it, with probability 1 - delta.
            token: A token of scope read, if the client's own does not have it.
        """
        from countless.client.api import ApiClient  # a program that only counts need not import it
        from countless.client.watch import Watch

        watch = Watch(ApiClient(self._endpoint.base, token or self._token), counter, over, possibly, certainly)
        if not self._disabled:
            with self._lock:
                self._watches.add(watch)
            watch._start()
        return watch

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until every report due so far is on the coordinator's disk. Return False on timeout.

        Not every event is due: the site's trigger decides, and the bounds of the answer cover the rest. Raises
        `CounterRefused` if the coordinator refuses a counter of this program, for example because there are too many.
        """
        require_seconds("timeout", timeout)
        with self._lock:
            self._start_postponed()
            if self._disabled or self._thread is None:
                return True
            loop = self._loop
            number = loop.request_ack()
            loop.waiters += 1
            try:
                self._changed.wait_for(lambda: loop.acked >= number or self._thread is None, min(timeout, TIMEOUT_MAX))
            finally:
                loop.waiters -= 1
            self._require_accepted()
            return loop.acked >= number

    def close(self, timeout: float = 5.0) -> bool:
        """Deliver the exact counts and disconnect. Return False on timeout.

        Counts that were not delivered are lost, or stay in the `state_dir` for the next process. Counts that killed
        processes left there are delivered, too. Finally raises `CounterRefused`, as `flush` does.
        """
        require_seconds("timeout", timeout)
        with self._lock:
            watches = list(self._watches)
        forks.unregister(self)
        for watch in watches:
            watch.close()
        deadline = monotonic() + timeout
        with self._lock:
            self._start_postponed()
            thread = self._thread
            self._leave()
        if thread is not None:
            thread.join(min(timeout, TIMEOUT_MAX))
        with self._lock:
            self._loop.stop()
            unsent = any(counter.count for counter in self._local_counters.values())
            unsent = unsent or not all(budget.settled for budget in self._budgets.values())
            unsent = unsent or any(local.active for local in self._locals.values())
            delivered = self._loop.delivered or not unsent
        recovered = self._durable is None or self._durable.close(delivered, deadline - monotonic())
        if not delivered:
            self._require_accepted()
        return (delivered and recovered) or self._disabled

    def _require_accepted(self) -> None:
        with self._lock:
            rejected = self._loop.rejected
        if rejected:
            raise CounterRefused(rejected)


def _calendar(per: str | None, tz: str, anchor: int | None) -> Calendar | None:
    require_calendar(per, tz, anchor, "a counter without windows (per)")
    return None if per is None else calendar_of(per, tz, anchor)


def _require_same_windows(name: str, fields: CalendarFields, first_fields: CalendarFields) -> None:
    calendar, first = _calendar(*fields), _calendar(*first_fields)
    for field, default in {"per": None, "tz": "UTC", "anchor": None}.items():
        value, allowed = getattr(calendar, field, default), getattr(first, field, default)
        if value != allowed:
            raise InvalidParameter(field, value, f"{allowed!r}, as when this program first used the counter {name!r}")
