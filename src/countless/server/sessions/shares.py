"""The share of one peer in a limit that all share.

A peer is a token of scope site, or a site that connects through a broker. Without a limit of its own, one of them could
use up `max_sites`, `max_counters` or `max_connections`, and no other could count any more. Who uses what is not saved:
after a restart everything that was loaded belongs to nobody until its site connects again. The limits that all share
hold over restarts.
"""

from collections import Counter as Tally
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from countless.core.messages import SiteId
from countless.errors import InvalidParameter
from countless.wire.keys import Key

UNLIMITED = ""  # the peer of an operator
DAY_S = 86_400

T = TypeVar("T", bound=Hashable)


class Amounts:
    """The amount of a limit that each peer uses, where single things are too many to remember whose they are.

    >>> joined = Amounts(limit=4, share=0.5)
    >>> joined.add("token 1", 2)
    >>> joined.has_room("token 1"), joined.has_room("token 2"), joined.has_room(UNLIMITED)
    (False, True, True)
    >>> joined.add("token 1", -1)
    >>> joined.has_room("token 1")
    True
    """

    def __init__(self, limit: int, share: float) -> None:
        self.limit = limit
        self.most = max(1, int(limit * share))  # for one peer
        self.total = 0
        self._used: Tally[str] = Tally()

    def used(self, peer: str) -> int:
        return self._used[peer]

    @property
    def largest(self) -> int:
        """The use of the peer that uses most."""
        return max((used for peer, used in self._used.items() if peer != UNLIMITED), default=0)

    def is_full(self, peer: str) -> bool:
        return peer != UNLIMITED and self._used[peer] >= self.most

    def has_room(self, peer: str) -> bool:
        return self.total < self.limit and not self.is_full(peer)

    def fits(self, peer: str, n: int) -> bool:
        """True if the peer may use so much more; there may be no room for all."""
        return peer == UNLIMITED or self._used[peer] + n <= self.most

    def take(self, peer: str, n: int) -> bool:
        """True if there is still room; n may be negative."""
        self.add(peer, n)
        return self.has_room(peer)

    def add(self, peer: str, n: int) -> None:
        self.total += n
        self._used[peer] += n
        if not self._used[peer]:
            del self._used[peer]


class Shares(Generic[T]):
    """The things that each peer uses, and its room for more.

    >>> names = Shares[str](limit=4, share=0.5)
    >>> names.add("hits", "token 1")
    >>> names.add("visits", "token 1")
    >>> names.is_full("token 1"), names.is_full("token 2")
    (True, False)
    >>> names.remove("hits")
    >>> names.is_full("token 1")
    False
    """

    def __init__(self, limit: int, share: float) -> None:
        self.amounts = Amounts(limit, share)
        self._peers: dict[T, str] = {}

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def most(self) -> int:
        """For one peer."""
        return self.amounts.most

    def is_full(self, peer: str) -> bool:
        return self.amounts.is_full(peer)

    def add(self, key: T, peer: str) -> None:
        self.remove(key)
        self._peers[key] = peer
        self.amounts.add(peer, 1)

    def remove(self, key: T) -> None:
        peer = self._peers.pop(key, None)
        if peer is not None:
            self.amounts.add(peer, -1)


def tombstone_bytes(site_id: SiteId, key: Key, label: str | None = None) -> int:
    """About what a tombstone takes on the disk: the names are in a row and in an index.

    >>> from countless.wire.keys import COUNTER
    >>> key = Key(COUNTER, 'http_requests_total{route="/api/v1/items"}')
    >>> tombstone_bytes(SiteId("checkout-6f7c9d5b8-x2x9q", 1), key)
    202
    """
    return 70 + 2 * (len(str(site_id.site).encode()) + len(str(key).encode()) + len((label or "").encode()))


class TombstoneShares:
    """The part of the disk that each peer may fill with tombstones, by day: a day is forgotten when its tombstones are.

    A tombstone is kept for `remember_for`, and a peer can invent one incarnation after another. So what a peer has
    caused is added up, and beyond its share it can join nothing that would leave another one. What it has joined before
    is counted on, and gets its tombstone: nothing is lost or counted twice.

    >>> from countless.wire.keys import COUNTER
    >>> shares = TombstoneShares(limit_mb=1, share=0.0002, wall_clock=lambda: 5 * DAY_S)
    >>> shares.add("token 1", SiteId("a", 1), [(Key(COUNTER, name), None) for name in ("hits", "visits")])
    >>> shares.is_full("token 1"), shares.is_full("token 2"), shares.largest
    (False, False, 164)
    """

    def __init__(self, limit_mb: int, share: float, wall_clock: Callable[[], float]) -> None:
        self._bytes = Amounts(limit_mb * 1_000_000, share)
        self._wall_clock = wall_clock
        self._by_day: dict[int, Tally[str]] = {}  # since 1970: bytes by peer

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

    def add(self, peer: str, site_id: SiteId, tombstones: Iterable[tuple[Key, str | None]]) -> None:
        """The peer has caused tombstones of a site with these keys and labels, or will when it leaves."""
        if peer != UNLIMITED:
            size = sum(tombstone_bytes(site_id, key, label) for key, label in tombstones)
            self._by_day.setdefault(int(self._wall_clock() // DAY_S), Tally())[peer] += size
            self._bytes.add(peer, size)

    def forget(self, before: int) -> None:
        """Tombstones of days that ended before this second are not kept any more."""
        for day in [each for each in self._by_day if (each + 1) * DAY_S <= before]:
            for peer, size in self._by_day.pop(day).items():
                self._bytes.add(peer, -size)
