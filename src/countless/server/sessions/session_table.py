"""Who is there: the lives of the sites, their connections, and how long nobody has heard of them.

A *life* is one run of one site's process. Several lives of one name may be there at once - the workers of a web server
share their configuration - so a life is given up only when it has been silent and another of its name is there, or
when the operator says so. Giving up is safe even if it was a mistake: what is known of the life stays in the total, and
should it come back, it is told how much that was and begins another life with the rest.
"""

from collections.abc import Iterator
from typing import Protocol

from countless.core.messages import SiteId
from countless.wire.frames import DownItem

# A sign of life costs two frames, and says only that nothing has happened. A process that dies hangs up, which is seen
# at once; these are for the others: a machine without power, a network that is cut.
HEARTBEAT_PER_TIMEOUT = 3


class Connection(Protocol):
    """An open connection, as the host sees it."""

    last_seen: float  # the time of the last frame
    ignored_counters: set[str]  # counters whose messages are ignored until they are joined anew

    def send(self, items: list[DownItem]) -> None:
        """Queue what is to be sent."""

    def close(self, code: int, reason: str) -> None:
        """Hang up."""


class Session:
    """One life of one site."""

    __slots__ = ("awaiting_since", "connection", "left", "memberships", "seen_at", "site_id", "unreachable")

    def __init__(self, site_id: SiteId, now: float) -> None:
        self.site_id = site_id
        self.memberships: dict[str, SiteId] = {}  # by the names it uses: its address in the counter, mostly its own
        self.left: set[str] = set()  # counters it has left in good order
        self.connection: Connection | None = None
        self.seen_at = now
        self.awaiting_since: float | None = None  # since when it owes an answer
        self.unreachable = False

    @property
    def state(self) -> str:
        """In one word."""
        return "silent" if self.unreachable else "connected" if self.connection else "away"

    def last_seen(self) -> float:
        """When it last gave a sign of life."""
        return max(self.seen_at, self.connection.last_seen) if self.connection else self.seen_at

    def timed_out(self, now: float, silent_after: float) -> bool:
        """Whether a sign of life should have come. Who has hung up, or owes an answer, is given `silent_after`; who is
        connected and has nothing to say speaks every `HEARTBEAT_PER_TIMEOUT` times that, and may be late.
        """
        if self.awaiting_since is not None and now - self.awaiting_since > silent_after:
            return True
        return now - self.last_seen() > silent_after * (1 if self.connection is None else HEARTBEAT_PER_TIMEOUT + 2)


class SessionTable:
    """All lives that count, by address and by name."""

    def __init__(self) -> None:
        self._all: dict[SiteId, Session] = {}
        self._named: dict[str | int, set[SiteId]] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, site_id: SiteId) -> bool:
        return site_id in self._all

    def get(self, site_id: SiteId) -> Session | None:
        """The life at this address, if it counts."""
        return self._all.get(site_id)

    def open(self, site_id: SiteId, now: float) -> Session:
        """The life at this address, from now on if not before."""
        session = self._all.get(site_id)
        if session is None:
            session = self._all[site_id] = Session(site_id, now)
            self._named.setdefault(site_id.site, set()).add(site_id)
        return session

    def remove(self, session: Session) -> None:
        """It is over."""
        if self._all.pop(session.site_id, None) is not None:
            named = self._named[session.site_id.site]
            named.discard(session.site_id)
            if not named:
                del self._named[session.site_id.site]

    def of_site(self, site: str) -> list[Session]:
        """All lives of one name."""
        return [self._all[site_id] for site_id in sorted(self._named.get(site, ()))]

    def has_successor(self, session: Session) -> bool:
        """Whether another life of the same name is connected."""
        return any(
            self._all[other].connection is not None
            for other in self._named.get(session.site_id.site, set()) - {session.site_id}
        )
