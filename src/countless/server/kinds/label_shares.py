"""Limits on the memory that labels of families take: in all, and those of one peer.

Labels come from outside. Sites of a peer that has used most of its share are told to count no new labels by name
(`LabelCap`): the events of those are in the overflow label, so nothing of an honest site is lost. A site that names new
labels all the same is disconnected when the share is used up.

A label is known in three places, and each of them is a part of what its peer uses:

| part                                 | belongs to                      | until                                   |
|--------------------------------------|---------------------------------|-----------------------------------------|
| it has a number on a connection      | the peer of the connection      | the connection ends                     |
| it is counted for a member           | the peer of its site            | the site leaves or is retired           |
| it is counted in a family, or window | the peer that reported it first | the window is dropped or family deleted |

A label of a dropped window that stays in the counts of its family still belongs to the same peer. After a restart the
labels that were loaded belong to nobody; those of a member, to the peer of its site, once that has connected.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import NamedTuple

from countless.core.messages import SiteId
from countless.errors import InvalidParameter, LimitReached
from countless.server.sessions.shares import UNLIMITED, Amounts
from countless.server.tuning import TUNING
from countless.wire.keys import Key

LABEL_BYTES = 120  # beside its text: an entry of a dictionary, a count, and the object that has the text
MEMBER_BYTES = 500  # of a site in a family, without labels


def label_bytes(labels: Iterable[str]) -> int:
    """About what labels take in one of the three places. Python stores texts with 1 to 4 bytes for a character.

    >>> label_bytes(['{tenant="acme"}']), label_bytes(["é", "e"])
    (135, 245)
    """
    return sum(LABEL_BYTES + len(label) * (1 if label.isascii() else 4) for label in labels)


def newest(counts: MappingProxyType[str, int], before: int) -> list[str]:
    """The labels that were added since there were so many, in their order.

    >>> newest(MappingProxyType({"a": 1, "b": 1, "c": 1}), 1)
    ['b', 'c']
    """
    return list(islice(reversed(counts), len(counts) - before))[::-1]


class LabelUse(NamedTuple):
    """The labels of a family, or window; of a member if there is a site; of its connection if `numbers`."""

    key: Key
    site_id: SiteId | None = None
    numbers: bool = False


class LabelShares:
    """Bytes by peer.

    >>> shares = LabelShares(limit_mb=1, share=0.5)
    >>> shares.add(LabelUse(Key("family", "f"), SiteId("web", 1)), "token 1", 500_000)
    >>> shares.require_room("token 2", 500_000)
    >>> shares.require_room("token 1", 1)
    Traceback (most recent call last):
    ...
    countless.errors.LimitReached: too many labels of families of this token (max_share of max_label_mb)
    >>> shares.is_nearly_full("token 1"), shares.is_nearly_full("token 2")
    (True, False)
    """

    def __init__(self, limit_mb: int, share: float, nearly_full: float = TUNING.labels_nearly_full) -> None:
        self._nearly_full = nearly_full
        self.bytes = Amounts(limit_mb * 1_000_000, share)
        self._parts: dict[LabelUse, dict[str, int]] = {}  # bytes, by peer
        self._peers: dict[Key, list[str]] = {}  # by window: of each of its labels, in their order

    def parts(self) -> dict[LabelUse, int]:
        """The bytes of each, for tests."""
        return {part: self.size(part) for part in self._parts}

    def is_nearly_full(self, peer: str) -> bool:
        used = 0 if peer == UNLIMITED else self.bytes.used(peer)
        return used >= self._nearly_full * self.bytes.most or self.bytes.total >= self._nearly_full * self.bytes.limit

    def require_room(self, peer: str, size: int) -> None:
        if not self.bytes.fits(peer, size):
            raise LimitReached("too many labels of families of this token (max_share of max_label_mb)")
        if self.bytes.total + size > self.bytes.limit:
            raise LimitReached("too many labels of families of all sites (max_label_mb)")

    def require_room_to_join(self, peer: str, family: str) -> None:
        try:
            self.require_room(peer, MEMBER_BYTES)
        except LimitReached as error:
            raise InvalidParameter("family", family, f"one that this process has used before: {error}") from error

    def add(self, part: LabelUse, peer: str, size: int) -> None:
        if size:
            by_peer = self._parts.setdefault(part, {})
            by_peer[peer] = by_peer.get(peer, 0) + size
            self.bytes.add(peer, size)

    def remove(self, part: LabelUse) -> None:
        for peer, size in self._parts.pop(part, {}).items():
            self.bytes.add(peer, -size)

    def size(self, part: LabelUse) -> int:
        return sum(self._parts.get(part, {}).values())

    def move(self, part: LabelUse, peer: str) -> None:
        size = self.size(part)
        self.remove(part)
        self.add(part, peer, size)

    # Families and windows

    def add_labels(self, key: Key, peer: str, labels: Iterable[str]) -> None:
        """Labels that a family, or window, did not know. They are given in the order of its counts."""
        labels = list(labels)
        self.add(LabelUse(key), peer, label_bytes(labels))
        if key.is_window:
            self._peers.setdefault(key, []).extend([peer] * len(labels))

    def rename(self, before: Key, after: Key) -> None:
        """A family has windows from now on: what it has counted is that of a dropped one."""
        for peer, size in self._parts.pop(LabelUse(before), {}).items():
            self._parts.setdefault(LabelUse(after), {})[peer] = size

    def remove_labels(self, key: Key) -> None:
        self.remove(LabelUse(key))
        self._peers.pop(key, None)

    def drop_window(self, window: Key, counts: Mapping[str, int], family: Key, new: set[str]) -> None:
        """A window is not kept any more. Those of its labels that are in `new` are in the family from now on; they are
        removed from `new`.
        """
        moved: dict[str, list[str]] = {}  # by peer
        for label, peer in zip(counts, self._peers.get(window, ()), strict=True):
            if label in new:
                new.discard(label)
                moved.setdefault(peer, []).append(label)
        for peer, labels in moved.items():
            self.add_labels(family, peer, labels)
        self.remove_labels(window)
