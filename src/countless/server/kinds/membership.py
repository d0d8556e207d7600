"""Memberships: in which counter, and under which site id, a session is counted for a key that it uses.

Nearly always that is the counter with this key and the session's own site id. Label values come from outside, and every
series is a counter of its own. So a counter has at most `label_cap` labelled series, over all its sites together; a
series beyond the cap is counted in the counter's overflow series. There it has a site id with its name as the `part`,
as if it were one more site: the total over all series stays right, and the client does not notice.
"""

from collections.abc import Iterator

from countless.core.messages import SiteId
from countless.errors import InvalidParameter, ProtocolError
from countless.server.kinds.counter import TrackedCounter
from countless.server.kinds.counter_registry import CounterRegistry
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import Amounts, TombstoneShares
from countless.wire.keys import Key


class Membership:
    def __init__(
        self, registry: CounterRegistry, max_per_session: int, tombstones: TombstoneShares, joined: Amounts
    ) -> None:
        self._registry = registry
        self._max_per_session = max_per_session
        self._tombstones = tombstones
        self._joined = joined

    def join(self, session: Session, key: Key) -> tuple[TrackedCounter, SiteId]:
        """Where to count, for a counter that the session joins; the caller records it once the core has accepted."""
        if key in session.memberships:
            return self.lookup(session, key)
        if not self._joined.has_room(session.peer):
            allowed = "one that this process has joined: processes have joined too many"
            raise InvalidParameter(
                "counter", key.in_words, f"{allowed} (max_memberships, and max_share of it for one token)"
            )
        is_new = key.windows not in session.windows_left  # not another window of a series that it has joined
        if is_new and session.counters >= self._max_per_session:
            message = "this site counts as many counters as it may (max_counters_per_site)"
            raise InvalidParameter("counter", str(key), message=message)
        if is_new:
            self._tombstones.require_room(session.peer, "counter", key.in_words)
        tracker = self._registry.tracker_for(key, session.peer)
        if tracker.key == key:
            return tracker, session.site_id
        if is_new:
            self._registry.overflowed[key.root] += 1
        return tracker, session.site_id._replace(part=key.name)

    def lookup(self, session: Session, key: Key) -> tuple[TrackedCounter, SiteId]:
        site_id = session.memberships.get(key)
        if site_id is None:
            raise ProtocolError(f"site {session.site_id.site!r} has not joined {str(key)!r}")
        return self._registry.trackers[str(key.overflow if site_id.part else key)], site_id

    def of(self, session: Session) -> Iterator[tuple[Key, TrackedCounter, SiteId]]:
        """Every membership, with the key that the client uses."""
        for key in sorted(session.memberships):
            yield key, *self.lookup(session, key)

    def keys_in(self, session: Session, counter: TrackedCounter) -> list[Key]:
        """The client's keys of series that are counted in this counter: several only in an overflow series."""
        if counter.key == counter.key.overflow:
            return [key for key, each, _ in self.of(session) if each is counter]
        site_id = session.memberships.get(counter.key)
        return [counter.key] if site_id is not None and not site_id.part else []
