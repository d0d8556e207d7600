"""The journal of the state file: an entry for each save, and the rows that are in entries only.

A save appends one entry to the `journal` table (design/decisions/journal.md). `Journal` has the same rows in memory.
When the entries have become many, a fold begins: with every following save, some of the rows are written to their
tables, and at last the entries are deleted. Rows are absolute values, so a fold that a restart interrupted begins
again.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from countless.core.messages import SiteId, SiteName
from countless.server.storage.base import Changes, CounterFields, SiteCounts, parse_total, site_of_text, site_text

MAX_BYTES = 1 << 25  # of entries, from which a fold begins: a restart reads twice as much in two seconds


class Entry(msgspec.Struct, array_like=True):
    counters: list[tuple[str, int, str, str]]  # name, round, published, departed
    sites: list[tuple[str, str, int, str | None]]  # counter, site, incarnation, count; None: not a member any more
    deleted: list[str]


_decode = msgspec.msgpack.Decoder(Entry).decode


def encode_entry(changes: Changes) -> bytes:
    counters = [
        (name, number, repr(total), str(departed)) for name, (number, total, departed) in changes.counters.items()
    ]
    sites = [
        (name, site_text(site_id), site_id.incarnation, None if count is None else str(count))
        for name, counts in changes.counts.items()
        for site_id, count in counts.items()
    ]
    return msgspec.msgpack.encode((counters, sites, [*changes.deleted, *changes.closed]))


def decode_entry(data: bytes) -> Changes:
    entry, counts = _decode(data), SiteCounts()
    for name, site, incarnation, count in entry.sites:
        counts.setdefault(name, {})[site_of_text(site, incarnation)] = None if count is None else int(count)
    counters = {
        name: CounterFields(number, parse_total(total), int(departed))
        for name, number, total, departed in entry.counters
    }
    return Changes(counters, counts, deleted=entry.deleted)


class Slice(NamedTuple):
    """Rows to write to the tables; each list is in the order of its table."""

    counters: list[tuple[str, int, str, str]]
    sites: list[tuple[str, SiteName, int, str]]
    removed: list[tuple[str, SiteName, int]]


class Fold:
    """Rows of the entries up to `last_entry`, which are being written to their tables."""

    def __init__(self, counters: dict[str, CounterFields], counts: SiteCounts, last_entry: int) -> None:
        self.last_entry = last_entry
        self._counters = iter(sorted(counters.items()))
        self._sites = _in_order(counts)
        self._deleted: set[str] = set()  # counters, since the fold began

    def delete(self, name: str) -> None:
        self._deleted.add(name)

    def take(self, limit: int) -> Slice | None:
        """The next rows, at most so many for each table; None if there were no more."""
        counters, sites = list(islice(self._counters, limit)), list(islice(self._sites, limit))
        if not counters and not sites:
            return None
        sites = [row for row in sites if row[0] not in self._deleted]
        return Slice(
            [
                (name, number, repr(total), str(departed))
                for name, (number, total, departed) in counters
                if name not in self._deleted
            ],
            [
                (name, site_text(site_id), site_id.incarnation, str(count))
                for name, site_id, count in sites
                if count is not None
            ],
            [(name, site_text(site_id), site_id.incarnation) for name, site_id, count in sites if count is None],
        )


def _in_order(counts: SiteCounts) -> Iterator[tuple[str, SiteId, int | None]]:
    for name in sorted(counts):  # one sort of all sites would take the interpreter's lock for too long
        for site_id, count in sorted(counts[name].items()):
            yield name, site_id, count


class Journal:
    """The rows of all entries: a later entry replaces an earlier one, and a deletion undoes the entries before it."""

    def __init__(self) -> None:
        self.fold: Fold | None = None
        self._counters: dict[str, CounterFields] = {}  # of entries that are not in the fold
        self._counts: SiteCounts = {}
        self._bytes = 0

    @property
    def fold_is_due(self) -> bool:
        return self.fold is None and self._bytes > MAX_BYTES

    def add(self, changes: Changes, size: int) -> None:
        """An entry of `size` bytes was appended."""
        for name in (*changes.deleted, *changes.closed):
            self._counters.pop(name, None)
            self._counts.pop(name, None)
            if self.fold is not None:
                self.fold.delete(name)
        self._counters.update(changes.counters)
        for name, counts in changes.counts.items():
            self._counts.setdefault(name, {}).update(counts)
        self._bytes += size

    def begin_fold(self, last_entry: int) -> Fold:
        self.fold = Fold(self._counters, self._counts, last_entry)
        self._counters, self._counts, self._bytes = {}, {}, 0
        return self.fold
