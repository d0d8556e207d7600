"""The families of one session: what is due to be sent, which have joined on the present stream, and which have left.

A window of a family is a family of its own. When it is finished it leaves, in the order of windows, and is forgotten.
All other families leave together when the client is closed.
"""

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Protocol

from countless.client.session.known import Known
from countless.client.session.rejections import RejectionLog
from countless.client.session.windows import SessionWindows, WindowsState
from countless.core.family.messages import DownMessage, Report, Resend, Sync, UpMessage
from countless.core.family.rule import FamilyRule
from countless.core.family.site import LABEL_CAP
from countless.wire.families import (
    FamilyDownItem,
    FamilyLeave,
    FamilyLeaveAck,
    FamilyRejected,
    FamilyResend,
    FamilyReset,
    FamilyUpItem,
    KnownFamily,
    down_message,
    join_item,
    report_items,
    sync_item,
)
from countless.wire.keys import Key


class FamilyState(Protocol):
    """A family of this incarnation: a `LocalFamily`."""

    @property
    def rule(self) -> FamilyRule: ...

    @property
    def active(self) -> bool:
        """Whether there is anything to report, or was."""

    def resume(self) -> tuple[Sync, tuple[UpMessage, ...]]:
        """What a new connection begins with."""

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]: ...

    def leave(self) -> tuple[tuple[UpMessage, ...], Sync]: ...

    def renew(self, known: KnownFamily | None) -> None:
        """Continue as a new incarnation with the events that are not known."""

    def reset(self) -> None:
        """Begin again from zero."""

    def limit_labels(self, cap: int) -> None:
        """Count at most so many labels by name from now on, beside those that it has."""


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

    def __init__(self, lock: RLock, notify: Callable[[], None], clock: Callable[[], float]) -> None:
        self._notify = notify
        self._clock = clock
        self.windows = SessionWindows(lock, self._join_again, notify)
        self._families: dict[Key, FamilyState] = {}
        self._keys: dict[str, Key] = {}  # of these, by the text that frames have
        self._unsent: dict[Key, _Unsent] = {}
        self._numbers: dict[Key, dict[str, int]] = {}  # of labels, by family that has joined on the present stream
        self._sent: dict[Key, KnownFamily] = {}  # the largest counts that this incarnation has sent, on any stream
        self._left: set[Key] = set()
        self._leaving = False
        self._rejected: dict[Key, str] = {}  # on the present stream, with the reasons
        self._rejections = RejectionLog("family")
        self._label_cap = LABEL_CAP  # of each family, as the coordinator wants it

    def add(self, key: Key, family: FamilyState) -> None:
        self._families[key] = family
        self._keys[str(key)] = key
        family.limit_labels(self._label_cap)
        self.windows.add_counter(key)

    def add_windows(self, windows: WindowsState) -> None:
        self.windows.add(windows)

    def queue(self, key: Key, messages: tuple[UpMessage, ...]) -> None:
        """Send these soon."""
        self._unsent.setdefault(key, _Unsent()).add(messages)
        self._notify()

    def renew(self, known: Known) -> None:
        for key, family in self._families.items():
            family.renew(KnownFamily(complete=True) if known.has_left(key) else known.families.get(key))
        self._sent.clear()

    @property
    def counted(self) -> bool:
        return any(family.active for family in self._families.values())

    @property
    def sent(self) -> dict[Key, KnownFamily]:
        return dict(self._sent)

    @property
    def rejected(self) -> dict[str, str]:
        """Families that the coordinator has rejected on the present stream, with its reasons."""
        return {key.in_words: reason for key, reason in self._rejected.items()}

    # Joining, sending, leaving

    def initial_items(self) -> list[FamilyUpItem]:
        """What a new stream begins with. The coordinator asks for reports that were lost with the last one."""
        self._unsent.clear()
        self._numbers.clear()
        self._rejected.clear()
        self.limit_labels(LABEL_CAP)  # until the coordinator says otherwise
        self.windows.new_stream()
        return [item for key in self._families for item in self._join_items(key)]

    def drain(self) -> list[FamilyUpItem]:
        unsent, self._unsent = self._unsent, {}
        items: list[FamilyUpItem] = []
        for key, each in unsent.items():
            if key not in self._numbers:
                items += self._join_items(key)
            if key in self._numbers:  # not rejected
                items += self._items(key, each)
        while (window := self.windows.pop_due()) is not None:
            items += self._leave_items(window)
        return items

    def _join_items(self, key: Key) -> list[FamilyUpItem]:
        """The first time with all that was reported before, so that the coordinator need not ask for it."""
        family = self._families.get(key)
        if family is None or not family.active:
            return []
        if key in self._left or key in self._rejected or self.windows.is_rejected(key):
            return []
        self._numbers[key] = {}
        sync, rest = family.resume()
        if key not in self._sent:
            sync, rest = sync._replace(reported=0), (*rest, *family.receive(Resend(sync.family)))
        unsent = _Unsent()
        unsent.add(rest)
        self._note_sent(key, sync.total, {})
        return [join_item(family.rule, sync), *self._items(key, unsent)]

    def _items(self, key: Key, unsent: _Unsent) -> list[FamilyUpItem]:
        items: list[FamilyUpItem] = []
        if unsent.last is not None:
            family, number, _, total = unsent.last
            items += report_items(family, number, total, unsent.counts, self._numbers[key])
            self._note_sent(key, total, unsent.counts)
        if unsent.sync is not None:
            self._note_sent(key, unsent.sync.total, {})
            items.append(sync_item(unsent.sync))
        return items

    def _note_sent(self, key: Key, total: int, counts: Mapping[str, int]) -> None:
        before = self._sent.get(key, KnownFamily())
        before.counts.update(counts)
        self._sent[key] = KnownFamily(max(before.total, total), counts=before.counts)

    def _join_again(self, key: Key) -> None:
        self._numbers.pop(key, None)
        self._rejected.pop(key, None)
        self.queue(key, ())

    def leave(self) -> None:
        """Windows leave in their order: `drain` has the first ones."""
        self._leaving = True
        self.windows.finish_all(self._families)

    def leave_items(self) -> list[FamilyUpItem]:
        """For all families but windows."""
        others = [key for key in self._families if not key.is_window and key not in self._left]
        return [item for key in others for item in self._leave_items(key)]

    def _leave_items(self, key: Key) -> list[FamilyUpItem]:
        family = self._families[key]
        if not family.active:  # the coordinator knows nothing of it
            self._has_left(key)
            return []
        if key in self._rejected:
            return []
        joining = [] if key in self._numbers else self._join_items(key)
        reports, sync = family.leave()
        unsent = _Unsent()
        unsent.add(reports)
        self._note_sent(key, sync.total, {})
        return [*joining, *self._items(key, unsent), FamilyLeave(*sync_item(sync))]

    def _has_left(self, key: Key) -> None:
        if not key.is_window:
            self._left.add(key)
        elif self.windows.left(key):
            del self._families[key], self._keys[str(key)]
            self._sent.pop(key, None)
            self._rejected.pop(key, None)
            self._forget(key)

    @property
    def delivered(self) -> bool:
        return self._left >= self._families.keys()

    @property
    def all_left(self) -> bool:
        """Nothing more can leave on this stream."""
        rejected = self._rejected.keys()
        return self._left | rejected | self.windows.behind(rejected) >= self._families.keys()

    # What the coordinator sends

    def receive(self, item: FamilyDownItem) -> None:
        key = self._keys.get(item.family)
        if key is None:
            return
        family = self._families[key]
        if isinstance(item, FamilyLeaveAck):
            if self._leaving or key.is_window:  # a family without windows leaves with the client
                self._has_left(key)
        elif isinstance(item, FamilyRejected):
            if self.windows.reject(key, self._clock()):
                self._rejections.warn(key.in_words, item.reason)
            self._rejected[key] = item.reason
            self._forget(key)
        elif isinstance(item, FamilyReset):
            family.reset()
            self._sent.pop(key, None)
            self._forget(key)
            self.windows.leave_again(key)
            self._notify()
        else:
            if replies := family.receive(down_message(item)):
                self.queue(key, replies)
            if isinstance(item, FamilyResend):
                self.windows.leave_again(key)

    def limit_labels(self, cap: int) -> None:
        self._label_cap = cap
        for family in self._families.values():
            family.limit_labels(cap)

    def _forget(self, key: Key) -> None:
        self._unsent.pop(key, None)
        self._numbers.pop(key, None)
