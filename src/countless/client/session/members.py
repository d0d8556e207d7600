"""The counters, or all of another kind, of one session: joined on the present stream, due, rejected, or gone.

A window that is finished leaves while the session continues, in the order of windows, and is forgotten then. All others
leave together when the client is closed.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from threading import RLock
from typing import Any

from countless.client.kinds.member import AnyMember, ItemEffect, Known, SessionPart
from countless.client.session.windows import SessionWindows
from countless.core.messages import SiteId
from countless.wire.families import KnownFamily, KnownLabels, LabelCap
from countless.wire.frames import DownItem, IncarnationRetired, KnownCounts, UpItem
from countless.wire.keys import ALL, COUNTED, COUNTER, FAMILY, Key, key_of

log = logging.getLogger("countless")

MAX_WARNINGS = 10  # for one reason
MAX_REASONS = 1_000  # that are counted


class RejectionLog:
    """Warnings, but not one for each of thousands of names with every connection again.

    >>> from unittest.mock import patch
    >>> rejections = RejectionLog("counter")
    >>> with patch.object(log, "warning") as warning:
    ...     for number in range(9000): rejections.warn(f"k{number}", "there are too many")
    >>> warning.call_count, warning.call_args.args[0]
    (10, 'rejected by the coordinator: %s=%r reason=%s (more are not listed)')
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._warned = Counter[str]()  # by reason

    def warn(self, name: str, reason: str) -> None:
        if len(self._warned) >= MAX_REASONS:
            self._warned.clear()
        self._warned[reason] += 1
        if self._warned[reason] < MAX_WARNINGS:
            log.warning("rejected by the coordinator: %s=%r reason=%s", self._kind, name, reason)
        elif self._warned[reason] == MAX_WARNINGS:
            log.warning("rejected by the coordinator: %s=%r reason=%s (more are not listed)", self._kind, name, reason)


def known_of(items: Iterable[DownItem]) -> Known:
    """From what answers a `Hello`. The number that comes with the text of all windows together is the first window that
    has not left. Frames don't say of which kind a count is, and no two things of one process have the same name.

    >>> known = known_of([IncarnationRetired((("hits", 7), ("hits@hour", 5)))])
    >>> known.members[Key(COUNTER, "hits")], known.has_left(Key(COUNTER, "hits", "hour", 4))
    (7, True)
    """
    counts: dict[str, int] = {}
    families: dict[str, KnownFamily] = {}
    for item in items:
        if isinstance(item, KnownCounts | IncarnationRetired):
            counts.update(item.known_counts)
        elif isinstance(item, KnownLabels):
            families[item.family] = families.get(item.family, KnownFamily()).merged(item)
    keys = {key_of(COUNTER, text): count for text, count in counts.items()}
    left = {(key.name, key.calendar): count for key, count in keys.items() if key.period == ALL}
    kinds = [kind for kind in COUNTED if kind != FAMILY]
    return Known(
        {key._replace(kind=kind): count for key, count in keys.items() if key.period != ALL for kind in kinds}
        | {key_of(FAMILY, text): known for text, known in families.items()},
        {Key(kind, *which, ALL): period for which, period in left.items() for kind in COUNTED},
    )


