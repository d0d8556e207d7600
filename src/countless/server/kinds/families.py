"""The families of a coordinator, and which sessions count their labels.

A site that joins is a member from then on. When its session times out, the answers are `degraded`; when the session is
retired, what the site has reported stays in the counts, and a tombstone for each of its labels is saved: if the process
comes back it is told these counts, and continues as a new incarnation with the rest. The same is done when another
process leaves in its name (`Session.inherited`).

A window of a family is joined, saved and left like a family of its own. But an orderly leave is
remembered as for windows of counters: by one tombstone for each site and family, the first window that it has not left.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from countless.core.family.messages import LabelReport, Outbox, SavedMember, SetSteps
from countless.core.family.rule import FamilyRule
from countless.core.messages import SiteId
from countless.errors import ProtocolError
from countless.server.connection import Connection
from countless.server.kinds.family import AnyFamily, TrackedFamily, WindowedFamily
from countless.server.kinds.family_objects import FamilyObjects
from countless.server.kinds.label_shares import MEMBER_BYTES, LabelUse, label_bytes, newest
from countless.server.kinds.session_labels import SessionLabels
from countless.server.sessions.joining import Answers, Joining
from countless.server.sessions.kind import Kind
from countless.server.sessions.members import Members, watermark
from countless.server.sessions.session_table import Session
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import KeyRows, Tombstone, What
from countless.wire.families import (
    FamilyJoin,
    FamilyLabels,
    FamilyLeave,
    FamilyLeaveAck,
    FamilyRejected,
    FamilyReport,
    FamilyReset,
    FamilySync,
    FamilyUpItem,
    KnownFamily,
    down_item,
    known_items,
    report_of,
    sync_of,
)
from countless.wire.frames import DownItem
from countless.wire.keys import FAMILY, Key, key_of

MAX_FAMILIES_PER_SITE = 1_000


class Families(Kind):
    """Which sessions count the labels of which families."""

    name = FAMILY

    def __init__(
        self,
        objects: FamilyObjects,
        members: Members,
        joining: Joining,
        pipeline: CommitPipeline,
        clock: Callable[[], float],
    ) -> None:
        items = FamilyJoin, FamilyLabels, FamilyReport, FamilySync, FamilyLeave
        self.handlers = dict.fromkeys(items, self.on_item)
        self._objects = objects
        self._members = members
        self._joining = joining
        self._pipeline = pipeline
        self._shares = objects.label_shares
        self._named = SessionLabels(self._shares, pipeline, clock)
        self._answers = Answers(FamilyLeaveAck, FamilyRejected, MAX_FAMILIES_PER_SITE, str(MAX_FAMILIES_PER_SITE))

    @property
    def by_name(self) -> dict[str, AnyFamily]:
        return self._objects.by_name

    def get(self, name: str) -> AnyFamily:
        return self._objects.get(name)

    def tick(self) -> Iterator[None]:
        return self._objects.sweep_in_slices()

    # What sites send

    def on_item(self, session: Session, connection: Connection, item: FamilyUpItem, size: float) -> None:
        found = self._objects.trackers.get(item.family)
        key = key_of(FAMILY, item.family) if found is None else found.key
        if isinstance(item, FamilyJoin):
            return self._on_join(session, connection, key, item, size)
        has_left = key not in session.members and session.has_left(key)
        if key in session.ignored and not (has_left and isinstance(item, FamilyLeave)):
            return None
        if has_left:
            return self._pipeline.send(connection, FamilyLeaveAck(item.family))
        labels = self._named.of(session, key)
        if labels is None:
            raise ProtocolError(f"site {session.site_id.site!r} has not joined family {item.family!r}")
        family = self._objects.trackers[item.family]
        if isinstance(item, FamilyLabels):
            return self._named.add(session, connection, key, item, family.spec)
        family.traffic.add_up(size)
        if isinstance(item, FamilyReport):
            return self._on_report(session, family, report_of(item, labels))
        if isinstance(item, FamilySync):
            outbox = family.coordinator.receive(session.site_id, sync_of(item))
            family.mark_site(session.site_id)
            return self._members.dispatch(family, outbox)
        return self._on_leave(session, connection, family, item)

    def _on_report(self, session: Session, family: TrackedFamily, report: LabelReport) -> None:
        site_id, known = session.site_id, family.coordinator.known
        member, labels = family.coordinator.saved_member(site_id), len(known)
        counts = {} if member is None else member.counts
        new = {label for label, count in report.counts if count > 0 and label not in counts}
        size = label_bytes(new)
        if new:
            self._shares.require_room(session.peer, size + label_bytes(new.difference(known)))
        outbox = family.coordinator.receive(site_id, report)
        if new:
            self._shares.add(LabelUse(family.key, site_id), session.peer, size)
            self._shares.add_labels(family.key, session.peer, newest(known, labels))
        family.mark_site(site_id, [label for label, _ in report.counts])
        self._members.dispatch(family, outbox)

    def _on_join(self, session: Session, connection: Connection, key: Key, join: FamilyJoin, size: float) -> None:
        name, sync = join.family, sync_of(join)

        def admit() -> tuple[TrackedFamily, Outbox]:
            rule = FamilyRule(join.kind, join.epsilon, join.accuracy)
            if key not in session.members:
                self._shares.require_room_to_join(session.peer, name)
            family = self._objects.tracker_for(key, rule, session.peer)
            named = self._named.of(session, key) is not None
            if named and (join.epsilon < family.spec.epsilon or family.coordinator.is_foreign(sync)):
                # All members would be told, for each join of a single site.
                raise ProtocolError(f"family {name!r}: joined again on one connection, with another rule or round")
            return family, family.coordinator.join(session.site_id, sync)

        family = self._joining.join(session, connection, key, self._answers, admit)
        if family is None:
            return
        family.traffic.add_up(size)
        windows = self._objects.windowed.get(key.name)
        if windows is not None and join.epsilon < windows.spec.epsilon:
            windows.reconfigure(replace(windows.spec, epsilon=join.epsilon))
        if join.epsilon < family.spec.epsilon:
            family.spec = replace(family.spec, epsilon=join.epsilon)
            family.mark_spec()
            self._members.dispatch(family, family.coordinator.set_rule(family.spec.steps))

    def _on_leave(self, session: Session, connection: Connection, family: TrackedFamily, leave: FamilyLeave) -> None:
        key, site_id = family.key, session.site_id
        member = family.coordinator.saved_member(site_id)
        outbox = family.coordinator.leave(site_id, sync_of(leave))
        if family.coordinator.saved_member(site_id) is not None:  # a report was lost, and it is asked for again
            family.mark_site(site_id)
            return self._members.dispatch(family, outbox)
        if session.inherited and member is not None:
            tombstones = _count_tombstones(site_id, key, member._replace(total=max(member.total, leave.total)))
        else:
            tombstones = [watermark(session, key) if key.is_window else Tombstone(site_id, key, What.LEFT)]
        self._departed(family, site_id)
        self._members.leave(session, key, tombstones, outbox)
        return self._pipeline.send(connection, FamilyLeaveAck(family.name))

    def _departed(self, family: TrackedFamily, site_id: SiteId) -> None:
        family.coordinator.forget(site_id)
        self._pipeline.drop(family.key, site_id)

    # What they are sent

    def down_item(self, session: Session, key: Key, message: SetSteps) -> DownItem | None:
        """Not before it has joined on its present connection."""
        return None if self._named.of(session, key) is None else down_item(message)

    def asks(self, message: SetSteps) -> bool:
        return isinstance(message, SetSteps) and message.confirm

    def saves(self, message: SetSteps) -> bool:
        """Raised steps count from now on."""
        return True

    def told(self, tombstones: Iterable[Tombstone]) -> list[DownItem]:
        known = known_families(tombstones)
        return [item for key, each in known.items() for item in known_items(str(key), each)]

    # Sessions that begin and end

    def load(self, saved: Iterable[tuple[Key, KeyRows]]) -> Iterator[tuple[SiteId, Key, TrackedFamily]]:
        """The answers are `learning` until every member has joined again, or timed out."""
        self._objects.load(saved)
        for family in self._objects.trackers.values():
            for site_id in family.coordinator.site_ids:
                yield site_id, family.key, family

    def recover(self) -> None:
        for family in self._objects.trackers.values():
            self._members.expect(family, family.coordinator.site_ids)

    def lose(self, session: Session, key: Key, site_id: SiteId, lost: bool) -> tuple[Outbox, list[Tombstone]]:
        family = self._objects.trackers[str(key)]
        member = family.coordinator.saved_member(site_id)
        outbox = family.coordinator.give_up(site_id, lost)
        self._departed(family, site_id)
        return outbox, [] if member is None else _count_tombstones(site_id, key, member)

    def entered(self, session: Session, key: Key, is_new: bool) -> None:
        if is_new:
            self._shares.add(LabelUse(key, session.site_id), session.peer, MEMBER_BYTES)
        self._named.begin(session, key)

    def exited(self, session: Session, key: Key) -> None:
        self._named.forget(session, key)
        self._shares.remove(LabelUse(key, session.site_id))

    def fits(self, session: Session, peer: str) -> bool:
        size = sum(self._shares.size(LabelUse(key, session.site_id)) for key in session.members)
        return self._shares.bytes.fits(peer, size)

    def set_peer(self, session: Session, peer: str) -> None:
        for key in session.members:
            self._shares.move(LabelUse(key, session.site_id), peer)

    def end_connection(self, session: Session) -> None:
        self._named.end_connection(session)

    def look_at(self, session: Session) -> None:
        self._named.lift_limit(session)

    # Operators

    def delete(self, name: str) -> None:
        """Connected sites begin again from zero."""
        family = self.get(name)
        windows = [*family.kept.values()] if isinstance(family, WindowedFamily) else [family]
        keys = [Key(FAMILY, name), family.key, *(each.key for each in windows)]
        self._members.begin_again(windows, keys, lambda key: FamilyReset(str(key)))
        self._objects.remove(name)


def _count_tombstones(site_id: SiteId, key: Key, member: SavedMember) -> list[Tombstone]:
    """What the site is told if it comes back."""
    labels = (Tombstone(site_id, key, What.LABEL, count, label) for label, count in member.counts.items())
    return [Tombstone(site_id, key, What.COUNT, member.total), *labels]


def known_families(tombstones: Iterable[Tombstone]) -> dict[Key, KnownFamily]:
    """From the tombstones of one incarnation.

    >>> from countless.core.messages import SiteId
    >>> f, g, web = Key(FAMILY, "f"), Key(FAMILY, "g"), SiteId("web", 1)
    >>> counts = [Tombstone(web, f, What.LABEL, 5, "a"), Tombstone(web, f, What.COUNT, 7)]
    >>> known = known_families([*counts, Tombstone(web, g, What.LEFT)])
    >>> known[f], known[g]
    (KnownFamily(total=7, complete=False, counts={'a': 5}), KnownFamily(total=0, complete=True, counts={}))
    """
    totals: dict[Key, int] = {}
    counts: dict[Key, dict[str, int]] = {}
    complete: set[Key] = set()
    for _, key, what, value, label in tombstones:
        if what is What.WATERMARK:
            continue
        known = counts.setdefault(key, {})
        if what is What.LEFT:
            complete.add(key)
        elif what is What.LABEL:
            known[label] = value
        else:
            totals[key] = value
    return {key: KnownFamily(totals.get(key, 0), key in complete, known) for key, known in counts.items()}
