"""`auto` against the best single scheme chosen in hindsight: at the worst event of a stream, and at its end.

The single schemes are `exact`, `deterministic` and all that `auto` may pick, each over the same stream. The comparison
is made at twenty points in each e-fold of the total.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import e, exp
from pathlib import Path
from statistics import geometric_mean

from countless.randomness import SeededRandom
from countless.schemes.auto import CANDIDATES
from countless_lab.simulation.registry import STREAMS, stream_named
from countless_lab.simulation.run import fast_run
from countless_lab.simulation.stream import Stream
from countless_lab.simulation.traces import read_trace
from countless_lab.simulation.world import World
from tools.tables import Table

ALPHAS = (0.01, 0.05)
SEEDS = (1, 2, 3, 4, 5)
FLEETS = ((10, 100_000), (100, 200_000), (1_000, 500_000))  # sites, events
LIMIT_EVENTS = 10**8
SINGLE = ("deterministic", "dithered", "sampled")
REPLACEMENTS = (0, 50, 500, 5_000)
CHURN_SITES, CHURN_TOTAL = 200, 100_000
SCAN_SITES, SCAN_EVENTS = 70_000, (200_000, 700_000, 2_000_000)
ENDS_SITES, ENDS_ALPHAS, ENDS = 3_000, (0.03, 0.05, 0.08, 0.16), (3, 4, 6, 8, 11, 16, 23, 32)  # events for each site
EARLY_MESSAGES = 5_000  # a few more or less are no matter
TRACES = Path(__file__).parents[2] / "shared" / "traces"
# Messages that the former `auto` of the service sent, with its nine constants: the means of the same five seeds.
FORMER = {
    "flights_3m": {0.01: 41_942, 0.05: 11_385},
    "wikipedia_edits": {0.01: 5_058, 0.05: 1_773},
    "zeek_wrccdc": {0.01: 10_841, 0.05: 4_123},
}
COLUMNS = ("sites", "alpha", "messages of auto", "best at the end", "ratio at the end", "worst ratio")


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
    late: float  # the worst once `auto` has sent `EARLY_MESSAGES`
    last_efold: tuple[float, float]  # the smallest and the largest while the total grew by the last factor e
    average: float  # messages on average over the last two e-folds, over those of the scheme with the fewest


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
    ratios, of_exact, late = [], 0.0, 0.0
    sums: Counter[str] = Counter()  # of the messages at each point of the last two e-folds
    for index, point in enumerate(courses["auto"]):
        exact = point.events + 2 * bisect_right(arrivals, point.events)  # a site that joins sends and gets a message
        if point.events >= events / e**2:
            sums.update({name: course[index].messages for name, course in courses.items()}, exact=exact)
        rivals = [(exact, "exact")] + [(courses[name][index].messages, name) for name in names[1:]]
        best, name = min(rivals)
        ratios.append((point.messages / max(1, best), point.events, name))
        of_exact = max(of_exact, point.messages / exact)
        if point.messages >= EARLY_MESSAGES:
            late = max(late, ratios[-1][0])
    at_end, _, best_at_end = ratios[-1]
    last = [ratio for ratio, at, _ in ratios if at >= events / e]
    last_efold, average = (min(last), max(last)), sums.pop("auto") / min(sums.values())
    messages = courses["auto"][-1].messages
    return CompetitiveRatio(*max(ratios), at_end, best_at_end, of_exact, messages, late, last_efold, average)


def streams() -> Iterator[Table]:
    """Every registered stream, the means and the worst of five seeds."""
    rows = []
    for name in STREAMS:
        for sites, events in FLEETS:
            for alpha in ALPHAS:
                found = [_stream(name, sites, events, alpha, seed) for seed in SEEDS]
                rows.append((name, *_row(sites, alpha, found)))
                print(" ".join(rows[-1]), flush=True)
    yield Table("auto-streams", ("stream", *COLUMNS), rows)


def traces() -> Iterator[Table]:
    """Recorded traffic, if the folder of traces is beside the project."""
    if not TRACES.is_dir():
        print(f"no traces in {TRACES.name}/ beside the project: this section needs them")
        return
    rows = []
    for path in sorted(TRACES.glob("*/events.csv.gz")):
        trace = read_trace(path)
        for alpha in ALPHAS:
            found = [competitive_ratio(_same(trace), trace.length, alpha=alpha, seed=seed) for seed in SEEDS]
            name, messages = path.parent.name, sum(each.messages for each in found) / len(found)
            former = f"{messages / FORMER[name][alpha]:.3f}" if name in FORMER else "not measured"
            rows.append((name, *_row(len(trace.names), alpha, found), former))
            print(" ".join(rows[-1]), flush=True)
    yield Table("auto-traces", ("trace", *COLUMNS, "of the former auto"), rows)


def limits() -> Iterator[Table]:
    """The fewest sites, to within 3 %, with which `auto` leaves `deterministic` during 10^8 events."""
    rows = []
    for adversary in ("adaptive", "sees-everything"):
        for alpha in ALPHAS:
            low, high = 1, 2_000
            while high > 1.03 * low + 1:
                middle = round((low * high) ** 0.5)
                low, high = (low, middle) if _leaves(middle, alpha, adversary) else (middle, high)
            rows.append((adversary, f"{alpha:.0%}", f"{high:,}"))
    yield Table("auto-limits", ("adversary", "alpha", "sites"), rows)


def _leaves(sites: int, alpha: float, adversary: str) -> bool:
    stream = stream_named("uniform", sites, LIMIT_EVENTS, seed=1)
    run = fast_run("auto", stream, LIMIT_EVENTS, alpha=alpha, delta=0.05, seed=1, adversary=adversary)
    return any(point.scheme != "deterministic" for point in run.course)


def churn() -> Iterator[Table]:
    """200 sites, some of which are replaced while the total grows from 100,000 by a factor e; seed 1."""
    rows = []
    for alpha in ALPHAS:
        for replacements in REPLACEMENTS:
            costs = {name: _messages_with_churn(name, alpha, replacements) for name in SINGLE}
            auto, best = _messages_with_churn("auto", alpha, replacements), min(SINGLE, key=costs.__getitem__)
            figures = (f"{auto:,}", best, f"{auto / costs[best]:.2f}")
            rows.append((f"{alpha:.0%}", f"{replacements:,}", *figures))
            print(" ".join(rows[-1]), flush=True)
    yield Table("auto-churn", ("alpha", "sites replaced", "messages of auto", "best", "ratio"), rows)


def growing() -> Iterator[Table]:
    """A scan of addresses: from one site to 70,000, most of which count one event; seed 1."""
    rows = []
    for events in SCAN_EVENTS:
        for alpha in ALPHAS:
            found = _stream("scan", SCAN_SITES, events, alpha, 1)
            last = " to ".join(f"{ratio:.2f}" for ratio in found.last_efold)
            figures = (f"{found.messages:,}", found.best_at_end, f"{found.at_end:.2f}", last, f"{found.late:.2f}")
            rows.append((f"{events:,}", f"{alpha:.0%}", *figures))
            print(" ".join(rows[-1]), flush=True)
    ratios = ("ratio at the end", "in the last e-fold", f"worst after {EARLY_MESSAGES:,} messages")
    yield Table("auto-growing", ("events", "alpha", "messages of auto", "best at the end", *ratios), rows)


def ends() -> Iterator[Table]:
    """Smaller scans that end at many moments: the geometric mean of the ratios, and the largest."""
    rows = []
    for alpha in ENDS_ALPHAS:
        found = [_stream("scan", ENDS_SITES, ENDS_SITES * events, alpha, 1) for events in ENDS]
        columns = ([each.at_end for each in found], [each.average for each in found])
        rows.append((f"{alpha:.0%}", *(f"{geometric_mean(each):.2f}, at most {max(each):.2f}" for each in columns)))
        print(" ".join(rows[-1]), flush=True)
    yield Table("auto-growing-ends", ("alpha", "ratio at the end", "of the average"), rows)


def _messages_with_churn(scheme: str, alpha: float, replacements: int) -> int:
    """Without those of joins and departures, which every scheme has: three for each site replaced."""
    rng, present, batches = SeededRandom(1), list(range(CHURN_SITES)), 10 * max(REPLACEMENTS)
    world, total = World(scheme, CHURN_SITES, alpha=alpha, delta=0.05, seed=1), CHURN_TOTAL
    for event in range(CHURN_TOTAL // 10):
        world.add(event % CHURN_SITES, 10)
    before = world.messages.total
    for batch in range(batches):
        target = int(CHURN_TOTAL * exp((batch + 1) / batches))
        world.add(present[rng.randbelow(CHURN_SITES)], target - total)
        total = target
        if replacements and batch % (batches // replacements) == 0:
            place = rng.randbelow(CHURN_SITES)
            world.leave(present[place])
            present[place] = CHURN_SITES + batch
            world.join(present[place])
    return world.messages.total - before - 3 * replacements


def main() -> Iterator[Table]:
    yield from streams()
    yield from traces()


def _stream(name: str, sites: int, events: int, alpha: float, seed: int) -> CompetitiveRatio:
    return competitive_ratio(lambda: stream_named(name, sites, events, seed=seed), events, alpha=alpha, seed=seed)


def _same(stream: Stream) -> Callable[[], Stream]:
    return lambda: stream


def _row(sites: int, alpha: float, found: list[CompetitiveRatio]) -> tuple[str, ...]:
    messages = sum(each.messages for each in found) / len(found)
    at_end, worst = max(found, key=lambda each: each.at_end), max(found, key=lambda each: each.worst)
    where = f"{worst.worst:.3f} of {worst.best_at_worst} at {worst.worst_at:,}"
    return f"{sites:,}", f"{alpha:.0%}", f"{messages:,.0f}", at_end.best_at_end, f"{at_end.at_end:.3f}", where
