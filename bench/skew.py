"""`deterministic` on uneven traffic: its messages over those of sites that all keep their first trigger, and its error.

The first trigger of all sites, without phases, is what `deterministic` was before sites lent and borrowed.

`dithered` on uneven traffic: its messages per e-fold in the long run, over those of `deterministic` for as many sites
that share the traffic evenly, with a step for each site and with the same for all.
"""

from collections.abc import Callable, Iterator
from functools import partial
from math import exp
from pathlib import Path

from countless.client.local_counter import LocalCounter
from countless.core.estimator import Estimator, RoundContext
from countless.core.random_source import RandomSource
from countless.core.triggers import GeometricGrowth
from countless.inprocess.tracker import Tracker
from countless.planning.deterministic import plan_deterministic
from countless.planning.dithered.plan import DitheredPlan
from countless.schemes.dithered import Dithered, DitheredEstimator
from countless_lab.simulation.fast import FastWorld
from countless_lab.simulation.registry import stream_named
from countless_lab.simulation.traces import read_trace
from tools.tables import Table

ALPHAS = (0.01, 0.05)
TRACES = Path(__file__).parents[2] / "shared" / "traces"
STREAMS = (("uniform", 20), ("uniform", 1_000), ("zipf", 100), ("zipf", 1_000), ("hot_spots", 100))
ROUND_ROBIN = (20, 100, 1_000)
EVENTS = 500_000
HOSTILE, HOSTILE_EVENTS = (20, 100), 200_000
COLUMNS = ("traffic", "sites", "alpha", "messages", "down", "of equal tolerances", "rms error / alpha")


def measure(sites: list[int], alpha: float) -> tuple[int, int, int, float]:
    """Messages, those of them down, those of sites with equal tolerances, and the root mean square error over alpha."""
    fleet = max(sites) + 1
    tracker, trigger = Tracker(sites=fleet, alpha=alpha, scheme="deterministic"), GeometricGrowth(alpha)
    counters, counts, points = [tracker.site(site) for site in range(fleet)], [0] * fleet, [1] * fleet
    equal, squares, sent, answer = 0, 0.0, 0, 0.0
    for total, site in enumerate(sites, start=1):
        counters[site].add()
        if tracker.messages.up != sent:
            sent, answer = tracker.messages.up, tracker.answer.estimate
        squares += ((answer - total) / total) ** 2
        counts[site] += 1
        if counts[site] >= points[site]:
            equal += 1
            points[site] = trigger.next_point(counts[site])
    return tracker.messages.total, tracker.messages.down, equal, (squares / len(sites)) ** 0.5 / alpha


def main() -> Iterator[Table]:
    rows = []
    for name, events_at in traffic():
        for alpha in ALPHAS:
            events = events_at(alpha)
            messages, down, equal, error = measure(events, alpha)
            figures = (f"{messages:,}", f"{down:,}", f"{messages / equal:.2f}", f"{error:.2f}")
            rows.append((name, f"{max(events) + 1:,}", f"{alpha:.0%}", *figures))
    yield Table("skew", COLUMNS, rows)
    yield steps()


LONG_RUNS = (("uniform", 1_000), ("zipf", 1_000), ("uniform", 10_000), ("zipf", 10_000))
FROM, EFOLDS = 10**9, 8


class EqualSteps(Dithered):
    """The same step for all sites, and a snapshot of each at every start of a round."""

    def estimator(self, plan: DitheredPlan, step: int, context: RoundContext, rng: RandomSource) -> Estimator:
        return DitheredEstimator(plan, step, rng)


def long_run(scheme: Dithered, stream: str, sites: int, alpha: float) -> float:
    """Messages per e-fold, after the first 10^9 events."""
    until = round(FROM * exp(EFOLDS))
    world = FastWorld(scheme, stream_named(stream, sites, until, seed=1), alpha=alpha, delta=0.05, seed=1)
    world.run(FROM)
    before = world.messages.total
    world.run(until)
    return (world.messages.total - before) / EFOLDS


def steps(alpha: float = 0.01) -> Table:
    rows = []
    for stream, sites in LONG_RUNS:
        balanced = plan_deterministic(sites, alpha).messages_per_efold
        own, equal = (long_run(scheme, stream, sites, alpha) for scheme in (Dithered(), EqualSteps()))
        rows.append((stream, f"{sites:,}", f"{own:,.0f}", f"{own / balanced:.3f}", f"{equal / balanced:.3f}"))
    return Table("skew-steps", ("traffic", "sites", "messages per e-fold", "ratio", "with equal steps"), rows)


def hostile(sites: int, alpha: float) -> list[int]:
    """Traffic that knows all triggers, and wants many reports: it goes to the site that needs the fewest events."""
    tracker, events = Tracker(sites=sites, alpha=alpha, scheme="deterministic"), list[int]()
    locals_of_sites = [tracker.site(site)._local for site in range(sites)]
    counters = [local for local in locals_of_sites if isinstance(local, LocalCounter)]
    while len(events) < HOSTILE_EVENTS:
        states = [counter.debug_state() for counter in counters]
        missing = [state.next_at - state.count for state in states]
        site = min(range(sites), key=missing.__getitem__)
        counters[site].add(missing[site])
        events += [site] * missing[site]
    return events


def traffic() -> Iterator[tuple[str, Callable[[float], list[int]]]]:
    """Recorded traffic, if the folder of traces is beside the project, and streams of the lab. By alpha, if hostile."""
    for path in sorted(TRACES.glob("*/events.csv.gz")):
        trace = read_trace(path)
        yield path.parent.name, partial(_same, list(trace.order(trace.length)))
    for name, sites in STREAMS:
        yield name, partial(_same, list(stream_named(name, sites, EVENTS, seed=1).order(EVENTS)))
    for sites in ROUND_ROBIN:
        yield "round robin", partial(_same, [event % sites for event in range(EVENTS)])
    for sites in HOSTILE:
        yield "hostile", partial(hostile, sites)
        yield "one event each, then one site", partial(_same, [*range(sites), *[0] * HOSTILE_EVENTS])


def _same(events: list[int], alpha: float) -> list[int]:
    return events
