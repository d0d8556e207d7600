"""The journal of the state file: an entry for each save, and the rows that are in entries only.

A save appends one entry to the `journal` table (design/decisions/journal.md). `Journal` has the same rows in memory.
When the entries have become many, a fold begins: with every following save, some of the rows are written to the table
of all rows, and at last the entries are deleted. Rows are absolute values, so a fold that a restart interrupted begins
again.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from countless.server.storage.rows import Changes, Dropped, Place, StoredRows, apply
from countless.wire.keys import ALL, Key

MAX_BYTES = 1 << 25  # of entries, from which a fold begins: a restart reads twice as much in two seconds

_encode_value = msgspec.json.Encoder().encode


class TableRow(NamedTuple):
    """As the table has it, in the order of its columns. The value is JSON; None: the row is removed."""

    kind: str
    name: str
    calendar: str
    period: int
    site: str
    incarnation: int
    what: str
    label: str
    value: str | None


class Fold:
    """Rows of the entries up to `last_entry`, which are being written to their table."""

    def __init__(self, rows: StoredRows, last_entry: int) -> None:
        self.last_entry = last_entry
        self._rows = _in_order(rows)
        self._dropped: set[Key] = set()  # since the fold began
        self._dropped_sites: set[tuple[Key, tuple[str, int]]] = set()

    def drop(self, dropped: Iterable[Dropped]) -> None:
        for key, site_id in dropped:
            if site_id is None:
                self._dropped.add(key)
            else:
                self._dropped_sites.add((key, (str(site_id.site), site_id.incarnation)))

    def take(self, limit: int) -> list[TableRow] | None:
        """The next rows, at most so many; None if there were no more."""
        rows = list(islice(self._rows, limit))
        return (
            [
                TableRow(*key, at[0], at[1], what, at[2], _text(value))
                for key, at, what, value in rows
                if self._dropped.isdisjoint((key, key._replace(period=ALL)))
                and (key, at[:2]) not in self._dropped_sites
            ]
            if rows
            else None
        )


def _text(value: object) -> str | None:
    return None if value is None else str(value) if type(value) is int else _encode_value(value).decode()


def _in_order(rows: StoredRows) -> Iterator[tuple[Key, Place, str, Any]]:
    """In that of the table. One sort of all rows would take the interpreter's lock for too long."""
    for key in sorted(rows):
        places = [(at, what) for what, by_place in rows[key].items() for at in by_place]
        for at, what in sorted(places, key=lambda each: (*each[0][:2], each[1], each[0][2])):
            yield key, at, what, rows[key][what][at]


class Journal:
    """The rows of all entries: a later entry replaces an earlier one, and undoes what it drops."""

    def __init__(self) -> None:
        self.last = 0  # the number of the last entry: none is used twice while a fold deletes entries by number
        self.fold: Fold | None = None
        self._rows: StoredRows = {}  # of entries that are not in the fold
        self._bytes = 0

    @property
    def fold_is_due(self) -> bool:
        return self.fold is None and self._bytes > MAX_BYTES

    def add(self, changes: Changes, size: int) -> None:
        """An entry of `size` bytes was appended."""
        if self.fold is not None:
            self.fold.drop(changes.dropped)
        apply(self._rows, changes, keep_removed=True)
        self._bytes += size

    def begin_fold(self) -> Fold:
        self.fold = Fold(self._rows, self.last)
        self._rows, self._bytes = {}, 0
        return self.fold
