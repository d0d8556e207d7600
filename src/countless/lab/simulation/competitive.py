"""`auto` against the best single scheme chosen in hindsight, from the first event to any total (claim C28).

The single schemes are `exact`, `deterministic` and all that `auto` may pick, each over the same stream; the comparison
is made at twenty points in each e-fold of the total.
"""

from bisect import bisect_right
from dataclasses import dataclass

from countless.lab.simulation.registry import stream_named
from countless.lab.simulation.run import fast_run
from countless.schemes.auto import CANDIDATES


@dataclass(frozen=True, slots=True)
class Regret:
    """The moment at which `auto` looked worst."""

    ratio: float  # its messages over those of the best single scheme up to the same event
    best: str
    events: int
    of_exact: float  # the most messages that it ever had for each of `exact`
    messages: dict[str, int]  # at the end


def regret(
    stream: str,
    sites: int,
    events: int,
    *,
    alpha: float,
    delta: float = 0.05,
    adversary: str = "adaptive",
    seed: int = 1,
) -> Regret:
    """Run `auto` and every single scheme that it may pick over the same stream, and compare all the way."""
    names = ["auto", "deterministic", *(scheme.name for scheme in CANDIDATES[adversary])]
    courses = {}
    for name in names:
        source = stream_named(stream, sites, events, seed=seed)
        courses[name] = fast_run(name, source, events, alpha=alpha, delta=delta, seed=seed, adversary=adversary).course
    arrivals = [number for number, _ in stream_named(stream, sites, events, seed=seed).arrivals]
    worst, of_exact = (0.0, "", 0), 0.0
    for index, point in enumerate(courses["auto"]):
        exact = point.events + 2 * bisect_right(arrivals, point.events)  # a site that comes says so, and is told a pace
        rivals = [(exact, "exact")] + [(courses[name][index].messages, name) for name in names[1:]]
        best, name = min(rivals)
        worst = max(worst, (point.messages / max(1, best), name, point.events))
        of_exact = max(of_exact, point.messages / exact)
    return Regret(*worst, of_exact, {name: course[-1].messages for name, course in courses.items()})
