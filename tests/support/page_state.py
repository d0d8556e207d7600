"""The state of a coordinator with much to show."""

from pathlib import Path

from countless.core.messages import SiteId
from countless.server.settings import STATE_FILE
from countless.server.storage.base import Changes, Config, CounterFields, SiteCounts
from countless.server.storage.sqlite_store import SqliteStore

COUNTERS = 120


def populate(directory: Path, sites: int) -> None:
    """The state of many counters, one of them with many sites, all of them disconnected."""
    store = SqliteStore(directory / STATE_FILE)
    fleet: SiteCounts = {"fleet": {SiteId(f"node-{n:05}", 1): n + 1 for n in range(sites)}}
    counters: dict[str, CounterFields] = {
        f"counter {n:03}": CounterFields(0, 1000 + n, 1000 + n) for n in range(COUNTERS)
    }
    counters["fleet"] = CounterFields(1, sites * (sites + 1) // 2, 0)
    store.save(Changes(counters=counters, counts=fleet, configs=dict.fromkeys(counters, Config())))
    store.close()
