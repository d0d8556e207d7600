"""This coordinator's lease: it writes heartbeats into the shared assignment (`server/cluster/leases.py`).

A heartbeat that was written is good for one lease from the moment *before* it was sent, by our own clock. Without a
newer one this coordinator sends nothing and answers nothing. Others remove us only when they have seen the same
heartbeat for longer than that.
"""

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

import msgspec

from countless.core.random_source import RandomSource
from countless.randomness import SYSTEM_RANDOM, random_name
from countless.server.cluster.broker import Bucket
from countless.server.cluster.leases import Assignment, FailureDetector, decode, encode, release_all, renew, unassigned

log = logging.getLogger("countless.nats")

_KEY = "table"
_MAX_CONFLICT_PAUSE_PER_LEASE = 0.02


class Expelled(Exception):
    """Other members have removed this one: its shards are, or soon will be, theirs."""


class LeaseKeeper:
    def __init__(
        self,
        bucket: Bucket,
        shards: int,
        lease_s: float,
        clock: Callable[[], float] = monotonic,
        new_name: Callable[[], str] = random_name,
        rng: RandomSource = SYSTEM_RANDOM,
    ) -> None:
        self.shards = shards
        self.lease_s = lease_s
        self.member_id = new_name()
        self._new_name = new_name
        self._rng = rng
        self._bucket = bucket
        self._clock = clock
        self._joined = False  # a heartbeat of this member id has been written
        self._expires = 0.0
        self._detector = FailureDetector()

    @classmethod
    async def join(
        cls,
        bucket: Bucket,
        shards: int,
        lease_s: float,
        clock: Callable[[], float] = monotonic,
        new_name: Callable[[], str] = random_name,
        rng: RandomSource = SYSTEM_RANDOM,
    ) -> "LeaseKeeper":
        """Agree with the others. The number of shards is fixed for ever; the lease, while there are other members."""
        agreed = unassigned(shards, lease_s)
        while True:
            value, revision = await bucket.get(_KEY)
            if revision:
                agreed = decode(value)
            if revision and (agreed.heartbeats or agreed.lease_s == lease_s):
                break
            await bucket.compare_and_set(_KEY, encode(msgspec.structs.replace(agreed, lease_s=lease_s)), revision)
        if (len(agreed.owners), agreed.lease_s) != (shards, lease_s):
            log.warning(
                "settings differ, the cluster's are used: nats_shards=%d nats_lease=%gs",
                len(agreed.owners),
                agreed.lease_s,
            )
        return cls(bucket, len(agreed.owners), agreed.lease_s, clock, new_name, rng)

    def valid(self) -> bool:
        """True if no other coordinator can own our shards yet."""
        return self._clock() < self._expires

    async def renew(self, released: frozenset[int]) -> Assignment:
        """Write a heartbeat, give up the released shards and return the new assignment. Raises Expelled."""
        while True:
            started = self._clock()  # before the read: our lease starts here, while others are timed after the read
            assignment, revision = await self._read()
            if self._joined and self.member_id not in assignment.heartbeats:
                self._expires = 0.0
                raise Expelled
            expired = self._detector.expired(assignment, self._clock()) - {self.member_id}
            renewed = renew(assignment, self.member_id, expired, released)
            if await self._bucket.compare_and_set(_KEY, encode(renewed), revision):
                self._joined, self.lease_s, self._expires = True, renewed.lease_s, started + renewed.lease_s
                return renewed
            await asyncio.sleep(self.lease_s * self._rng.random() * _MAX_CONFLICT_PAUSE_PER_LEASE)

    def rejoin(self) -> None:
        """After `Expelled`: come back as a new member."""
        self.member_id, self._joined = self._new_name(), False

    async def release(self) -> None:
        while True:
            assignment, revision = await self._read()
            if await self._bucket.compare_and_set(_KEY, encode(release_all(assignment, self.member_id)), revision):
                return

    async def _read(self) -> tuple[Assignment, int]:
        value, revision = await self._bucket.get(_KEY)
        return (decode(value) if revision else unassigned(self.shards, self.lease_s)), revision
