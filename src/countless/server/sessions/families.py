"""The families of a coordinator, and which sessions count their labels.

A site that joins is a member from then on. When its session times out, the answers are `degraded`; when the session is
retired, what the site has reported stays in the counts, and a tombstone for each of its labels is saved: if the process
comes back it is told these counts, and continues as a new incarnation with the rest.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import replace
from sys import intern

from countless.core.family.messages import OVERFLOW, Outbox, SetSteps
from countless.core.family.rule import FamilyRule
from countless.core.family.site import LABEL_CAP
from countless.errors import InvalidParameter, ProtocolError, UnknownName
from countless.server.connection import Connection
from countless.server.sessions.family import ServedFamily
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.shares import Shares
from countless.server.sessions.tombstone_shares import TombstoneShares
from countless.server.storage.base import SavedFamily, label_tombstone, left_tombstone, tombstone_of
from countless.server.storage.commit import CommitPipeline
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
    KnownLabels,
    down_item,
    known_items,
    report_of,
    sync_of,
)
from countless.wire.names import is_valid_name, validate_name
from countless.wire.windows import parse_window, shard_name

MAX_FAMILIES_PER_SITE = 1_000
MAX_IGNORED = 100_000


class Families:
    """All families by name. Every change is marked for the next commit, before the messages it causes."""

    def __init__(
        self,
        by_name: dict[str, ServedFamily],
        counters: Callable[[], Container[str]],
        sessions: SessionTable,
        pipeline: CommitPipeline,
        clock: Callable[[], float],
        shares: Shares[str],
        max_families: int,
        on_rejected: Callable[[], None],
        tombstones: TombstoneShares,
    ) -> None:
        self.by_name = by_name
        self._on_rejected = on_rejected
        self._counters = counters  # the names of all counters
        self._sessions = sessions
        self._pipeline = pipeline
        self._clock = clock
        self._shares = shares
        self._max_families = max_families
        self._tombstones = tombstones

    def recover(self, saved: Mapping[str, SavedFamily]) -> None:
        """After a restart: the answers are `learning` until every member has joined again, or timed out."""
        for name, each in saved.items():
            self.by_name[name] = ServedFamily(name, each.fields.rule, each, self._pipeline.health)
            for site_id in each.members:
                self._sessions.open(site_id, self._clock()).families.add(name)

    def get(self, name: str) -> ServedFamily:
        try:
            return self.by_name[name]
        except KeyError:
            raise UnknownName("family", name, self.by_name) from None

    def require_no_family(self, counter: str) -> None:
        """Raise InvalidParameter for a counter, a series or a window whose counter is a family."""
        name = shard_name(counter).partition("{")[0]
        if name in self.by_name:
            raise InvalidParameter("counter", counter, f"counted with family=True: {name!r} is a family")

    # What sites send

    def on_item(self, session: Session, connection: Connection, item: FamilyUpItem, size: float) -> None:
        name = item.family
        if isinstance(item, FamilyJoin):
            return self._on_join(session, connection, item, size)
        if tombstone_of(name) in session.ignored:
            return None
        if name not in session.families and tombstone_of(name) in session.left:
            return self._pipeline.send(connection, FamilyLeaveAck(name))
        if name not in session.labels:
            raise ProtocolError(f"site {session.site_id.site!r} has not joined family {name!r}")
        family = self.by_name[name]
        if isinstance(item, FamilyLabels):
            return _add_labels(session.labels[name], item, family.rule)
        family.traffic.add_up(size)
        if isinstance(item, FamilyReport):
            report = report_of(item, session.labels[name])
            outbox = family.coordinator.receive(session.site_id, report)
            self._pipeline.mark_family_site(name, session.site_id, [label for label, _ in report.counts])
            return self._dispatch(family, outbox)
        if isinstance(item, FamilySync):
            outbox = family.coordinator.receive(session.site_id, sync_of(item))
            self._pipeline.mark_family_site(name, session.site_id)
            return self._dispatch(family, outbox)
        return self._on_leave(session, connection, family, item)

    def _on_join(self, session: Session, connection: Connection, join: FamilyJoin, size: float) -> None:
        name, sync = join.family, sync_of(join)
        if name not in session.families and tombstone_of(name) in session.left:  # the acknowledgement was lost
            _ignore(session, name)
            return self._pipeline.send(connection, FamilyLeaveAck(name))
        try:
            _require_room(session, name)
            if name not in session.families:
                self._tombstones.require_room(session.peer, "family", name)
            family = self._family_for(name, FamilyRule(join.kind, join.epsilon, join.accuracy), session.peer)
        except InvalidParameter as error:
            self._on_rejected()
            _ignore(session, name)
            return self._pipeline.send(connection, FamilyRejected(name, str(error)))
        outbox = family.coordinator.join(session.site_id, sync)
        session.ignored.discard(tombstone_of(name))
        session.families.add(name)
        session.labels[name] = [OVERFLOW]
        family.traffic.add_up(size)
        self._pipeline.mark_family_site(name, session.site_id)
        self._dispatch(family, outbox)
        if join.epsilon < family.rule.epsilon:
            family.rule = replace(family.rule, epsilon=join.epsilon)
            self._dispatch(family, family.coordinator.set_rule(family.rule.steps))
        return None

    def _family_for(self, name: str, rule: FamilyRule, peer: str) -> ServedFamily:
        """The first site creates it; the smallest epsilon of all sites is in force."""
        family = self.by_name.get(name)
        if family is None:
            validate_name(name, "family")
            if "{" in name or parse_window(name) or parse_window(f"{name}:0"):
                raise InvalidParameter("family", name, "a name without labels and windows")
            if name in self._counters():
                allowed = "another name, or family=False: there is a counter of this name; delete it to get a family"
                raise InvalidParameter("family", name, allowed)
            if len(self.by_name) >= self._max_families:
                raise InvalidParameter("family", name, f"one of at most {self._max_families} (max_counters)")
            if self._shares.is_full(peer):
                allowed = f"one of at most {self._shares.most} of one token (max_share of max_counters)"
                raise InvalidParameter("family", name, allowed)
            family = self.by_name[name] = ServedFamily(name, rule, health=self._pipeline.health)
            self._shares.add(name, peer)
        if (family.rule.kind, family.rule.accuracy) != (rule.kind, rule.accuracy):
            kinds = {"labels": "a counter with labels", "values": f"a distribution of accuracy {family.rule.accuracy}"}
            raise InvalidParameter("family", name, f"used as {kinds[family.rule.kind]}, as it was; or delete it first")
        return family

    def _on_leave(self, session: Session, connection: Connection, family: ServedFamily, leave: FamilyLeave) -> None:
        name, site_id = family.name, session.site_id
        outbox = family.coordinator.leave(site_id, sync_of(leave))
        if family.coordinator.saved_member(site_id) is None:  # else a report was lost, and it is asked for again
            session.left.add(tombstone_of(name))
            self._departed(session, family, {left_tombstone(name): 0})
        self._pipeline.mark_family_site(name, site_id)
        self._dispatch(family, outbox)
        if name not in session.families:
            self._pipeline.send(connection, FamilyLeaveAck(name))

    # How sessions end

    def mark_unreachable(self, session: Session) -> None:
        for name in sorted(session.families):
            family = self.by_name[name]
            self._dispatch(family, family.coordinator.mark_unreachable(session.site_id))

    def retire(self, session: Session) -> None:
        """What the site has reported stays in the counts; it is told so if it comes back."""
        for name in sorted(session.families):
            family = self.by_name[name]
            member = family.coordinator.saved_member(session.site_id)
            if member is not None:
                counts = {label_tombstone(name, label): count for label, count in member.counts.items()}
                outbox = family.coordinator.give_up(session.site_id)
                self._departed(session, family, {tombstone_of(name): member.total, **counts})
                self._dispatch(family, outbox)

    def _departed(self, session: Session, family: ServedFamily, tombstones: Mapping[str, int]) -> None:
        session.families.discard(family.name)
        session.labels.pop(family.name, None)
        family.coordinator.forget(session.site_id)
        self._tombstones.add(session.peer, session.site_id, tombstones)
        self._pipeline.mark_family_departed(family.name, session.site_id, tombstones)

    # Operators

    def delete(self, name: str) -> None:
        """Connected sites begin again from zero."""
        family = self.get(name)
        for session in self._sessions:
            session.left.discard(tombstone_of(name))
            if name in session.families:
                session.families.discard(name)
                session.labels.pop(name, None)
                if session.connection is not None:
                    session.ignored.add(tombstone_of(name))
                    self._pipeline.send(session.connection, FamilyReset(name))
        del self.by_name[name]
        self._shares.remove(name)
        self._pipeline.mark_family_deleted(name)
        family.notify()

    def _dispatch(self, family: ServedFamily, outbox: Outbox) -> None:
        """Messages to sites without a connection are dropped: the core sends them again when the site joins."""
        self._pipeline.mark_family(family.name)
        for site_id, message in outbox:
            self._pipeline.mark_family_site(family.name, site_id)  # raised steps count from now on
            session = self._sessions.get(site_id)
            if session is None or session.connection is None or family.name not in session.labels:
                continue
            family.traffic.down += 1
            if isinstance(message, SetSteps) and message.confirm and session.awaiting_since is None:
                session.awaiting_since = self._clock()
            self._pipeline.send(session.connection, down_item(message))


def _require_room(session: Session, name: str) -> None:
    if name not in session.families and len(session.families) >= MAX_FAMILIES_PER_SITE:
        raise InvalidParameter("family", name, f"one of at most {MAX_FAMILIES_PER_SITE} of a site")


def _ignore(session: Session, name: str) -> None:
    """Drop messages for this family that are under way, until the session joins it again."""
    if len(session.ignored) >= MAX_IGNORED:
        raise ProtocolError("too many rejected families")
    session.ignored.add(tombstone_of(name))


def _add_labels(labels: list[str], item: FamilyLabels, rule: FamilyRule) -> None:
    if len(labels) + len(item.labels) > LABEL_CAP + 1:
        raise ProtocolError(f"family {item.family!r}: a site has at most {LABEL_CAP} labels")
    for label in item.labels:
        if not is_valid_name(label) or not rule.allows(label):
            raise ProtocolError(f"family {item.family!r}: {label[:50]!r} is not a bucket of values")
    labels.extend(map(intern, item.labels))


def is_family_tombstone(name: str) -> bool:
    return name.startswith("\n")


def known_families(tombstones: Iterable[tuple[str, int]]) -> dict[str, KnownFamily]:
    """From the tombstones of one incarnation.

    >>> known_families([(label_tombstone("f", "a"), 5), (tombstone_of("f"), 7), (left_tombstone("g"), 0), ("hits", 1)])
    {'f': KnownFamily(total=7, complete=False, counts={'a': 5}), 'g': KnownFamily(total=0, complete=True, counts={})}
    """
    totals: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {}
    complete: set[str] = set()
    for tombstone, count in filter(lambda each: is_family_tombstone(each[0]), tombstones):
        name, *label = tombstone[1:].split("\n", 1)
        known = counts.setdefault(name, {})
        if not label:
            totals[name] = count
        elif tombstone == left_tombstone(name):
            complete.add(name)
        else:
            known[label[0]] = count
    return {name: KnownFamily(totals.get(name, 0), name in complete, known) for name, known in counts.items()}


def known_items_of(tombstones: Iterable[tuple[str, int]]) -> list[KnownLabels]:
    return [item for name, known in known_families(tombstones).items() for item in known_items(name, known)]
