"""The owner of a coordinator, as the service will be one: saves before it sends, knows who is gone (SPEC section 2).

The core has no clock, no disk and no connections. What its owner must add for the promises to hold is small, and here
it is in one place, so that the faulty world tests it too:

- save the `Memory` after each input and before anything is sent;
- bury an earlier life of a site when the next one says hello: what was known of it is all that will ever be known;
- remember who is gone, and do not listen to it any more: its words may still be under way.
"""

from collections.abc import Callable
from typing import NamedTuple

from countless.core.coordinator import Coordinator, Memory, Outbox
from countless.core.messages import Address, SiteName, Snapshot, UpMessage
from countless.errors import ProtocolError


class Saved(NamedTuple):
    """What is on the disk."""

    memory: Memory
    lives: dict[SiteName, Address]  # the present life of each site
    gone: frozenset[Address]


class Owner:
    """A coordinator that may die at any moment, and what it leaves behind."""

    def __init__(self, build: Callable[[Memory | None], Coordinator], fleet: list[Address]) -> None:
        self._build = build
        self.coordinator = build(None)
        self.lives: dict[SiteName, Address] = {address.site: address for address in fleet}
        self.gone: frozenset[Address] = frozenset()
        self.buried = 0  # events known of lives that ended without their last words
        self._save()

    def _save(self) -> None:
        self.saved = Saved(self.coordinator.memory, dict(self.lives), self.gone)

    def restart(self) -> Outbox:
        """Another process goes on from what the last one saved."""
        memory, lives, self.gone = self.saved
        self.lives = dict(lives)
        self.coordinator = self._build(memory)
        return self._done(self.coordinator.wake())

    def _done(self, outbox: Outbox) -> Outbox:
        self._save()
        return outbox

    def known(self, address: Address) -> int:
        """What the coordinator has heard of a site."""
        return dict(self.coordinator.memory.known).get(address, 0)

    def hello(self, address: Address, hello: Snapshot) -> Outbox:
        """A connection has opened."""
        earlier = self.lives.get(address.site, address)
        if address in self.gone or earlier.incarnation > address.incarnation:
            return []
        outbox = self._bury(earlier) if earlier != address else []
        self.lives[address.site] = address
        return self._done(outbox + self.coordinator.join(address, hello))

    def _bury(self, address: Address) -> Outbox:
        known, coordinator = self.known(address), self.coordinator
        self.buried += known
        self.gone |= {address}
        return coordinator.leave(address, Snapshot(coordinator.counter, coordinator.round, known))

    def farewell(self, address: Address, farewell: Snapshot) -> Outbox:
        """A site goes in good order. It may say so again: the first answer may have been lost."""
        if address in self.gone:
            return []
        self.gone |= {address}
        del self.lives[address.site]
        return self._done(self.coordinator.leave(address, farewell))

    def hear(self, address: Address, message: UpMessage) -> Outbox:
        """A site spoke."""
        if address in self.gone:
            return []
        try:
            return self._done(self.coordinator.receive(address, message))
        except ProtocolError:
            if address in self.lives.values():
                raise
            return []  # its hello was lost or overtaken: it will say it all again

    def silence(self, address: Address) -> Outbox:
        """Nothing was heard of a site for too long."""
        return self._done(self.coordinator.silence(address))
