"""What one event, one report and one site cost."""

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from time import process_time

from prometheus_client import CollectorRegistry, Counter

from countless.tracker import Tracker


def nanoseconds(call: Callable[[], object], number: int = 200_000, repeats: int = 7) -> float:
    """Best of several runs, in processor time: other programs on the machine do not count."""
    best = float("inf")
    for _ in range(repeats):
        start = process_time()
        for _ in range(number):
            call()
        best = min(best, process_time() - start)
    return best / number * 1e9


def increments() -> None:
    quiet = Tracker(sites=1, scheme="deterministic").site(0)
    quiet.add(10**12)  # the next report is far away: what remains is the hot path
    rival = Counter("bench", "bench", registry=CollectorRegistry())
    ours, theirs = nanoseconds(quiet.add), nanoseconds(rival.inc)
    print(f"site.add()                      {ours:8.0f} ns   {ours / theirs:.2f} of prometheus_client (bar 0.25)")
    print(f"prometheus_client Counter.inc() {theirs:8.0f} ns   1")


def batches() -> None:
    print("add(n): the price follows the reports, not the events")
    for n in (1, 1_000, 1_000_000, 10**12):
        site = Tracker(sites=1, scheme="deterministic").site(0)
        site.add(10**15)
        print(f"  add({n:>13,})  {nanoseconds(partial(site.add, n), 20_000, 3):8.0f} ns")


def reports() -> None:
    for scheme in ("exact", "sampled", "lattice"):
        tracker = Tracker(sites=1000, alpha=0.01, scheme=scheme, seed=1)
        meters = [tracker.site(i) for i in range(1000)]
        for meter in meters:
            meter.add(10_000)
        before, start = tracker.messages, process_time()
        for _ in range(300):
            for meter in meters:
                meter.add(1 if scheme == "exact" else 40)
        seconds = process_time() - start
        sent = tracker.messages.total - before.total
        print(f"{scheme:10} {sent / seconds:12,.0f} messages a second (bar 200,000 reports)")


def memory() -> None:
    count = 20_000
    tracker = Tracker(sites=1, scheme="deterministic")
    gc.collect()
    tracemalloc.start()
    sites = [tracker._new_site(name) for name in range(1, count + 1)]
    meters = [tracker.site(name) for name in range(1, count + 1)]
    for meter in meters:
        meter.add(1_000_000)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{used / count:.0f} bytes a site, meter and dictionary entry included (bar 500); {len(sites):,} sites")


def main() -> None:
    increments()
    batches()
    reports()
    memory()
