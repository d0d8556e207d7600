"""The owner of a coordinator, as the service will be one: saves before it sends, knows who is gone (SPEC section 2).

The core has no clock, no disk and no connections. What its owner must add for the promises to hold is small, and here
it is in one place, so that the faulty world tests it too:

- save the `Memory` after each input and before anything is sent;
- bury an earlier life of a site when the next one says hello: what was known of it is all that will ever be known;
- remember who is gone, and do not listen to it any more: its words may still be under way.
"""

from collections.abc import Callable
from typing import NamedTuple

from countless.core.coordinator import Coordinator, Outbox, PersistentState
from countless.core.messages import SiteId, SiteName, Snapshot, UpMessage
from countless.errors import ProtocolError


class Saved(NamedTuple):
    """What is on the disk."""

    saved_state: PersistentState
    lives: dict[SiteName, SiteId]  # the present life of each site
    gone: frozenset[SiteId]


class Owner:
    """A coordinator that may die at any moment, and what it leaves behind."""

    def __init__(self, build: Callable[[PersistentState | None], Coordinator], fleet: list[SiteId]) -> None:
        self._build = build
        self.coordinator = build(None)
        self.lives: dict[SiteName, SiteId] = {site_id.site: site_id for site_id in fleet}
        self.gone: frozenset[SiteId] = frozenset()
        self.buried = 0  # events known of lives that ended without their last words
        self._save()

    def _save(self) -> None:
        self.saved = Saved(self.coordinator.saved_state, dict(self.lives), self.gone)

    def restart(self) -> Outbox:
        """Another process goes on from what the last one saved."""
        saved_state, lives, self.gone = self.saved
        self.lives = dict(lives)
        self.coordinator = self._build(saved_state)
        return self._done(self.coordinator.recover())

    def _done(self, outbox: Outbox) -> Outbox:
        self._save()
        return outbox

    def known(self, site_id: SiteId) -> int:
        """What the coordinator has heard of a site."""
        return dict(self.coordinator.saved_state.known).get(site_id, 0)

    def hello(self, site_id: SiteId, hello: Snapshot) -> Outbox:
        """A connection has opened."""
        earlier = self.lives.get(site_id.site, site_id)
        if site_id in self.gone or earlier.incarnation > site_id.incarnation:
            return []
        outbox = self._bury(earlier) if earlier != site_id else []
        self.lives[site_id.site] = site_id
        return self._done(outbox + self.coordinator.join(site_id, hello))

    def _bury(self, site_id: SiteId) -> Outbox:
        known, coordinator = self.known(site_id), self.coordinator
        self.buried += known
        self.gone |= {site_id}
        return coordinator.leave(site_id, Snapshot(coordinator.counter, coordinator.round, known))

    def farewell(self, site_id: SiteId, farewell: Snapshot) -> Outbox:
        """A site goes in good order. It may say so again: the first answer may have been lost."""
        if site_id in self.gone:
            return []
        self.gone |= {site_id}
        del self.lives[site_id.site]
        return self._done(self.coordinator.leave(site_id, farewell))

    def hear(self, site_id: SiteId, message: UpMessage) -> Outbox:
        """A site spoke."""
        if site_id in self.gone:
            return []
        try:
            return self._done(self.coordinator.receive(site_id, message))
        except ProtocolError:
            if site_id in self.lives.values():
                raise
            return []  # its hello was lost or overtaken: it will say it all again

    def silence(self, site_id: SiteId) -> Outbox:
        """Nothing was heard of a site for too long."""
        return self._done(self.coordinator.mark_unreachable(site_id))
