"""The memory of a site, in the coordinator's ledger and as a connection of the real service; the bytes of messages."""

import gc
import resource
import tracemalloc
from collections.abc import Iterator
from os import getpid
from pathlib import Path
from time import process_time

import numpy as np

from countless import Tracker
from countless.core.coordinator import Coordinator
from countless.core.messages import Report, SiteId, Snapshot, StartRound
from countless.core.triggers import BernoulliSampling, OffsetMultiple
from countless.randomness import SeededRandom
from countless.schemes.registry import scheme_named
from countless.wire.frames import Item, encode_frames
from race.contestants.base import Case
from race.contestants.coordinator import CoordinatorBackend
from race.contestants.links import LinkFleet
from race.workloads import ONE, Event
from tools.tables import Table


def ledger(sites: int = 100_000) -> float:
    """Bytes of a site in the ledger, with its id."""
    gc.collect()
    tracemalloc.start()
    site_ids = [SiteId(f"site-{number}", number) for number in range(sites)]
    scheme = scheme_named("auto", "adaptive")
    coordinator = Coordinator("total", scheme, SeededRandom(1), alpha=0.01, delta=0.05, fleet=site_ids)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert coordinator.answer.sites == sites
    return used / sites


def connections(sites: int = 800) -> float:
    """Bytes of a connected site that counts, in the process of `countless serve`."""
    case = Case(sites, counters=1)
    with CoordinatorBackend(case) as backend:
        before = _resident(backend.pid)
        with LinkFleet(backend.address, case) as fleet:
            for site in range(sites):
                fleet.count(Event(0.0, site, ONE))
            used = _resident(backend.pid) - before
    return used / sites


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> Iterator[Table]:
    in_ledger, connected = ledger(), connections()
    rows = [
        ("a site in the coordinator's ledger, with its id", f"{in_ledger:.0f} bytes", f"{in_ledger:.0f} MB"),
        ("a connected site, in `countless serve`", f"{connected / 1e3:.0f} kB", f"{connected / 1e3:.0f} GB"),
    ]
    yield Table("scale-memory", ("memory", "measured", "10^6 sites"), rows)


def calls() -> Iterator[Table]:
    """Memory, messages and the longest call of a `Tracker`: each of its sites counts 180 events."""
    rows = []
    for sites in (10_000, 100_000, 1_000_000):
        gc.collect()
        before = _resident(getpid())
        tracker = Tracker(sites=sites, alpha=0.01, seed=1)
        rng, longest = np.random.default_rng(1), 0.0
        for _ in range(3):
            for site in rng.permutation(sites).tolist():
                began = process_time()
                tracker.site(site).add(60)
                longest = max(longest, process_time() - began)
        used = (_resident(getpid()) - before) / 1e6
        rows.append((f"{sites:,}", f"{used:,.0f} MB", f"{tracker.messages.total:,}", f"{longest:.1f} s"))
        print(" ".join(rows[-1]), flush=True)
        del tracker
    yield Table("scale-calls", ("sites in one process", "memory", "messages", "longest add()"), rows)


def frames() -> Iterator[Table]:
    """Bytes of a frame with one message. A round start of `dithered` depends on the sizes of step and offset."""
    counter, round_number, count = "requests", 10, 10**9
    items: dict[str, Item] = {
        "report": Report(counter, round_number, count, 100),
        "snapshot": Snapshot(counter, round_number, count),
        "round start of `sampled`, step 1,000": StartRound(counter, round_number, BernoulliSampling(1_000)),
        "round start of `dithered`, step 1,000": StartRound(counter, round_number, OffsetMultiple(1_000, 500)),
        "round start of `dithered`, step 100,000": StartRound(counter, round_number, OffsetMultiple(100_000, 70_000)),
    }
    rows = [(what, f"{len(next(encode_frames([item])))}") for what, item in items.items()]
    yield Table("scale-bytes", ("frame", "bytes"), rows)
