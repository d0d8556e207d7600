"""What one event, one report and one site cost."""

import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from time import process_time

from prometheus_client import CollectorRegistry, Counter

from countless.client.countfile import CountFile
from countless.client.keeper import KeptMeter
from countless.client.meter import Meter
from countless.core.messages import Address
from countless.core.paces import Every
from countless.core.site import Site
from countless.randomness import SystemDice
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
    with TemporaryDirectory() as directory:
        file = CountFile.create(Path(directory), Address("bench"))
        site = Site("bench", Address("bench"), SystemDice(), pace=Every(1 << 62))
        written = KeptMeter(site, RLock(), print, file.record("bench"))
        ours, kept, theirs = nanoseconds(quiet.add), nanoseconds(written.add), nanoseconds(rival.inc)
        file.delete()
    print(f"site.add()                      {ours:8.0f} ns   {ours / theirs:.2f} of prometheus_client (bar 0.25)")
    print(f"the same with a state_dir       {kept:8.0f} ns   {kept / theirs:.2f}")
    print(f"prometheus_client Counter.inc() {theirs:8.0f} ns   1")


def batches() -> None:
    print("add(n): the price follows the reports, not the events")
    for n in (1, 1_000, 1_000_000, 10**12):
        site = Tracker(sites=1, scheme="deterministic").site(0)
        site.add(10**15)
        print(f"  add({n:>13,})  {nanoseconds(partial(site.add, n), 20_000, 3):8.0f} ns")


def reports() -> None:
    for scheme in ("exact", "lattice", "sampled"):
        tracker = Tracker(sites=1000, alpha=0.01, scheme=scheme, seed=1)
        meters = [tracker.site(i) for i in range(1000)]
        for meter in meters:
            meter.add(1_000_000)
        # Batches of about a step, so that nearly every call is a report.
        batch = 1 if scheme == "exact" else tracker._coordinator.pace_of(Address(0)).step  # type: ignore[union-attr]
        before, start = tracker.messages, process_time()
        for _ in range(100):
            for meter in meters:
                meter.add(batch)
        seconds = process_time() - start
        sent = tracker.messages.total - before.total
        print(f"{scheme:10} {sent / seconds:12,.0f} messages a second, delivered and counted (bar 200,000)")


def memory() -> None:
    count, dice, pace, lock = 20_000, SystemDice(), Every(1), RLock()  # shared, as in a Tracker
    addresses = [Address(name) for name in range(count)]
    gc.collect()
    tracemalloc.start()
    sites = [Site("total", address, dice, pace=pace) for address in addresses]
    meters = [Meter(site, lock, print) for site in sites]
    for site in sites:
        site.advance(1_000_000)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{used / len(meters):.0f} bytes for a site and its meter (bar 500)")


def main() -> None:
    increments()
    batches()
    reports()
    memory()
