"""Sessions: which incarnations of sites the coordinator knows, whether they are connected, and when they time out.

An incarnation is one run of a site's process. Several incarnations of one site may be connected at once, because the
workers of a web server share their configuration. So a session ends only when it is unreachable and another incarnation
of its site is connected, after `forget_after`, or when an operator drops it. Ending the session of a process that was
only slow is safe: its counts stay in the totals, and when it connects again it is told these counts and starts a new
incarnation with the rest.
"""

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple

from countless.core.messages import SiteId
from countless.errors import LimitReached, ProtocolError
from countless.server.connection import Connection
from countless.server.sessions.awaited_answers import AwaitedAnswers
from countless.server.sessions.shares import UNLIMITED, Amounts, Shares
from countless.server.sessions.tracked import Tracked
from countless.server.storage.rows import Tombstone, What
from countless.wire.keys import Key

# Heartbeats find what TCP does not report at once, such as a power loss or a cut network: an idle site sends one in
# three times `silent_after`, because each costs two frames.
HEARTBEAT_PER_TIMEOUT = 3
MAX_SESSIONS = 1 << 31  # of a table without a limit


class SessionUse(NamedTuple):
    """By all sessions: memberships; and names that are remembered for a connection, by length: of what was rejected,
    and of budgets whose rules were sent.
    """

    joined: Amounts
    names: Amounts


def _name_size(name: str) -> int:
    """About 400 bytes each, as a membership."""
    return 1 + len(name) // 100


class Session:
    """One incarnation of one site. It exists while it is connected, or `is_member`."""

    __slots__ = (
        "_names", "_open_windows", "_used", "connection", "delivered", "free_at", "ignored", "inherited", "last_seen",
        "left", "members", "noted", "owed", "own", "peer", "site_id", "unconfirmed", "unreachable", "windows_left"
    )  # fmt: skip

    def __init__(self, site_id: SiteId, now: float, used: SessionUse) -> None:
        self.site_id = site_id
        self._used = used
        self.connection: Connection | None = None
        self.peer = UNLIMITED  # who opened the connection: see `shares.py`
        self.members: dict[Key, Tracked] = {}  # what it is a member of, by the client's key
        self.left: set[Key] = set()  # what it left with its count: a repeated Leave is acknowledged again
        self.inherited = False  # who delivers on this connection has not counted that
        self.delivered = False  # something was left like this: the process may still run, and know more
        self.windows_left: dict[Key, int] = {}  # by `Key.windows`: it has left all windows before this one
        self._open_windows = 0  # those of `members` that are windows
        self._names: dict[str, int] = {}  # by kind: those of `members`, `left` and `windows_left`
        self.unconfirmed: set[Key] = set()  # windows that it has not joined on this connection, until its first Sync
        self.ignored: set[Key] = set()  # whose messages on this connection are dropped until they join again
        self.noted: set[Key] = set()  # what a kind remembers of this connection
        self.own: dict[str, Any] = {}  # by kind: what it keeps of the session
        self.last_seen = now
        self.owed = AwaitedAnswers()
        self.unreachable = False
        self.free_at = 0.0  # while it is unreachable: when to look for what is free again

    def join(self, key: Key, tracked: Tracked) -> bool:
        """Record a membership. The windows of a name need only one entry beside those that are open.

        True: when the session leaves it, it leaves a tombstone that it did not leave otherwise.
        """
        if key in self.members:
            return False
        self.members[key] = tracked
        self._used.joined.add(self.peer, 1)
        if key.is_window:
            self._open_windows += 1
            if key.windows in self.windows_left:
                return False
            self.windows_left[key.windows] = 0
        self._count(key, 1)
        return True

    def leave(self, key: Key) -> None:
        del self.members[key]
        self._used.joined.add(self.peer, -1)
        self.unconfirmed.discard(key)
        if key.is_window:
            self._open_windows -= 1
        else:
            self._count(key, -1)

    def remember(self, tombstones: Iterable[Tombstone]) -> None:
        """Remember it of this session, which is not a member of these any more."""
        for _, key, what, value, _ in tombstones:
            if what is What.WATERMARK:
                self._count(key, key not in self.windows_left)
                self.windows_left[key] = max(value, self.windows_left.get(key, 0))
            else:
                self._count(key, key not in self.left)
                self.left.add(key)

    def forget(self, keys: AbstractSet[Key]) -> None:
        """These were deleted."""
        for key in self.left & keys:
            self._count(key, -1)
            self.left.discard(key)
        for key in self.windows_left.keys() & keys:
            self._count(key, -1)
            del self.windows_left[key]

    def _count(self, key: Key, n: int) -> None:
        self._names[key.kind] = self._names.get(key.kind, 0) + n

    def names(self, kind: str) -> int:
        """The number of counters, or families, that it has, or had; all windows of one count once."""
        return self._names.get(kind, 0)

    def new_connection(self) -> None:
        """A site begins by joining all that it knows."""
        self.unconfirmed = {key for key in self.members if key.is_window} if self._open_windows else set()
        self.inherited = False

    def set_peer(self, peer: str) -> None:
        """Let all that it uses belong to the peer of its present connection."""
        names = sum(_name_size(key.name) for keys in (self.ignored, self.noted) for key in keys)
        for used, n in zip(self._used, (len(self.members), names), strict=True):
            used.add(self.peer, -n)
            used.add(peer, n)
        self.peer = peer

    def reject(self, key: Key, limit: int) -> None:
        """Ignore a counter, or family, that was rejected; at most `limit` of them."""
        if key not in self.ignored and len(self.ignored) >= limit:
            raise ProtocolError("too many rejected counters and families (max_counters_per_site)")
        if key not in self.ignored and not self._used.names.has_room(self.peer):
            raise LimitReached("too many rejected counters and families (max_memberships)")
        self.ignore(key)

    def ignore(self, key: Key) -> None:
        """Drop messages for this counter that are under way, until the session joins it again."""
        if key not in self.ignored:
            self._used.names.add(self.peer, _name_size(key.name))
            self.ignored.add(key)

    def stop_ignoring(self, key: Key) -> None:
        if key in self.ignored:
            self._used.names.add(self.peer, -_name_size(key.name))
            self.ignored.discard(key)

    def end_connection(self) -> None:
        """Forget the names that are remembered for it."""
        for key in list(self.ignored):
            self.stop_ignoring(key)
        for key in list(self.noted):
            self.drop_note(key)

    def note(self, key: Key) -> None:
        """Remember it for this connection, if there is room."""
        if key not in self.noted and self._used.names.has_room(self.peer):
            self._used.names.add(self.peer, _name_size(key.name))
            self.noted.add(key)

    def drop_note(self, key: Key) -> None:
        if key in self.noted:
            self._used.names.add(self.peer, -_name_size(key.name))
            self.noted.discard(key)

    def has_left(self, key: Key) -> bool:
        return key in self.left or (key.is_window and key.period < self.windows_left.get(key.windows, 0))

    @property
    def is_member(self) -> bool:
        return bool(self.members)

    @property
    def state(self) -> str:
        """As the API shows it."""
        return "silent" if self.unreachable else "connected" if self.connection else "away"

    def timed_out(self, now: float, silent_after: float) -> bool:
        """A session without a connection has `silent_after`; one that has to answer nothing until a heartbeat is late
        by twice that. Answers that are late: see `owed`.
        """
        return now - self.last_seen > silent_after * (1 if self.connection is None else HEARTBEAT_PER_TIMEOUT + 2)


