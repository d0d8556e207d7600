"""How much of the disk one peer may fill with tombstones.

A tombstone is kept for `remember_for`, and a peer can invent one incarnation after another. So what a peer has caused
is added up and saved, and beyond its share it can join nothing that would leave another one. All that it has joined
before is counted on, and gets its tombstone: nothing is lost or counted twice.
"""

from collections.abc import Callable, Iterable, Mapping

from countless.core.messages import SiteId
from countless.errors import InvalidParameter
from countless.server.sessions.shares import UNLIMITED, Amounts
from countless.server.storage.base import DayOfPeer

DAY_S = 86_400


def tombstone_bytes(site_id: SiteId, name: str) -> int:
    """About what a tombstone takes on the disk: the names are in a row and in an index.

    >>> tombstone_bytes(SiteId("checkout-6f7c9d5b8-x2x9q", 1), 'http_requests_total{route="/api/v1/items"}')
    202
    """
    return 70 + 2 * (len(str(site_id.site).encode()) + len(name.encode()))


class TombstoneShares:
    """Bytes by day and peer: a day is forgotten when its tombstones are. `save` is told every sum that has changed.

    >>> shares = TombstoneShares(limit_mb=1, share=0.0002, wall_clock=lambda: 5 * DAY_S)
    >>> shares.add("token 1", SiteId("a", 1), ["hits", "visits"])
    >>> shares.is_full("token 1"), shares.is_full("token 2"), shares.largest
    (False, False, 164)
    """

    def __init__(
        self,
        limit_mb: int,
        share: float,
        wall_clock: Callable[[], float],
        save: Callable[[DayOfPeer, int], None] = lambda key, size: None,
    ) -> None:
        self._bytes = Amounts(limit_mb * 1_000_000, share)
        self._wall_clock = wall_clock
        self._save = save
        self._by_day: dict[DayOfPeer, int] = {}

    def load(self, saved: Mapping[DayOfPeer, int]) -> None:
        for key, size in saved.items():
            self._by_day[key] = size
            self._bytes.add(key.peer, size)

    @property
    def largest(self) -> int:
        """Bytes, of the peer that has caused most."""
        return self._bytes.largest

    def is_full(self, peer: str) -> bool:
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
            key = DayOfPeer(int(self._wall_clock() // DAY_S), peer)
            self._by_day[key] = self._by_day.get(key, 0) + size
            self._bytes.add(peer, size)
            self._save(key, self._by_day[key])

    def forget(self, before: int) -> None:
        """Tombstones of days that ended before this second are not kept any more."""
        for key in [each for each in self._by_day if (each.day + 1) * DAY_S <= before]:
            self._bytes.add(key.peer, -self._by_day.pop(key))
            self._save(key, 0)
