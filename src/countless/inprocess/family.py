"""`Family`: the counts of many labels over in-process sites, each to within a share of the total of all.

The sites and the coordinator are those of `countless.core.family`; only the transport is missing.
"""

from collections.abc import Callable, Iterable
from time import time

from countless.core.answer import State
from countless.core.calendar import Calendar, Per, require_calendar
from countless.core.family.answer import LabelCount, Top
from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.messages import OVERFLOW
from countless.core.family.rule import CertainSteps
from countless.core.family.site import LABEL_CAP, FamilySite, require_label
from countless.core.messages import SiteId, SiteName
from countless.core.parameters import require_integer
from countless.errors import InvalidParameter
from countless.inprocess.windows import FamilyWindows
from countless.inprocess.world import Roster, Traffic, fleet_of


class Family:
    """Counts of labels over all sites, to within `epsilon` of the total of all labels.

    >>> family = Family(sites=10, epsilon=0.05)
    >>> for i in range(100_000):
    ...     family.site(i % 10).add("alice" if i % 4 else f"guest-{i}")
    >>> alice = family.answer("alice")
    >>> alice.lower <= 75_000 <= alice.upper, alice.upper - alice.lower < 5_000
    (True, True)
    >>> [each.label for each in family.top(share=0.1).labels]
    ['alice']
    >>> family.messages.total < 5_000
    True

    With windows, answers are of the window `now`, or of the `last` one, which is exact.

    >>> i = 0
    >>> family = Family(sites=2, per="hour", clock=lambda: 1_763_002_800 + i)
    >>> for i in range(5_000):
    ...     family.site(i % 2).add("alice" if i % 5 else "bob")
    >>> [(each.label, each.estimate) for each in family.top(0.1, window="last").labels]
    [('alice', 2880), ('bob', 720)]

    Args:
        sites: As for `Tracker`.
        epsilon: The error of a label that is allowed, as a share of the total.
        name: Its name.
        label_cap: How many labels a site counts by name; events of further ones are in `overflow` and in the total.
        per, tz, anchor, clock: Windows, as for `Tracker`.
    """

    def __init__(
        self,
        sites: int | Iterable[SiteName] = 10,
        epsilon: float = 0.01,
        *,
        name: str = "family",
        label_cap: int = LABEL_CAP,
        per: Per | None = None,
        tz: str = "UTC",
        anchor: int | None = None,
        clock: Callable[[], float] = time,
    ) -> None:
        fleet = fleet_of(sites)
        require_integer("label_cap", label_cap, 0)
        require_calendar(per, tz, anchor, "a family without windows (per)")
        if not callable(clock):
            raise InvalidParameter("clock", clock, "a function that returns seconds since 1970")
        calendar = None if per is None else Calendar(per, tz, anchor)
        if not isinstance(name, str):
            raise InvalidParameter("name", name, "a string")
        self.name = name
        self._label_cap = label_cap
        self._epsilon = epsilon
        self._windows = FamilyWindows(fleet, self._new_coordinator, self._new_site, calendar, clock)
        self._lock = self._windows.lock
        self._sites: Roster[LabelSite] = Roster()
        for site_id in fleet:
            self._sites.add(site_id, LabelSite(self._windows, site_id))

    def _new_site(self, site_id: SiteId) -> FamilySite:
        return FamilySite(self.name, cap=self._label_cap)

    def _new_coordinator(self, fleet: list[SiteId]) -> FamilyCoordinator:
        return FamilyCoordinator(self.name, CertainSteps(self._epsilon), fleet=fleet)

    def __repr__(self) -> str:
        return f"<Family {self.name!r}: {self._windows.named('now')!r}; {self.messages.total:,} messages>"

    @property
    def sites(self) -> tuple[SiteName, ...]:
        """The names of the present sites."""
        with self._lock:
            return tuple(self._sites)

    @property
    def state(self) -> State:
        with self._lock:
            return self._windows.named("now").state

    @property
    def messages(self) -> Traffic:
        """The messages sent so far."""
        with self._lock:
            return self._windows.traffic

    def site(self, name: SiteName) -> "LabelSite":
        """The site of this name: call its `add` for every event."""
        return self._sites.find(name)

    def add_site(self, name: SiteName | None = None) -> "LabelSite":
        """Add a site, at any time. Without a name it gets the next free number."""
        with self._lock:
            site_id = self._sites.next_id(name)
            self._windows.present.join(site_id)
            return self._sites.add(site_id, LabelSite(self._windows, site_id))

    def remove_site(self, name: SiteName) -> int:
        """Remove a site and return how many events it has counted, in this window. They stay in the counts."""
        with self._lock:
            return self._windows.present.leave(self._sites.remove(name))

    def answer(self, label: str, window: str = "now") -> LabelCount:
        """The count of one label, with bounds. The upper one includes the overflow."""
        require_label(label)
        with self._lock:
            return self._windows.named(window).answer(label)

    @property
    def overflow(self) -> LabelCount:
        """The events of labels beyond a cap."""
        with self._lock:
            return self._windows.named("now").answer(OVERFLOW)

    def total(self, window: str = "now") -> LabelCount:
        """The count of all labels together; its `label` is None."""
        with self._lock:
            return self._windows.named(window).total()

    def top(self, share: float = 0.02, window: str = "now") -> Top:
        """The labels that may have at least this share of the total, the largest first.

        With `deterministic` none that has it is missing, if its events are not in the overflow and `share` is at least
        epsilon. With `lattice` that is as likely as its intervals are right.
        """
        with self._lock:
            return self._windows.named(window).top(share)


class LabelSite:
    """One site of a `Family`."""

    __slots__ = ("_site_id", "_windows")

    def __init__(self, windows: FamilyWindows, site_id: SiteId) -> None:
        self._windows = windows
        self._site_id = site_id

    def __repr__(self) -> str:
        return f"<LabelSite {self._site_id.site!r}>"

    def add(self, label: str, n: int = 1) -> None:
        """Count `n` events of a label."""
        with self._windows.lock:
            self._windows.present.add(self._site_id, label, n)

    inc = add
