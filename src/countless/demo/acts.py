"""The acts of the demo: the classical randomised tracker (`hyz`: Huang, Yi, Zhang 2012) and Countless, side by side.

Everything runs in this process, with the sites and coordinators of production, from one seed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from countless.inprocess.budget import Budget
from countless.lab.arena.adversaries.feedback import Feedback
from countless.lab.arena.game import Adversary, Game, Move, View
from countless.lab.arena.match import Tracked
from countless.lab.simulation.fast import FastWorld
from countless.lab.simulation.registry import stream_named
from countless.planning.baselines import FLUSH_PERIODS_S, flush_messages
from countless.randomness import SeededRandom
from countless.schemes.registry import scheme_named

DELTA = 0.05
SCHEMES = {"classical": "hyz", "countless": "auto"}
_FRAMES = 50
_DAY_S = 86_400


class Band(NamedTuple):
    """A tracker at a moment. `worst` is the largest error of the act so far, over alpha."""

    name: str
    estimate: float
    total: int
    messages: int
    worst: float
    broken: bool


class Ordinary(Adversary):
    """Bursts at random sites. It reacts to nothing."""

    name = "ordinary"
    must_beat = "hyz"

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        while True:
            yield Move(rng.randbelow(view.sites), 1 + rng.randbelow(40))


ACTS: dict[str, Adversary] = {
    "ordinary traffic": Ordinary(),
    "a rate limiter reads the total: there is no attacker": Feedback(),
}


def track(adversary: Adversary, sites: int, alpha: float, events: int, seed: int) -> Iterator[list[Band]]:
    """The same adversary plays against both: it sees the answers of each, so each has traffic of its own."""
    games = {
        name: Game(
            Tracked(scheme_named(scheme), sites, alpha=alpha, delta=DELTA, seed=seed),
            adversary,
            sites,
            alpha,
            SeededRandom(seed).spawn("traffic"),
        )
        for name, scheme in SCHEMES.items()
    }
    for frame in range(_FRAMES):
        for game in games.values():
            game.play((frame + 1) * events // _FRAMES)
        yield [_band(name, game) for name, game in games.items()]


def _band(name: str, game: Game) -> Band:
    score = game.score(0)
    return Band(
        name, game.subject.estimate, score.events, score.messages, score.worst, game.referee.violated_at is not None
    )


class Bill(NamedTuple):
    """Messages of one day, by way of counting."""

    sites: int
    rate: int
    events: int
    messages: dict[str, int]
    worst: float


DAY_SITES, DAY_RATE = 1000, 10_000


def run_day(scheme: str, seed: int) -> FastWorld:
    """A day of balanced traffic. The fast engine skips from one report to the next."""
    events = DAY_RATE * _DAY_S
    stream = stream_named("uniform", DAY_SITES, events, seed=seed)
    world = FastWorld(scheme, stream, alpha=0.01, delta=DELTA, seed=seed)
    world.run(events)
    return world


def day(seed: int) -> Bill:
    world, events = run_day("auto", seed), DAY_RATE * _DAY_S
    messages = {"a message for each event, as INCR": events}
    messages |= {f"a flush every {s} s": flush_messages(events, DAY_SITES * _DAY_S, s) for s in FLUSH_PERIODS_S}
    return Bill(DAY_SITES, DAY_RATE, events, messages | {"countless": world.messages.total}, world.referee.worst)


class Admitted(NamedTuple):
    name: str
    admitted: int
    messages: int


GATEWAYS, LIMIT, RATE = 3, 10_000, 1_000  # requests per second at each gateway


def share_a_limit() -> list[Admitted]:
    """Gateways admit requests until each refuses, at most `LIMIT` in all: with totals exchanged once a second, and with
    a budget.
    """
    total, seconds = 0, 0
    while total < LIMIT:  # each gateway knows the total of the last second
        total, seconds = total + GATEWAYS * RATE, seconds + 1
    budget = Budget(LIMIT, GATEWAYS)
    decisions = [True]
    while any(decisions):
        decisions = [bool(budget.site(gateway).take()) for gateway in range(GATEWAYS)]
    return [
        Admitted("totals exchanged once a second", total, 2 * GATEWAYS * seconds),
        Admitted("a budget of countless", budget.spent, budget.messages.total),
    ]
