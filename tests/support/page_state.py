"""The state of a coordinator with much to show."""

from pathlib import Path

from countless.core.messages import SiteId
from countless.server.kinds.counter import CounterFields
from countless.server.settings import STATE_FILE, Config
from countless.server.storage.sqlite_store import SqliteStore
from support.saved import counter_changes

COUNTERS = 120


def populate(directory: Path, sites: int) -> None:
    """The state of many counters, one of them with many sites, all of them disconnected."""
    store = SqliteStore(directory / STATE_FILE)
    for n in range(COUNTERS):
        store.save(counter_changes(f"counter {n:03}", Config(), CounterFields(0, 1000 + n, 1000 + n)))
    fleet = {SiteId(f"node-{n:05}", 1): n + 1 for n in range(sites)}
    store.save(counter_changes("fleet", Config(), CounterFields(1, sites * (sites + 1) // 2, 0), fleet))
    store.close()
