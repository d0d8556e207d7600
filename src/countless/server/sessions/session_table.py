"""Who is there: the lives of the sites, their connections, and how long nobody has heard of them.

A *life* is one run of one site's process. Several lives of one name may be there at once - the workers of a web server
share their configuration - so a life is given up only when it has been silent and another of its name is there, or
when the operator says so. Giving up is safe even if it was a mistake: what is known of the life stays in the total, and
should it come back, it is told how much that was and begins another life with the rest.
"""

from collections.abc import Iterator
from typing import Protocol

from countless.core.messages import Address
from countless.wire.frames import DownItem

# A sign of life costs two frames, and says only that nothing has happened. A process that dies hangs up, which is seen
# at once; these are for the others: a machine without power, a network that is cut.
HEARTBEAT = 3


class Line(Protocol):
    """An open connection, as the host sees it."""

    heard: float  # the time of the last frame
    void: set[str]  # counters whose messages are ignored until they are joined anew

    def send(self, items: list[DownItem]) -> None:
        """Queue what is to be sent."""

    def close(self, code: int, reason: str) -> None:
        """Hang up."""


class Life:
    """One life of one site."""

    __slots__ = ("address", "asked", "counters", "heard", "left", "line", "silent")

    def __init__(self, address: Address, heard: float) -> None:
        self.address = address
        self.counters: dict[str, Address] = {}  # by the names it uses: its address in the counter, mostly its own
        self.left: set[str] = set()  # counters it has left in good order
        self.line: Line | None = None
        self.heard = heard
        self.asked: float | None = None  # since when it owes an answer
        self.silent = False

    @property
    def state(self) -> str:
        """In one word."""
        return "silent" if self.silent else "connected" if self.line else "away"

    def last_heard(self) -> float:
        """When it last gave a sign of life."""
        return max(self.heard, self.line.heard) if self.line else self.heard

    def overdue(self, now: float, silent_after: float) -> bool:
        """Whether a sign of life should have come. Who has hung up, or owes an answer, is given `silent_after`; who is
        connected and has nothing to say speaks every `HEARTBEAT` times that, and may be late.
        """
        if self.asked is not None and now - self.asked > silent_after:
            return True
        return now - self.last_heard() > silent_after * (1 if self.line is None else HEARTBEAT + 2)


class Lives:
    """All lives that count, by address and by name."""

    def __init__(self) -> None:
        self._all: dict[Address, Life] = {}
        self._named: dict[str | int, set[Address]] = {}

    def __iter__(self) -> Iterator[Life]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, address: Address) -> bool:
        return address in self._all

    def get(self, address: Address) -> Life | None:
        """The life at this address, if it counts."""
        return self._all.get(address)

    def enter(self, address: Address, now: float) -> Life:
        """The life at this address, from now on if not before."""
        life = self._all.get(address)
        if life is None:
            life = self._all[address] = Life(address, now)
            self._named.setdefault(address.site, set()).add(address)
        return life

    def remove(self, life: Life) -> None:
        """It is over."""
        if self._all.pop(life.address, None) is not None:
            named = self._named[life.address.site]
            named.discard(life.address)
            if not named:
                del self._named[life.address.site]

    def named(self, site: str) -> list[Life]:
        """All lives of one name."""
        return [self._all[address] for address in sorted(self._named.get(site, ()))]

    def superseded(self, life: Life) -> bool:
        """Whether another life of the same name is connected."""
        return any(
            self._all[other].line is not None for other in self._named.get(life.address.site, set()) - {life.address}
        )
