"""The SQLite store: one file in WAL mode.

Rows that change with every report are appended to a journal, one entry for each save, and written to their tables later
(`journal.py`). Rows that change rarely are written to their tables at once.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from threading import Lock
from time import time

import msgspec

from countless.core.coordinator import PersistentState
from countless.core.messages import SiteId
from countless.core.windows.rule import WindowRule
from countless.server.storage.base import (
    Changes,
    Config,
    CounterFields,
    SavedBudget,
    SavedFamily,
    StoreError,
    Token,
    Tombstone,
    WindowFields,
    WindowKey,
    parse_total,
    site_of_text,
    tombstone_of_text,
    tombstone_text,
)
from countless.server.storage.budget_tables import load_budgets, write_budgets
from countless.server.storage.family_tables import delete_families, drop_families, load_families, write_families
from countless.server.storage.journal import Fold, Journal, decode_entry, encode_entry
from countless.server.storage.problems import damaged, explained
from countless.server.storage.schema import create_tables, is_empty
from countless.token_file import ensure_private
from countless.wire.incarnations import MAX_INCARNATION, first_of, second_of

CHECKPOINT_PAGES = 1_000  # size of the WAL from which a checkpoint also restarts it
MAX_WAL_PAGES = 50_000  # 200 MB, after which the writer itself makes a checkpoint
MAX_PRUNED = 20_000  # tombstones, in one save
ROWS_PER_SAVE = 500  # that a fold writes to each table with one save: some milliseconds
ENTRIES_PER_SAVE = 200  # that a fold deletes with one save, when all rows are written: some milliseconds

# The writer's thread shares the interpreter's lock with the event loop and may wait for it at every statement. So the
# rows of a table travel as one JSON text, and SQLite takes it apart in one statement, without that lock.
_CONFIGURE = "INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SET_COUNTERS = """
UPDATE counters
SET round = json_extract(value, '$[1]'), published = json_extract(value, '$[2]'), departed = json_extract(value, '$[3]')
FROM json_each(?) WHERE name = json_extract(value, '$[0]')
"""
_SET_SITES = """
INSERT OR REPLACE INTO sites
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
json_extract(value, '$[3]') FROM json_each(?)
"""
_REMOVE_SITES = """
DELETE FROM sites WHERE (counter, site, incarnation) IN
(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?))
"""
_DELETE_ENTRIES = """
DELETE FROM journal WHERE number IN (SELECT number FROM journal WHERE number <= ? ORDER BY number LIMIT ?)
"""
_SET_TOMBSTONES = """
INSERT OR REPLACE INTO gone
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
json_extract(value, '$[3]'), json_extract(value, '$[4]') FROM json_each(?)
"""
_SET_WINDOWS = """
INSERT OR REPLACE INTO windows
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]') FROM json_each(?)
"""
_REMOVE_WINDOW = "DELETE FROM windows WHERE counter = ? AND period = ?"  # IN would read all windows of the counter
_PRUNE = """
DELETE FROM gone WHERE (site, incarnation) IN
(SELECT site, incarnation FROM gone AS old WHERE ended < :before AND incarnation < :first_later AND NOT EXISTS
(SELECT 1 FROM gone WHERE site = old.site AND incarnation = old.incarnation AND ended >= :before)
ORDER BY ended LIMIT :most) RETURNING incarnation
"""


class SqliteStore:
    """Implements `StateStore` and `TokenStore`. Several stores, also of other processes, may share one file, but only
    one of them may load and save the state.
    """

    def __init__(self, path: Path | None, wall_clock: Callable[[], float] = time) -> None:
        self._lock = Lock()
        self._journal: Journal | None = None  # as in the file; None: not read yet, or a transaction failed
        self._wall_clock = wall_clock
        self._path = path
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                ensure_private(path)
            self._db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None, timeout=10)
        except OSError as error:
            raise StoreError(f"{path} cannot be used: {error}") from None
        except sqlite3.Error as error:
            raise StoreError(explained(path, error)) from None
        try:
            new = is_empty(self._db, path)
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")  # what was sent must survive a power cut too
            self._db.execute(f"PRAGMA wal_autocheckpoint = {MAX_WAL_PAGES}")
            if new:
                with self._transaction():
                    if is_empty(self._db, path):  # otherwise another process has created them meanwhile
                        create_tables(self._db)
        except sqlite3.Error as error:
            self._db.close()
            raise StoreError(explained(path, error)) from None
        except BaseException:
            self._db.close()
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise StoreError(explained(self._path, error)) from error

    @contextmanager
    def _loading(self) -> Iterator[None]:
        """SQLite does not see a page that is well formed and has wrong values."""
        try:
            yield
        except (ValueError, TypeError, LookupError, msgspec.MsgspecError) as error:
            raise StoreError(damaged(self._path, error)) from error

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._locked():
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # SQLite has rolled back by itself after some errors
                    self._db.execute("ROLLBACK")
                raise

    def checkpoint(self) -> None:
        """Copy the WAL into the file. This is slow, so call it now and then on a second store of the same file, not on
        the writer's: then a save hardly waits for it.
        """
        with self._lock:
            _, pages, _ = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages > CHECKPOINT_PAGES:
                self._db.execute("PRAGMA wal_checkpoint(RESTART)")

    def debug_state(self) -> dict[str, int]:
        with self._lock:
            return {"journal_entries": self._db.execute("SELECT count(*) FROM journal").fetchone()[0]}

    def close(self) -> None:
        with self._lock:
            self._db.close()

    # State

    def load(self) -> dict[str, tuple[Config, PersistentState]]:
        with self._loading():
            return self._load()

    def _load(self) -> dict[str, tuple[Config, PersistentState]]:
        with self._transaction():
            journal, self._journal = self._read_journal(), None
            self._begin_fold(journal)
            while journal.fold is not None:
                self._continue_fold(journal, journal.fold, sys.maxsize, sys.maxsize)
            counters = self._db.execute("SELECT * FROM counters ORDER BY name").fetchall()
            sites = self._db.execute("SELECT * FROM sites").fetchall()
        self._journal = journal
        counts: dict[str, list[tuple[SiteId, int]]] = {name: [] for name, *_ in counters}
        for counter, site, incarnation, count in sites:
            counts[counter].append((site_of_text(site, incarnation), int(count)))
        return {
            name: (
                Config(alpha, delta, scheme, adversary, label_cap, _parse_windows(name, windows)),
                PersistentState(number, parse_total(published), int(departed), tuple(counts[name])),
            )
            for name, alpha, delta, scheme, adversary, label_cap, number, published, departed, windows in counters
        }

    def load_windows(self) -> Iterator[tuple[WindowKey, WindowFields]]:
        with self._locked(), self._loading():
            for counter, period, floor, total, *lost in self._db.execute("SELECT * FROM windows"):  # in the key's order
                yield WindowKey(counter, period), WindowFields(int(floor), int(total) if total else None, *lost)

    def load_budgets(self) -> dict[str, SavedBudget]:
        with self._locked(), self._loading():
            return load_budgets(self._db)

    def load_families(self) -> dict[str, SavedFamily]:
        with self._locked(), self._loading():
            return load_families(self._db)

    def save(self, changes: Changes) -> None:
        try:
            with self._transaction():
                journal, self._journal = self._journal or self._read_journal(), None
                if journal.fold is not None:
                    self._continue_fold(journal, journal.fold, ROWS_PER_SAVE, ENTRIES_PER_SAVE)
                self._write(changes, journal)
                if journal.fold_is_due:
                    self._begin_fold(journal)
            self._journal = journal
        except StoreError as error:
            raise StoreError(f"save failed: {error}") from error

    def _read_journal(self) -> Journal:
        journal = Journal()
        for (entry,) in self._db.execute("SELECT lines FROM journal ORDER BY number"):
            journal.add(decode_entry(entry), len(entry))
        return journal

    def _begin_fold(self, journal: Journal) -> None:
        """Of all entries that the file has now."""
        (last_entry,) = self._db.execute("SELECT max(number) FROM journal").fetchone()
        journal.begin_fold(last_entry or 0)

    def _continue_fold(self, journal: Journal, fold: Fold, rows: int, entries: int) -> None:
        """Write rows to the tables. When all are there, delete their entries, oldest first: if a
        restart finds the rest of them, it still gets the last values.
        """
        part = fold.take(rows)
        if part is not None:
            self._execute(_SET_COUNTERS, part.counters)
            self._execute(_SET_SITES, part.sites)
            self._execute(_REMOVE_SITES, part.removed)
        elif self._db.execute(_DELETE_ENTRIES, (fold.last_entry, entries)).rowcount == 0:
            journal.fold = None

    def _write(self, changes: Changes, journal: Journal) -> None:
        for table, column in (("counters", "name"), ("sites", "counter"), ("gone", "counter"), ("windows", "counter")):
            removed = changes.deleted if table in ("gone", "windows") else changes.deleted + changes.closed
            self._db.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(name,) for name in removed])  # noqa: S608  # constants
        self._db.executemany(
            _CONFIGURE,
            [
                (
                    *(name, c.alpha, c.delta, c.scheme, c.adversary, c.label_cap),
                    *_as_text(changes.counters[name]),
                    msgspec.json.encode(c.windows).decode() if c.windows else "",
                )
                for name, c in changes.configs.items()
            ],
        )
        if changes.counters or changes.counts or changes.deleted or changes.closed:
            entry = encode_entry(changes)
            self._db.execute("INSERT INTO journal (lines) VALUES (?)", (entry,))
            journal.add(changes, len(entry))
        self._db.executemany(_REMOVE_WINDOW, [key for key, fields in changes.windows.items() if fields is None])
        self._execute(
            _SET_WINDOWS,
            [
                (*key, str(fields.floor), "" if fields.total is None else str(fields.total), *fields[2:])
                for key, fields in changes.windows.items()
                if fields is not None
            ],
        )
        write_budgets(self._db, changes)
        delete_families(self._db, changes.deleted_families)
        drop_families(self._db, changes.dropped_families)
        write_families(self._db, self._execute, changes.families)
        now = int(self._wall_clock())
        self._execute(
            _SET_TOMBSTONES,
            [
                (site_id.site, site_id.incarnation, tombstone_text(key, what, label), str(value), now)
                for site_id, key, what, label, value in changes.tombstones
            ],
        )
        if changes.prune_before is not None:
            self._prune(changes.prune_before)

    def _prune(self, before: int) -> None:
        horizon = self._read_horizon()
        first_later = min(first_of(max(before, horizon) + 1), MAX_INCARNATION)
        dropped = self._db.execute(
            _PRUNE, {"before": before, "first_later": first_later, "most": MAX_PRUNED}
        ).fetchall()
        if dropped:
            horizon = max(horizon, second_of(max(dropped)[0]) + 1)
            self._db.execute("INSERT OR REPLACE INTO facts VALUES ('pruned before', ?)", (horizon,))

    def _execute(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        if rows:
            self._db.execute(statement, (msgspec.json.encode(rows).decode(),))

    def tombstones(self, site_id: SiteId) -> list[Tombstone]:
        with self._locked(), self._loading():
            rows = self._db.execute("SELECT counter, known FROM gone WHERE site = ? AND incarnation = ?", site_id[:2])
            return [tombstone_of_text(site_id, text, int(value)) for text, value in rows.fetchall()]

    def tombstone_horizon(self) -> int:
        with self._locked(), self._loading():
            return self._read_horizon()

    def _read_horizon(self) -> int:
        row = self._db.execute("SELECT value FROM facts WHERE name = 'pruned before'").fetchone()
        return int(row[0]) if row else 0

    # Tokens

    def add_token(self, token: Token) -> None:
        with self._transaction():
            self._db.execute("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?)", astuple(token))

    def token(self, digest: bytes) -> Token | None:
        with self._locked():
            row = self._db.execute("SELECT * FROM tokens WHERE digest = ?", (digest,)).fetchone()
        return Token(*row) if row else None

    def tokens(self) -> list[Token]:
        with self._locked():
            return [Token(*row) for row in self._db.execute("SELECT * FROM tokens ORDER BY created, label")]

    def revoke(self, which: str) -> int:
        revoked = [(token.digest,) for token in self.tokens() if token.is_named(which)]
        with self._transaction():
            self._db.executemany("DELETE FROM tokens WHERE digest = ?", revoked)
        return len(revoked)

    def expire(self, digest: bytes, second: int) -> None:
        with self._transaction():
            statement = "UPDATE tokens SET expires = min(ifnull(expires, ?1), ?1) WHERE digest = ?2"
            self._db.execute(statement, (second, digest))

    def note_uses(self, uses: Mapping[bytes, int]) -> None:
        """The last use of each, but for one of the future: the clock was ahead then."""
        statement = """
        UPDATE tokens SET last_used = max(iif(ifnull(last_used, ?3 + 1) > ?3, ?1, last_used), ?1) WHERE digest = ?2
        """
        now = int(self._wall_clock())
        with self._transaction():
            self._db.executemany(statement, [(second, digest, now) for digest, second in uses.items()])


def _as_text(fields: CounterFields) -> tuple[int, str, str]:
    return fields.round, repr(fields.published), str(fields.departed)


def _parse_windows(counter: str, rule: str) -> WindowRule | None:
    try:
        return msgspec.json.decode(rule, type=WindowRule) if rule else None
    except msgspec.ValidationError as error:
        raise StoreError(f"the windows of counter {counter!r} cannot be used here: {error}") from None
