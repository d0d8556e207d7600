"""A trial of the faulty world, from one seed: faults, then healing, then every count must be accounted for."""

from typing import NamedTuple

from countless.core.answer import State, within
from countless.core.estimator import Scheme
from countless.errors import InvariantBroken
from countless.lab.simulation.faults import PROFILES
from countless.lab.simulation.faulty import FaultyWorld
from countless.randomness import SeededRandom
from countless.schemes.registry import SCHEMES, scheme_named

DELTA = 1e-9  # so small that a trial that fails is a bug


class Trial(NamedTuple):
    """The parameters of a trial; its `repr`, which every failure shows, repeats it."""

    seed: int
    scheme: str
    profile: str
    sites: int = 5
    alpha: float = 0.2
    ticks: int = 400

    @classmethod
    def drawn(cls, seed: int) -> "Trial":
        rng = SeededRandom(seed).spawn("trial")
        schemes, profiles = list(SCHEMES), list(PROFILES)
        scheme, profile = schemes[rng.randbelow(len(schemes))], profiles[rng.randbelow(len(profiles))]
        return cls(seed, scheme, profile, 1 + rng.randbelow(7), (0.1, 0.2, 0.3)[rng.randbelow(3)])

    def run(self, scheme: Scheme | None = None) -> FaultyWorld:
        """The world at the end of the trial; InvariantBroken if a check failed."""
        tried = scheme or scheme_named(self.scheme)
        profile = PROFILES[self.profile]
        world = FaultyWorld(tried, self.sites, profile, alpha=self.alpha, delta=DELTA, seed=self.seed)
        try:
            self._fault_phase(world)
            self._check_healed(world)
            self._check_accurate(world)
            self._check_complete(world)
        except Exception as error:
            raise InvariantBroken(f"{self!r} at {world!r}: {error!r}") from error
        return world

    def _fault_phase(self, world: FaultyWorld) -> None:
        before = world.owner.coordinator.saved_state
        for _ in range(self.ticks):
            world.tick()
            now = world.owner.coordinator.saved_state
            _require(world.owner.coordinator.known_total <= world.counted, "more is known than has happened")
            _require(now.published >= before.published, "the published estimate decreased")
            _require(now.round >= before.round, "the round decreased")
            known = dict(now.known)
            _require(all(known.get(site, count) >= count for site, count in before.known), "a count decreased")
            before = now

    def _check_healed(self, world: FaultyWorld) -> None:
        world.heal()
        answer = world.owner.coordinator.answer
        _require(answer.silent == () and answer.state is not State.LEARNING, f"not healed: {answer}")
        _require(answer.sites == len(world.machines), f"{answer.sites} sites instead of {len(world.machines)}")

    def _check_accurate(self, world: FaultyWorld) -> None:
        """After the next synchronisation the answer must be within 1 ± alpha at every event."""
        coordinator = world.owner.coordinator
        start, round = world.counted, coordinator.round
        synchronised = False
        while world.counted < 4 * start + 100:
            world.add_event()
            if coordinator.round != round:
                round, synchronised = coordinator.round, True
                _require(coordinator.known_total == world.counted, "a synchronisation does not find the exact total")
            if synchronised:
                self._require_within(world)
        self._require_within(world)

    def _require_within(self, world: FaultyWorld) -> None:
        # Events that were lost with a site's state may have been published: then the total has to catch up first.
        published, total = world.owner.coordinator.published, world.counted
        catching_up = world.lost > 0 and published > total
        _require(within(published, self.alpha, total) or catching_up, f"estimate {published:,} for {total:,} events")

    def _check_complete(self, world: FaultyWorld) -> None:
        """A restarted coordinator, which asks every site for its count, finds every event."""
        world.restart()
        coordinator = world.owner.coordinator
        _require(coordinator.known_total == world.counted, "counts are missing")
        _require(coordinator.answer.state in (State.EXACT, State.HOLDING), f"state {coordinator.answer.state}")
        self._require_within(world)


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise InvariantBroken(otherwise)
