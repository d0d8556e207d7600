"""The SQLite store: one file in WAL mode.

A save appends its rows to a journal as one entry; they are written to their table later (`journal.py`). Tombstones are
written at once, and what is dropped is deleted at once.
"""

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from itertools import groupby
from json import loads
from operator import itemgetter
from pathlib import Path
from sys import intern
from threading import Lock
from time import time

import msgspec

from countless.core.messages import SiteId
from countless.server.storage.base import StoreError, Token
from countless.server.storage.health import damaged, explained
from countless.server.storage.journal import Fold, Journal
from countless.server.storage.rows import Changes, KeyRows, Tombstone, What, decode, encode
from countless.server.storage.schema import create_tables, is_empty
from countless.token_file import ensure_private
from countless.wire.incarnations import MAX_INCARNATION, first_of, second_of
from countless.wire.keys import ALL, Key

CHECKPOINT_PAGES = 1_000  # size of the WAL from which a checkpoint also restarts it
MAX_WAL_PAGES = 50_000  # 200 MB, after which the writer itself makes a checkpoint
MAX_PRUNED = 20_000  # tombstones, in one save
ROWS_PER_SAVE = 500  # that a fold writes to each table with one save: some milliseconds
ENTRIES_PER_SAVE = 200  # that a fold deletes with one save, when all rows are written: some milliseconds

# The writer's thread shares the interpreter's lock with the event loop and may wait for it at every statement. So rows
# travel as one JSON text, and SQLite takes it apart in one statement, without that lock.
_COLUMNS = ("kind", "name", "calendar", "period", "site", "incarnation", "what", "label")
_PLACE = ", ".join(_COLUMNS)
_FIELDS = ", ".join(f"json_extract(value, '$[{number}]')" for number in range(len(_COLUMNS)))
_SET_ROWS = f"INSERT OR REPLACE INTO rows SELECT {_FIELDS}, json_extract(value, '$[8]') FROM json_each(?)"  # noqa: S608  # constants
_REMOVE_ROWS = f"DELETE FROM rows WHERE ({_PLACE}) IN (SELECT {_FIELDS} FROM json_each(?))"  # noqa: S608  # constants
_OF_KEY = "kind = ? AND name = ? AND calendar = ? AND period = ?"
_DROP_KEY = f"DELETE FROM rows WHERE {_OF_KEY}"  # noqa: S608  # constants
_DROP_WINDOWS = "DELETE FROM rows WHERE kind = ? AND name = ? AND calendar = ?"
_DROP_SITE = f"{_DROP_KEY} AND site = ? AND incarnation = ?"
_LOAD = f"SELECT {_PLACE}, value FROM rows WHERE kind = ?"  # noqa: S608  # constants; in the order of the key
_SET_TOMBSTONES = f"""
INSERT OR REPLACE INTO tombstones
SELECT {_FIELDS}, json_extract(value, '$[8]'), json_extract(value, '$[9]') FROM json_each(?)
"""  # noqa: S608  # constants
_FORGET = f"DELETE FROM tombstones WHERE {_OF_KEY}"  # noqa: S608  # constants
_DELETE_ENTRIES = """
DELETE FROM journal WHERE number IN (SELECT number FROM journal WHERE number <= ? ORDER BY number LIMIT ?)
"""
_PRUNE = """
DELETE FROM tombstones WHERE (site, incarnation) IN
(SELECT site, incarnation FROM tombstones AS old WHERE ended < :before AND incarnation < :first_later AND NOT EXISTS
(SELECT 1 FROM tombstones WHERE site = old.site AND incarnation = old.incarnation AND ended >= :before)
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

    def load(self, kind: str) -> Iterator[tuple[Key, KeyRows]]:
        self._fold_all()
        with self._locked(), self._loading():
            for key, rows in groupby(self._db.execute(_LOAD, (kind,)), key=itemgetter(0, 1, 2, 3)):
                found: KeyRows = {}
                for *_, site, incarnation, what, label, value in rows:
                    found.setdefault(what, []).append((intern(site), incarnation, intern(label), loads(value)))
                yield Key(*key), found

    def _fold_all(self) -> None:
        """Write the rows of all entries to the table."""
        with self._loading(), self._transaction():
            journal, self._journal = self._read_journal(), None
            journal.begin_fold()
            while journal.fold is not None:
                self._continue_fold(journal, journal.fold, sys.maxsize, sys.maxsize)
        self._journal = journal

    def save(self, changes: Changes) -> None:
        try:
            with self._transaction():
                journal, self._journal = self._journal or self._read_journal(), None
                if journal.fold is not None:
                    self._continue_fold(journal, journal.fold, ROWS_PER_SAVE, ENTRIES_PER_SAVE)
                self._write(changes, journal)
                if journal.fold_is_due:
                    journal.begin_fold()
            self._journal = journal
        except StoreError as error:
            raise StoreError(f"save failed: {error}") from error

    def _read_journal(self) -> Journal:
        journal = Journal()
        for journal.last, entry in self._db.execute("SELECT number, lines FROM journal ORDER BY number"):
            journal.add(decode(entry), len(entry))
        return journal

    def _continue_fold(self, journal: Journal, fold: Fold, rows: int, entries: int) -> None:
        """Write rows to the table. When all are there, delete their entries, oldest first: if a restart finds the rest
        of them, it still gets the last values.
        """
        part = fold.take(rows)
        if part is not None:
            self._execute(_SET_ROWS, [row for row in part if row.value is not None])
            self._execute(_REMOVE_ROWS, [row for row in part if row.value is None])
        elif self._db.execute(_DELETE_ENTRIES, (fold.last_entry, entries)).rowcount == 0:
            journal.fold = None

    def _write(self, changes: Changes, journal: Journal) -> None:
        for key, site_id in changes.dropped:
            if site_id is not None:
                self._db.execute(_DROP_SITE, (*key, *site_id[:2]))
            elif key.period == ALL:
                self._db.execute(_DROP_WINDOWS, key[:3])
            else:
                self._db.execute(_DROP_KEY, key)
        if changes.rows or changes.dropped:
            entry = encode(Changes(changes.rows, changes.dropped))
            journal.last += 1
            self._db.execute("INSERT INTO journal VALUES (?, ?)", (journal.last, entry))
            journal.add(changes, len(entry))
        self._db.executemany(_FORGET, changes.forgotten)
        now = int(self._wall_clock())
        self._execute(
            _SET_TOMBSTONES,
            [
                (*site_id[:2], *key, what, label, str(value), now)
                for site_id, key, what, value, label in changes.tombstones
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
            rows = self._db.execute("SELECT * FROM tombstones WHERE site = ? AND incarnation = ?", site_id[:2])
            return [
                Tombstone(site_id, Key(*key), What(what), int(value), label)
                for _, _, *key, what, label, value, _ in rows.fetchall()
            ]

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
