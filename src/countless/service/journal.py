"""The journal: changed lines wait here, on the disk, until they get to their places in the tables.

A line at its place costs a page of writing, and hundreds of lines in one row of a journal cost little more. So a save
appends one row; when the journal has grown, its lines are moved to their places in the order of their keys, a slice
with each save, so that nobody waits for all of it. Lines are absolute values: reading the journal over tables that have
some of it already gives the same.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from countless.core.messages import Address

MOST_BYTES = 1 << 23  # after which the lines are moved
SLICE = 2_000  # lines moved with one save: some milliseconds

Figures = tuple[int, float, int]  # of a counter: round, published, departed
Seat = tuple[str, Address]  # of a site in a counter
_encode = msgspec.msgpack.Encoder().encode
_Number = int | float | str  # what does not fit into 64 bits is text
_decode = msgspec.msgpack.Decoder(
    tuple[list[tuple[str, int, _Number, _Number]], list[tuple[str, str, int, _Number]]]
).decode


class Lines(NamedTuple):
    """What has changed. A seat without a number is empty now."""

    counters: dict[str, Figures]
    known: dict[Seat, int | None]

    def __len__(self) -> int:
        return len(self.counters) + len(self.known)

    def encode(self) -> bytes:
        """As one row of the journal."""
        counters = [(name, *figures) for name, figures in self.counters.items()]
        known = [(name, *address, -1 if count is None else count) for (name, address), count in self.known.items()]
        try:
            return _encode((counters, known))
        except OverflowError:
            return _encode(([_small(line) for line in counters], [_small(line) for line in known]))

    def read(self, row: bytes) -> None:
        """Take in what such a row says."""
        counters, known = _decode(row)
        for name, number, published, departed in counters:
            self.counters[name] = (number, as_number(published), int(departed))
        for name, site, incarnation, count in known:
            self.known[name, Address(site, incarnation)] = None if count == -1 else int(count)

    def slices(self) -> Iterator["Lines"]:
        """In the order of their places."""
        counters, known = sorted(self.counters.items()), sorted(self.known.items(), key=lambda line: line[0])
        for start in range(0, max(len(counters), len(known)), SLICE):
            yield Lines(dict(counters[start : start + SLICE]), dict(known[start : start + SLICE]))


class Journal:
    """Whoever calls this holds the store's lock. Inside a transaction: `write`; once it is committed: `written`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._db = database
        self._fresh = Lines({}, {})  # not at their places yet
        self._moving: list[Lines] = []  # an earlier part of the journal, on its way; the next slice is the last
        self._bytes = 0
        self._number = self._moved_up_to = 0

    def write(self, lines: Lines) -> tuple[Lines, int]:
        """Append; and move a slice of what was there before."""
        row = lines.encode()
        if lines:
            self._db.execute("INSERT INTO journal (lines) VALUES (?)", (row,))
        if self._moving:
            self._move(self._moving[-1])
            if len(self._moving) == 1:
                self._db.execute("DELETE FROM journal WHERE number <= ?", (self._moved_up_to,))
        return lines, len(row)

    def written(self, step: tuple[Lines, int]) -> None:
        """It is on the disk."""
        lines, size = step
        if self._moving:
            self._moving.pop()
        self._fresh.counters.update(lines.counters)
        self._fresh.known.update(lines.known)
        self._bytes += size
        if self._bytes > MOST_BYTES and not self._moving:
            self._moving = list(self._fresh.slices())[::-1]
            self._moved_up_to = self._db.execute("SELECT max(number) FROM journal").fetchone()[0]
            self._fresh, self._bytes = Lines({}, {}), 0

    def read(self) -> None:
        """After a start: what is in the journal and may not be in the tables."""
        for (row,) in self._db.execute("SELECT lines FROM journal ORDER BY number"):
            self._fresh.read(row)

    def move_all(self) -> None:
        """Everything to its place, in the transaction that is open."""
        for lines in (*reversed(self._moving), *self._fresh.slices()):
            self._move(lines)
        self._db.execute("DELETE FROM journal")

    def moved(self) -> None:
        """That is on the disk."""
        self._moving, self._fresh, self._bytes = [], Lines({}, {}), 0

    def _move(self, lines: Lines) -> None:
        self._db.executemany(
            "UPDATE counters SET round = ?, published = ?, departed = ? WHERE name = ?",
            (
                (number, repr(published), str(departed), name)
                for name, (number, published, departed) in lines.counters.items()
            ),
        )
        empty = [seat for seat, count in lines.known.items() if count is None]
        self._db.executemany(
            "DELETE FROM sites WHERE counter = ? AND site = ? AND incarnation = ?",
            ((name, *address) for name, address in empty),
        )
        self._db.executemany(
            "INSERT OR REPLACE INTO sites VALUES (?, ?, ?, ?)",
            ((name, *address, str(count)) for (name, address), count in lines.known.items() if count is not None),
        )


def as_number(value: _Number) -> float:
    """A total: whole, or with a fraction."""
    if isinstance(value, str):
        return int(value) if value.isdecimal() else float(value)
    return value


def _small(line: Iterable[object]) -> list[object]:
    return [str(field) if isinstance(field, int) and field >= 1 << 63 else field for field in line]
