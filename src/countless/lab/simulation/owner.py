"""The owner of a coordinator in the faulty world: what a service must add to the core for the guarantees to hold.

The core has no clock, disk or connections. Its owner

- saves the persistent state after each input and before anything is sent;
- retires the earlier incarnation of a site when the next one joins, with the count that it last reported;
- ignores later messages of retired incarnations, which may still be in flight.

The service does the same in `server/sessions` and `server/storage`.
"""

from collections.abc import Callable
from typing import NamedTuple

from countless.core.coordinator import Coordinator, PersistentState
from countless.core.messages import Outbox, SiteId, SiteName, Snapshot, UpMessage
from countless.errors import ProtocolError


class Saved(NamedTuple):
    saved_state: PersistentState
    current: dict[SiteName, SiteId]
    retired: frozenset[SiteId]


class Owner:
    """A coordinator that can crash at any moment, and its disk."""

    def __init__(self, build: Callable[[PersistentState | None], Coordinator], fleet: list[SiteId]) -> None:
        self._build = build
        self.coordinator = build(None)
        self.current: dict[SiteName, SiteId] = {site_id.site: site_id for site_id in fleet}
        self.retired: frozenset[SiteId] = frozenset()
        self.retired_events = 0  # reported by incarnations that ended without a final snapshot
        self._save()

    def _save(self) -> None:
        self.saved = Saved(self.coordinator.saved_state, dict(self.current), self.retired)

    def restart(self) -> Outbox:
        """Continue from the disk, as a new process does."""
        saved_state, current, self.retired = self.saved
        self.current = dict(current)
        self.coordinator = self._build(saved_state)
        return self._saved(self.coordinator.recover())

    def _saved(self, outbox: Outbox) -> Outbox:
        self._save()
        return outbox

    def reported_by(self, site_id: SiteId) -> int:
        return dict(self.coordinator.saved_state.known).get(site_id, 0)

    def join(self, site_id: SiteId, snapshot: Snapshot) -> Outbox:
        """A site has connected. An incarnation that is retired or older than the current one is ignored."""
        earlier = self.current.get(site_id.site, site_id)
        if site_id in self.retired or earlier.incarnation > site_id.incarnation:
            return []
        outbox = self._retire(earlier) if earlier != site_id else []
        self.current[site_id.site] = site_id
        return self._saved(outbox + self.coordinator.join(site_id, snapshot))

    def _retire(self, site_id: SiteId) -> Outbox:
        reported, coordinator = self.reported_by(site_id), self.coordinator
        self.retired_events += reported
        self.retired |= {site_id}
        return coordinator.leave(site_id, Snapshot(coordinator.counter, coordinator.round, reported))

    def leave(self, site_id: SiteId, snapshot: Snapshot) -> Outbox:
        """A site leaves with its final count. It repeats this if the acknowledgement was lost."""
        if site_id in self.retired:
            return []
        self.retired |= {site_id}
        del self.current[site_id.site]
        return self._saved(self.coordinator.leave(site_id, snapshot))

    def receive(self, site_id: SiteId, message: UpMessage) -> Outbox:
        if site_id in self.retired:
            return []
        try:
            return self._saved(self.coordinator.receive(site_id, message))
        except ProtocolError:
            if site_id in self.current.values():
                raise
            return []  # its join was lost or overtaken: the site will send everything again

    def mark_unreachable(self, site_id: SiteId) -> Outbox:
        return self._saved(self.coordinator.mark_unreachable(site_id))
