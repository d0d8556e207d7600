"""`auto` against the best single scheme chosen in hindsight, at every moment of a stream.

The single schemes are `exact`, `deterministic` and all that `auto` may pick, each over the same stream. The comparison
is made at twenty points in each e-fold of the total.
"""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from countless.lab.simulation.run import fast_run
from countless.lab.simulation.stream import Stream
from countless.schemes.auto import CANDIDATES


@dataclass(frozen=True, slots=True)
class CompetitiveRatio:
    """Messages of `auto` over those of the best single scheme up to the same event."""

    worst: float
    worst_at: int  # the event
    best_at_worst: str
    at_end: float
    best_at_end: str
    of_exact: float  # the largest ratio to one message for each event
    messages: int  # of `auto`, at the end


def competitive_ratio(
    stream: Callable[[], Stream],
    events: int,
    *,
    alpha: float,
    delta: float = 0.05,
    adversary: str = "adaptive",
    seed: int = 1,
) -> CompetitiveRatio:
    """Run `auto` and every single scheme that it may pick over the same stream, made anew for each."""
    names = ["auto", "deterministic", *(scheme.name for scheme in CANDIDATES[adversary])]
    courses = {
        name: fast_run(name, stream(), events, alpha=alpha, delta=delta, seed=seed, adversary=adversary).course
        for name in names
    }
    arrivals = [number for number, _ in stream().arrivals]
    ratios, of_exact = [], 0.0
    for index, point in enumerate(courses["auto"]):
        exact = point.events + 2 * bisect_right(arrivals, point.events)  # a site that joins sends and gets a message
        rivals = [(exact, "exact")] + [(courses[name][index].messages, name) for name in names[1:]]
        best, name = min(rivals)
        ratios.append((point.messages / max(1, best), point.events, name))
        of_exact = max(of_exact, point.messages / exact)
    at_end, _, best_at_end = ratios[-1]
    return CompetitiveRatio(*max(ratios), at_end, best_at_end, of_exact, courses["auto"][-1].messages)
