"""The families of a coordinator, and which sessions count their labels.

A site that joins is a member from then on. When its session times out, the answers are `degraded`; when the session is
retired, what the site has reported stays in the counts, and a tombstone for each of its labels is saved: if the process
comes back it is told these counts, and continues as a new incarnation with the rest. The same is done when another
process leaves in its name (`Session.inherited`).

A window of a family is joined, saved and left like a family of its own. But an orderly leave is
remembered as for windows of counters: by one tombstone for each site and family, the first window that it has not left.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf

from countless.core.family.messages import Outbox, Report, SavedMember, SetSteps
from countless.core.family.rule import FamilyRule
from countless.core.messages import SiteId
from countless.errors import InvalidParameter, ProtocolError
from countless.server.connection import Connection
from countless.server.kinds.family import TrackedFamily
from countless.server.kinds.family_registry import FamilyRegistry
from countless.server.kinds.label_shares import MEMBER_BYTES, LabelUse, label_bytes, newest
from countless.server.kinds.session_labels import SessionLabels
from countless.server.kinds.windowed_family import AnyFamily, WindowedFamily
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.shares import TombstoneShares
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
    down_item,
    report_of,
    sync_of,
)
from countless.wire.keys import FAMILY, Key, key_of

MAX_FAMILIES_PER_SITE = 1_000
MAX_IGNORED = 10_000  # rejected ones, on one connection


class Families:
    """Which sessions count the labels of which families."""

    def __init__(
        self,
        registry: FamilyRegistry,
        sessions: SessionTable,
        pipeline: CommitPipeline,
        clock: Callable[[], float],
        on_rejected: Callable[[], None],
        tombstones: TombstoneShares,
    ) -> None:
        self._registry = registry
        self._sessions = sessions
        self._pipeline = pipeline
        self._clock = clock
        self._tombstones = tombstones
        self._on_rejected = on_rejected
        self._shares = registry.label_shares
        self._named = SessionLabels(self._shares, pipeline, clock)

    @property
    def by_name(self) -> dict[str, AnyFamily]:
        return self._registry.by_name

    def get(self, name: str) -> AnyFamily:
        return self._registry.get(name)

    def recover(self, saved: Iterable[tuple[Key, KeyRows]]) -> None:
        """After a restart: the answers are `learning` until every member has joined again, or timed out."""
        self._registry.load(saved)
        for family in self._registry.trackers.values():
            for site_id in family.coordinator.site_ids:
                session = self._sessions.open(site_id, self._clock())
                session.families.add(family.key)
                session.owed.ask(family.key)

    # What sites send

    def on_item(self, session: Session, connection: Connection, item: FamilyUpItem, size: float) -> None:
        found = self._registry.trackers.get(item.family)
        key = key_of(FAMILY, item.family) if found is None else found.key
        if isinstance(item, FamilyJoin):
            return self._on_join(session, connection, key, item, size)
        has_left = _has_left(session, key)
        if key in session.ignored and not (has_left and isinstance(item, FamilyLeave)):
            return None
        if has_left:
            return self._pipeline.send(connection, FamilyLeaveAck(item.family))
        if key not in session.labels:
            raise ProtocolError(f"site {session.site_id.site!r} has not joined family {item.family!r}")
        family = self._registry.trackers[item.family]
        if isinstance(item, FamilyLabels):
            return self._named.add(session, connection, key, item, family.rule)
        family.traffic.add_up(size)
        if isinstance(item, FamilyReport):
            return self._on_report(session, family, report_of(item, session.labels[key]))
        if isinstance(item, FamilySync):
            outbox = family.coordinator.receive(session.site_id, sync_of(item))
            family.mark_site(session.site_id)
            return self._dispatch(family, outbox)
        return self._on_leave(session, connection, family, item)

    def _on_report(self, session: Session, family: TrackedFamily, report: Report) -> None:
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
        self._dispatch(family, outbox)

    def _on_join(self, session: Session, connection: Connection, key: Key, join: FamilyJoin, size: float) -> None:
        name, sync = join.family, sync_of(join)
        session.unconfirmed.discard(key)
        if _has_left(session, key):  # the acknowledgement was lost
            session.reject(key, MAX_IGNORED)
            return self._pipeline.send(connection, FamilyLeaveAck(name))
        try:
            is_new = key not in session.families
            if is_new:
                _require_few(session, name)
                self._shares.require_room_to_join(session.peer, name)
            if is_new and key.windows not in session.windows_left:
                self._tombstones.require_room(session.peer, "family", key.in_words)
            family = self._registry.tracker_for(key, FamilyRule(join.kind, join.epsilon, join.accuracy), session.peer)
        except InvalidParameter as error:
            self._on_rejected()
            session.reject(key, MAX_IGNORED)
            return self._pipeline.send(connection, FamilyRejected(name, str(error)))
        if key in session.labels and (join.epsilon < family.rule.epsilon or family.coordinator.is_foreign(sync)):
            # All members would be told, for each join of a single site.
            raise ProtocolError(f"family {name!r}: joined again on one connection, with another rule or round")
        outbox = family.coordinator.join(session.site_id, sync)
        key = family.key  # one object for all sessions
        session.stop_ignoring(key)
        session.owed.note_progress()
        session.families.add(key)
        if is_new:
            self._shares.add(LabelUse(key, session.site_id), session.peer, MEMBER_BYTES)
        self._named.begin(session, key)
        family.traffic.add_up(size)
        family.mark_site(session.site_id)
        self._dispatch(family, outbox)
        windows = self._registry.windowed.get(key.name)
        if windows is not None and join.epsilon < windows.rule.epsilon:
            windows.reconfigure(replace(windows.rule, epsilon=join.epsilon))
            windows.dropped_windows.mark()
        if join.epsilon < family.rule.epsilon:
            family.rule = replace(family.rule, epsilon=join.epsilon)
            self._dispatch(family, family.coordinator.set_rule(family.rule.steps))
        return None

    def _on_leave(self, session: Session, connection: Connection, family: TrackedFamily, leave: FamilyLeave) -> None:
        key, site_id = family.key, session.site_id
        member = family.coordinator.saved_member(site_id)
        outbox = family.coordinator.leave(site_id, sync_of(leave))
        if family.coordinator.saved_member(site_id) is None:  # else a report was lost, and it is asked for again
            if session.inherited and member is not None:
                session.left.add(key)
                session.delivered = True
                final = member._replace(total=max(member.total, leave.total))
                self._departed(session, family, _count_tombstones(site_id, key, final))
            elif not key.is_window:
                session.left.add(key)
                self._departed(session, family, [Tombstone(site_id, key, What.LEFT)])
            else:
                is_new = key.windows not in session.windows_left  # otherwise there is a tombstone already
                first_not_left = max(key.period + 1, session.windows_left.get(key.windows, 0))
                session.windows_left[key.windows] = first_not_left
                watermark = Tombstone(site_id, key.windows, What.WATERMARK, first_not_left)
                self._departed(session, family, [watermark], is_new)
        family.mark_site(site_id)
        self._dispatch(family, outbox)
        if key not in session.families:
            self._pipeline.send(connection, FamilyLeaveAck(family.name))

    def awaited_round(self, site_id: SiteId, key: Key) -> int | None:
        """See `FamilyCoordinator.awaited`."""
        family = self._registry.trackers.get(str(key))
        return None if family is None else family.coordinator.awaited(site_id)

    # How sessions begin and end

    def fits(self, session: Session, peer: str) -> bool:
        """Whether the peer has room for what the site has in families."""
        size = sum(self._shares.size(LabelUse(key, session.site_id)) for key in session.families)
        return self._shares.bytes.fits(peer, size)

    def set_peer(self, session: Session, peer: str) -> None:
        """What the site has in families belongs to the peer of its present connection."""
        for key in session.families:
            self._shares.move(LabelUse(key, session.site_id), peer)

    def end_connection(self, session: Session) -> None:
        self._named.end_connection(session)

    def lift_limit(self, session: Session) -> None:
        """On new labels, if there is room again."""
        self._named.lift_limit(session)

    def mark_unreachable(self, session: Session) -> None:
        for key in sorted(session.families):
            family = self._registry.trackers[str(key)]
            self._dispatch(family, family.coordinator.mark_unreachable(session.site_id))

    def retire(self, session: Session, lost: bool) -> None:
        """What the site has reported stays in the counts; it is told so if it comes back."""
        self._give_up(session, sorted(session.families), lost)

    def lose_unconfirmed(self, session: Session, keys: Iterable[Key]) -> None:
        """The site does not know these windows: our state is an older copy, and it has left them."""
        keys = sorted(session.families.intersection(keys))
        self._give_up(session, keys, lost=True)
        session.left.update(keys)

    def _give_up(self, session: Session, keys: list[Key], lost: bool) -> None:
        lost_windows: dict[str, list[int]] = {}  # by family with windows: those that it was a member of
        for key in keys:
            family = self._registry.trackers[str(key)]
            if key.is_window and lost:
                lost_windows.setdefault(key.name, []).append(key.period)
            member = family.coordinator.saved_member(session.site_id)
            if member is not None:
                outbox = family.coordinator.give_up(session.site_id, lost)
                self._departed(session, family, _count_tombstones(session.site_id, key, member))
                self._dispatch(family, outbox)
        for name, periods in lost_windows.items():
            windows = self._registry.windowed[name]
            windows.lose_site(min(periods), max(periods))
            windows.kept[min(periods)].mark()

    def _departed(
        self, session: Session, family: TrackedFamily, tombstones: list[Tombstone], are_new: bool = True
    ) -> None:
        self._forget(session, family.key)
        family.coordinator.forget(session.site_id)
        if are_new:
            self._tombstones.add(session.peer, session.site_id, [(each.key, each.label) for each in tombstones])
        windows = self._registry.windowed.get(family.key.name)
        if windows is not None:
            windows.sweep_at = -inf
        self._pipeline.drop(family.key, session.site_id)
        family.mark_site(session.site_id)
        self._pipeline.add_tombstones(*tombstones)

    def _forget(self, session: Session, key: Key) -> None:
        session.families.discard(key)
        self._named.forget(session, key)
        self._shares.remove(LabelUse(key, session.site_id))

    # Operators

    def delete(self, name: str) -> None:
        """Connected sites begin again from zero."""
        family = self.get(name)
        windows = family if isinstance(family, WindowedFamily) else None
        keys = [Key(FAMILY, name), *(each.key for each in windows.kept.values())] if windows else [Key(FAMILY, name)]
        for session in self._sessions:
            for key in keys:
                self._reset(session, key)
            if windows:
                session.windows_left.pop(windows.key, None)
            self._sessions.remove_if_unused(session)
        self._registry.remove(name)

    def _reset(self, session: Session, key: Key) -> None:
        session.left.discard(key)
        if key in session.families:
            self._forget(session, key)
            if session.connection is not None:
                session.ignore(key)
                self._pipeline.send(session.connection, FamilyReset(str(key)))

    def _dispatch(self, family: TrackedFamily, outbox: Outbox) -> None:
        """Messages to sites without a connection are dropped: the core sends them again when the site joins."""
        family.mark()
        for site_id, message in outbox:
            family.mark_site(site_id)  # raised steps count from now on
            session = self._sessions.get(site_id)
            if session is None:
                continue
            if isinstance(message, SetSteps) and message.confirm:
                session.owed.ask(family.key)
            if session.connection is None or family.key not in session.labels:
                continue
            family.traffic.down += 1
            self._pipeline.send(session.connection, down_item(message))


def _count_tombstones(site_id: SiteId, key: Key, member: SavedMember) -> list[Tombstone]:
    """What the site is told if it comes back."""
    labels = (Tombstone(site_id, key, What.LABEL, count, label) for label, count in member.counts.items())
    return [Tombstone(site_id, key, What.COUNT, member.total), *labels]


def _has_left(session: Session, key: Key) -> bool:
    """A family without windows, or this window and all before it."""
    return key not in session.families and session.has_left(key)


def _require_few(session: Session, name: str) -> None:
    if len(session.families) >= MAX_FAMILIES_PER_SITE:
        raise InvalidParameter("family", name, f"one of at most {MAX_FAMILIES_PER_SITE} of a site")
