"""Who has which shard: one table that all coordinators share, and the rules by which each of them changes it.

The table lives under one key of a JetStream bucket, and is only ever replaced by whoever has read its latest revision.
Each coordinator writes its *beat* into it, again and again: that is its lease. There is no clock in the table. A
coordinator whose beat another has seen unchanged for too long, by the watcher's own clock, is struck off, and its
shards are nobody's; each of them is taken by the one who should have it.

The table decides who should speak for a shard. Who *can* is decided by the shard's log (`server/cluster/log_store.py`).
Nothing here does I/O.
"""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

NOBODY = ""
_MARGIN = 1.5  # others wait this much longer than a lease: clocks may run differently, within reason


class Table(msgspec.Struct, frozen=True):
    """How things stand."""

    owners: tuple[str, ...]  # of each shard
    lease: float  # in seconds: agreed on like the number of shards, because each relies on what the others do
    beats: dict[str, int] = {}  # of each coordinator that is there

    def of(self, member: str) -> frozenset[int]:
        """The shards of one coordinator."""
        return frozenset(shard for shard, owner in enumerate(self.owners) if owner == member)


def empty(shards: int, lease: float) -> Table:
    """Before anybody has come."""
    return Table((NOBODY,) * shards, lease)


def encode(table: Table) -> bytes:
    """As it is kept."""
    return msgspec.json.encode(table)


def decode(data: bytes) -> Table:
    """The table back."""
    return msgspec.json.decode(data, type=Table)


def fair(members: Iterable[str], shards: int) -> tuple[str, ...]:
    """Who should have what, the same for everybody who sees the same members.

    Each shard has its own order of preference, and nobody takes more than a fair share. When one comes or goes,
    most of what the others have stays where it is.

    >>> owners = fair(["a", "b", "c"], 16)
    >>> sorted(owners.count(member) for member in "abc")
    [4, 6, 6]
    """
    present = sorted(members)
    room = dict.fromkeys(present, -(-shards // max(1, len(present))))
    owners = []
    for shard in range(shards):
        owner = max((member for member in present if room[member]), key=lambda member: _rank(member, shard))
        room[owner] -= 1
        owners.append(owner)
    return tuple(owners)


def _rank(member: str, shard: int) -> bytes:
    return sha256(f"{member} {shard}".encode()).digest()


def turn(table: Table, me: str, dead: frozenset[str], released: frozenset[int]) -> Table:
    """My next beat; the dead are struck off; what I have `released` is nobody's; what is nobody's and mine is mine."""
    beats = {member: beat for member, beat in table.beats.items() if member not in dead}
    beats[me] = table.beats.get(me, 0) + 1
    wanted = fair(beats, len(table.owners))
    owners = []
    for shard, owner in enumerate(table.owners):
        if owner not in beats or (owner == me and shard in released):
            owner = NOBODY
        if owner == NOBODY and wanted[shard] == me and shard not in released:
            owner = me
        owners.append(owner)
    return Table(tuple(owners), table.lease, beats)


def without(table: Table, me: str) -> Table:
    """I am going, and leave nothing behind."""
    beats = {member: beat for member, beat in table.beats.items() if member != me}
    return Table(tuple(NOBODY if owner == me else owner for owner in table.owners), table.lease, beats)


class Watch:
    """When each beat was first seen, by our own clock."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}

    def look(self, table: Table, now: float) -> frozenset[str]:
        """Whose lease has run out."""
        before, self._seen = self._seen, {}
        for member, beat in table.beats.items():
            seen = before.get(member)
            self._seen[member] = seen if seen is not None and seen[0] == beat else (beat, now)
        return frozenset(member for member, (_, since) in self._seen.items() if now - since > table.lease * _MARGIN)
