"""Whole runs of a world over a stream, by either engine (SPEC section 6)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log

from countless.core.estimator import Scheme
from countless.inprocess.network import Messages, Tap
from countless.lab.simulation.fast import FastWorld
from countless.lab.simulation.referee import Referee
from countless.lab.simulation.stream import Stream
from countless.lab.simulation.world import World

_POINTS_PER_EFOLD = 20


@dataclass(frozen=True, slots=True)
class Point:
    """Where a run was."""

    events: int
    estimate: float
    messages: int
    round: int
    scheme: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run cost, and how wrong it ever was."""

    events: int
    estimate: float
    messages: Messages
    rounds: int
    worst_error_over_alpha: float  # over every single event of the run, also those between reports
    inside: bool  # whether that is at most 1
    course: tuple[Point, ...]


def fast_run(
    scheme: str | Scheme,
    stream: Stream,
    events: int,
    *,
    alpha: float,
    delta: float,
    seed: int,
    adversary: str = "adaptive",
    progress: Callable[[float], None] | None = None,
) -> Outcome:
    """Skip through a stream; `progress` hears what part of the work is done."""
    world = FastWorld(scheme, stream, alpha=alpha, delta=delta, seed=seed, adversary=adversary)

    def heard(number: int) -> None:
        if progress is not None:  # the messages grow with the logarithm of the total
            progress(log(max(1, number)) / log(max(2, events)))

    course = []
    for mark in _marks(events):
        world.run(mark, heard)
        heard(mark)
        answer = world.answer
        course.append(Point(mark, answer.estimate, world.messages.total, answer.round, answer.scheme))
    referee = world.referee
    return Outcome(
        events,
        world.estimate,
        world.messages,
        world.round,
        referee.worst_error_over_alpha,
        referee.inside,
        tuple(course),
    )


def _marks(events: int) -> Iterator[int]:
    """Where a run is looked at: evenly on a logarithmic scale, and at the end."""
    mark = 1
    while mark < events:
        yield mark
        mark = max(mark + 1, int(mark * (1 + 1 / _POINTS_PER_EFOLD)))
    yield events


def reference_run(
    scheme: str | Scheme,
    stream: Stream,
    events: int,
    *,
    alpha: float,
    delta: float,
    seed: int,
    adversary: str = "adaptive",
    tap: Tap | None = None,
) -> tuple[World, Referee]:
    """Play every event of a stream, one by one."""
    fleet = range(stream.fleet)
    world = World(scheme, fleet, alpha=alpha, delta=delta, seed=seed, adversary=adversary, tap=tap)
    referee = Referee(float(alpha))
    arrivals = [arrival for arrival in stream.arrivals if arrival[0] <= events]
    for number, site in enumerate(stream.order(events), 1):
        while arrivals and arrivals[0][0] < number:
            world.join(arrivals.pop(0)[1])
            referee.see(world.estimate, world.total)
        referee.see(world.add(site), number)
    for _, name in arrivals:
        world.join(name)
        referee.see(world.estimate, world.total)
    return world, referee
