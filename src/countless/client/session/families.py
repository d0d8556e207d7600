"""The families of one session: what is due to be sent, which have joined on the present stream, and which have left.

A window of a family is a family of its own. When it is finished it leaves, in the order of windows, and is forgotten.
All other families leave together when the client is closed.
"""

from collections.abc import Callable, Mapping
from threading import RLock
from typing import Protocol

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
from countless.wire.windows import parse_window


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
        self._families: dict[str, FamilyState] = {}
        self._unsent: dict[str, _Unsent] = {}
        self._numbers: dict[str, dict[str, int]] = {}  # of labels, by family that has joined on the present stream
        self._sent: dict[str, KnownFamily] = {}  # the largest counts that this incarnation has sent, on any stream
        self._left: set[str] = set()
        self._leaving = False
        self._rejected: dict[str, str] = {}  # on the present stream, with the reasons
        self._rejections = RejectionLog("family")
        self._label_cap = LABEL_CAP  # of each family, as the coordinator wants it

    def add(self, name: str, family: FamilyState) -> None:
        self._families[name] = family
        family.limit_labels(self._label_cap)
        self.windows.add_counter(name)

    def add_windows(self, name: str, windows: WindowsState) -> None:
        self.windows.add(name, windows)

    def queue(self, name: str, messages: tuple[UpMessage, ...]) -> None:
        """Send these soon."""
        self._unsent.setdefault(name, _Unsent()).add(messages)
        self._notify()

    def renew(self, known: Mapping[str, KnownFamily], known_counts: Mapping[str, int]) -> None:
        """`known_counts` has the windows that left: the number of the first that did not."""
        for name, family in self._families.items():
            window = parse_window(name)
            has_left = window is not None and window.period < known_counts.get(window.group, 0)
            family.renew(KnownFamily(complete=True) if has_left else known.get(name))
        self._sent.clear()

    @property
    def counted(self) -> bool:
        return any(family.active for family in self._families.values())

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
        self.limit_labels(LABEL_CAP)  # until the coordinator says otherwise
        self.windows.new_stream()
        return [item for name in self._families for item in self._join_items(name)]

    def drain(self) -> list[FamilyUpItem]:
        unsent, self._unsent = self._unsent, {}
        items: list[FamilyUpItem] = []
        for name, each in unsent.items():
            if name not in self._numbers:
                items += self._join_items(name)
            if name in self._numbers:  # not rejected
                items += self._items(name, each)
        while (name_due := self.windows.pop_due()) is not None:
            items += self._leave_items(name_due)
        return items

    def _join_items(self, name: str) -> list[FamilyUpItem]:
        """The first time with all that was reported before, so that the coordinator need not ask for it."""
        family = self._families.get(name)
        if family is None or not family.active:
            return []
        if name in self._left or name in self._rejected or self.windows.is_rejected(name):
            return []
        self._numbers[name] = {}
        sync, rest = family.resume()
        if name not in self._sent:
            sync, rest = sync._replace(reported=0), (*rest, *family.receive(Resend(name)))
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

    def _join_again(self, name: str) -> None:
        self._numbers.pop(name, None)
        self._rejected.pop(name, None)
        self.queue(name, ())

    def leave(self) -> None:
        """Windows leave in their order: `drain` has the first ones."""
        self._leaving = True
        self.windows.finish_all(self._families)

    def leave_items(self) -> list[FamilyUpItem]:
        """For all families but windows."""
        others = [name for name in self._families if parse_window(name) is None and name not in self._left]
        return [item for name in others for item in self._leave_items(name)]

    def _leave_items(self, name: str) -> list[FamilyUpItem]:
        family = self._families[name]
        if not family.active:  # the coordinator knows nothing of it
            self._has_left(name)
            return []
        if name in self._rejected:
            return []
        joining = [] if name in self._numbers else self._join_items(name)
        reports, sync = family.leave()
        unsent = _Unsent()
        unsent.add(reports)
        self._note_sent(name, sync.total, {})
        return [*joining, *self._items(name, unsent), FamilyLeave(*sync_item(sync))]

    def _has_left(self, name: str) -> None:
        if parse_window(name) is None:
            self._left.add(name)
        elif self.windows.left(name):
            del self._families[name]
            self._sent.pop(name, None)
            self._rejected.pop(name, None)
            self._forget(name)

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
        name, family = item.family, self._families.get(item.family)
        if family is None:
            return
        if isinstance(item, FamilyLeaveAck):
            if self._leaving or parse_window(name) is not None:  # a family without windows leaves with the client
                self._has_left(name)
        elif isinstance(item, FamilyRejected):
            if self.windows.reject(name, self._clock()):
                self._rejections.warn(name, item.reason)
            self._rejected[name] = item.reason
            self._forget(name)
        elif isinstance(item, FamilyReset):
            family.reset()
            self._sent.pop(name, None)
            self._forget(name)
            self.windows.leave_again(name)
            self._notify()
        else:
            if replies := family.receive(down_message(item)):
                self.queue(name, replies)
            if isinstance(item, FamilyResend):
                self.windows.leave_again(name)

    def limit_labels(self, cap: int) -> None:
        self._label_cap = cap
        for family in self._families.values():
            family.limit_labels(cap)

    def _forget(self, name: str) -> None:
        self._unsent.pop(name, None)
        self._numbers.pop(name, None)
