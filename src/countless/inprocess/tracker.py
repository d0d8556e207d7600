"""`Tracker`: sites, coordinator and the network between them in one process, safe to use from many threads.

The site and the coordinator are those of production; only the transport is missing.
"""

from collections.abc import Callable, Iterable
from functools import partial
from threading import RLock
from time import time
from typing import Any

from countless.client.local_counter import LocalCounter
from countless.core.answer import Answer
from countless.core.calendar import Per, require_calendar
from countless.core.coordinator import DebugState
from countless.core.estimator import Scheme
from countless.core.messages import SiteName
from countless.core.parameters import require_alpha, require_probability
from countless.core.periods.spans import SpanCount, SpanRate
from countless.core.periods.window import TotalAnswer, Window, WindowRule, total_answer
from countless.errors import InvalidParameter
from countless.inprocess.windows import TrackedWindows, WindowedSite
from countless.inprocess.world import Meter, Roster, TrackedTotal, Traffic, fleet_of
from countless.randomness import SeededRandom, SystemRandom
from countless.schemes.registry import AdversaryName, SchemeName, require_adversary, scheme_named
from countless.wire.keys import COUNTER, Key, calendar_text


class Tracker:
    """A global count over in-process sites, within 1 ± alpha at every moment with probability 1 - delta.

    >>> tracker = Tracker(sites=100, alpha=0.05, seed=7)
    >>> for i in range(200_000):
    ...     tracker.site(i % 100).add()
    >>> tracker.answer.lower <= tracker.total <= tracker.answer.upper
    True
    >>> tracker.messages.total < 20_000
    True

    With windows, the count n of the open one is known to within alpha * max(n, floor). Closed ones are exact.

    >>> tracker = Tracker(sites=10, alpha=0.05, per="hour", clock=lambda: 1_763_002_800 + i / 10)
    >>> for i in range(50_000):
    ...     tracker.site(i % 10).add()
    >>> tracker.window("last").estimate, tracker.window("last").exact
    (36000, True)
    >>> this_hour, last_quarter = tracker.window("now"), tracker.rolling("15m")
    >>> this_hour.lower <= 14_000 <= this_hour.upper, last_quarter.lower <= 9_000 <= last_quarter.upper
    (True, True)

    Args:
        sites: How many (named 0, 1, 2, ...), or their names.
        alpha: The relative error that is allowed.
        delta: The probability that the bounds are ever wrong.
        scheme: The name of a scheme, or a `Scheme`.
        adversary: What the traffic may react to, for `auto`: nothing, the answers, or messages, too.
        seed: Makes every run the same. None: random numbers of the operating system.
        counter: Its name.
        count_bytes: Encode every message, to add up `messages.bytes`.
        per: Length of the windows. An event belongs to the window that `clock` shows.
        tz: Time zone of the windows.
        anchor: Where windows begin, as in `Client.counter`.
        floor: See above. None: a third of the window before.
        keep: How many closed windows are kept. None: 1,440 minutes, 744 hours, 400 days or 60 months.
        clock: Returns seconds since 1970.
    """

    def __init__(
        self,
        sites: int | Iterable[SiteName] = 1000,
        alpha: float = 0.01,
        delta: float = 0.05,
        scheme: SchemeName | Scheme = "auto",
        adversary: AdversaryName = "adaptive",
        seed: int | None = None,
        *,
        counter: str = "total",
        count_bytes: bool = False,
        per: Per | None = None,
        tz: str = "UTC",
        anchor: int | None = None,
        floor: int | None = None,
        keep: int | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        fleet = fleet_of(sites)
        require_alpha(alpha)
        require_probability("delta", delta)
        require_adversary(adversary)
        if not isinstance(counter, str):
            raise InvalidParameter("counter", counter, "a string")
        rule = _window_rule(per, tz, anchor, floor, keep, clock)
        self._lock = RLock()
        self._sites: Roster[CountingSite] = Roster()
        self._listeners: list[Callable[[Any], None]] = []
        self._announced: float = 0  # the last estimate given to the listeners
        self._announcing = False
        rng: SystemRandom | SeededRandom = SystemRandom() if seed is None else SeededRandom(seed)
        alpha, delta = float(alpha), float(delta)
        scheme = scheme if isinstance(scheme, Scheme) else scheme_named(scheme, adversary)
        new_total = partial(
            TrackedTotal,
            scheme=scheme,
            lock=self._lock,
            meter=Meter(count_bytes=count_bytes),
            listeners=self._listeners,
            changed=self._announce,
            alpha=alpha,
            delta=delta,
        )
        self._count: TrackedTotal | TrackedWindows
        if rule is None:
            self._count = new_total(counter, rng=rng, fleet=fleet)
        else:
            calendar = calendar_text(rule.calendar)

            def new_window(period: int, floor: int, expected_sites: int) -> TrackedTotal:
                name, window_rng = str(Key(COUNTER, counter, calendar, period)), rng.spawn("window", period)
                return new_total(name, rng=window_rng, floor=floor, expected_sites=expected_sites)

            answer = partial(total_answer, alpha=alpha, delta=delta, scheme=scheme.name)
            self._count = TrackedWindows(rule, clock, self._lock, new_window, self._announce, answer)
            for site_id in fleet:
                self._count.join(site_id)
        for site_id, site in self._count.sites.items():
            self._sites.add(site_id, CountingSite(site_id.site, site))

    def __repr__(self) -> str:
        answer, coordinator = self.answer, self._count.coordinator
        return (
            f"<Tracker {coordinator.counter!r} ({coordinator.scheme.name}, alpha {answer.alpha}, "
            f"delta {answer.delta}): {answer}; {self.messages.total:,} messages>"
        )

    @property
    def answer(self) -> Answer | TotalAnswer:
        """The published total; with windows, over all of them."""
        with self._lock:
            return self._count.answer

    @property
    def total(self) -> int:
        """The exact total, for tests and demonstrations: a distributed coordinator does not have it."""
        with self._lock:
            return self._count.total

    @property
    def messages(self) -> Traffic:
        """The messages sent so far."""
        with self._lock:
            return self._count.traffic

    @property
    def plan(self) -> object:
        """The numbers of the current round, with the reason for each; the type depends on the scheme."""
        with self._lock:
            return self._count.coordinator.plan

    @property
    def sites(self) -> tuple[SiteName, ...]:
        """The names of the sites."""
        with self._lock:
            return tuple(self._sites)

    def site(self, name: SiteName) -> "CountingSite":
        """Return the site of this name: call its `add` for every event."""
        try:
            return self._sites[name]  # inline: calling `find` always makes site(name).add() 17 % slower
        except (KeyError, TypeError):
            return self._sites.find(name)

    def add_site(self, name: SiteName | None = None) -> "CountingSite":
        """Add a site, at any time. Without a name it gets the next free number."""
        with self._lock:
            site_id = self._sites.next_id(name)
            site = self._sites.add(site_id, CountingSite(site_id.site, self._count.join(site_id)))
            self._announce()
            return site

    def remove_site(self, name: SiteName) -> int:
        """Remove a site and return its exact last count, which stays in the total."""
        with self._lock:
            count = self._count.leave(self._sites.remove(name))
            self._announce()
            return count

    # Windows

    @property
    def windows(self) -> list[Window]:
        """The current window, and all kept windows that have counted something; oldest first."""
        with self._lock:
            return self._windows("windows", None).windows

    def window(self, which: str = "now") -> SpanCount:
        """Return the count of a window, named as in `Reader.window`, by the clocks of the time zone."""
        with self._lock:
            return self._windows("window", which).window(which)

    def rolling(self, over: str | float) -> SpanCount:
        """Return the count of the last `15m`, `1h`, `7d` ..., or of a number of seconds.

        Its bounds hold if the answers' bounds do.
        """
        with self._lock:
            return self._windows("over", over).rolling(over)

    def rate(self, over: str | float = "5m") -> SpanRate:
        """Return the events per second, on average over a time as in `rolling`."""
        return self.rolling(over).rate

    def _windows(self, parameter: str, value: object) -> TrackedWindows:
        if isinstance(self._count, TrackedWindows):
            return self._count
        message = 'this tracker has no windows; create one that has some, such as Tracker(per="hour")'
        raise InvalidParameter(parameter, value, message=message)

    def on_change(self, listener: Callable[[Answer], None]) -> Callable[[Answer], None]:
        """Call `listener` with the answer whenever the published estimate moves. Usable as a decorator.

        A listener may add events. It is called in the thread that caused the change.
        """
        if not callable(listener):
            raise InvalidParameter("listener", listener, "a function of the answer")
        with self._lock:
            self._listeners.append(listener)
        return listener

    def _announce(self) -> None:
        """Call the listeners if the estimate has moved. The lock is held."""
        if not self._listeners or self._announcing:
            return
        # A listener that adds events may move the answer again: the loop, not a nested call, announces that.
        self._announcing = True
        try:
            while self._count.estimate != self._announced:
                self._announced = self._count.estimate
                answer = self._count.answer
                for listener in tuple(self._listeners):
                    listener(answer)
        finally:
            self._announcing = False

    def _debug_state(self) -> DebugState:
        """The state of the coordinator, for tests; with windows, of the present one."""
        with self._lock:
            return self._count.coordinator.debug_state()


class CountingSite:
    """One site of a `Tracker`. With windows, an event belongs to the window that the clock shows.

    A batch, such as `add(250_000)`, counts like that many single events and takes the time of one.
    """

    __slots__ = ("_local", "_name", "add", "inc")

    def __init__(self, name: SiteName, local: LocalCounter | WindowedSite) -> None:
        self._name = name
        self._local = local
        self.add = self.inc = local.add  # the bound method itself: a call in between would double the price of an event

    def __repr__(self) -> str:
        return f"<CountingSite {self._name!r}: {self.count:,} counted>"

    @property
    def count(self) -> int:
        """The number of events it has counted."""
        return self._local.count


def _window_rule(
    per: str | None, tz: str, anchor: int | None, floor: int | None, keep: int | None, clock: Callable[[], float]
) -> WindowRule | None:
    """None: the tracker has no windows."""
    if not callable(clock):
        raise InvalidParameter("clock", clock, "a function that returns seconds since 1970")
    if per is not None:
        return WindowRule(per, tz, anchor, floor, keep)
    require_calendar(None, tz, anchor, "a tracker without windows (per)")
    for parameter, value, default in (("floor", floor, None), ("keep", keep, None), ("clock", clock, time)):
        if value is not default:
            message = f"{parameter} can't be used for a tracker without windows (per)"
            raise InvalidParameter(parameter, value, message=message)
    return None
