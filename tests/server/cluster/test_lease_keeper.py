import pytest

from countless.server.cluster.broker import Bucket
from countless.server.cluster.lease_keeper import Expelled, LeaseKeeper
from countless.server.cluster.leases import decode, encode, release_all

SHARDS, LEASE_S = 4, 60.0
NO_SHARDS: frozenset[int] = frozenset()


class MemoryBucket(Bucket):
    def __init__(self) -> None:
        self.value, self.revision = b"", 0
        self.conflicts = 0  # that many writes come second

    async def get(self, key: str) -> tuple[bytes, int]:
        return self.value, self.revision

    async def compare_and_set(self, key: str, value: bytes, revision: int) -> bool:
        if self.conflicts:
            self.conflicts -= 1
            self.revision += 1
        if revision != self.revision:
            return False
        self.value, self.revision = value, revision + 1
        return True


async def test_second_member_uses_the_shards_and_the_lease_of_the_first() -> None:
    bucket = MemoryBucket()
    first = await LeaseKeeper.join(bucket, SHARDS, LEASE_S)
    await first.renew(NO_SHARDS)
    second = await LeaseKeeper.join(bucket, 9, 1.0)
    assert (second.shards, second.lease_s) == (SHARDS, LEASE_S)
    await first.release()
    alone = await LeaseKeeper.join(bucket, 9, 1.0)
    assert (alone.shards, alone.lease_s) == (SHARDS, 1.0)


async def test_lease_is_valid_after_a_heartbeat_was_written() -> None:
    bucket = MemoryBucket()
    lease = await LeaseKeeper.join(bucket, SHARDS, LEASE_S)
    assert not lease.valid()
    bucket.conflicts = 3
    assignment = await lease.renew(NO_SHARDS)
    assert lease.valid()
    assert assignment.shards_of(lease.member_id) == frozenset(range(SHARDS))


async def test_expelled_member_has_no_lease_and_joins_again_under_another_id() -> None:
    bucket = MemoryBucket()
    lease = await LeaseKeeper.join(bucket, SHARDS, LEASE_S)
    await lease.renew(NO_SHARDS)
    before = lease.member_id
    bucket.value = encode(release_all(decode(bucket.value), before))
    with pytest.raises(Expelled):
        await lease.renew(NO_SHARDS)
    assert not lease.valid()
    lease.rejoin()
    assignment = await lease.renew(NO_SHARDS)
    assert list(assignment.heartbeats) == [lease.member_id] != [before]
    assert lease.valid()
