"""The table of shards, without a broker: everybody has a fair share, and nobody has what another has."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from countless.randomness import SeededRandom
from countless.server.cluster.leases import NOBODY, Table, Watch, decode, empty, encode, fair, turn, without

SHARDS, LEASE = 16, 1.0
EMPTY = empty(SHARDS, LEASE)


@given(st.sets(st.text(max_size=5), min_size=1, max_size=20), st.integers(1, 64))
def test_shares_are_fair_and_do_not_depend_on_who_asks(members: set[str], shards: int) -> None:
    owners = fair(sorted(members), shards)
    assert owners == fair(sorted(members, reverse=True), shards)
    assert len(owners) == shards
    assert max(owners.count(member) for member in members) <= -(-shards // len(members))


def test_when_one_comes_most_stays_where_it_is() -> None:
    before, after = fair("abc", 64), fair("abcd", 64)
    assert sum(one != other for one, other in zip(before, after, strict=True)) <= 32  # 16 must move


def test_the_table_survives_its_encoding() -> None:
    table = turn(empty(3, 2.5), "a", frozenset(), frozenset())
    assert decode(encode(table)) == table == Table(("a",) * 3, 2.5, {"a": 1})


def test_a_newcomer_gets_its_share_when_it_is_released() -> None:
    table = turn(empty(SHARDS, LEASE), "a", frozenset(), frozenset())
    table = turn(table, "b", frozenset(), frozenset())
    assert table.of("b") == frozenset()
    surplus = frozenset(shard for shard, owner in enumerate(fair("ab", SHARDS)) if owner == "b")
    table = turn(table, "a", frozenset(), surplus)
    assert table.of("a") == frozenset(range(SHARDS)) - surplus
    table = turn(table, "b", frozenset(), frozenset())
    assert table.of("b") == surplus
    assert without(table, "b").of(NOBODY) == surplus


def test_a_lease_is_judged_by_the_clock_of_whoever_watches() -> None:
    watch, table = Watch(), Table((NOBODY,), LEASE, {"a": 1, "b": 1})
    assert watch.look(table, 100.0) == frozenset()
    assert watch.look(table, 101.4) == frozenset()
    later = Table((NOBODY,), LEASE, {"a": 2, "b": 1})
    assert watch.look(later, 101.6) == {"b"}
    assert watch.look(later, 103.2) == {"a", "b"}


@dataclass
class Played:
    """A coordinator whose clock is not quite right, and that may stop at any moment for as long as it likes."""

    name: str
    drift: float
    watch: Watch = field(default_factory=Watch)
    phase: int = 0  # about to look at the clock, to read, to look at what it read and write
    asked: float = 0.0
    seen: Table = EMPTY
    revision: int = 0
    until: float = 0.0
    mine: frozenset[int] = frozenset()
    asleep: float = 0.0


def test_no_two_believe_in_a_lease_on_one_shard() -> None:
    """Thousands of turns of four coordinators, clocks 10 % wrong either way, with pauses where it hurts."""
    rng, now, table, revision, moved = SeededRandom(8), 0.0, EMPTY, 1, 0
    players = [Played(name, drift) for name, drift in (("a", 0.9), ("b", 1.1), ("c", 1.0), ("d", 0.95))]
    for _ in range(12_000):
        now += 0.05 * rng.random()
        player = players[rng.randbelow(4)]
        if player.asleep > now:
            continue
        player.asleep = now + (3 * LEASE * rng.random() if rng.randbelow(20) == 0 else 0)
        clock = now * player.drift
        if player.phase == 0:
            player.asked = clock
        elif player.phase == 1:
            player.seen, player.revision = table, revision
        else:
            if player.name not in player.seen.beats:  # it comes back as somebody else
                player.name, player.mine = f"{player.name[0]}{revision}", frozenset()
            dead = player.watch.look(player.seen, clock) - {player.name}
            if player.revision == revision:
                before, table, revision = table, turn(player.seen, player.name, dead, frozenset()), revision + 1
                player.until, player.mine = player.asked + LEASE, table.of(player.name)
                moved += before.owners != table.owners
        player.phase = (player.phase + 1) % 3
        believed = [shard for each in players if now * each.drift < each.until for shard in each.mine]
        assert len(believed) == len(set(believed))
    assert moved > 50


def test_the_shards_of_one_that_died_are_taken_by_the_others() -> None:
    table, watches, now = empty(SHARDS, LEASE), {name: Watch() for name in "abc"}, 0.0
    for _ in range(40):
        now += LEASE / 4
        for name, watch in watches.items():
            if name != "c" or now < 3:
                wanted = fair(table.beats or {name: 0}, SHARDS)
                released = frozenset(shard for shard in table.of(name) if wanted[shard] != name)
                table = turn(table, name, watch.look(table, now) - {name}, released)
        if now == 2.75:
            assert table.owners == fair("abc", SHARDS)
    assert table.owners == fair("ab", SHARDS)