class SessionMembers(SessionPart):
    """`notify`: there is something to `drain`."""

    def __init__(self, kind: str, lock: RLock, notify: Callable[[], None], clock: Callable[[], float]) -> None:
        self._lock = lock
        self._notify = notify
        self._clock = clock
        self.windows = SessionWindows(lock, self._join_again, notify)
        self._members: dict[Key, AnyMember] = {}
        self._by_text: dict[object, AnyMember] = {}  # by the text that frames have
        self._due: dict[Key, None] = {}  # has queued something, or has to join
        self._left: set[Key] = set()
        self._leaving = False
        self._rejected: dict[Key, str] = {}  # on the present stream, with the reasons
        self._rejections = RejectionLog(kind)
        self._for_all: dict[type[DownItem], DownItem] = {}  # the last of each type, on the present stream

    def add(self, member: AnyMember, site_id: SiteId) -> None:
        self._members[member.key] = member
        self._by_text[str(member.key)] = member
        for item in self._for_all.values():
            member.receive(item, site_id)
        member.bind(self._make_due)
        self.windows.add_counter(member.key)
        if member.active:
            self._make_due(member.key)

    def _make_due(self, key: Key) -> None:
        self._due[key] = None
        self._notify()

    def renew(self, site_id: SiteId, known: Known) -> None:
        for key, member in self._members.items():
            member.renew(site_id, known.members.get(key), known.has_left(key))

    @property
    def counted(self) -> bool:
        return any(member.counted for member in self._members.values())

    @property
    def sent(self) -> Mapping[Key, Any]:
        return {key: member.sent for key, member in self._members.items() if member.sent is not None}

    @property
    def rejected(self) -> dict[str, str]:
        return {key.in_words: reason for key, reason in self._rejected.items()}

    # Joining and sending

    def initial_items(self) -> list[UpItem]:
        """All active members join."""
        with self._lock:
            members = list(self._members.values())
            for member in members:
                member.new_stream()
            self._due.clear()
            self._rejected.clear()
            self._for_all.clear()
            self.windows.new_stream()
        items: list[UpItem] = []
        for member in members:  # the lock is released after each, so that a thread that counts does not wait for all
            with self._lock:
                items += self._join(member)
        return items

    def drain(self) -> list[UpItem]:
        due, self._due = self._due, {}
        items: list[UpItem] = []
        for key in due:
            member = self._members[key]
            if not member.joined:
                items += self._join(member)
            if member.joined:
                items += member.take_queued()
            else:
                member.drop_queued()
        while (window := self.windows.pop_due()) is not None:
            items += self._leave(self._members[window])
        return items

    def _join(self, member: AnyMember) -> list[UpItem]:
        if member.key in self._left or self.windows.is_rejected(member.key):
            return []
        items = [*member.join()]
        member.joined = bool(items)
        return items

    def _join_again(self, key: Key) -> None:
        member = self._members.get(key)
        if member is not None:  # otherwise it has left
            member.joined, member.rejected = False, None
            self._rejected.pop(key, None)
            self._make_due(key)

    # Leaving

    def leave(self) -> None:
        """Windows leave in their order: `drain` has the first ones."""
        self._leaving = True
        self.windows.finish_all(self._members)

    def leave_items(self) -> list[UpItem]:
        """For all members but windows."""
        others = [member for key, member in self._members.items() if not key.is_window and key not in self._left]
        return [item for member in others for item in self._leave(member)]

    def _leave(self, member: AnyMember) -> list[UpItem]:
        if not member.active:  # the coordinator knows nothing of it
            self._has_left(member.key)
            return []
        joining = [] if member.joined else self._join(member)
        return [*joining, *member.leave()]

    def _has_left(self, key: Key) -> None:
        if not key.is_window:
            self._left.add(key)
        elif self.windows.left(key):
            del self._members[key], self._by_text[str(key)]
            self._due.pop(key, None)
            self._rejected.pop(key, None)

    @property
    def delivered(self) -> bool:
        return self._left >= self._members.keys()

    @property
    def all_left(self) -> bool:
        if not self._rejected:
            return self.delivered
        rejected = self._rejected.keys()
        return self._left | rejected | self.windows.behind(rejected) >= self._members.keys()

    # What the coordinator sends

    def receive(self, item: DownItem, site_id: SiteId) -> ItemEffect:
        """The first field of an item is the name of its member; those that nobody has are ignored."""
        if isinstance(item, LabelCap):
            return self.receive_all(item, site_id)
        member = self._by_text.get(item[0])
        if member is None:
            return ItemEffect.NONE
        effect, key = member.receive(item, site_id), member.key
        if effect is ItemEffect.LEFT and (self._leaving or key.is_window):  # all but windows leave with the client
            self._has_left(key)
        elif member.rejected is not None and effect is ItemEffect.REJECTED:
            if self.windows.reject(key, self._clock()):
                self._rejections.warn(key.in_words, member.rejected)
            self._rejected[key] = member.rejected
        elif effect in (ItemEffect.RESET, ItemEffect.RESEND):
            self.windows.leave_again(key)
        return effect

    def receive_all(self, item: DownItem, site_id: SiteId) -> ItemEffect:
        """An item for all members, and for those that come later on this stream."""
        self._for_all[type(item)] = item
        for member in self._members.values():
            member.receive(item, site_id)
        return ItemEffect.NONE

    # Windows

    @property
    def next_tick(self) -> float:
        return self.windows.ticks.next_tick

    def tick(self, now: float) -> None:
        self.windows.ticks.tick(now)
