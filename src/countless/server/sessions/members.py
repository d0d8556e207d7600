"""The memberships of sessions, and the messages to members. Nothing else writes memberships.

A session is a member under its own site id. Only in an overflow series, which stands for many series of a site, it has
an id for each of them, with the series as its `part`, as if it were one more site: the total over all series stays
right, and the client does not notice.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from math import inf
from typing import NamedTuple, TypeVar

from countless.core.messages import SiteId
from countless.errors import InvalidParameter, PlanError, ProtocolError
from countless.server.connection import Connection
from countless.server.sessions.kind import Kind, Outbox
from countless.server.sessions.session_table import Session, SessionTable
from countless.server.sessions.shares import TombstoneShares
from countless.server.sessions.tracked import Tracked, Whole
from countless.server.settings import Settings
from countless.server.storage.commit import CommitPipeline
from countless.server.storage.rows import KeyRows, Tombstone, What
from countless.wire.frames import DownItem
from countless.wire.keys import Key

T = TypeVar("T", bound=Tracked)


class Answers(NamedTuple):
    """The items of a kind about a name in a frame: that its Leave is acknowledged, and why its Join was rejected."""

    left: Callable[[str], DownItem]
    rejected: Callable[[str, str], DownItem]
    limit: int  # of names that a site may join
    setting: str  # or what people call that limit


class Members:
    def __init__(
        self,
        sessions: SessionTable,
        pipeline: CommitPipeline,
        tombstones: TombstoneShares,
        settings: Settings,
        dropped: Tally[str],
    ) -> None:
        self.kinds: dict[str, Kind] = {}  # by name; set once, before the first session
        self._settings = settings
        self._dropped = dropped
        self._sessions = sessions
        self._pipeline = pipeline
        self._tombstones = tombstones

    def load(self, kind: Kind, saved: Iterable[tuple[Key, KeyRows]], now: float) -> None:
        """After a restart."""
        for site_id, key, tracked in kind.load(saved):
            self._sessions.open(site_id, now).join(key, tracked)
        kind.recover()

    # Who is a member

    def enter(self, session: Session, key: Key, tracked: Tracked) -> bool:
        """Perhaps again. True: when the session leaves it, it leaves a tombstone that it did not leave otherwise."""
        is_new = key not in session.members
        needs_tombstone = session.join(key, tracked)
        self.kinds[key.kind].entered(session, key, is_new)
        return needs_tombstone

    def join(
        self,
        session: Session,
        connection: Connection,
        key: Key,
        answers: Answers,
        admit: Callable[[], tuple[T, Outbox]],
    ) -> T | None:
        """`admit` says where the key is counted, and what the coordinator returned to the join. It raises
        InvalidParameter or PlanError, and has changed nothing then. None: the session has not joined.
        """
        session.unconfirmed.discard(key)
        is_new = key not in session.members
        if is_new and session.has_left(key):  # the acknowledgement of its Leave was lost
            session.reject(key, self._settings.max_counters_per_site)
            self._pipeline.send(connection, answers.left(str(key)))
            return None
        try:
            if is_new:
                self._require_room(session, key, answers)
            tracked, outbox = admit()
        except (InvalidParameter, PlanError) as error:
            self._dropped["counter refused"] += 1
            session.reject(key, self._settings.max_counters_per_site)
            self._pipeline.send(connection, answers.rejected(str(key), str(error)))
            return None
        key = tracked.key if tracked.key == key else key  # one object for all sessions
        session.stop_ignoring(key)
        session.owed.note_progress()
        if self.enter(session, key, tracked):
            self._tombstones.add(session.peer, session.site_id, [(key.windows if key.is_window else key, None)])
        tracked.mark_site(id_in(session, key, tracked))
        self.dispatch(tracked, outbox)
        return tracked

    def _require_room(self, session: Session, key: Key, answers: Answers) -> None:
        if not self._sessions.used.joined.has_room(session.peer):
            allowed = "one that this process has joined: processes have joined too many"
            limits = "(max_memberships, and max_share of it for one token)"
            raise InvalidParameter(key.kind, key.in_words, f"{allowed} {limits}")
        if key.windows in session.windows_left:  # another window of a name that it has joined
            return
        if session.names(key.kind) >= answers.limit:
            message = f"this site counts as many as it may ({answers.setting})"
            raise InvalidParameter(key.kind, str(key), message=message)
        self._tombstones.require_room(session.peer, key.kind, key.in_words)

    def exit(self, session: Session, key: Key) -> None:
        session.leave(key)
        self.kinds[key.kind].exited(session, key)

    def lookup(self, session: Session, key: Key) -> tuple[Tracked, SiteId]:
        """The member's tracker, and the id under which the session is counted there."""
        tracked = session.members.get(key)
        if tracked is None:
            raise ProtocolError(f"site {session.site_id.site!r} has not joined {str(key)!r}")
        return tracked, id_in(session, key, tracked)

    def of(self, session: Session) -> Iterator[tuple[Key, Tracked, SiteId]]:
        """Every membership, with the key that the client uses."""
        for key in sorted(session.members):
            yield key, *self.lookup(session, key)

    def keys_in(self, session: Session, tracked: Tracked) -> list[Key]:
        """The client's keys of what is counted there: several only in an overflow series."""
        key = tracked.key
        if key == key.overflow:
            return sorted(each for each, found in session.members.items() if found is tracked)
        return [key] if session.members.get(key) is tracked else []

    def awaited(self, session: Session, key: Key) -> int | None:
        """See `Machine.awaited`."""
        tracked = session.members.get(key)
        return None if tracked is None else tracked.coordinator.awaited(id_in(session, key, tracked))

    # Messages

    def dispatch(self, tracked: Tracked, outbox: Outbox) -> None:
        """Mark what has changed for the next save, then queue messages. Those to sites without a connection
        are dropped: the core sends them again when the site joins.
        """
        tracked.mark()
        for site_id, message in outbox:
            self._send(tracked, site_id, message)

    def _send(self, tracked: Tracked, site_id: SiteId, message: object) -> None:
        kind = self.kinds[tracked.key.kind]
        if kind.saves(message):
            tracked.mark_site(site_id)
        site, incarnation, part = site_id
        key = tracked.key.of_part(part) if part else tracked.key
        session = self._sessions.get(SiteId(site, incarnation) if part else site_id)
        if session is None:
            return
        if kind.asks(message):
            session.owed.ask(key)
        if session.connection is None or key in session.ignored:
            return
        item = kind.down_item(session, key, message)
        if item is not None:
            tracked.traffic.down += 1
            self._pipeline.send(session.connection, item)

    def expect(self, tracked: Tracked, site_ids: Iterable[SiteId]) -> None:
        """After a restart: these must join again."""
        for site_id in site_ids:
            session = self._sessions.get(site_id)
            if session is not None:
                session.owed.ask(tracked.key)

    # How a membership ends

    def mark_unreachable(self, session: Session) -> None:
        for _, tracked, site_id in self.of(session):
            self.dispatch(tracked, tracked.coordinator.mark_unreachable(site_id))

    def leave(self, session: Session, key: Key, tombstones: Sequence[Tombstone], outbox: Outbox) -> None:
        """The session has left, or was lost. The tombstones are what it is told if it comes back.

        A site leaves its windows in order. So one tombstone says that it has left all windows before a period: see
        `watermark`. Only if the process may come back and know more, each window has its own.
        """
        tracked, site_id = self.lookup(session, key)
        self.exit(session, key)
        session.remember(tombstones)
        if tracked.part_of is not None:
            tracked.part_of.sweep_at = -inf
        if any(each.what is not What.WATERMARK for each in tombstones):
            session.delivered |= session.inherited
        if further := _beyond_the_first(key, tombstones):
            self._tombstones.add(session.peer, session.site_id, further)
        self._pipeline.add_tombstones(*tombstones)
        tracked.mark_left(site_id)
        self.dispatch(tracked, outbox)

    def retire(self, session: Session, lost: bool = True) -> None:
        """End its memberships; its counts stay. `lost`: it may have counted events that will never be delivered."""
        self.lose(session, sorted(session.members), lost)
        self._sessions.remove(session)

    def lose_unconfirmed(self, session: Session) -> None:
        """The site does not know windows that it is a member of: our state is an older copy, and it has left them."""
        unconfirmed, session.unconfirmed = session.unconfirmed, set()
        self.lose(session, sorted(unconfirmed.intersection(session.members)))

    def lose(self, session: Session, keys: Iterable[Key], lost: bool = True) -> None:
        """These memberships end without a word of the site."""
        of_windows: dict[Whole, list[int]] = {}
        for key in keys:
            tracked, site_id = self.lookup(session, key)
            outbox, tombstones = self.kinds[key.kind].lose(session, key, site_id, lost)
            self.leave(session, key, tombstones, outbox)
            if tracked.part_of is not None:
                of_windows.setdefault(tracked.part_of, []).append(key.period)
        for windows, periods in of_windows.items() if lost else ():
            windows.lose_site(min(periods), max(periods))

    def begin_again(self, tracked: Sequence[Tracked], keys: AbstractSet[Key], item: Callable[[Key], DownItem]) -> None:
        """These are deleted, and so is what is remembered of the keys. Connected sites are told by the items."""
        for session in self._sessions:
            for each in tracked:
                for key in self.keys_in(session, each):
                    self.exit(session, key)
                    if session.connection is not None:
                        session.ignore(key)
                        self._pipeline.send(session.connection, item(key))
            session.forget(keys)
            self._sessions.remove_if_unused(session)


def id_in(session: Session, key: Key, tracked: Tracked) -> SiteId:
    """Under which id the session is counted there, for the key that its client uses."""
    return session.site_id if tracked.key == key else session.site_id._replace(part=key.name)


def watermark(session: Session, key: Key) -> Tombstone:
    """That the session has left this window, and all before it."""
    first = max(key.period + 1, session.windows_left.get(key.windows, 0))
    return Tombstone(session.site_id, key.windows, What.WATERMARK, first)


def _beyond_the_first(key: Key, tombstones: Iterable[Tombstone]) -> list[tuple[Key, str | None]]:
    """Those that were not accounted for when the session joined: see `Session.join`."""
    labels = ((each.key, each.label) for each in tombstones if each.what is What.LABEL)
    counts = ((each.key, None) for each in tombstones if key.is_window and each.what is What.COUNT)
    return [*labels, *counts]
