"""How long planning takes, in processor time: fleets that grow, as recorded traffic makes them, and fleets that are
there from the start.

`longest call` is the longest single `Tracker(...)`, `add`, `add_site` or `remove_site`.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from math import exp
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

from countless.core.estimator import KeepRound, RoundContext, RoundSetup
from countless.core.random_source import RandomSource
from countless.inprocess.tracker import Tracker
from countless.randomness import SeededRandom
from countless.schemes.auto import Auto
from countless_lab.simulation.registry import stream_named
from countless_lab.simulation.traces import read_trace
from tools.tables import Table

TRACES = Path(__file__).parents[2] / "shared" / "traces"
EVENTS = 480_000
ALPHAS = (0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1)
SIZES = (60, 75, 150, 333, 777, 1_500, 3_000, 9_999)
BATCHES, FIRST_TOTAL, GROWTH = 30_000, 1_000, 9.0  # even traffic grows from the first total by so many e-folds
COLUMNS = ("rounds", "planning, s", "whole run, s", "part", "longest call, ms", "longest start of a round, ms")


class Clock:
    """Measures the rounds of `auto` that are opened, which includes planning, and single calls."""

    def __init__(self) -> None:
        self.start_s, self.planning_s, self.rounds = process_time(), 0.0, 0
        self.longest_call_s = self.longest_start_s = 0.0
        open_round = Auto.open_round

        def timed(auto: Auto, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
            before = process_time()
            setup = open_round(auto, context, rng)
            taken_s = process_time() - before
            self.planning_s += taken_s
            self.longest_start_s = max(self.longest_start_s, taken_s)
            self.rounds += isinstance(setup, RoundSetup)
            return setup

        Auto.open_round = timed  # type: ignore[assignment, method-assign]

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        before = process_time()
        result = function(*arguments, **options)
        self.longest_call_s = max(self.longest_call_s, process_time() - before)
        return result

    def figures(self) -> tuple[str, ...]:
        run_s = process_time() - self.start_s
        longest = (f"{1000 * seconds:.0f}" for seconds in (self.longest_call_s, self.longest_start_s))
        return f"{self.rounds:,}", f"{self.planning_s:.2f}", f"{run_s:.1f}", f"{self.planning_s / run_s:.1%}", *longest


def grow(sites: list[int], alpha: float) -> tuple[str, ...]:
    """Sites appear one by one, each at its first event."""
    clock = Clock()
    tracker = clock.call(Tracker, sites=sites[:1], alpha=alpha, seed=1)
    counters = {sites[0]: tracker.site(sites[0])}
    for site in sites:
        if site not in counters:
            counters[site] = clock.call(tracker.add_site, site)
        clock.call(counters[site].add)
    return clock.figures()


def churn(alpha: float) -> tuple[str, ...]:
    """200 sites, of which one leaves and another joins 5,000 times in each of two e-folds."""
    clock, rng, sites = Clock(), SeededRandom(1), list(range(200))
    tracker, total, steps = clock.call(Tracker, sites=200, alpha=alpha, seed=1), 0, 20_000
    for step in range(steps):
        target = int(100_000 * exp(2 * step / steps))
        clock.call(tracker.site(sites[rng.randbelow(200)]).add, target - total)
        total = target
        if step % 2:
            place = rng.randbelow(200)
            clock.call(tracker.remove_site, sites[place])
            sites[place] = 200 + step
            clock.call(tracker.add_site, sites[place])
    return clock.figures()


def even(sites: int, alpha: float) -> tuple[str, ...]:
    """All sites are there from the start; events come in batches, to sites at random."""
    clock, rng = Clock(), SeededRandom(1)
    tracker, total = clock.call(Tracker, sites=sites, alpha=alpha, seed=1), 0
    for batch in range(BATCHES):
        target = int(FIRST_TOTAL * exp(GROWTH * batch / BATCHES))
        clock.call(tracker.site(rng.randbelow(sites)).add, max(1, target - total))
        total = max(target, total + 1)
    return clock.figures()


def first_tracker(sites: int, alpha: float) -> float:
    start = process_time()
    Tracker(sites=sites, alpha=alpha)
    return process_time() - start


def traffic() -> Iterator[tuple[str, list[int]]]:
    for path in sorted(TRACES.glob("*/events.csv.gz")):
        trace = read_trace(path)
        yield path.parent.name, list(islice(trace.order(trace.length), EVENTS))
    yield "joining", list(stream_named("joining", 1_000, EVENTS, seed=1).order(EVENTS))


def main() -> Iterator[Table]:
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as process:

        def measured(labels: tuple[str, ...], run: Callable[..., tuple[str, ...]], *arguments: Any) -> tuple[str, ...]:
            row = (*labels, *process.submit(run, *arguments).result())
            print(" ".join(row), flush=True)
            return row

        rows = [
            measured((name, f"{len(set(events)):,}", f"{alpha:.0%}"), grow, events, alpha)
            for name, events in traffic()
            for alpha in (0.01, 0.05)
        ]
        rows += [measured(("churn", "200", f"{alpha:.0%}"), churn, alpha) for alpha in (0.01, 0.05)]
        yield Table("planning", ("traffic", "sites", "alpha", *COLUMNS), rows)
        requests = [(1_000, alpha) for alpha in ALPHAS] + [(sites, 0.01) for sites in SIZES]
        rows = [measured((f"{sites:,}", f"{alpha:.1%}"), even, sites, alpha) for sites, alpha in requests]
        yield Table("planning-even", ("sites", "alpha", *COLUMNS), rows)
        starts = []
        for fleet in (100, 1_000, 10_000):
            milliseconds = 1000 * process.submit(first_tracker, fleet, 0.01).result()
            starts.append((f"{fleet:,}", f"{milliseconds:.0f}"))
        yield Table("planning-first", ("sites", "first Tracker, ms"), starts)
