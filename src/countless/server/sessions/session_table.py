"""Who is there: the lives of the sites, their connections, and how long nobody has heard of them.

A *life* is one run of one site's process. Several lives of one name may be there at once - the workers of a web server
share their configuration - so a life is given up only when it has been silent and another of its name is there, or
when the operator says so. Giving up is safe even if it was a mistake: what is known of the life stays in the total, and
should it come back, it is told how much that was and begins another life with the rest.
"""

from collections.abc import Iterator
from typing import Protocol

from countless.core.messages import SiteId
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

    __slots__ = ("asked", "counters", "heard", "left", "line", "silent", "site_id")

    def __init__(self, site_id: SiteId, heard: float) -> None:
        self.site_id = site_id
        self.counters: dict[str, SiteId] = {}  # by the names it uses: its address in the counter, mostly its own
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
        self._all: dict[SiteId, Life] = {}
        self._named: dict[str | int, set[SiteId]] = {}

    def __iter__(self) -> Iterator[Life]:
        return iter(list(self._all.values()))

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, site_id: SiteId) -> bool:
        return site_id in self._all

    def get(self, site_id: SiteId) -> Life | None:
        """The life at this address, if it counts."""
        return self._all.get(site_id)

    def enter(self, site_id: SiteId, now: float) -> Life:
        """The life at this address, from now on if not before."""
        life = self._all.get(site_id)
        if life is None:
            life = self._all[site_id] = Life(site_id, now)
            self._named.setdefault(site_id.site, set()).add(site_id)
        return life

    def remove(self, life: Life) -> None:
        """It is over."""
        if self._all.pop(life.site_id, None) is not None:
            named = self._named[life.site_id.site]
            named.discard(life.site_id)
            if not named:
                del self._named[life.site_id.site]

    def named(self, site: str) -> list[Life]:
        """All lives of one name."""
        return [self._all[site_id] for site_id in sorted(self._named.get(site, ()))]

    def superseded(self, life: Life) -> bool:
        """Whether another life of the same name is connected."""
        return any(
            self._all[other].line is not None for other in self._named.get(life.site_id.site, set()) - {life.site_id}
        )
