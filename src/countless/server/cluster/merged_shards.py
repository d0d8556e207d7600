"""The shards that this coordinator owns, merged into one view for its page, metrics and probes."""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence

from countless.core.messages import SiteId
from countless.server.cluster.member import ClusterMember
from countless.server.connection import RefusedSites
from countless.server.sessions.readable import Readable, Together
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.settings import Settings
from countless.server.site_server import SiteServer


class MergedSessions:
    """A site has a session with each shard that has a counter of it."""

    def __init__(self, tables: list[SessionTable]) -> None:
        self._tables = tables

    def __iter__(self) -> Iterator[Session]:
        return (session for table in self._tables for session in table)

    def get(self, site_id: SiteId) -> Session | None:
        """The session that was seen last."""
        found = [session for table in self._tables if (session := table.get(site_id)) is not None]
        return max(found, key=lambda session: session.last_seen, default=None)


class MergedShards:
    """Implements `ServerView`."""

    def __init__(self, member: ClusterMember, settings: Settings) -> None:
        self.settings = settings
        self.dropped: Tally[str] = Tally()
        self.refused = RefusedSites()
        self._member = member

    @property
    def servers(self) -> list[SiteServer]:
        return [shard.server for shard in self._member.shards.values()]

    @property
    def by_name(self) -> Mapping[str, Readable]:
        return Together(*(server.by_name for server in self.servers))

    def parts(self, name: str) -> Sequence[Readable]:
        return [part for server in self.servers for part in server.parts(name)]

    @property
    def sessions(self) -> MergedSessions:
        return MergedSessions([server.sessions for server in self.servers])

    @property
    def draining(self) -> bool:
        return self._member.draining

    @property
    def recovering(self) -> bool:
        return any(server.recovering for server in self.servers)

    @property
    def failing(self) -> str | None:
        if not self._member.lease.valid():
            return f"lease expired: {self._member.unavailable or 'not renewed in time'}"
        return self._member.failing or next((server.failing for server in self.servers if server.failing), None)

    def now(self) -> float:
        return self._member.now()

    def drain(self) -> None:
        self._member.drain()
