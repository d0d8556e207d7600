"""The memory of a site, in the coordinator's ledger and as a connection of the real service; the bytes of messages."""

import gc
import resource
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

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
