"""Memberships: in which counter, and under which site id, a session is counted for a counter name that it uses.

Nearly always that is the counter of this name and the session's own site id. A labelled series beyond the cap is
counted in the overflow series under an id of its own (`labels.py`).
"""

from collections.abc import Iterator

from countless.core.messages import SiteId
from countless.errors import InvalidParameter, ProtocolError
from countless.server.sessions.counter import Counter
from countless.server.sessions.labels import family_of, is_overflow, overflow_home, overflow_site_id
from countless.server.sessions.registry import CounterRegistry
from countless.server.sessions.session_table import Session, group_of
from countless.server.sessions.shares import Amounts, TombstoneShares
from countless.wire.windows import shard_name


class Membership:
    def __init__(
        self, registry: CounterRegistry, max_per_session: int, tombstones: TombstoneShares, joined: Amounts
    ) -> None:
        self._registry = registry
        self._max_per_session = max_per_session
        self._tombstones = tombstones
        self._joined = joined

    def join(self, session: Session, name: str) -> tuple[Counter, SiteId]:
        """Where to count, for a counter that the session joins; the caller records it once the core has accepted."""
        if name in session.memberships:
            return self.lookup(session, name)
        if not self._joined.has_room(session.peer):
            allowed = "one that this process has joined: processes have joined too many"
            raise InvalidParameter("counter", name, f"{allowed} (max_memberships, and max_share of it for one token)")
        is_new = group_of(name) not in session.windows_left  # not another window of a series that it has joined
        if is_new and session.counters >= self._max_per_session:
            message = "this site counts as many counters as it may (max_counters_per_site)"
            raise InvalidParameter("counter", name, message=message)
        if is_new:
            self._tombstones.require_room(session.peer, "counter", name)
        tracker = self._registry.tracker_for(name, session.peer)
        if tracker.name == name:
            return tracker, session.site_id
        if is_new:
            self._registry.overflowed[str(family_of(shard_name(name)))] += 1
        return tracker, overflow_site_id(session.site_id, name)

    def lookup(self, session: Session, name: str) -> tuple[Counter, SiteId]:
        site_id = session.memberships.get(name)
        if site_id is None:
            raise ProtocolError(f"site {session.site_id.site!r} has not joined {name!r}")
        if site_id == session.site_id:  # otherwise it is the id of an overflow series
            return self._registry.trackers[name], site_id
        return self._registry.trackers[overflow_home(name)], site_id

    def of(self, session: Session) -> Iterator[tuple[str, Counter, SiteId]]:
        """Every membership, with the counter name that the client uses."""
        for name in sorted(session.memberships):
            yield name, *self.lookup(session, name)

    def names_in(self, session: Session, counter: Counter) -> list[str]:
        """The client's names for series that are counted in this counter: several only in an overflow series."""
        if is_overflow(counter.name):
            return [name for name, each, _ in self.of(session) if each is counter]
        return [counter.name] if session.memberships.get(counter.name) == session.site_id else []
