"""Journal entries: what one save changed, as one row of the state file (docs/decisions/journal.md)."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from countless.server.storage.base import Changes

_Number = int | float | str  # this version writes text; files of schema 2 also have numbers
_REMOVED = -1


class Entry(msgspec.Struct, array_like=True):
    counters: list[tuple[str, int, _Number, _Number]]  # name, round, published, departed
    sites: list[tuple[str, str, int, _Number]]  # counter, site, incarnation, count
    deleted: list[str] = []


class Folded(NamedTuple):
    """What a sequence of entries amounts to. Rows of one table are in the order of its key."""

    deleted: set[str]  # before the rows below are written
    counters: list[tuple[str, int, str, str]]
    sites: list[tuple[str, str, int, str]]
    removed: list[tuple[str, str, int]]


def encode_entry(changes: Changes) -> bytes:
    counters = [
        (name, number, repr(total), str(departed)) for name, (number, total, departed) in changes.counters.items()
    ]
    sites = [
        (name, *site_id, _REMOVED if count is None else str(count))
        for name, counts in changes.counts.items()
        for site_id, count in counts.items()
    ]
    return msgspec.msgpack.encode((counters, sites, changes.deleted))


def fold(entries: Iterable[bytes]) -> Folded:
    """Values are absolute, so the last entry wins; a deletion undoes the entries before it."""
    deleted: set[str] = set()
    counters: dict[str, tuple[str, int, _Number, _Number]] = {}
    sites: dict[str, dict[tuple[str, int], _Number]] = {}
    decode = msgspec.msgpack.Decoder(Entry).decode
    for data in entries:
        entry = decode(data)
        for name in entry.deleted:
            deleted.add(name)
            counters.pop(name, None)
            sites.pop(name, None)
        for row in entry.counters:
            counters[row[0]] = row
        for name, site, incarnation, count in entry.sites:
            sites.setdefault(name, {})[site, incarnation] = count
    written, removed = [], []
    for name in sorted(sites):  # one sort of all sites would hold the interpreter's lock for too long
        for (site, incarnation), count in sorted(sites[name].items()):
            if count == _REMOVED:
                removed.append((name, site, incarnation))
            else:
                written.append((name, site, incarnation, str(count)))
    figures = [(name, number, str(total), str(departed)) for name, number, total, departed in sorted(counters.values())]
    return Folded(deleted, figures, written, removed)
