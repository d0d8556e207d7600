"""All families of a coordinator: what sites send about them, where that is counted, and what operators may change.

A site that joins is a member from then on. When its session times out, the answers are `degraded`; when the session is
retired, what the site has reported stays in the counts, and a tombstone for each of its labels is saved: if the process
comes back it is told these counts, and continues as a new incarnation with the rest. The same is done when another
process leaves in its name (`Session.inherited`).

A window of a family is joined, saved and left like a family of its own. But an orderly leave is
remembered as for windows of counters: by one tombstone for each site and family, the first window that it has not left.
"""

from collections.abc import Iterable
from dataclasses import replace

from countless.core.family.messages import LabelReport, Outbox, SavedMember, SetSteps
from countless.core.family.rule import VALUES, FamilyRule
from countless.core.messages import SiteId
from countless.core.periods.window import WindowRule
from countless.errors import InvalidParameter, ProtocolError, UnknownName
from countless.server.connection import Connection
from countless.server.kinds.family import AnyFamily, SavedFamily, TrackedFamily, WindowedFamily
from countless.server.kinds.label_shares import MEMBER_BYTES, LabelShares, LabelUse, label_bytes, newest
from countless.server.kinds.session_labels import SessionLabels
from countless.server.sessions.counted_kind import (
    CountedKind,
    require_no_site,
    require_same_calendar,
    require_same_windows,
)
from countless.server.sessions.members import Answers, watermark
from countless.server.sessions.service import Service
from countless.server.sessions.session_table import Session
from countless.server.sessions.shares import UNLIMITED
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
from countless.wire.keys import FAMILY, Key, calendar_fields, is_plain, key_of, parse_calendar, require_one

MAX_FAMILIES_PER_SITE = 1_000


