"""A family, or a distribution, in a session: its reports, and what the coordinator knows of it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from countless.client.kinds.member import ItemEffect, Member
from countless.core.family.messages import DownMessage, LabelReport, Resend, Totals, UpMessage
from countless.core.family.rule import FamilyRule
from countless.core.family.site import LABEL_CAP
from countless.core.messages import SiteId
from countless.wire.families import (
    FamilyLeave,
    FamilyLeaveAck,
    FamilyRejected,
    FamilyResend,
    FamilyReset,
    FamilySteps,
    FamilyUpItem,
    KnownFamily,
    LabelCap,
    down_message,
    join_item,
    report_items,
    sync_item,
)
from countless.wire.frames import DownItem
from countless.wire.keys import Key


class FamilyState(Protocol):
    """A family of this incarnation: a `LocalFamily`."""

    @property
    def key(self) -> Key: ...

    @property
    def rule(self) -> FamilyRule: ...

    @property
    def active(self) -> bool:
        """True if there is anything to report, or was."""

    def resume(self) -> tuple[Totals, tuple[UpMessage, ...]]:
        """The messages that begin a new connection."""

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]: ...

    def leave(self) -> tuple[tuple[UpMessage, ...], Totals]: ...

    def renew(self, known: KnownFamily | None) -> None:
        """Continue as a new incarnation with the events that are not known."""

    def reset(self) -> None:
        """Begin again from zero."""

    def limit_labels(self, cap: int) -> None:
        """Count at most this many labels by name from now on, beside those that it has."""


class _Queue:
    """Reports are cumulative: what is sent of a label is its last count."""

    def __init__(self, messages: Sequence[UpMessage] = ()) -> None:
        self.counts: dict[str, int] = {}
        self.last: LabelReport | None = None
        self.sync: Totals | None = None
        self.add(messages)

    def add(self, messages: Sequence[UpMessage]) -> None:
        for message in messages:
            if isinstance(message, LabelReport):
                self.counts.update(message.counts)
                self.last = message
            else:
                self.sync = message


class FamilyMember(Member[KnownFamily]):
    def __init__(self, family: FamilyState) -> None:
        super().__init__(family.key)
        self._family = family
        self._messages = _Queue()
        self._numbers: dict[str, int] = {}  # of labels, on the present stream

    def queue(self, messages: Sequence[UpMessage]) -> None:
        self._messages.add(messages)
        self._changed(self.key)

    def new_stream(self) -> None:
        super().new_stream()
        self._family.limit_labels(LABEL_CAP)  # until the coordinator says otherwise

    @property
    def active(self) -> bool:
        return self._family.active

    @property
    def counted(self) -> bool:
        return self._family.active

    def join(self) -> Sequence[FamilyUpItem]:
        """The first time with all that was reported before, so that the coordinator need not ask for it."""
        if not self._family.active or self.rejected is not None:
            return []
        self._numbers = {}
        sync, rest = self._family.resume()
        if self.sent is None:
            sync, rest = sync._replace(reported=0), (*rest, *self._family.receive(Resend(sync.family)))
        self._note_sent(sync.total, {})
        return [join_item(self._family.rule, sync), *self._items(_Queue(rest))]

    def take_queued(self) -> Sequence[FamilyUpItem]:
        queued, self._messages = self._messages, _Queue()
        return self._items(queued)

    def drop_queued(self) -> None:
        self._messages = _Queue()

    def leave(self) -> Sequence[FamilyUpItem]:
        if self.rejected is not None:
            return []
        reports, sync = self._family.leave()
        self._note_sent(sync.total, {})
        return [*self._items(_Queue(reports)), FamilyLeave(*sync_item(sync))]

    def _items(self, queued: _Queue) -> list[FamilyUpItem]:
        items: list[FamilyUpItem] = []
        if queued.last is not None:
            family, number, _, total = queued.last
            items += report_items(family, number, total, queued.counts, self._numbers)
            self._note_sent(total, queued.counts)
        if queued.sync is not None:
            self._note_sent(queued.sync.total, {})
            items.append(sync_item(queued.sync))
        return items

    def _note_sent(self, total: int, counts: Mapping[str, int]) -> None:
        before = self.sent or KnownFamily()
        before.counts.update(counts)
        self.sent = KnownFamily(max(before.total, total), counts=before.counts)

    def receive(self, item: DownItem, site_id: SiteId) -> ItemEffect:
        if isinstance(item, FamilySteps | FamilyResend):
            if replies := self._family.receive(down_message(item)):
                self.queue(replies)
            return ItemEffect.RESEND if isinstance(item, FamilyResend) else ItemEffect.NONE
        if isinstance(item, FamilyLeaveAck):
            return ItemEffect.LEFT
        if isinstance(item, LabelCap):
            self._family.limit_labels(item.cap)
        elif isinstance(item, FamilyRejected):
            self.rejected = item.reason
            self._forget()
            return ItemEffect.REJECTED
        elif isinstance(item, FamilyReset):
            self._family.reset()
            self.sent = None
            self._forget()
            return ItemEffect.RESET
        return ItemEffect.NONE

    def _forget(self) -> None:
        self.joined = False
        self.drop_queued()

    def renew(self, site_id: SiteId, known: KnownFamily | None, complete: bool) -> None:
        self._family.renew(KnownFamily(complete=True) if complete else known)
        self.sent = None
