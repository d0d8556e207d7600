"""The part of a coordinator that the page, the metrics and the probes read.

`SiteServer` has all of this for a single coordinator; a cluster member offers its shards merged into one.
"""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from countless.core.budget.rule import BudgetRule
from countless.core.budget.state import HolderRow, Usage
from countless.core.calendar import Calendar
from countless.core.messages import SiteId
from countless.server.connection import RefusedSites
from countless.server.sessions.readable import Readable
from countless.server.sessions.session_table import Session
from countless.server.settings import Settings
from countless.server.timings import Timings


class Sessions(Protocol):
    def __iter__(self) -> Iterator[Session]: ...

    def get(self, site_id: SiteId) -> Session | None: ...


class BudgetReader(Protocol):
    """A budget in the present period."""

    @property
    def name(self) -> str: ...

    @property
    def rule(self) -> BudgetRule: ...

    @property
    def calendar(self) -> Calendar | None: ...

    @property
    def window(self) -> tuple[int, int] | None:
        """The bounds of the present period, in seconds since 1970."""

    @property
    def usage(self) -> Usage: ...

    @property
    def held(self) -> int:
        """The units that sites held when they last reported."""

    @property
    def holders(self) -> int: ...

    @property
    def holder_rows(self) -> list[HolderRow]:
        """For operators."""

    @property
    def refused_from(self) -> int | None:
        """The smallest request that a site refuses; None if none does."""

    @property
    def asks(self) -> int:
        """Requests that got in line, in all periods."""

    @property
    def recalls(self) -> int:
        """Recalls of all sites that were lent room, in all periods."""


class BudgetsView(Protocol):
    @property
    def by_name(self) -> Mapping[str, BudgetReader]: ...


class ServerView(Protocol):
    @property
    def settings(self) -> Settings: ...

    @property
    def by_name(self) -> Mapping[str, Readable]:
        """Counters, labelled series and families."""

    def parts(self, name: str) -> Sequence[Readable]:
        """The parts of which a counter is the sum: its events without labels, and its labelled series. A family is its
        own part. Empty: there is none.
        """

    @property
    def budgets(self) -> BudgetsView: ...

    @property
    def sessions(self) -> Sessions: ...

    @property
    def overflowed(self) -> Tally[str]:
        """By counter: how many labelled series were counted in the overflow series."""

    @property
    def replaced(self) -> Tally[str]:
        """See `SiteServer.replaced`."""

    @property
    def frame_bytes(self) -> dict[str, int]: ...

    @property
    def dropped(self) -> Tally[str]:
        """Refused requests, connections and counters by reason; handlers add to it."""

    @property
    def refused(self) -> RefusedSites: ...

    @property
    def draining(self) -> bool: ...

    @property
    def recovering(self) -> bool:
        """True while something is learning after a restart. It is cheap: `/readyz` needs no token."""

    @property
    def failing(self) -> str | None:
        """The reason why nothing can be saved at present; None if saving works."""

    @property
    def save_seconds(self) -> Timings:
        """The time that saves took."""

    @property
    def save_failures(self) -> int:
        """Attempts to save that failed since the process started."""

    @property
    def tombstone_bytes(self) -> int:
        """Those of the token that has caused most, since the process started."""

    @property
    def label_bytes(self) -> int:
        """Those of the token whose labels of families take most."""

    @property
    def behind_s(self) -> float:
        """The age of the answers while changes are not saved; else 0."""

    def now(self) -> float:
        """Seconds of the clock that `Session.last_seen` uses."""

    def drain(self) -> None:
        """Accept no new connection and end every event stream."""
