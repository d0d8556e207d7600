"""The journal: changed lines wait here, on the disk, until they get to their places in the tables.

A line at its place costs a page of writing, and hundreds of lines in one row of a journal cost little more. So a save
appends one row; when the journal has grown, its lines are moved to their places in the order of their keys, a slice
with each save, so that nobody waits for all of it. Lines are absolute values: reading the journal over tables that have
some of it already gives the same.

All this is done beside the loop, and each statement that begins or ends may cost a wait for the interpreter's lock: so
a slice travels as one JSON text, and SQLite takes it apart without that lock.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from countless.core.messages import SiteId
from countless.server.storage.base import CounterFields, SiteCounts

MOST_BYTES = 1 << 23  # after which the lines are moved
SLICE = 500  # lines moved with one save: some milliseconds

_encode = msgspec.msgpack.Encoder().encode
_Number = int | float | str  # what does not fit into 64 bits is text
_decode = msgspec.msgpack.Decoder(
    tuple[list[tuple[str, int, _Number, _Number]], list[tuple[str, str, int, _Number]]]
).decode

_SET_FIGURES = """
UPDATE counters
SET round = json_extract(value, '$[1]'), published = json_extract(value, '$[2]'), departed = json_extract(value, '$[3]')
FROM json_each(?) WHERE name = json_extract(value, '$[0]')
"""
_SEAT = "json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]')"
_SET_KNOWN = f"INSERT OR REPLACE INTO sites SELECT {_SEAT}, json_extract(value, '$[3]') FROM json_each(?)"  # noqa: S608
_EMPTY = f"DELETE FROM sites WHERE (counter, site, incarnation) IN (SELECT {_SEAT} FROM json_each(?))"  # noqa: S608


class Lines(NamedTuple):
    """What has changed."""

    counters: dict[str, CounterFields]
    known: SiteCounts

    def encode(self) -> bytes:
        """As one row of the journal."""
        counters = [(name, *figures) for name, figures in self.counters.items()]
        known = [
            (name, *site_id, -1 if count is None else count)
            for name, seats in self.known.items()
            for site_id, count in seats.items()
        ]
        try:
            return _encode((counters, known))
        except OverflowError:
            return _encode(([_small(line) for line in counters], [_small(line) for line in known]))

    def read(self, row: bytes) -> None:
        """Take in what such a row says."""
        counters, known = _decode(row)
        for name, number, published, departed in counters:
            self.counters[name] = CounterFields(number, as_number(published), int(departed))
        for name, site, incarnation, count in known:
            self.known.setdefault(name, {})[SiteId(site, incarnation)] = None if count == -1 else int(count)

    def add(self, later: "Lines") -> None:
        """What has changed since then too."""
        self.counters.update(later.counters)
        for name, seats in later.known.items():
            self.known.setdefault(name, {}).update(seats)

    def slices(self) -> Iterator["Lines"]:
        """In the order of their places. One sort of everything would keep the loop waiting: counter by counter."""
        figures = iter(sorted(self.counters.items()))
        while some := dict(islice(figures, SLICE)):
            yield Lines(some, {})
        part, size = Lines({}, {}), 0
        for name in sorted(self.known):
            seats = iter(sorted(self.known[name].items(), key=_site))
            while some_seats := dict(islice(seats, SLICE - size)):
                part.known[name] = some_seats
                size += len(some_seats)
                if size == SLICE:
                    yield part
                    part, size = Lines({}, {}), 0
        yield part


class Journal:
    """Whoever calls this holds the store's lock. Inside a transaction: `write`; once it is committed: `written`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        self._fresh = Lines({}, {})  # not at their places yet
        self._old = Lines({}, {})  # an earlier part of the journal, on its way,
        self._slices: Iterator[Lines] | None = None  # slice by slice
        self._next: Lines | None = None  # the next of them; None: all have arrived
        self._bytes = 0
        self._moved_up_to = 0

    def write(self, lines: Lines) -> tuple[Lines, int]:
        """Append; and move a slice of what was there before."""
        row = lines.encode()
        if lines.counters or lines.known:
            self._db.execute("INSERT INTO journal (lines) VALUES (?)", (row,))
        if self._next is not None:
            self._move(self._next)
        elif self._slices is not None:
            self._db.execute("DELETE FROM journal WHERE number <= ?", (self._moved_up_to,))
        return lines, len(row)

    def written(self, step: tuple[Lines, int]) -> None:
        """It is on the disk."""
        lines, size = step
        if self._next is None:
            self._slices, self._old = None, Lines({}, {})
        self._fresh.add(lines)
        self._bytes += size
        if self._bytes > MOST_BYTES and self._slices is None:
            self._old, self._fresh, self._bytes = self._fresh, Lines({}, {}), 0
            self._moved_up_to = self._db.execute("SELECT max(number) FROM journal").fetchone()[0]
            self._slices = self._old.slices()
        self._next = next(self._slices, None) if self._slices is not None else None

    def read(self) -> None:
        """After a start: what is in the journal and may not be in the tables."""
        for (row,) in self._db.execute("SELECT lines FROM journal ORDER BY number"):
            self._fresh.read(row)

    def move_all(self) -> None:
        """Everything to its place, in the transaction that is open."""
        for lines in (self._old, self._fresh):
            for part in lines.slices():
                self._move(part)
        self._db.execute("DELETE FROM journal")

    def moved(self) -> None:
        """That is on the disk."""
        self._old, self._fresh, self._bytes = Lines({}, {}), Lines({}, {}), 0
        self._slices = self._next = None

    def _move(self, lines: Lines) -> None:
        figures = [
            (name, number, repr(published), str(departed))
            for name, (number, published, departed) in lines.counters.items()
        ]
        known = [(name, *site_id, count) for name, seats in lines.known.items() for site_id, count in seats.items()]
        taken = [(*seat, str(count)) for *seat, count in known if count is not None]
        empty = [tuple(seat) for *seat, count in known if count is None]
        for statement, part in ((_SET_FIGURES, figures), (_SET_KNOWN, taken), (_EMPTY, empty)):
            if part:
                self._db.execute(statement, (as_json(part),))


def as_json(lines: Sequence[tuple[str | int, ...]]) -> str:
    """For `json_each`: many lines in one statement."""
    return msgspec.json.encode(lines).decode()


def as_number(value: _Number) -> float:
    """A total: whole, or with a fraction."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() else float(value)
    return value


def _site(line: tuple[SiteId, int | None]) -> str:
    return str(line[0].site)


def _small(line: Iterable[object]) -> list[object]:
    return [str(field) if isinstance(field, int) and field >= 1 << 63 else field for field in line]
