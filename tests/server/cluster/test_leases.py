"""The assignment of shards, without a broker: fair shares, and never two owners of one shard."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from countless.randomness import SeededRandom
from countless.server.cluster.leases import (
    UNOWNED,
    Assignment,
    FailureDetector,
    assign,
    decode,
    encode,
    release_all,
    renew,
    unassigned,
)

SHARDS, LEASE_S = 16, 1.0
EMPTY = unassigned(SHARDS, LEASE_S)
NONE: frozenset[str] = frozenset()
NO_SHARDS: frozenset[int] = frozenset()


@given(st.sets(st.text(max_size=5), min_size=1, max_size=20), st.integers(1, 64))
def test_shares_are_bounded_and_do_not_depend_on_the_order_of_members(members: set[str], shards: int) -> None:
    owners = assign(sorted(members), shards)
    assert owners == assign(sorted(members, reverse=True), shards)
    assert len(owners) == shards
    assert max(owners.count(member) for member in members) <= -(-shards // len(members))


def test_most_shards_stay_when_a_member_joins() -> None:
    before, after = assign("abc", 64), assign("abcd", 64)
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= 32  # 16 must move


def test_assignment_survives_its_encoding() -> None:
    assignment = renew(unassigned(3, 2.5), "a", NONE, NO_SHARDS)
    assert decode(encode(assignment)) == assignment == Assignment(("a",) * 3, 2.5, {"a": 1})


def test_stored_assignment_keeps_its_bytes() -> None:
    stored = b'{"owners":["a","",""],"lease":2.5,"beats":{"a":1}}'
    assert decode(stored) == Assignment(("a", UNOWNED, UNOWNED), 2.5, {"a": 1})
    assert encode(decode(stored)) == stored


def test_new_member_gets_its_share_once_the_owner_has_released_it() -> None:
    assignment = renew(unassigned(SHARDS, LEASE_S), "a", NONE, NO_SHARDS)
    assignment = renew(assignment, "b", NONE, NO_SHARDS)
    assert assignment.shards_of("b") == NO_SHARDS
    surplus = frozenset(shard for shard, owner in enumerate(assign("ab", SHARDS)) if owner == "b")
    assignment = renew(assignment, "a", NONE, surplus)
    assert assignment.shards_of("a") == frozenset(range(SHARDS)) - surplus
    assignment = renew(assignment, "b", NONE, NO_SHARDS)
    assert assignment.shards_of("b") == surplus
    assert release_all(assignment, "b").shards_of(UNOWNED) == surplus


def test_lease_expires_by_the_clock_of_the_observer() -> None:
    detector, assignment = FailureDetector(), Assignment((UNOWNED,), LEASE_S, {"a": 1, "b": 1})
    assert detector.expired(assignment, 100.0) == NONE
    assert detector.expired(assignment, 101.4) == NONE
    later = Assignment((UNOWNED,), LEASE_S, {"a": 2, "b": 1})
    assert detector.expired(later, 101.6) == {"b"}
    assert detector.expired(later, 103.2) == {"a", "b"}


@dataclass
class SimulatedMember:
    """Its clock drifts, and it may pause between any two steps."""

    name: str
    drift: float
    detector: FailureDetector = field(default_factory=FailureDetector)
    step: int = 0  # next: read the clock, read the assignment, write it
    started: float = 0.0
    read: Assignment = EMPTY
    revision: int = 0
    lease_expires: float = 0.0
    shards: frozenset[int] = frozenset()
    paused_until: float = 0.0


def test_no_two_members_hold_a_valid_lease_on_one_shard() -> None:
    """12,000 steps of four members whose clocks are up to 10 % wrong, with pauses of up to three leases."""
    rng, now, assignment, revision, moved = SeededRandom(8), 0.0, unassigned(SHARDS, LEASE_S), 1, 0
    members = [SimulatedMember(name, drift) for name, drift in (("a", 0.9), ("b", 1.1), ("c", 1.0), ("d", 0.95))]
    for _ in range(12_000):
        now += 0.05 * rng.random()
        member = members[rng.randbelow(4)]
        if member.paused_until > now:
            continue
        member.paused_until = now + (3 * LEASE_S * rng.random() if rng.randbelow(20) == 0 else 0)
        clock = now * member.drift
        if member.step == 0:
            member.started = clock
        elif member.step == 1:
            member.read, member.revision = assignment, revision
        else:
            if member.name not in member.read.heartbeats:  # expelled: it joins as a new member
                member.name, member.shards = f"{member.name[0]}{revision}", frozenset()
            expired = member.detector.expired(member.read, clock) - {member.name}
            if member.revision == revision:
                before, assignment = assignment, renew(member.read, member.name, expired, NO_SHARDS)
                revision += 1
                member.lease_expires, member.shards = member.started + LEASE_S, assignment.shards_of(member.name)
                moved += before.owners != assignment.owners
        member.step = (member.step + 1) % 3
        owned = [shard for each in members if now * each.drift < each.lease_expires for shard in each.shards]
        assert len(owned) == len(set(owned))
    assert moved > 50


def test_shards_of_a_stopped_member_are_taken_by_the_others() -> None:
    assignment, detectors, now = unassigned(SHARDS, LEASE_S), {name: FailureDetector() for name in "abc"}, 0.0
    for _ in range(40):
        now += LEASE_S / 4
        for name, detector in detectors.items():
            if name != "c" or now < 3:
                wanted = assign(assignment.heartbeats or {name: 0}, SHARDS)
                released = frozenset(shard for shard in assignment.shards_of(name) if wanted[shard] != name)
                expired = detector.expired(assignment, now) - {name}
                assignment = renew(assignment, name, expired, released)
        if now == 2.75:
            assert assignment.owners == assign("abc", SHARDS)
    assert assignment.owners == assign("ab", SHARDS)
