"""What one peer may use of a limit that all share.

A peer is a token of scope site, or a site that connects through a broker. Without a limit of its own, one of them could
use up `max_sites`, `max_counters` or `max_connections`, and no other could count any more. What is kept over a restart
is saved with its owner: otherwise a peer could use its share again after each restart.
"""

from collections import Counter as Tally
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

UNLIMITED = ""  # the peer of an operator

Key = TypeVar("Key", bound=Hashable)


class Amounts:
    """How much of a limit each peer uses, where single things are too many to remember whose they are.

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
        """What the peer uses that uses most."""
        return max((used for peer, used in self._used.items() if peer != UNLIMITED), default=0)

    def is_full(self, peer: str) -> bool:
        return peer != UNLIMITED and self._used[peer] >= self.most

    def has_room(self, peer: str) -> bool:
        return self.total < self.limit and not self.is_full(peer)

    def fits(self, peer: str, n: int) -> bool:
        """Whether the peer may use so much more; not whether there is room for all."""
        return peer == UNLIMITED or self._used[peer] + n <= self.most

    def take(self, peer: str, n: int) -> bool:
        """Whether there is still room; n may be negative."""
        self.add(peer, n)
        return self.has_room(peer)

    def add(self, peer: str, n: int) -> None:
        self.total += n
        self._used[peer] += n
        if not self._used[peer]:
            del self._used[peer]


class Shares(Generic[Key]):
    """Which peer uses what, and whether it may use more. `save` is told every change of an owner.

    >>> names = Shares[str](limit=4, share=0.5)
    >>> names.add("hits", "token 1")
    >>> names.add("visits", "token 1")
    >>> names.is_full("token 1"), names.is_full("token 2")
    (True, False)
    >>> names.remove("hits")
    >>> names.is_full("token 1")
    False
    """

    def __init__(self, limit: int, share: float, save: Callable[[Key, str], None] = lambda key, peer: None) -> None:
        self.amounts = Amounts(limit, share)
        self._save = save
        self._peers: dict[Key, str] = {}

    def __len__(self) -> int:
        return len(self._peers)

    @property
    def most(self) -> int:
        """For one peer."""
        return self.amounts.most

    def is_full(self, peer: str) -> bool:
        return self.amounts.is_full(peer)

    def add(self, key: Key, peer: str) -> None:
        if peer != self._peers.get(key, UNLIMITED):
            self._save(key, peer)
        self.load(key, peer)

    def load(self, key: Key, peer: str) -> None:
        """As it was saved."""
        self._discard(key)
        self._peers[key] = peer
        self.amounts.add(peer, 1)

    def remove(self, key: Key) -> None:
        if self._discard(key) != UNLIMITED:
            self._save(key, UNLIMITED)

    def _discard(self, key: Key) -> str:
        peer = self._peers.pop(key, None)
        if peer is None:
            return UNLIMITED
        self.amounts.add(peer, -1)
        return peer
