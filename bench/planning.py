"""How long planning takes: a fleet that grows, as recorded traffic makes it, and a fleet that is there from the start.

Sites appear one by one, at their first event. `longest call` is the longest single `add` or `add_site`.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

from countless.core.estimator import KeepRound, RoundContext, RoundSetup
from countless.core.random_source import RandomSource
from countless.inprocess.tracker import Tracker
from countless.lab.simulation.registry import stream_named
from countless.lab.simulation.traces import read_trace
from countless.schemes.auto import Auto
from tools.tables import Table

TRACES = Path(__file__).parents[2] / "shared" / "traces"
EVENTS = 480_000
COLUMNS = ("traffic", "sites", "alpha", "rounds", "planning, s", "whole run, s", "part", "longest call, ms")


def grow(sites: list[int], alpha: float) -> tuple[int, float, float, float]:
    """Rounds; time to open them, which includes planning, of the whole run, and of the longest call, in seconds."""
    opening_s, rounds, open_round = 0.0, 0, Auto.open_round

    def timed(auto: Auto, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        nonlocal opening_s, rounds
        start = perf_counter()
        setup = open_round(auto, context, rng)
        opening_s += perf_counter() - start
        rounds += isinstance(setup, RoundSetup)
        return setup

    Auto.open_round = timed  # type: ignore[assignment, method-assign]
    start, longest_s = perf_counter(), 0.0
    tracker = Tracker(sites=sites[:1], alpha=alpha, seed=1)
    counters = {sites[0]: tracker.site(sites[0])}
    for site in sites:
        before = perf_counter()
        if site not in counters:
            counters[site] = tracker.add_site(site)
        counters[site].add()
        longest_s = max(longest_s, perf_counter() - before)
    return rounds, opening_s, perf_counter() - start, longest_s


def first_tracker(sites: int, alpha: float) -> float:
    start = perf_counter()
    Tracker(sites=sites, alpha=alpha)
    return perf_counter() - start


def traffic() -> Iterator[tuple[str, list[int]]]:
    for path in sorted(TRACES.glob("*/events.csv.gz")):
        trace = read_trace(path)
        yield path.parent.name, list(islice(trace.order(trace.length), EVENTS))
    yield "joining", list(stream_named("joining", 1_000, EVENTS, seed=1).order(EVENTS))


def main() -> Iterator[Table]:
    rows = []
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as process:
        for name, events in traffic():
            for alpha in (0.01, 0.05):
                rounds, planning_s, run_s, longest_s = process.submit(grow, events, alpha).result()
                sites, part = f"{len(set(events)):,}", f"{planning_s / run_s:.1%}"
                figures = (f"{rounds:,}", f"{planning_s:.2f}", f"{run_s:.1f}", part, f"{1000 * longest_s:.0f}")
                rows.append((name, sites, f"{alpha:.0%}", *figures))
                print(" ".join(rows[-1]), flush=True)
        yield Table("planning", COLUMNS, rows)
        starts = []
        for fleet in (100, 1_000, 10_000):
            milliseconds = 1000 * process.submit(first_tracker, fleet, 0.01).result()
            starts.append((f"{fleet:,}", f"{milliseconds:.0f}"))
        yield Table("planning-first", ("sites", "first Tracker, ms"), starts)
