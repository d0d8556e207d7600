"""The instantaneous network: every message is counted, and delivered before the next event (SPEC section 6).

It moves messages between one coordinator and its sites inside one process. The sites may be anything that receives:
plain `Site` objects in a simulation, meters shared by many threads in a `Tracker`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from countless.core.coordinator import Coordinator, Outbox
from countless.core.messages import Address, DownMessage, Message, Snapshot, UpMessage
from countless.transports.codec import size

Receive = Callable[[Address, DownMessage], tuple[UpMessage, ...]]
Tap = Callable[[Address, Message], None]


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

    __slots__ = ("_bytes", "_coordinator", "_down", "_receive", "_tap", "_up")

    def __init__(self, coordinator: Coordinator, receive: Receive, tap: Tap | None = None) -> None:
        self._coordinator = coordinator
        self._receive = receive
        self._tap = tap
        self._up = self._down = self._bytes = 0

    @property
    def messages(self) -> Messages:
        """The bill so far."""
        return Messages(self._up, self._down, self._bytes)

    def send(self, address: Address, messages: tuple[UpMessage, ...]) -> None:
        """A site speaks."""
        for message in messages:
            self._up += 1  # `_sent_up`, without the call
            self._bytes += size(message)
            if self._tap is not None:
                self._tap(address, message)
            outbox = self._coordinator.receive(address, message)
            if outbox:  # most of what is said has no consequences
                self._settle(outbox)

    def join(self, address: Address, hello: Snapshot) -> None:
        """A site comes."""
        outbox = self._coordinator.join(address, hello)
        self._sent_up(address, hello)
        self._settle(outbox)

    def leave(self, address: Address, farewell: Snapshot) -> None:
        """A site goes."""
        self._sent_up(address, farewell)
        self._settle(self._coordinator.leave(address, farewell))

    def _sent_up(self, address: Address, message: UpMessage) -> None:
        self._up += 1
        self._bytes += size(message)
        if self._tap is not None:
            self._tap(address, message)

    def _settle(self, outbox: Outbox) -> None:
        for address, message in outbox:
            self._down += 1
            self._bytes += size(message)
            if self._tap is not None:
                self._tap(address, message)
            for reply in self._receive(address, message):
                self._sent_up(address, reply)
                more = self._coordinator.receive(address, reply)
                if more:
                    outbox += more  # the list grows while it is read: first said, first heard
