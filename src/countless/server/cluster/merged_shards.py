"""The shards that this coordinator owns, merged into one view for its page, metrics and probes."""

from collections import Counter as Tally
from collections.abc import Iterator, Mapping, Sequence

from countless.core.messages import SiteId
from countless.server.cluster.member import ClusterMember
from countless.server.connection import RefusedSites
from countless.server.http.server_view import BudgetReader
from countless.server.sessions.readable import Readable, Together
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.settings import Settings
from countless.server.site_server import SiteServer
from countless.server.timings import Timings


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


class MergedBudgets:
    def __init__(self, by_name: Mapping[str, BudgetReader]) -> None:
        self.by_name = by_name


class MergedShards:
    """Implements `ServerView`."""

    def __init__(self, member: ClusterMember, settings: Settings) -> None:
        self.settings = settings
        self.dropped: Tally[str] = Tally()
        self.refused = RefusedSites()
        self._member = member

    @property
    def _servers(self) -> list[SiteServer]:
        return [shard.server for shard in self._member.shards.values()]

    @property
    def save_seconds(self) -> Timings:
        return Timings.sum_of(server.save_seconds for server in self._servers)

    @property
    def by_name(self) -> Mapping[str, Readable]:
        return Together(*(server.by_name for server in self._servers))

    def parts(self, name: str) -> Sequence[Readable]:
        return [part for server in self._servers for part in server.parts(name)]

    @property
    def budgets(self) -> MergedBudgets:
        return MergedBudgets(Together[BudgetReader](*(server.budgets.by_name for server in self._servers)))

    @property
    def sessions(self) -> MergedSessions:
        return MergedSessions([server.sessions for server in self._servers])

    @property
    def overflowed(self) -> Tally[str]:
        return sum((server.overflowed for server in self._servers), Tally())

    @property
    def replaced(self) -> Tally[str]:
        total = Tally({"connection": 0, "session": 0})
        for server in self._servers:
            total.update(server.replaced)
        return total

    @property
    def frame_bytes(self) -> dict[str, int]:
        return {way: sum(server.frame_bytes[way] for server in self._servers) for way in ("up", "down")}

    @property
    def draining(self) -> bool:
        return self._member.draining

    @property
    def recovering(self) -> bool:
        return any(server.recovering for server in self._servers)

    @property
    def failing(self) -> str | None:
        if not self._member.lease.valid():
            return f"lease expired: {self._member.unavailable or 'not renewed in time'}"
        return self._member.failing or next((server.failing for server in self._servers if server.failing), None)

    @property
    def save_failures(self) -> int:
        return sum(server.save_failures for server in self._servers)

    @property
    def tombstone_bytes(self) -> int:
        """In a cluster, of one site with one shard."""
        return max((server.tombstone_bytes for server in self._servers), default=0)

    @property
    def label_bytes(self) -> int:
        """Likewise."""
        return max((server.label_bytes for server in self._servers), default=0)

    @property
    def behind_s(self) -> float:
        """The lag of the shard that is furthest behind."""
        return max((server.behind_s for server in self._servers), default=0.0)

    def now(self) -> float:
        return self._member.now()

    def drain(self) -> None:
        self._member.drain()
