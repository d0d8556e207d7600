"""Older copies of a coordinator's state: no round number is active twice, so the shares of delta are spent once."""

import pytest

from countless.core.coordinator import PersistentCounter
from countless.core.messages import SiteId
from countless.planning.failure_budget import round_eta
from countless.randomness import SeededRandom
from support.restored_rounds import Recording
from support.worlds import HeldWorld

DELTA = 0.1


class RestoredWorld(HeldWorld):
    """Sites that may be away; copies of the state; and the rounds that were active, by the run of the coordinator."""

    def __init__(self, seed: int = 1) -> None:
        self.scheme = Recording()
        super().__init__(self.scheme, (), alpha=0.2, delta=DELTA, seed=seed)
        self.runs: list[list[int]] = [self.scheme.active]
        self.away: set[SiteId] = set()

    def run(self, events: int, *, seed: int = 1) -> None:
        """Events of the sites that are connected."""
        rng = SeededRandom(seed)
        connected = [site_id for site_id in self.sites if site_id not in self.away]
        for _ in range(events if connected else 0):
            self.add(connected[rng.randbelow(len(connected))])
            self.deliver_all()

    def restore(self, copy: PersistentCounter) -> None:
        """All connections are lost, and no site is connected again yet."""
        self.wire.clear()
        self.scheme.active = []
        self.runs.append(self.scheme.active)
        self.away = set(self.sites)
        self.restart(copy)
        self.wire.clear()

    def connect(self, site_id: SiteId) -> None:
        self.away.discard(site_id)
        self.reconnect(site_id)
        self.wire = [(to, message) for to, message in self.wire if to not in self.away]
        self.deliver_all()

    def deliver_all(self) -> None:
        while self.wire:
            self.deliver()
            self.wire = [(to, message) for to, message in self.wire if to not in self.away]

    def connect_all(self) -> None:
        for site_id in list(self.sites):
            self.connect(site_id)

    @property
    def active(self) -> list[int]:
        return [round for run in self.runs for round in run]

    @property
    def spent(self) -> float:
        return sum(round_eta(DELTA, round) for round in self.active)


def three_sites(copy_with: int) -> tuple[RestoredWorld, PersistentCounter]:
    """And a copy made when so many of them had joined and another had left, several rounds ago."""
    world = RestoredWorld()
    for number in (*range(copy_with), 3):
        world.join(SiteId(number))
    world.run(40)
    world.leave(SiteId(3))
    copy = world.coordinator.saved_state
    for number in range(copy_with, 3):
        world.join(SiteId(number))
    world.run(150)
    assert world.coordinator.round >= copy.round + 4
    return world, copy


@pytest.mark.parametrize("copy_with", [0, 1, 3])
@pytest.mark.parametrize("restores", [1, 6])
def test_no_round_is_active_twice_whatever_number_of_restores(copy_with: int, restores: int) -> None:
    world, copy = three_sites(copy_with)
    for _ in range(restores):
        world.restore(copy)
        world.connect_all()
        world.run(150)
    assert len(world.active) >= 4 * (restores + 1)
    assert len(set(world.active)) == len(world.active)
    assert world.spent <= DELTA


def test_site_that_was_told_of_the_same_number_by_the_lost_coordinator_is_sent_another() -> None:
    """Its trigger belongs to the lost round. The number is that of the first round after the copy."""
    world, _ = three_sites(3)
    state = world.coordinator.saved_state
    copy = state._replace(round=state.round - 1)
    lost = world.coordinator.round
    world.restore(copy)
    assert world.coordinator.round == lost
    world.connect(SiteId(0))
    assert (world.coordinator.round, world.sites[SiteId(0)].round) == (lost + 1, lost + 1)
    world.connect_all()
    assert world.coordinator.round == lost + 1
    for site_id, site in world.sites.items():
        assert site.trigger == world.coordinator.trigger_of(site_id)


def test_rounds_that_only_a_late_site_knows_cost_at_most_the_share_from_the_copy_on() -> None:
    """The site of the copy was away during the rounds since; the one that was in them comes back late."""
    world = RestoredWorld()
    world.join(SiteId(0))
    world.run(40)
    copy = world.coordinator.saved_state
    world.time_out(SiteId(0))
    world.away.add(SiteId(0))
    world.wire.clear()
    world.join(SiteId(1))
    world.run(150)
    world.restore(copy)
    world.connect(SiteId(0))
    world.run(60)
    again = set(world.runs[0]) & set(world.runs[1])
    assert again
    assert min(again) > copy.round
    before = world.coordinator.round
    world.connect(SiteId(1))
    assert world.coordinator.round > max(before, *world.runs[0])
    world.run(150)
    assert set(world.runs[0]) & set(world.runs[1]) == again
    assert world.spent <= DELTA + DELTA / (copy.round + 1)


@pytest.mark.parametrize("part", range(4))
def test_random_runs_spend_each_share_once_unless_no_site_that_knew_was_there(part: int) -> None:
    ran_again = restores = 0
    for seed in range(part, 240, 4):
        world, known, extra = random_run(seed)
        ran_again += len(world.active) - len(set(world.active))
        restores += len(world.runs) - 1
        assert known == world.total, f"seed {seed}"
        assert world.spent <= DELTA * (1 + extra), f"seed {seed}"
    assert restores > 60
    assert ran_again > 0  # otherwise the bound was not tried


def random_run(seed: int) -> tuple[RestoredWorld, int, float]:
    """The world, what is known at the end, and how often delta may have been spent beyond once."""
    rng = SeededRandom(seed)
    world, copies, extra, joined = RestoredWorld(seed), [PersistentCounter(0, 0, 0, ())], 0.0, 0
    named = 0  # the highest round that a site has named to this coordinator
    lost: dict[SiteId, int] = {}  # the rounds that sites were in when it started
    for _ in range(30):
        action = rng.randbelow(10)
        if action < 4:
            world.run(1 + rng.randbelow(30), seed=rng.randbelow(1000))
        elif action == 4 and len(world.sites) < 4:
            joined += 1
            world.join(SiteId(joined))
        elif action == 5:
            copies.append(world.coordinator.saved_state)
        elif action == 6:
            copy = copies[rng.randbelow(len(copies))]
            lost, named = {site_id: site.round for site_id, site in world.sites.items()}, 0
            world.restore(copy)
            extra += 1 / (copy.round + 1)
        elif world.away:
            site_id = sorted(world.away)[rng.randbelow(len(world.away))]
            if rng.randbelow(4) == 0 and site_id in world.coordinator.debug_state().entries:
                world.time_out(site_id)
            else:
                named, active = max(named, lost[site_id]), len(world.scheme.active)
                world.connect(site_id)
                assert all(round > named for round in world.scheme.active[active:]), f"seed {seed}"
        world.deliver_all()
        assert world.scheme.active == sorted(set(world.scheme.active)), f"seed {seed}: twice in one run"
    world.connect_all()
    world.restart()
    world.deliver_all()
    return world, world.coordinator.known_total, extra