class Families(CountedKind[TrackedFamily, WindowedFamily, FamilyRule]):
    name = FAMILY
    spec_type = FamilyRule

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        settings, tuning = service.settings, service.tuning
        self.label_shares = LabelShares(settings.max_label_mb, settings.max_share, tuning.labels_nearly_full)
        items = FamilyJoin, FamilyLabels, FamilyReport, FamilySync, FamilyLeave
        self.handlers = dict.fromkeys(items, self.on_item)
        self._named = SessionLabels(self.label_shares, self._pipeline, service.clock)
        self._answers = Answers(FamilyLeaveAck, FamilyRejected, MAX_FAMILIES_PER_SITE, str(MAX_FAMILIES_PER_SITE))

    # What sites send

    def on_item(self, session: Session, connection: Connection, item: FamilyUpItem, size: float) -> None:
        found = self.trackers.get(item.family)
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
        family = self.trackers[item.family]
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
            self.label_shares.require_room(session.peer, size + label_bytes(new.difference(known)))
        outbox = family.coordinator.receive(site_id, report)
        if new:
            self.label_shares.add(LabelUse(family.key, site_id), session.peer, size)
            self.label_shares.add_labels(family.key, session.peer, newest(known, labels))
        family.mark_site(site_id, [label for label, _ in report.counts])
        self._members.dispatch(family, outbox)

    def _on_join(self, session: Session, connection: Connection, key: Key, join: FamilyJoin, size: float) -> None:
        name, sync = join.family, sync_of(join)

        def admit() -> tuple[TrackedFamily, Outbox]:
            rule = FamilyRule(join.kind, join.epsilon, join.accuracy)
            if key not in session.members:
                self.label_shares.require_room_to_join(session.peer, name)
            family = self.tracker_for(key, rule, session.peer)
            named = self._named.of(session, key) is not None
            if named and (join.epsilon < family.spec.epsilon or family.coordinator.is_foreign(sync)):
                # All members would be told, for each join of a single site.
                raise ProtocolError(f"family {name!r}: joined again on one connection, with another rule or round")
            return family, family.coordinator.join(session.site_id, sync)

        family = self._members.join(session, connection, key, self._answers, admit)
        if family is None:
            return
        family.traffic.add_up(size)
        windows = self.windowed.get(key.name)
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

    def recover(self) -> None:
        for family in self.trackers.values():
            self._members.expect(family, family.coordinator.site_ids)

    def lose(self, session: Session, key: Key, site_id: SiteId, lost: bool) -> tuple[Outbox, list[Tombstone]]:
        family = self.trackers[str(key)]
        member = family.coordinator.saved_member(site_id)
        outbox = family.coordinator.give_up(site_id, lost)
        self._departed(family, site_id)
        return outbox, [] if member is None else _count_tombstones(site_id, key, member)

    def entered(self, session: Session, key: Key, is_new: bool) -> None:
        if is_new:
            self.label_shares.add(LabelUse(key, session.site_id), session.peer, MEMBER_BYTES)
        self._named.begin(session, key)

    def exited(self, session: Session, key: Key) -> None:
        self._named.forget(session, key)
        self.label_shares.remove(LabelUse(key, session.site_id))

    def fits(self, session: Session, peer: str) -> bool:
        size = sum(self.label_shares.size(LabelUse(key, session.site_id)) for key in session.members)
        return self.label_shares.bytes.fits(peer, size)

    def set_peer(self, session: Session, peer: str) -> None:
        for key in session.members:
            self.label_shares.move(LabelUse(key, session.site_id), peer)

    def end_connection(self, session: Session) -> None:
        self._named.end_connection(session)

    def look_at(self, session: Session) -> None:
        self._named.lift_limit(session)

    def reset_item(self, text: str) -> DownItem:
        return FamilyReset(text)

    # Names

    def _tracker(self, key: Key, spec: FamilyRule, rows: KeyRows | None = None) -> TrackedFamily:
        return TrackedFamily(key, spec, self._service.around, None if rows is None else SavedFamily.of(key, rows))

    def _windows(self, key: Key, spec: FamilyRule) -> WindowedFamily:
        def on_dropped(window: TrackedFamily, new: set[str]) -> None:
            self.label_shares.drop_window(window.key, window.coordinator.known, key, new)

        return WindowedFamily(key, spec, self._service.around, on_dropped)

    def _load(self, saved: Iterable[tuple[Key, KeyRows]]) -> None:
        super()._load(saved)
        for name in self.by_name:
            for family in self._saved(name):
                self.label_shares.add_labels(family.key, UNLIMITED, family.coordinator.known)
                for site_id, member in family.coordinator.members():
                    size = MEMBER_BYTES + label_bytes(member.counts)
                    self.label_shares.add(LabelUse(family.key, site_id), UNLIMITED, size)

    def _saved(self, name: str) -> list[TrackedFamily]:
        windows = self.windowed.get(name)
        return [self.trackers[name]] if windows is None else windows.saved

    def get(self, name: str) -> AnyFamily:
        """The family of a reader who asks for quantiles."""
        try:
            return self.by_name[name]
        except KeyError:
            distributions = [each.name for each in self.by_name.values() if each.spec.kind == VALUES]
            raise UnknownName("distribution", name, distributions) from None

    # Where sites are counted

    def tracker_for(self, key: Key, rule: FamilyRule, peer: str) -> TrackedFamily:
        """The family, or the window, with this key. The first site creates it; the smallest epsilon of all sites is in
        force. A rejected key changes nothing.
        """
        require_one(key)
        name = key.name
        family = self.by_name.get(name)
        if family is None:
            if key.is_window:
                parse_calendar(key.calendar).bounds(key.period)
                rule = replace(
                    rule, windows=WindowRule(*calendar_fields(key.calendar), keep=self._service.tuning.family_windows)
                )
            family = self.create(name, rule, peer)
        require_same_windows(key, family.spec.windows)
        if (family.spec.kind, family.spec.accuracy) != (rule.kind, rule.accuracy):
            kinds = {"labels": "a counter with labels", "values": f"a distribution of accuracy {family.spec.accuracy}"}
            message = f"{name!r} is {kinds[family.spec.kind]}: use it as that, or delete it first"
            raise InvalidParameter("family", name, message=message)
        return self._window(self.windowed[name], key, peer) if name in self.windowed else self.trackers[name]

    def _require_may_create(self, name: str, spec: FamilyRule) -> None:
        if name != Key(FAMILY, name).root or not is_plain(name):
            raise InvalidParameter("family", name, "a name without labels and windows")
        if self._service.names.kind_of(name) not in (None, FAMILY):
            allowed = "another name, or family=False: there is a counter of this name; delete it to get a family"
            raise InvalidParameter("family", name, allowed)

    def configure(self, name: str, rule: FamilyRule) -> None:
        """Give a family windows, from the next edge on, or keep another number of them."""
        windows = self.windowed.get(name)
        if rule.windows is None:
            return
        if windows is not None:
            require_same_calendar(windows.calendar, rule.windows)
            windows.reconfigure(rule)
            return
        family = self.trackers[name]
        require_no_site("family", name, rule.windows, family.members)
        after = self._begin_windows(family, rule)
        self.label_shares.rename(family.key, after.key)

    def _remove(self, name: str) -> None:
        for family in self._saved(name):
            self.label_shares.remove_labels(family.key)
        super()._remove(name)


def _count_tombstones(site_id: SiteId, key: Key, member: SavedMember) -> list[Tombstone]:
    """The items that the site is told if it comes back."""
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
