"""A whole run over a stream: what it costs, and its worst error."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log

from countless.core.estimator import Scheme
from countless.inprocess.world import Traffic
from countless_lab.simulation.fast import FastWorld
from countless_lab.simulation.stream import Stream

_POINTS_PER_EFOLD = 20


@dataclass(frozen=True, slots=True)
class Point:
    events: int
    estimate: float
    messages: int
    round: int
    scheme: str


@dataclass(frozen=True, slots=True)
class Outcome:
    events: int
    estimate: float
    messages: Traffic
    rounds: int
    worst_error_over_alpha: float  # over every single event, also those between reports; rounded to 12 digits
    inside: bool  # whether the estimate was within 1 ± alpha at every event
    course: tuple[Point, ...]
    randomised: bool  # whether the last round had secrets: not exact, deterministic or without noise


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
    count_bytes: bool = False,
) -> Outcome:
    """Skip through a stream; `progress` is called with the part of the work that is done."""
    world = FastWorld(scheme, stream, alpha=alpha, delta=delta, seed=seed, adversary=adversary, count_bytes=count_bytes)

    def report(number: int) -> None:
        if progress is not None:
            progress(part_done(number, world.messages.total, events))

    course = []
    for mark in _marks(events):
        world.run(mark, report)
        report(mark)
        answer = world.answer
        course.append(Point(mark, answer.estimate, world.messages.total, answer.round, answer.scheme))
    worst = round(world.referee.worst, 12)
    inside = world.referee.violated_at is None
    return Outcome(events, world.estimate, world.messages, world.round, worst, inside, tuple(course), world.randomised)


def part_done(number: int, messages: int, events: int) -> float:
    """The part of the messages of `events` events that have been sent after event `number`.

    Assumes one message for each of the first events, c in all, and then c each time the total grows by a factor e.

    >>> round(part_done(10**6, 10**6, 10**9), 3), round(part_done(10**6, 20_000, 10**9), 3)
    (0.126, 0.497)
    """
    c = float(messages)
    for _ in range(20):
        c = messages / (1 + log(max(1.0, number / c))) if c else 0.0
    return messages / (c * (1 + log(max(1.0, events / c)))) if c else 0.0


def _marks(events: int) -> Iterator[int]:
    """Events at which a run is recorded: evenly spaced on a logarithmic scale, and the last one."""
    mark = 1
    while mark < events:
        yield mark
        mark = max(mark + 1, int(mark * (1 + 1 / _POINTS_PER_EFOLD)))
    yield events
