"""A round may start from the counts that are known: what sites have counted since is heard as if it happened now."""

from dataclasses import replace

import pytest

from countless.core.answer import State
from countless.core.estimator import KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.messages import Report, SetTrigger, SiteId, StartRound
from countless.core.random_source import RandomSource
from countless.lab.simulation.faults import PROFILES
from countless.lab.simulation.faulty import FaultyWorld
from countless.lab.simulation.trial import DELTA, Trial
from countless.randomness import SeededRandom
from countless.schemes.deterministic import Growing
from countless.schemes.lattice import Lattice
from support.schemes import Plain, PlainDithered
from support.worlds import World

KINDS = ["lattice", "blocks", "sampled", "dithered"]


def scheme(kind: str, asks: bool) -> Scheme:
    made: Plain | PlainDithered
    made = PlainDithered(start=30, step=7) if kind == "dithered" else Plain(kind, start=30, step=7, reports=40)
    made.asks = asks
    return made


def until_round_two(world: World, order: list[int]) -> dict[int, int]:
    """Play events until the second round with a pace of its own starts; the counts that were known just then."""
    for name in order:
        known = {each: world.coordinator.reported_by(SiteId(each)) for each in range(5)}
        before, world.transcript = world.coordinator.round, []
        world.add(name)
        if world.coordinator.round == 2 and before == 1:
            _, _, report = world.transcript[0]
            assert isinstance(report, Report)
            return known | {name: report.count}
    raise AssertionError("there was no second round")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_a_round_that_started_there_and_the_events_since(kind: str, seed: int) -> None:
    """Two worlds with the same dice. In one, whatever a site counts after its last word waits until the round has begun
    with exact counts; in the other it happens before, and the round starts from what is known. They end up the same.
    """
    rng = SeededRandom(seed).spawn("order")
    order = [rng.randbelow(5) for _ in range(2_000)]
    # With so large an alpha no estimate, however unlucky, promises more than there is in either world.
    told = World(scheme(kind, asks=False), 5, alpha=0.9, seed=seed)
    asked = World(scheme(kind, asks=True), 5, alpha=0.9, seed=seed)
    known = until_round_two(told, order)
    assert not any(isinstance(message, StartRound) for _, _, message in told.transcript)
    behind = {name: told.sites[SiteId(name)].count - count for name, count in known.items()}
    assert sum(behind.values()) > 0

    seen = dict.fromkeys(range(5), 0)
    for name in order:
        seen[name] += 1
        if seen[name] <= known[name]:
            asked.add(name)
        if asked.coordinator.round == 2:
            break
    for name, events in behind.items():
        asked.add(name, events)
    assert asked.coordinator.published == told.coordinator.published
    assert asked.coordinator.saved_state == told.coordinator.saved_state
    for site_id, site in told.sites.items():
        assert (site.count, site.next_at, site.trigger) == (
            asked.sites[site_id].count,
            asked.sites[site_id].next_at,
            asked.sites[site_id].trigger,
        )


def test_one_message_a_site_and_one_more_from_those_that_have_passed_a_point() -> None:
    world = World(scheme("lattice", asks=False), 5, seed=3)
    until_round_two(world, [event % 5 for event in range(2_000)])
    lines = [(way, message) for way, _, message in world.transcript[1:]]
    assert sum(way == "down" for way, _ in lines) == 5
    assert all(isinstance(message, SetTrigger) for way, message in lines if way == "down")
    assert 0 < sum(way == "up" for way, _ in lines) < 5
    assert world.coordinator.answer.state is State.HOLDING  # nobody owes an answer


def test_after_a_restart_everybody_is_asked() -> None:
    world = World(scheme("lattice", asks=False), 5, seed=3)
    until_round_two(world, [event % 5 for event in range(2_000)])
    world.transcript = []
    world.restart()
    assert sum(isinstance(message, StartRound) for _, _, message in world.transcript) == 5
    assert world.coordinator.known_total == world.total


def test_back_to_deterministic_reporting() -> None:
    """Each site's range starts at what is known of it; one that has outgrown that says so at once."""

    class Back(Plain):
        def open(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
            back = RoundSetup(self.name, Growing(0.1), asks=False)
            return back if context.round == 2 else super().open(context, rng)

    world = World(Back("lattice", start=30, step=7, reports=40), 5, seed=3)
    for event in range(2_000):
        world.add(event % 5)
        if world.coordinator.round == 2:
            assert abs(world.coordinator.published - world.total) <= 0.1 * world.total
    assert world.coordinator.round == 2


class Told(Lattice):
    """`lattice` whose rounds start from what is known."""

    def open(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        setup = super().open(context._replace(total=context.known), rng)
        return replace(setup, asks=False) if isinstance(setup, RoundSetup) else setup


@pytest.mark.parametrize("profile", PROFILES)
def test_on_a_network_that_fails(profile: str) -> None:
    trial = Trial(4, "lattice", profile, sites=4, alpha=0.3, ticks=300)
    world = FaultyWorld(Told(), 4, PROFILES[profile], alpha=0.3, delta=DELTA, seed=4)
    trial._fault_phase(world)
    trial._check_healed(world)
    start, round = world.counted, world.owner.coordinator.round
    while world.counted < 4 * start + 100:
        world.step()
        if world.owner.coordinator.round > round:
            trial._require_within(world)
    assert world.owner.coordinator.round > round
    trial._check_complete(world)
