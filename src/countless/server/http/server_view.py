"""What the page, the metrics and the probes read of a coordinator.

`SiteServer` has all of this for a single coordinator; a cluster member offers its shards merged into one.
"""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping
from typing import Protocol

from countless.core.messages import SiteId
from countless.server.sessions.counter import Counter
from countless.server.sessions.overflow import Families
from countless.server.sessions.session_table import Life
from countless.server.settings import Settings


class Sessions(Protocol):
    def __iter__(self) -> Iterator[Life]: ...

    def get(self, site_id: SiteId) -> Life | None: ...


class ServerView(Protocol):
    @property
    def settings(self) -> Settings: ...

    @property
    def counters(self) -> Mapping[str, Counter]: ...

    @property
    def lives(self) -> Sessions: ...

    @property
    def families(self) -> Families: ...

    @property
    def frame_bytes(self) -> Tally[str]: ...

    @property
    def dropped(self) -> Tally[str]:
        """Refused requests, connections and counters by reason; handlers add to it."""

    @property
    def draining(self) -> bool: ...

    @property
    def failing(self) -> str | None:
        """Why nothing can be saved at present; None if saving works."""

    def now(self) -> float:
        """Seconds of the clock that `Life.last_heard` uses."""

    def drain(self) -> None:
        """Accept no new connection and end every event stream."""
