"""The part of a coordinator that the page, the metrics and the probes read.

`SiteServer` has all of this for a single coordinator; a cluster member offers its shards merged into one.
"""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from countless.core.messages import SiteId
from countless.server.connection import RefusedSites
from countless.server.sessions.readable import Readable
from countless.server.sessions.session_table import Session
from countless.server.settings import Settings
from countless.server.site_server import SiteServer


class Sessions(Protocol):
    def __iter__(self) -> Iterator[Session]: ...

    def get(self, site_id: SiteId) -> Session | None: ...


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
    def sessions(self) -> Sessions: ...

    @property
    def servers(self) -> Sequence[SiteServer]:
        """The server, or one for each shard: the metrics add them up."""

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

    def now(self) -> float:
        """Seconds of the clock that `Session.last_seen` uses."""

    def drain(self) -> None:
        """Accept no new connection and end every event stream."""
