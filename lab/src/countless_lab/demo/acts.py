"""Trackers in the demo: the classical randomised one (`hyz`: Huang, Yi, Zhang 2012) and Countless, side by side.

Everything runs in this process, with the sites and coordinators of production, from one seed.
"""

from collections.abc import Iterator
from typing import NamedTuple

from countless.planning.baselines import FLUSH_PERIODS_S, flush_messages
from countless.randomness import SeededRandom
from countless.schemes.registry import scheme_named
from countless_lab.arena.adversaries.feedback import Feedback
from countless_lab.arena.game import Adversary, Game
from countless_lab.arena.match import Tracked
from countless_lab.simulation.fast import FastWorld
from countless_lab.simulation.registry import stream_named

DELTA = 0.05
SCHEMES = {"classical": "hyz", "countless": "auto"}
_FRAMES = 50


class Band(NamedTuple):
    """A tracker at a moment. `over` and `under` are the largest errors of the act so far, in units of alpha."""

    name: str
    estimate: float
    total: int
    messages: int
    over: float
    under: float
    broken: bool

    @property
    def worst(self) -> float:
        return max(self.over, self.under)


FEEDBACK: Adversary = Feedback()


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
    for frame in range(1, _FRAMES + 1):
        for game in games.values():
            game.play(events * frame**2 // _FRAMES**2)  # first events cause most messages: so frames take equal time
        yield [_band(name, game) for name, game in games.items()]


def _band(name: str, game: Game) -> Band:
    subject, referee = game.subject, game.referee
    broken = referee.violated_at is not None
    return Band(name, subject.estimate, game.total, subject.sent, referee.over, referee.under, broken)


class Bill(NamedTuple):
    """Messages up to an event, by way of counting."""

    events: int
    messages: dict[str, int]
    worst: float

    @property
    def hours(self) -> float:
        return self.events / DAY_RATE / 3600


DAY_SITES, DAY_RATE = 1000, 10_000
DAY_EVENTS, BILLION = DAY_RATE * 86_400, 10**9


def start_day(scheme: str, seed: int) -> FastWorld:
    """Balanced traffic. The fast engine skips from one report to the next."""
    stream = stream_named("uniform", DAY_SITES, BILLION, seed=seed)
    return FastWorld(scheme, stream, alpha=0.01, delta=DELTA, seed=seed)


def bills(seed: int) -> Iterator[Bill]:
    """After each hour of a day, and after a billion events."""
    world = start_day("auto", seed)
    for events in [*range(DAY_EVENTS // 24, DAY_EVENTS + 1, DAY_EVENTS // 24), BILLION]:
        world.run(events)
        site_seconds = DAY_SITES * events // DAY_RATE
        messages = {"a message for each event, as INCR": events}
        messages |= {f"a flush every {s} s": flush_messages(events, site_seconds, s) for s in FLUSH_PERIODS_S}
        yield Bill(events, messages | {"countless": world.messages.total}, world.referee.worst)
