"""A quota that throttles on the estimate: no attacker, only feedback."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, Until, View
from countless_lab.simulation.stream import Stream

MAX_TRACE_EVENTS = 10**6  # of a trace, kept as jobs


@dataclass(frozen=True)
class Feedback(Adversary):
    """Idea: every site works through a queue of jobs, from `trace` or in random bursts, under a fleet-wide limit. A
    site counts until its job is done or the estimate changes: then the limiter, which reads the estimate, makes it
    back off, and the next site continues. The sites are honest, and still each tends to stop just after it was
    overestimated.

    `job` is the mean size of a job, as a multiple of the step (or of a thousandth of the total while there is none).

    Sees: the answers. Must beat: `lattice`.
    """

    name = "feedback"
    must_beat = "lattice"
    ranges = {"job": (0.2, 20.0)}

    job: float = 4.0
    trace: tuple[tuple[int, int], ...] = field(default=(), repr=False)

    @classmethod
    def following(cls, stream: Stream, events: int) -> "Feedback":
        """The jobs are the runs of a recorded stream, repeated when they are used up."""
        order = stream.order(min(events, MAX_TRACE_EVENTS))
        return cls(trace=tuple((site, sum(1 for _ in run)) for site, run in groupby(order)))

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        for site, events in self._jobs(view, rng):
            yield Move(site % view.sites, max(1, events), Until.ANSWER)

    def _jobs(self, view: View, rng: SeededRandom) -> Iterator[tuple[int, int]]:
        while self.trace:
            yield from self.trace
        order = list(range(view.sites))
        while True:
            order = rng.shuffled(order)
            for site in order:
                mean = self.job * (view.step or view.total / 1000)
                yield site, rng.geometric(1 + int(mean))
