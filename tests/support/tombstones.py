"""Tombstones in short: of counters, by the texts of their keys."""

from collections.abc import Iterable

from countless.core.messages import SiteId
from countless.server.storage.rows import Tombstone, What
from countless.wire.keys import ALL, COUNTER, key_of


def final(counter: str, site_id: SiteId, count: int) -> Tombstone:
    """The final count of a counter or a window; for a text such as `hits@hour` the first window that was not left."""
    key = key_of(COUNTER, counter)
    return Tombstone(site_id, key, What.WATERMARK if key.period == ALL else What.COUNT, count)


def shown(tombstones: Iterable[Tombstone]) -> tuple[tuple[str, int], ...]:
    return tuple((str(each.key), each.value) for each in tombstones)
