"""A counter in a session: its reports, and what the coordinator knows of it."""

from collections.abc import Sequence
from typing import Protocol

from countless.client.kinds.member import ItemEffect, Member
from countless.core.messages import DownMessage, SetTrigger, SiteId, Snapshot, StartRound, UpMessage
from countless.wire.frames import CounterRejected, DownItem, Join, Leave, LeaveAck, Rejoin, UpItem
from countless.wire.keys import Key


class CounterState(Protocol):
    """A counter of this incarnation: a `LocalCounter`, or what a process that ended has left of one."""

    announced: bool  # the coordinator may know it although it has counted nothing

    @property
    def open(self) -> bool: ...

    @property
    def count(self) -> int: ...

    def rejoin_messages(self) -> tuple[Snapshot, tuple[UpMessage, ...]]:
        """The exact count, and every message that may have been lost with the last connection."""

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        """Apply a message of the coordinator and return the site's reply."""

    def reset(self, site_id: SiteId, delivered: int | None) -> None:
        """Continue as a new incarnation with the events beyond the first `delivered`; None: with none of them."""


class CounterMember(Member[int]):
    """Messages are cumulative: a later report replaces an earlier one that was not sent yet."""

    def __init__(self, key: Key, counter: CounterState) -> None:
        super().__init__(key)
        self._counter = counter
        self._messages: dict[type[UpMessage], UpMessage] = {}

    def queue(self, messages: Sequence[UpMessage]) -> None:
        for message in messages:
            self._messages.pop(type(message), None)
            self._messages[type(message)] = message
        self._changed(self.key)

    @property
    def active(self) -> bool:
        return self._counter.announced or self.counted

    @property
    def counted(self) -> bool:
        return self._counter.count > 0

    def join(self) -> Sequence[UpItem]:
        snapshot, resent = self._counter.rejoin_messages()
        if not snapshot.count and not self._counter.announced:
            return []
        self.drop_queued()
        self._note_sent(snapshot.count)
        return [Join(*snapshot), *(resent if snapshot.count else ())]

    def take_queued(self) -> Sequence[UpItem]:
        messages = [*self._messages.values()]
        self._messages.clear()
        self._note_sent(*(message.count for message in messages))
        return messages

    def drop_queued(self) -> None:
        self._messages.clear()

    def leave(self) -> Sequence[UpItem]:
        final = self._counter.rejoin_messages()[0]
        self._note_sent(final.count)
        return [Leave(*final)]

    def _note_sent(self, *counts: int) -> None:
        self.sent = max([self.sent or 0, *counts])

    def receive(self, item: DownItem, site_id: SiteId) -> ItemEffect:
        if isinstance(item, StartRound | SetTrigger):
            if self._counter.open and (replies := self._counter.receive(item)):
                self.queue(replies)
        elif isinstance(item, LeaveAck):
            return ItemEffect.LEFT
        elif isinstance(item, CounterRejected):
            self.rejected = item.reason
            return ItemEffect.REJECTED
        elif isinstance(item, Rejoin):
            self._counter.reset(site_id, None)
            self.joined, self.sent = False, None
            return ItemEffect.RESET
        return ItemEffect.NONE

    def renew(self, site_id: SiteId, known: int | None, complete: bool) -> None:
        self._counter.reset(site_id, self._counter.count if complete else known or 0)
        self.sent = None
