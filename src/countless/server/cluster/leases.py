"""Ownership of shards: one assignment that all members share, and the rules for changing it. No I/O.

The assignment is one key of a JetStream bucket. A member replaces it only if it has read the latest revision. Each
member increments its own heartbeat in it, several times per lease. The assignment contains no time: a member whose
heartbeat another member has seen unchanged for longer than a lease, by that member's own clock, has expired. It is
removed, its shards become unowned, and each is taken by the member that `assign` gives it to.

The assignment names the member that should write for a shard. The shard's log rejects appends of all others
(`server/cluster/log_store.py`).
"""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

UNOWNED = ""
_EXPIRY_PER_LEASE = 1.5  # a member stops after one lease, others wait longer: clocks may differ in speed by a third


class Assignment(msgspec.Struct, frozen=True, rename={"lease_s": "lease", "heartbeats": "beats"}):
    owners: tuple[str, ...]  # by shard
    lease_s: float  # agreed on like the number of shards, because each member relies on the others' expiry
    heartbeats: dict[str, int] = {}  # by member

    def shards_of(self, member: str) -> frozenset[int]:
        return frozenset(shard for shard, owner in enumerate(self.owners) if owner == member)


def unassigned(shards: int, lease_s: float) -> Assignment:
    return Assignment((UNOWNED,) * shards, lease_s)


def encode(assignment: Assignment) -> bytes:
    return msgspec.json.encode(assignment)


def decode(data: bytes) -> Assignment:
    return msgspec.json.decode(data, type=Assignment)


def assign(members: Iterable[str], shards: int) -> tuple[str, ...]:
    """The member that should own each shard: rendezvous hashing with bounded load.

    Every member computes the same from the same members. When a member joins or leaves, most shards stay.

    >>> owners = assign(["a", "b", "c"], 16)
    >>> sorted(owners.count(member) for member in "abc")
    [4, 6, 6]
    """
    present = sorted(members)
    capacity = dict.fromkeys(present, -(-shards // max(1, len(present))))
    owners = []
    for shard in range(shards):
        owner = max((member for member in present if capacity[member]), key=lambda member: _rank(member, shard))
        capacity[owner] -= 1
        owners.append(owner)
    return tuple(owners)


def _rank(member: str, shard: int) -> bytes:
    return sha256(f"{member} {shard}".encode()).digest()


def renew(assignment: Assignment, me: str, expired: frozenset[str], released: frozenset[int]) -> Assignment:
    """Increment my heartbeat, remove the expired members, give up `released`, take the unowned shards that are mine."""
    heartbeats = {member: beat for member, beat in assignment.heartbeats.items() if member not in expired}
    heartbeats[me] = assignment.heartbeats.get(me, 0) + 1
    wanted = assign(heartbeats, len(assignment.owners))
    owners = []
    for shard, owner in enumerate(assignment.owners):
        if owner not in heartbeats or (owner == me and shard in released):
            owner = UNOWNED
        if owner == UNOWNED and wanted[shard] == me and shard not in released:
            owner = me
        owners.append(owner)
    return Assignment(tuple(owners), assignment.lease_s, heartbeats)


def release_all(assignment: Assignment, me: str) -> Assignment:
    heartbeats = {member: beat for member, beat in assignment.heartbeats.items() if member != me}
    owners = tuple(UNOWNED if owner == me else owner for owner in assignment.owners)
    return Assignment(owners, assignment.lease_s, heartbeats)


class FailureDetector:
    """Remembers when each heartbeat was first seen, by this member's clock."""

    def __init__(self) -> None:
        self._first_seen: dict[str, tuple[int, float]] = {}

    def expired(self, assignment: Assignment, now: float) -> frozenset[str]:
        """Call it with every assignment that is read."""
        before, self._first_seen = self._first_seen, {}
        for member, beat in assignment.heartbeats.items():
            seen = before.get(member)
            self._first_seen[member] = seen if seen is not None and seen[0] == beat else (beat, now)
        limit_s = assignment.lease_s * _EXPIRY_PER_LEASE
        return frozenset(member for member, (_, since) in self._first_seen.items() if now - since > limit_s)
