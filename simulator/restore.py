"""The losses that are allowed when a state is replaced by an earlier copy of itself.

| of an event that was known                                                   | after the restore                   |
|------------------------------------------------------------------------------|-------------------------------------|
| in the copy                                                                  | it is known                         |
| later, of an incarnation that still runs, in a counter that it has not left  | it is sent again                    |
| later, of others                                                             | it may be lost                      |

Totals that were published since the copy was made may fall, once.
"""

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from countless.core.messages import SiteId
from countless.server.kinds.counter import TrackedCounter
from countless.server.site_server import SiteServer
from simulator.truth import Label, families_of, known_counts, known_labels


class Knowledge(NamedTuple):
    """The counts that a coordinator knows, by counter, window, or label of a family; and of each member incarnation."""

    known: Counter[str | Label]
    reported: dict[SiteId, Counter[str | Label]]

    @classmethod
    def of(cls, server: SiteServer) -> "Knowledge":
        known: Counter[str | Label] = Counter()
        known.update(dict[str | Label, int]([*known_counts(server).items(), *known_labels(server).items()]))
        reported: dict[SiteId, Counter[str | Label]] = {}
        for session in server.sessions:
            mine = reported.setdefault(session.site_id, Counter())
            for key, counter, site_id in server._members.of(session):
                if isinstance(counter, TrackedCounter):
                    mine[str(key)] = counter.coordinator.reported_by(site_id)
        for family in families_of(server):
            for site_id, member in family.coordinator.members():
                mine = reported.setdefault(site_id, Counter())
                mine.update({(family.name, label): n for label, n in member.counts.items()})
        return cls(known, reported)

    def lost_with(self, copy: "Knowledge", running: Collection[SiteId]) -> Counter[str | Label]:
        """At most, if this is replaced by the copy while these incarnations run."""
        lost = self.known - copy.known
        for site_id in running:
            lost -= self.reported.get(site_id, Counter()) - copy.reported.get(site_id, Counter())
        return lost
