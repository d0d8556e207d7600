"""What a site costs at the centre: in the coordinator's ledger, and as a connection of the real service."""

import gc
import resource
import tracemalloc
from pathlib import Path

from countless.core.coordinator import Coordinator
from countless.core.messages import SiteId
from countless.randomness import SeededRandom
from countless.schemes.registry import scheme_named
from race.contestants.base import Case
from race.contestants.coordinator import CoordinatorBackend
from race.contestants.links import LinkFleet
from race.workloads import ONE, Event


def ledger(sites: int = 100_000) -> None:
    gc.collect()
    tracemalloc.start()
    site_ids = [SiteId(f"site-{number}", number) for number in range(sites)]
    names, _ = tracemalloc.get_traced_memory()
    scheme = scheme_named("auto", "adaptive")
    kept = Coordinator("total", scheme, SeededRandom(1), alpha=0.01, delta=0.05, fleet=site_ids)
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{(used - names) / sites:.0f} bytes for a site in the ledger, {names / sites:.0f} for its id ({kept})")


def connections(sites: int = 800) -> None:
    case = Case(sites, counters=1)
    with CoordinatorBackend(case) as backend:
        before = _resident(backend.pid)
        with LinkFleet(backend.address, case) as fleet:
            for site in range(sites):
                fleet.count(Event(0.0, site, ONE))
            used = _resident(backend.pid) - before
    print(f"{used / sites / 1000:.0f} kB for a connected site that counts, in the process of `countless serve`")


def _resident(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def main() -> None:
    ledger()
    connections()
