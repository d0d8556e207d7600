"""The store: what survives the process, in one SQLite file (WAL), with a version.

The core's rule is *save before send*: what a coordinator returned may leave the machine only when its `Memory` is on
the disk. A `Memory` has a line for each site, but one input changes only the line of the site that spoke, so a save is
a list of changed lines, and many inputs share one transaction.

Counts are unbounded, and SQLite's integers are not: they are kept as decimal text.
"""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from countless.core.coordinator import Memory
from countless.core.messages import Address
from countless.errors import CountlessError

SCHEMA = 1
_APPLICATION = 0x436F756E  # "Coun": so that another program's file is not taken for ours

_TABLES = """
CREATE TABLE counters (
    name TEXT PRIMARY KEY, alpha REAL NOT NULL, delta REAL NOT NULL, scheme TEXT NOT NULL, adversary TEXT NOT NULL,
    label_cap INTEGER NOT NULL, round INTEGER NOT NULL, published TEXT NOT NULL, departed TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE sites (
    counter TEXT NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL, known TEXT NOT NULL,
    PRIMARY KEY (counter, site, incarnation)
) WITHOUT ROWID;
CREATE TABLE gone (
    site TEXT NOT NULL, incarnation INTEGER NOT NULL, counter TEXT NOT NULL, known TEXT NOT NULL,
    PRIMARY KEY (site, incarnation, counter)
) WITHOUT ROWID;
CREATE TABLE tokens (
    digest BLOB PRIMARY KEY, scope TEXT NOT NULL, site TEXT, label TEXT NOT NULL, created INTEGER NOT NULL
) WITHOUT ROWID;
"""


class StoreError(CountlessError):
    """The state directory cannot be used as it is."""


@dataclass(frozen=True, slots=True)
class Config:
    """What an operator chose for a counter."""

    alpha: float = 0.01
    delta: float = 0.05
    scheme: str = "auto"
    adversary: str = "adaptive"
    label_cap: int = 2000


@dataclass(slots=True)
class Changes:
    """What one save writes, all of it or nothing."""

    counters: dict[str, tuple[Config, int, float, int]] = field(default_factory=dict)  # round, published, departed
    known: dict[tuple[str, Address], int] = field(default_factory=dict)
    gone: dict[tuple[str, Address], int] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.counters or self.known or self.gone or self.deleted)


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token as it is kept: its digest, never itself."""

    digest: bytes
    scope: str
    site: str | None
    label: str
    created: int


class Store:
    """One file. Safe to call from several threads, and beside other processes that use the same file."""

    def __init__(self, path: Path | None) -> None:
        self._lock = Lock()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None, timeout=10)
        try:
            self._open(path)
        except BaseException:
            self._db.close()
            raise

    def _open(self, path: Path | None) -> None:
        try:
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            application = self._db.execute("PRAGMA application_id").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise StoreError(f"{path} is not a database of Countless: {error}") from None
        if version > SCHEMA:
            raise StoreError(
                f"{path} was written by a newer Countless (schema {version}; this one knows up to {SCHEMA}): "
                "run that version, or restore a copy made before the upgrade"
            )
        if version and application != _APPLICATION:
            raise StoreError(f"{path} is a database of another program")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")  # what was sent must not be forgotten by a power cut either
        if not version:
            with self._transaction():
                for statement in _TABLES.split(";\n"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def close(self) -> None:
        """No more."""
        with self._lock:
            self._db.close()

    # The counters

    def load(self) -> dict[str, tuple[Config, Memory]]:
        """Every counter with what its coordinator must remember."""
        with self._lock:
            counters = self._db.execute("SELECT * FROM counters ORDER BY name").fetchall()
            sites = self._db.execute("SELECT * FROM sites").fetchall()
        known: dict[str, list[tuple[Address, int]]] = {name: [] for name, *_ in counters}
        for counter, site, incarnation, count in sites:
            known[counter].append((Address(site, incarnation), int(count)))
        return {
            name: (Config(*config), Memory(number, to_number(published), int(departed), tuple(known[name])))
            for name, *config, number, published, departed in counters
        }

    def save(self, changes: Changes) -> None:
        """All of it, or nothing. When this returns, what depends on it may be sent."""
        with self._transaction():
            for name in changes.deleted:
                for table, column in (("counters", "name"), ("sites", "counter"), ("gone", "counter")):
                    self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (name,))  # noqa: S608  # our own words
            self._db.executemany(
                "INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (name, c.alpha, c.delta, c.scheme, c.adversary, c.label_cap, number, repr(published), str(departed))
                    for name, (c, number, published, departed) in changes.counters.items()
                ),
            )
            self._db.executemany("INSERT OR REPLACE INTO sites VALUES (?, ?, ?, ?)", _lines(changes.known))
            for (counter, address), known in changes.gone.items():
                self._db.execute(
                    "DELETE FROM sites WHERE counter = ? AND site = ? AND incarnation = ?", (counter, *address)
                )
                self._db.execute("INSERT OR REPLACE INTO gone VALUES (?, ?, ?, ?)", (*address, counter, str(known)))

    def buried(self, address: Address) -> tuple[tuple[str, int], ...]:
        """What was known of a life when it ended, by counter."""
        with self._lock:
            lines = self._db.execute("SELECT counter, known FROM gone WHERE site = ? AND incarnation = ?", address)
            return tuple((counter, int(known)) for counter, known in lines.fetchall())

    def half_gone(self) -> list[tuple[Address, str, int]]:
        """What was known of counters that a life has left, while it goes on with others."""
        with self._lock:
            lines = self._db.execute(
                "SELECT site, incarnation, counter, known FROM gone WHERE EXISTS (SELECT 1 FROM sites WHERE "
                "sites.site = gone.site AND sites.incarnation = gone.incarnation)"
            ).fetchall()
        return [(Address(site, incarnation), counter, int(known)) for site, incarnation, counter, known in lines]

    def everything(self) -> Changes:
        """All that was ever saved and still holds, as one save."""
        with self._lock:
            lines = self._db.execute("SELECT counter, site, incarnation, known FROM gone").fetchall()
        whole = Changes(gone={(counter, Address(site, life)): int(known) for counter, site, life, known in lines})
        for name, (config, memory) in self.load().items():
            whole.counters[name] = (config, memory.round, memory.published, memory.departed)
            whole.known |= {(name, address): known for address, known in memory.known}
        return whole

    # The tokens

    def add_token(self, token: Token) -> None:
        """One more."""
        values = (token.digest, token.scope, token.site, token.label, token.created)
        with self._transaction():
            self._db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", values)

    def token(self, digest: bytes) -> Token | None:
        """The token with this digest, if there is one."""
        with self._lock:
            line = self._db.execute("SELECT * FROM tokens WHERE digest = ?", (digest,)).fetchone()
        return Token(*line) if line else None

    def tokens(self) -> list[Token]:
        """All of them."""
        with self._lock:
            return [Token(*line) for line in self._db.execute("SELECT * FROM tokens ORDER BY created, label")]

    def revoke(self, label: str) -> int:
        """Take back the tokens of this label; how many there were."""
        with self._transaction():
            return self._db.execute("DELETE FROM tokens WHERE label = ?", (label,)).rowcount


def to_number(text: str) -> float:
    """A published total, as it was written."""
    return int(text) if text.isdecimal() else float(text)


def _lines(known: dict[tuple[str, Address], int]) -> Iterable[tuple[str, str | int, int, str]]:
    return ((counter, *address, str(count)) for (counter, address), count in known.items())
