"""A network inside one process: it counts every message and delivers it before the next event.

A site is anything that receives messages: a plain `Site` in a simulation, a counter shared by threads in a `Tracker`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from countless.core.coordinator import Coordinator
from countless.core.messages import DownMessage, Message, Outbox, SiteId, Snapshot, UpMessage
from countless.wire.codec import encode

Receive = Callable[[SiteId, DownMessage], tuple[UpMessage, ...]]
Tap = Callable[[SiteId, Message], None]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Messages sent so far. `bytes` is their encoded size, or None unless the owner asked for `count_bytes`."""

    up: int
    down: int
    bytes: int | None = None

    def __add__(self, other: "Traffic") -> "Traffic":
        in_bytes = None if self.bytes is None or other.bytes is None else self.bytes + other.bytes
        return Traffic(self.up + other.up, self.down + other.down, in_bytes)

    @property
    def total(self) -> int:
        """Messages in both directions."""
        return self.up + self.down

    @property
    def words(self) -> int:
        """The paper's unit of communication: one word for each message."""
        return self.total


class MemoryNetwork:
    """Delivers the messages of one counter, in the order in which they were sent.

    `tap`, if given, sees every message before its receiver does. `count_bytes` encodes every message to add up the
    bytes, which takes longer than delivering it.
    """

    __slots__ = ("_bytes", "_coordinator", "_count_bytes", "_down", "_receive", "_taps", "_up")

    def __init__(
        self, coordinator: Coordinator, receive: Receive, tap: Tap | None = None, *, count_bytes: bool = False
    ) -> None:
        self._coordinator = coordinator
        self._receive = receive
        self._count_bytes = count_bytes
        self._up = self._down = self._bytes = 0
        self._taps = [] if tap is None else [tap]
        if count_bytes:
            self._taps.append(self._add_size)

    @property
    def traffic(self) -> Traffic:
        return Traffic(self._up, self._down, self._bytes if self._count_bytes else None)

    def send(self, site_id: SiteId, messages: tuple[UpMessage, ...]) -> None:
        """Deliver what a site sends, and all that follows from it."""
        outbox = self._send_up(site_id, messages)
        if outbox:
            self.deliver(outbox)

    def join(self, site_id: SiteId, hello: Snapshot) -> None:
        """Let a site join. A PlanError leaves the traffic as it was."""
        outbox = self._coordinator.join(site_id, hello)
        self._up += 1
        self._tap(site_id, hello)
        self.deliver(outbox)

    def leave(self, site_id: SiteId, final: Snapshot) -> None:
        self._up += 1
        self._tap(site_id, final)
        self.deliver(self._coordinator.leave(site_id, final))

    def _send_up(self, site_id: SiteId, messages: tuple[UpMessage, ...]) -> Outbox:
        outbox: Outbox = []
        for message in messages:
            self._up += 1
            if self._taps:
                self._tap(site_id, message)
            if replies := self._coordinator.receive(site_id, message):
                outbox += replies
        return outbox

    def deliver(self, outbox: Outbox) -> None:
        """Deliver what the coordinator sends, and all that follows from it."""
        for site_id, message in outbox:
            self._down += 1
            if self._taps:
                self._tap(site_id, message)
            outbox += self._send_up(site_id, self._receive(site_id, message))  # the loop delivers that too

    def _tap(self, site_id: SiteId, message: Message) -> None:
        for tap in self._taps:
            tap(site_id, message)

    def _add_size(self, site_id: SiteId, message: Message) -> None:
        self._bytes += len(encode(message))
