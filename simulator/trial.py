"""One seed: a profile, some minutes in which everything goes wrong, healing, and the checks."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from countless.errors import InvariantBroken
from countless.randomness import SeededRandom
from countless.schemes import registry
from countless.schemes.planned import PlannedScheme
from simulator.spending import BUDGETS
from simulator.virtual_loop import VirtualLoop
from simulator.world import DAY_S, DISTRIBUTION, Profile, World

ACTIONS = 40
LABEL_ROOM = (inf, 600, 3_000, 10_000)  # bytes that labels may take before sites are told to name no new ones
SCHEMES = ("auto", "deterministic", "exact", "lattice", "sampled", "blocks", "hyz")
NEAR = (0.0, 0.0, -61.0, 61.0, 122.0, -200.0, 350.0)
FAR = (0.0, 800 * DAY_S, 800 * DAY_S, -800 * DAY_S)
SLOW = (0.5, 5.0, 30.0, 61.0, 61.0)
MANY = tuple(f"a counter with a long name so that many of them do not fit in a frame - number {n}" for n in range(30))
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
    "take-overs": Profile(
        ("hits", "errors"),  # one in each shard
        kill_coordinator=8.0,
        close=6.0,
        kill=4.0,
        start=10.0,
        pauses=(0.05, 0.5, 3.0, 10.0),
        store="cluster",
    ),
    "older copies": Profile(
        ("hits",),
        windows=("clicks",),
        budgets=tuple(BUDGETS),
        families=("pages",),
        pauses=(0.05, 0.5, 5.0, 30.0),
        close=2.0,
        start=4.0,
        back_up=6.0,
        restore=4.0,
    ),
    "copies": Profile(
        ("hits", "errors"),
        windows=("clicks",),
        budgets=tuple(BUDGETS),
        families=("pages",),
        pauses=(0.02, 0.1, 0.5, 5.0),
        copy=8.0,
    ),
    "forks": Profile(
        ("hits", "errors"), windows=("clicks",), budgets=("for good", "rolling"), families=("pages",), fork=12.0
    ),
    "small frames": Profile(MANY, frame_bytes=2048, pauses=(0.05, 2.0, 30.0), cut=8.0),
    "families": Profile(families=("pages", DISTRIBUTION), jumps=FAR, clock=1.0, kill_coordinator=4.0),
    "windows of families": Profile(
        families=("pages", DISTRIBUTION), windows_of_families=True, jumps=NEAR, pauses=(0.01, 0.5, 5.0, 20.0)
    ),
    "rolling budgets": Profile(
        budgets=("rolling",), pauses=(0.05, 0.5, 2.0, 10.0), count=5.0, spend=100.0, to_the_last=True
    ),
    "budgets with periods": Profile(
        budgets=("per minute",),
        jumps=NEAR,
        clock=20.0,
        pauses=(0.01, 0.5, 5.0, 20.0),
        count=5.0,
        spend=80.0,
        to_the_last=True,
    ),
}
DRAWN = [name for name, profile in PROFILES.items() if not profile.to_the_last]


class Result(NamedTuple):
    trial: "Trial"
    events: int
    seconds: float
    seen: Counter[str]  # items that the coordinator has sent, by kind
    digest: str

    def __str__(self) -> str:
        seen = ", ".join(f"{number} {kind}" for kind, number in sorted(self.seen.items()))
        return f"{self.trial}: {self.events} events in {self.seconds:.3f} s; {seen}; digest {self.digest}"


class Trial(NamedTuple):
    seed: int
    profile: str
    store: str
    scheme: str
    sites: int
    in_files: bool
    actions: int = ACTIONS

    @classmethod
    def drawn(cls, seed: int, profile: str | None = None, store: str | None = None) -> "Trial":
        rng = SeededRandom(seed)

        def draw(what: str, n: int) -> int:
            return rng.spawn(what).randbelow(n)

        profile = profile or DRAWN[draw("profile", len(DRAWN))]
        drawn_store = "cluster" if draw("cluster", 6) == 0 else ("memory", "sqlite")[draw("store", 2)]
        store = store or PROFILES[profile].store or drawn_store
        scheme = SCHEMES[draw("scheme", len(SCHEMES))]
        return cls(seed, profile, store, scheme, 1 + draw("sites", 3), bool(draw("files", 2)))

    @property
    def label_room(self) -> float:
        return LABEL_ROOM[SeededRandom(self.seed).spawn("labels").randbelow(len(LABEL_ROOM))]

    @property
    def options(self) -> str:
        """The options of the command that repeats it."""
        actions = "" if self.actions == ACTIONS else f" --actions {self.actions}"
        return f"--seed {self.seed} --profile '{self.profile}' --store {self.store}{actions}"

    def run(self) -> Result:
        """Play the seed. Raises InvariantBroken, with the command that repeats it, if a check failed."""
        _forget_plans()
        rng = SeededRandom(self.seed).spawn("world")
        loop = VirtualLoop(lambda: rng.random() * PROFILES[self.profile].latency)
        try:
            with _silent(), TemporaryDirectory() as directory:
                return loop.run_until_complete(self._play(loop, rng, Path(directory)))
        except Exception as error:
            command = f"PYTHONHASHSEED=0 python -m simulator {self.options}"
            raise InvariantBroken(f"{self} after {loop.time():.3f} s: {error!r}; to repeat it: {command}") from error
        finally:
            loop.close()

    async def _play(self, loop: VirtualLoop, rng: SeededRandom, directory: Path) -> Result:
        directory_of_files = directory if self.in_files else None
        world = World(
            rng, PROFILES[self.profile], self.store, self.scheme, self.sites, directory_of_files, self.label_room
        )
        try:
            await world.service.start()
            await world.service.create_budgets({name: BUDGETS[name] for name in world.profile.budgets})
            for _ in range(self.sites):
                world.start()
            for _ in range(self.actions):
                await world.act()
                _raise(loop)
            await world.heal()
            await world.settle()
            await world.spend_the_rest()
            kept = await world.close_all()
            world.check()
            world.truth.check_all_known(world.service.servers(), kept)
            _raise(loop)
            events = sum(world.truth.events.values()) + sum(world.truth.labels.values())
            world.record_answers()
            return Result(self, events, loop.time(), world.seen, world.transcript.digest)
        finally:
            await world.close()


def _raise(loop: VirtualLoop) -> None:
    if loop.error is not None:
        raise loop.error


def _forget_plans() -> None:
    """As in a coordinator that has just started: otherwise a round takes a plan that an earlier seed has computed."""
    for scheme in registry.SCHEMES.values():
        if issubclass(scheme, PlannedScheme):
            for cache in scheme.caches:
                cache.forget()


@contextmanager
def _silent() -> Iterator[None]:
    """Without log messages: every fault has some."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
