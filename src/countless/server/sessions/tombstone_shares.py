"""How much of the disk one peer may fill with tombstones.

A tombstone is kept for `remember_for`, and a peer can invent one incarnation after another. So what a peer has caused
is added up, since the coordinator started, and beyond its share it can join nothing that would leave another one. All
that it has joined before is counted on, and gets its tombstone: nothing is lost or counted twice.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable

from countless.core.messages import SiteId
from countless.errors import InvalidParameter
from countless.server.sessions.shares import UNLIMITED, Amounts

DAY_S = 86_400.0


def tombstone_bytes(site_id: SiteId, name: str) -> int:
    """About what a tombstone takes on the disk: the names are in a row and in an index.

    >>> tombstone_bytes(SiteId("checkout-6f7c9d5b8-x2x9q", 1), 'http_requests_total{route="/api/v1/items"}')
    202
    """
    return 70 + 2 * (len(str(site_id.site).encode()) + len(name.encode()))


class TombstoneShares:
    """Bytes by peer and day: a day is forgotten when its tombstones are.

    >>> shares = TombstoneShares(limit_mb=1, share=0.0002, remember_for=86_400, clock=lambda: 0.0)
    >>> shares.add("token 1", SiteId("a", 1), ["hits", "visits"])
    >>> shares.is_full("token 1"), shares.is_full("token 2"), shares.largest
    (False, False, 164)
    """

    def __init__(self, limit_mb: int, share: float, remember_for: float, clock: Callable[[], float]) -> None:
        self._bytes = Amounts(limit_mb * 1_000_000, share)
        self._remember_for = remember_for
        self._clock = clock
        self._by_day: dict[int, Tally[str]] = {}

    @property
    def largest(self) -> int:
        """Bytes, of the peer that has caused most."""
        self._forget()
        return self._bytes.largest

    def is_full(self, peer: str) -> bool:
        self._forget()
        return self._bytes.is_full(peer)

    def require_room(self, peer: str, parameter: str, name: str) -> None:
        """Raise InvalidParameter if the peer must not join a counter, or a family, that it has not joined before."""
        if self.is_full(peer):
            allowed = "one that this process has used before: too many processes of its token have come and gone"
            raise InvalidParameter(parameter, name, f"{allowed} (max_share of max_tombstone_mb)")

    def add(self, peer: str, site_id: SiteId, names: Iterable[str]) -> None:
        """The peer has caused these tombstones of a site, or will when it leaves."""
        if peer != UNLIMITED:
            size = sum(tombstone_bytes(site_id, name) for name in names)
            self._by_day.setdefault(int(self._clock() // DAY_S), Tally())[peer] += size
            self._bytes.add(peer, size)

    def _forget(self) -> None:
        oldest = (self._clock() - self._remember_for) // DAY_S
        while self._by_day and (day := next(iter(self._by_day))) < oldest:
            for peer, size in self._by_day.pop(day).items():
                self._bytes.add(peer, -size)
