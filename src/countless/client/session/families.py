"""The families of one session: what is due to be sent, which have joined on the present stream, and which have left."""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

from countless.core.family.messages import DownMessage, Report, Sync, UpMessage
from countless.core.family.rule import FamilyRule
from countless.wire.families import (
    FamilyDownItem,
    FamilyLeave,
    FamilyLeaveAck,
    FamilyRejected,
    FamilyReset,
    FamilyUpItem,
    KnownFamily,
    down_message,
    join_item,
    report_items,
    sync_item,
)

log = logging.getLogger("countless")


class FamilyState(Protocol):
    """A family of this incarnation: a `LocalFamily`."""

    @property
    def rule(self) -> FamilyRule: ...

    @property
    def active(self) -> bool:
        """Whether there is anything to report, or was."""

    @property
    def inherited(self) -> bool:
        """Another process has counted this, and may have sent it."""

    def resume(self) -> tuple[Sync, tuple[UpMessage, ...]]:
        """What a new connection begins with."""

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]: ...

    def leave(self) -> tuple[tuple[UpMessage, ...], Sync]: ...

    def renew(self, known: KnownFamily | None) -> None:
        """Continue as a new incarnation with the events that are not known."""

    def reset(self) -> None:
        """Begin again from zero."""


class _Unsent:
    """Reports are cumulative: what is sent of a label is its last count."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.last: Report | None = None
        self.sync: Sync | None = None

    def add(self, messages: tuple[UpMessage, ...]) -> None:
        for message in messages:
            if isinstance(message, Report):
                self.counts.update(message.counts)
                self.last = message
            else:
                self.sync = message


class SessionFamilies:
    """Everything is called with the lock held. `notify`: there is something to `drain`."""

    def __init__(self, notify: Callable[[], None]) -> None:
        self._notify = notify
        self._families: dict[str, FamilyState] = {}
        self._unsent: dict[str, _Unsent] = {}
        self._numbers: dict[str, dict[str, int]] = {}  # of labels, by family that has joined on the present stream
        self._sent: dict[str, KnownFamily] = {}  # the largest counts that this incarnation has sent, on any stream
        self._left: set[str] = set()
        self._rejected: dict[str, str] = {}  # on the present stream, with the reasons

    def add(self, name: str, family: FamilyState) -> None:
        self._families[name] = family

    def queue(self, name: str, messages: tuple[UpMessage, ...]) -> None:
        """Send these soon."""
        self._unsent.setdefault(name, _Unsent()).add(messages)
        self._notify()

    def renew(self, known: Mapping[str, KnownFamily]) -> None:
        for name, family in self._families.items():
            family.renew(known.get(name))
        self._sent.clear()

    @property
    def inherited(self) -> bool:
        return any(family.inherited and family.active for family in self._families.values())

    @property
    def sent(self) -> dict[str, KnownFamily]:
        return dict(self._sent)

    @property
    def rejected(self) -> dict[str, str]:
        """Families that the coordinator has rejected on the present stream, with its reasons."""
        return dict(self._rejected)

    # Joining, sending, leaving

    def initial_items(self) -> list[FamilyUpItem]:
        """What a new stream begins with. The coordinator asks for reports that were lost with the last one."""
        self._unsent.clear()
        self._numbers.clear()
        self._rejected.clear()
        return [item for name in self._families for item in self._join_items(name)]

    def drain(self) -> list[FamilyUpItem]:
        unsent, self._unsent = self._unsent, {}
        items: list[FamilyUpItem] = []
        for name, each in unsent.items():
            items += [] if name in self._numbers else self._join_items(name)
            if name in self._numbers:  # not rejected: with its reports, so that `flush` waits for them
                items += self._items(name, each)
        return items

    def _join_items(self, name: str) -> list[FamilyUpItem]:
        family = self._families[name]
        if name in self._left or name in self._rejected or not family.active:
            return []
        self._numbers[name] = {}
        sync, rest = family.resume()
        unsent = _Unsent()
        unsent.add(rest)
        self._note_sent(name, sync.total, {})
        return [join_item(family.rule, sync), *self._items(name, unsent)]

    def _items(self, name: str, unsent: _Unsent) -> list[FamilyUpItem]:
        items: list[FamilyUpItem] = []
        if unsent.last is not None:
            _, number, _, total = unsent.last
            items += report_items(name, number, total, unsent.counts, self._numbers[name])
            self._note_sent(name, total, unsent.counts)
        if unsent.sync is not None:
            self._note_sent(name, unsent.sync.total, {})
            items.append(sync_item(unsent.sync))
        return items

    def _note_sent(self, name: str, total: int, counts: Mapping[str, int]) -> None:
        before = self._sent.get(name, KnownFamily())
        before.counts.update(counts)
        self._sent[name] = KnownFamily(max(before.total, total), counts=before.counts)

    def leave_items(self) -> list[FamilyUpItem]:
        return [item for name in self._families if name not in self._left for item in self._leave_items(name)]

    def _leave_items(self, name: str) -> list[FamilyUpItem]:
        family = self._families[name]
        if not family.active:  # the coordinator knows nothing of it
            self._left.add(name)
            return []
        if name in self._rejected:
            return []
        joining = [] if name in self._numbers else self._join_items(name)
        reports, sync = family.leave()
        unsent = _Unsent()
        unsent.add(reports)
        self._note_sent(name, sync.total, {})
        return [*joining, *self._items(name, unsent), FamilyLeave(*sync_item(sync))]

    @property
    def delivered(self) -> bool:
        return self._left >= self._families.keys()

    @property
    def all_left(self) -> bool:
        """Nothing more can leave on this stream."""
        return self._left | self._rejected.keys() >= self._families.keys()

    # What the coordinator sends

    def receive(self, item: FamilyDownItem) -> None:
        name, family = item.family, self._families.get(item.family)
        if family is None:
            return
        if isinstance(item, FamilyLeaveAck):
            self._left.add(name)
        elif isinstance(item, FamilyRejected):
            log.warning("family %r rejected by the coordinator: %s", name, item.reason)
            self._rejected[name] = item.reason
            self._forget(name)
        elif isinstance(item, FamilyReset):
            family.reset()
            self._sent.pop(name, None)
            self._forget(name)
            self._notify()
        elif replies := family.receive(down_message(item)):
            self.queue(name, replies)

    def _forget(self, name: str) -> None:
        self._unsent.pop(name, None)
        self._numbers.pop(name, None)
