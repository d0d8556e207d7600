"""A trial of the faulty world, from one integer: faults, then healing, then everything must add up (SPEC section 6)."""

from typing import NamedTuple

from countless.core.answer import State
from countless.core.estimator import Scheme
from countless.errors import InvariantBroken
from countless.lab.simulation.faults import PROFILES
from countless.lab.simulation.faulty import FaultyWorld
from countless.randomness import SeededRandom
from countless.schemes.registry import SCHEMES, scheme_named

DELTA = 1e-9  # so that a trial that fails is a bug, not bad luck


class Trial(NamedTuple):
    """What is tried. `repr` says how to repeat it."""

    seed: int
    scheme: str
    profile: str
    sites: int = 5
    alpha: float = 0.2
    ticks: int = 400

    @classmethod
    def drawn(cls, seed: int) -> "Trial":
        """Everything from the seed."""
        rng = SeededRandom(seed).spawn("trial")
        schemes, profiles = list(SCHEMES), list(PROFILES)
        scheme, profile = schemes[rng.randbelow(len(schemes))], profiles[rng.randbelow(len(profiles))]
        return cls(seed, scheme, profile, 1 + rng.randbelow(7), (0.1, 0.2, 0.3)[rng.randbelow(3)])

    def run(self, scheme: Scheme | None = None) -> FaultyWorld:
        """Raise InvariantBroken if anything is wrong; else the world as it is at the end."""
        profile = PROFILES[self.profile]
        recipe = scheme or scheme_named(self.scheme)
        world = FaultyWorld(recipe, self.sites, profile, alpha=self.alpha, delta=DELTA, seed=self.seed)
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
            _require(now.published >= before.published, "the answer fell")
            _require(now.round >= before.round, "the round fell")
            known = dict(now.known)
            _require(all(known.get(site, count) >= count for site, count in before.known), "a count fell")
            before = now

    def _check_healed(self, world: FaultyWorld) -> None:
        world.heal()
        answer = world.owner.coordinator.answer
        _require(answer.silent == () and answer.state is not State.LEARNING, f"not healed: {answer}")
        _require(answer.sites == len(world.machines), f"{answer.sites} sites instead of {len(world.machines)}")

    def _check_accurate(self, world: FaultyWorld) -> None:
        """Events go on, one at a time, through one more synchronisation; then the answer is right at every event."""
        coordinator = world.owner.coordinator
        start, round = world.counted, coordinator.round
        synchronised = False
        while world.counted < 4 * start + 100:
            world.step()
            if coordinator.round != round:
                round, synchronised = coordinator.round, True
                _require(coordinator.known_total == world.counted, "a synchronisation does not find the truth")
            if synchronised:
                self._require_within(world)
        self._require_within(world)

    def _require_within(self, world: FaultyWorld) -> None:
        # An answer published before may stand for events that died with a site: then the truth has to catch up first.
        coordinator, truth = world.owner.coordinator, world.counted
        off = abs(coordinator.published - truth) / truth / self.alpha
        catching_up = world.lost > 0 and coordinator.published > truth
        _require(off <= 1 + 1e-9 or catching_up, f"off by {off:.3f} alpha")

    def _check_complete(self, world: FaultyWorld) -> None:
        """Whatever the scheme: a coordinator that asks everybody finds every event."""
        world.restart()
        coordinator = world.owner.coordinator
        _require(coordinator.known_total == world.counted, "counts are missing")
        _require(coordinator.answer.state in (State.EXACT, State.HOLDING), f"state {coordinator.answer.state}")
        self._require_within(world)


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise InvariantBroken(otherwise)