class SessionTable:
    """All sessions by site id, and by the name of the site."""

    def __init__(self, shares: Shares[SiteId] | None = None, used: SessionUse | None = None) -> None:
        self.shares = Shares(MAX_SESSIONS, 1.0) if shares is None else shares
        self.used = SessionUse(Amounts(MAX_SESSIONS, 1.0), Amounts(MAX_SESSIONS, 1.0)) if used is None else used
        self._sessions: dict[SiteId, Session] = {}
        self._by_site: dict[str | int, set[SiteId]] = {}

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._sessions.values()))

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, site_id: SiteId) -> bool:
        return site_id in self._sessions

    def get(self, site_id: SiteId) -> Session | None:
        return self._sessions.get(site_id)

    def open(self, site_id: SiteId, now: float) -> Session:
        """The session of this id; a new one if there is none."""
        session = self._sessions.get(site_id)
        if session is None:
            session = self._sessions[site_id] = Session(site_id, now, self.used)
            self._by_site.setdefault(site_id.site, set()).add(site_id)
        return session

    def remove(self, session: Session) -> None:
        if self._sessions.pop(session.site_id, None) is not None:
            self.shares.remove(session.site_id)
            incarnations = self._by_site[session.site_id.site]
            incarnations.discard(session.site_id)
            if not incarnations:
                del self._by_site[session.site_id.site]

    def remove_if_unused(self, session: Session) -> None:
        """One that has no connection and is a member of nothing."""
        if session.connection is None and not session.is_member:
            self.remove(session)

    def of_site(self, site: str | int) -> list[Session]:
        return [self._sessions[site_id] for site_id in sorted(self._by_site.get(site, ()))]

    def has_successor(self, session: Session) -> bool:
        """True if another incarnation of the same site is connected."""
        incarnations = self._by_site[session.site_id.site] - {session.site_id}
        return any(self._sessions[site_id].connection is not None for site_id in incarnations)
