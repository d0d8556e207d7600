"""The instantaneous network: every message is counted, and delivered before the next event (SPEC section 6).

It moves messages between one coordinator and its sites inside one process. The sites may be anything that receives:
plain `Site` objects in a simulation, meters shared by many threads in a `Tracker`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from countless.core.coordinator import Coordinator, Outbox
from countless.core.messages import DownMessage, Message, SiteId, Snapshot, UpMessage
from countless.wire.codec import encoded_size

Receive = Callable[[SiteId, DownMessage], tuple[UpMessage, ...]]
Tap = Callable[[SiteId, Message], None]
M = TypeVar("M", UpMessage, DownMessage)
R = TypeVar("R")

GATHERED = 500  # messages are put on the bill so many at a time


@dataclass(frozen=True, slots=True)
class Messages:
    """What has been sent so far. Each message is one word in the paper's accounting."""

    up: int
    down: int
    bytes: int

    @property
    def total(self) -> int:
        """Both directions."""
        return self.up + self.down

    @property
    def words(self) -> int:
        """The paper's unit."""
        return self.total


class MemoryNetwork:
    """Delivers until nobody has anything more to say. `tap`, if given, sees every message in order."""

    __slots__ = ("_bytes", "_coordinator", "_down", "_downs", "_hear", "_receive", "_tap", "_up", "_ups")

    def __init__(self, coordinator: Coordinator, receive: Receive, tap: Tap | None = None) -> None:
        self._coordinator = coordinator
        self._tap = tap
        self._hear = coordinator.receive if tap is None else _tapped(coordinator.receive, tap)
        self._receive = receive if tap is None else _tapped(receive, tap)
        self._up = self._down = self._bytes = 0
        self._ups: list[UpMessage] = []  # not on the bill yet
        self._downs: list[DownMessage] = []

    @property
    def messages(self) -> Messages:
        """The bill so far."""
        self._add_up()
        return Messages(self._up, self._down, self._bytes)

    def _add_up(self) -> None:
        self._up += len(self._ups)
        self._down += len(self._downs)
        self._bytes += encoded_size(self._ups) + encoded_size(self._downs)
        self._ups.clear()
        self._downs.clear()

    def send(self, site_id: SiteId, messages: tuple[UpMessage, ...]) -> None:
        """A site speaks."""
        ups, hear = self._ups, self._hear
        for message in messages:
            ups.append(message)
            outbox = hear(site_id, message)
            if outbox:  # most of what is said has no consequences
                self._settle(outbox)
        if len(ups) >= GATHERED:
            self._add_up()

    def join(self, site_id: SiteId, hello: Snapshot) -> None:
        """A site comes."""
        outbox = self._coordinator.join(site_id, hello)
        self._sent_up(site_id, hello)
        self._settle(outbox)

    def leave(self, site_id: SiteId, farewell: Snapshot) -> None:
        """A site goes."""
        self._sent_up(site_id, farewell)
        self._settle(self._coordinator.leave(site_id, farewell))

    def _sent_up(self, site_id: SiteId, message: UpMessage) -> None:
        self._ups.append(message)
        if self._tap is not None:
            self._tap(site_id, message)

    def _settle(self, outbox: Outbox) -> None:
        hear, receive, ups, downs = self._hear, self._receive, self._ups, self._downs
        for site_id, message in outbox:
            downs.append(message)
            for reply in receive(site_id, message):
                ups.append(reply)
                more = hear(site_id, reply)
                if more:
                    outbox += more  # the list grows while it is read: first said, first heard


def _tapped(hear: Callable[[SiteId, M], R], tap: Tap) -> Callable[[SiteId, M], R]:
    def tapped(site_id: SiteId, message: M) -> R:
        tap(site_id, message)
        return hear(site_id, message)

    return tapped
