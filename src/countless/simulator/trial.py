"""One seed: a profile, some minutes in which everything goes wrong, healing, and the checks."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import NamedTuple

from countless import randomness
from countless.errors import InvariantBroken
from countless.randomness import SeededRandom
from countless.server.cluster import log_store
from countless.server.sessions import site_server
from countless.simulator.stores import STORES
from countless.simulator.virtual_loop import VirtualLoop
from countless.simulator.world import BUDGETS, DAY_S, DISTRIBUTION, Profile, World
from countless.wire import frames

SCHEMES = ("auto", "deterministic", "exact", "lattice", "sampled", "blocks", "hyz")
NEAR = (0.0, 0.0, -61.0, 61.0, 122.0, -200.0, 350.0)
FAR = (0.0, 800 * DAY_S, 800 * DAY_S, -800 * DAY_S)
SLOW = (0.5, 5.0, 30.0, 61.0, 61.0)
MANY = tuple(f"a counter with a long name, so that many of them do not fit in a frame, number {n}" for n in range(60))
PROFILES = {
    "counters": Profile(),
    "budgets": Profile(budgets=("for good", "rolling")),
    "windows": Profile(windows=("clicks", 'clicks{route="/a"}'), jumps=NEAR, pauses=(0.01, 0.5, 5.0, 20.0)),
    "everything": Profile(
        windows=("clicks",), budgets=tuple(BUDGETS), jumps=NEAR, clock=6.0, pauses=(0.01, 0.5, 3.0, 20.0)
    ),
    "wrong clocks": Profile(
        budgets=("for good",), jumps=FAR, clock=12.0, cut=10.0, close=6.0, start=10.0, kill_coordinator=1.0, pauses=SLOW
    ),
    "dying coordinator": Profile(
        budgets=("for good",), latency=1.0, kill_coordinator=12.0, fill_disk=4.0, close=4.0, start=8.0
    ),
    "small frames": Profile(MANY, frame_bytes=4096, pauses=(0.05, 2.0, 30.0), cut=8.0),
    "families": Profile(families=("pages", DISTRIBUTION), jumps=FAR, clock=1.0, kill_coordinator=4.0),
}


class Result(NamedTuple):
    trial: "Trial"
    events: int
    seconds: float
    seen: Counter[str]  # items that the coordinator has sent, by kind

    def __str__(self) -> str:
        seen = ", ".join(f"{number} {kind}" for kind, number in sorted(self.seen.items()))
        return f"{self.trial}: {self.events} events in {self.seconds:.3f} s; {seen}"


class Trial(NamedTuple):
    seed: int
    profile: str
    store: str
    scheme: str
    sites: int
    in_files: bool
    actions: int = 60

    @classmethod
    def drawn(cls, seed: int, profile: str | None = None) -> "Trial":
        rng = SeededRandom(seed).spawn("trial")
        drawn = [*PROFILES][rng.randbelow(len(PROFILES) - 1)]  # all but the last, which every eighth seed has
        return cls(
            seed,
            profile or (drawn if seed % 8 else "families"),
            STORES[rng.randbelow(len(STORES))],
            SCHEMES[rng.randbelow(len(SCHEMES))],
            1 + rng.randbelow(3),
            bool(rng.randbelow(2)),
        )

    def run(self) -> Result:
        """What happened; InvariantBroken, with the command that repeats it, if a check failed."""
        rng = SeededRandom(self.seed).spawn("world")
        loop = VirtualLoop(lambda: rng.random() * PROFILES[self.profile].latency)
        try:
            with (
                _limits(PROFILES[self.profile]),
                _seeded(rng.spawn("system")),
                _silent(),
                TemporaryDirectory() as directory,
            ):
                return loop.run_until_complete(self._play(loop, rng, Path(directory)))
        except Exception as error:
            command = f"PYTHONHASHSEED=0 python -m countless.simulator --seed {self.seed} --profile '{self.profile}'"
            raise InvariantBroken(f"{self} after {loop.time():.3f} s: {error!r}; to repeat it: {command}") from error
        finally:
            loop.close()

    async def _play(self, loop: VirtualLoop, rng: SeededRandom, directory: Path) -> Result:
        directory_of_files = directory if self.in_files else None
        world = World(rng, PROFILES[self.profile], self.store, self.scheme, self.sites, directory_of_files)
        try:
            await world.coordinator.start()
            world.coordinator.create_budgets({name: BUDGETS[name] for name in world.profile.budgets})
            await world.coordinator.server.flush()
            for _ in range(self.sites):
                world.start()
            for _ in range(self.actions):
                await world.act()
                _raise(loop)
            await world.heal()
            await world.settle()
            kept = await world.close_all()
            world.check()
            world.truth.check_all_known(world.coordinator.server, kept)
            _raise(loop)
            events = sum(world.truth.events.values()) + sum(world.truth.labels.values())
            return Result(self, events, loop.time(), world.seen)
        finally:
            await world.coordinator.kill()
            world.close()


def _raise(loop: VirtualLoop) -> None:
    if loop.error is not None:
        raise loop.error


@contextmanager
def _silent() -> Iterator[None]:
    """Without log messages: every fault has some."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _seeded(rng: SeededRandom) -> Iterator[None]:
    """The random numbers of production come from the seed."""
    kind = randomness.SystemRandom
    randbelow, random = kind.randbelow, kind.random
    kind.randbelow = lambda self, n: rng.randbelow(n)  # type: ignore[method-assign]
    kind.random = lambda self: rng.random()  # type: ignore[method-assign]
    try:
        yield
    finally:
        kind.randbelow, kind.random = randbelow, random  # type: ignore[method-assign]


@contextmanager
def _limits(profile: Profile) -> Iterator[None]:
    """Small ones, so that few events reach them."""
    limits: list[tuple[ModuleType, str, int]] = [
        (frames, "MAX_FRAME_BYTES", profile.frame_bytes),
        (log_store, "_PART_BYTES", 200),
        (log_store, "_COMPACT_AFTER_MESSAGES", 40),
        (site_server, "CLOCK_READINGS", 2),
    ]
    before = [getattr(module, name) for module, name, _ in limits]
    for module, name, limit in limits:
        setattr(module, name, limit)
    try:
        yield
    finally:
        for (module, name, _), limit in zip(limits, before, strict=True):
            setattr(module, name, limit)
