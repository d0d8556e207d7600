"""`auto` against every single scheme in hindsight: at the worst event, and at the end."""

from collections.abc import Callable, Iterator
from pathlib import Path

from countless.lab.simulation.competitive import CompetitiveRatio, competitive_ratio
from countless.lab.simulation.registry import STREAMS, stream_named
from countless.lab.simulation.stream import Stream
from countless.lab.simulation.traces import read_trace
from tools.tables import Table

ALPHAS = (0.01, 0.05)
SEEDS = (1, 2, 3, 4, 5)
FLEETS = ((10, 100_000), (100, 200_000), (1_000, 500_000))  # sites, events
TRACES = Path(__file__).parents[2] / "shared" / "traces"
COLUMNS = ("sites", "alpha", "messages of auto", "best at the end", "ratio at the end", "worst ratio")


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
            rows.append((path.parent.name, *_row(len(trace.names), alpha, found)))
            print(" ".join(rows[-1]), flush=True)
    yield Table("auto-traces", ("trace", *COLUMNS), rows)


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
