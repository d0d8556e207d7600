"""The sites and the coordinator of a family in one process. A message is delivered before the next event."""

from collections.abc import Callable, Iterable

from countless.core.family.coordinator import FamilyCoordinator
from countless.core.family.messages import Outbox, Report, Sync, UpMessage
from countless.core.family.site import FamilySite
from countless.core.messages import SiteId, SiteName
from countless.errors import InvalidParameter, ProtocolError, UnknownName
from countless.inprocess.network import Traffic
from countless.inprocess.site_names import free_number, require_name


class FamilyNetwork:
    """Everything is called with the lock held."""

    def __init__(
        self, coordinator: FamilyCoordinator, fleet: Iterable[SiteId], new_site: Callable[[SiteId], FamilySite]
    ) -> None:
        self.coordinator = coordinator
        self.counts_sent = 0  # counts of labels in all reports
        self._new_site = new_site
        self._up = self._down = 0
        self._ids = {site_id.site: site_id for site_id in fleet}
        self._sites = {site_id: new_site(site_id) for site_id in self._ids.values()}

    @property
    def names(self) -> tuple[SiteName, ...]:
        return tuple(site_id.site for site_id in self._sites)

    @property
    def site_ids(self) -> list[SiteId]:
        return list(self._sites)

    def successor(self, coordinator: FamilyCoordinator) -> "FamilyNetwork":
        """The same sites, with nothing counted."""
        network = FamilyNetwork(coordinator, self.site_ids, self._new_site)
        network._ids = dict(self._ids)  # names that were used are not used again under the same incarnation
        return network

    @property
    def traffic(self) -> Traffic:
        return Traffic(self._up, self._down)

    def site_id(self, name: SiteName) -> SiteId:
        try:
            site_id = self._ids[name]
            self._sites[site_id]
        except (KeyError, TypeError):
            raise UnknownName("site", name, self.names) from None
        return site_id

    def add(self, site_id: SiteId, label: str, n: int) -> None:
        if site_id not in self._sites:
            raise InvalidParameter("site", site_id.site, "a site that was not removed")
        messages = self._sites[site_id].add(label, n)
        if messages:
            self._send(site_id, messages)

    def add_site(self, name: SiteName | None) -> SiteId:
        name = free_number(self._ids) if name is None else name
        require_name(name)
        before = self._ids.get(name)
        if before in self._sites:
            raise InvalidParameter("site", name, "a name that is not taken")
        self._ids[name] = site_id = SiteId(name, 0 if before is None else before.incarnation + 1)
        self._sites[site_id] = site = self._new_site(site_id)
        self._up += 1
        self._deliver(self.coordinator.join(site_id, site.sync()))
        return site_id

    def remove_site(self, name: SiteName) -> int:
        """The events that the site counted: they stay in the counts."""
        site_id = self.site_id(name)
        *reports, last = self._sites[site_id].leave()
        if not isinstance(last, Sync):
            raise ProtocolError(f"{name!r} left with {last}")
        self._send(site_id, tuple(reports))
        self._up += 1
        outbox = self.coordinator.leave(site_id, last)
        site = self._sites.pop(site_id)
        self._deliver(outbox)
        return site.total

    def _send(self, site_id: SiteId, messages: tuple[UpMessage, ...]) -> None:
        outbox: Outbox = []
        self._send_up(site_id, messages, outbox)
        self._deliver(outbox)

    def _deliver(self, outbox: Outbox) -> None:
        for site_id, message in outbox:
            self._down += 1
            self._send_up(site_id, self._sites[site_id].receive(message), outbox)  # the loop delivers what this appends

    def _send_up(self, site_id: SiteId, messages: tuple[UpMessage, ...], outbox: Outbox) -> None:
        for message in messages:
            self._up += 1
            self.counts_sent += len(message.counts) if isinstance(message, Report) else 0
            outbox += self.coordinator.receive(site_id, message)
