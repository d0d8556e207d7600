"""The store: what survives the process, in one SQLite file (WAL), with a version.

The core's rule is *save before send*: what a coordinator returned may leave the machine only when its `Memory` is on
the disk. A `Memory` has a line for each site, but one input changes only the line of the site that spoke, so a save is
a list of changed lines, and many inputs share one transaction.

What changes all the time goes to the journal first (`journal.py`); what is rare goes to its table at once.

Counts are unbounded, and SQLite's integers are not: in the tables they are decimal text.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from time import time

from countless.core.coordinator import PersistentState
from countless.core.messages import SiteId
from countless.server.storage.base import Changes, Config, CounterFields, MembershipKey, StoreError, Token
from countless.server.storage.journal import Journal, Lines, as_json, as_number

SCHEMA = 2
_APPLICATION = 0x436F756E  # "Coun": so that another program's file is not taken for ours
_TIDY_PAGES = 1_000  # of the log, after which it is begun anew
_MOST_PAGES = 50_000  # of the log, 200 MB: after which whoever saves tidies up, should nobody else do
_PRUNED = 20_000  # lines of the table `gone` dropped with one save

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
# From each version to the next. A new file goes through all of them, so no upgrade is a way of its own.
_UPGRADES = (
    _TABLES,
    """
ALTER TABLE gone ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
UPDATE gone SET ended = CAST(strftime('%s', 'now') AS INTEGER);
CREATE INDEX gone_ended ON gone (ended);
CREATE TABLE journal (number INTEGER PRIMARY KEY, lines BLOB NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
""",
)

_BURY = """
INSERT OR REPLACE INTO gone SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'),
json_extract(value, '$[2]'), json_extract(value, '$[3]'), ? FROM json_each(?)
"""


class SqliteStore:
    """One file. Safe to call from several threads, and beside other processes that use the same file."""

    def __init__(self, path: Path | None, wall_clock: Callable[[], float] = time) -> None:
        self._lock = Lock()
        self._wall_clock = wall_clock
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None, timeout=10)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{path} cannot be used: {error}") from None
        self._journal = Journal(self._db)
        try:
            self._open(path)
        except sqlite3.OperationalError as error:
            self._db.close()
            raise StoreError(f"{path} cannot be used: {error}") from None
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
        self._db.execute(f"PRAGMA wal_autocheckpoint = {_MOST_PAGES}")
        if version < SCHEMA:
            with self._transaction():
                for statements in _UPGRADES[version:]:
                    for statement in statements.split(";\n"):
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

    def checkpoint(self) -> None:
        """Move what the log has to its places in the file. That takes long, and whoever saves must not wait for it: so
        this is for another store of the same file. First beside the writer; then, while it waits, the little that came
        meanwhile, or the log would never be empty and grow.
        """
        with self._lock:
            _, pages, _ = self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
            if pages > _TIDY_PAGES:
                self._db.execute("PRAGMA wal_checkpoint(RESTART)")

    def close(self) -> None:
        """No more."""
        with self._lock:
            self._db.close()

    # The counters

    def load(self) -> dict[str, tuple[Config, PersistentState]]:
        """Every counter with what its coordinator must remember. For the coordinator itself, when it starts."""
        with self._transaction():
            self._journal.read()
            self._journal.move_all()
        with self._lock:
            self._journal.moved()
            counters = self._db.execute("SELECT * FROM counters ORDER BY name").fetchall()
            sites = self._db.execute("SELECT * FROM sites").fetchall()
        known: dict[str, list[tuple[SiteId, int]]] = {name: [] for name, *_ in counters}
        for counter, site, incarnation, count in sites:
            known[counter].append((SiteId(site, incarnation), int(count)))
        return {
            name: (Config(*config), PersistentState(number, as_number(published), int(departed), tuple(known[name])))
            for name, *config, number, published, departed in counters
        }

    def save(self, changes: Changes) -> None:
        """All of it, or nothing. When this returns, what depends on it may be sent."""
        with self._transaction():
            if changes.deleted:
                self._journal.move_all()
                self._delete(changes.deleted)
            self._db.executemany(
                "INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    (name, c.alpha, c.delta, c.scheme, c.adversary, c.label_cap, *_text(changes.counters[name]))
                    for name, c in changes.configs.items()
                ),
            )
            self._bury(changes.tombstones)
            if changes.prune_before is not None:
                self._prune(changes.prune_before)
            step = self._journal.write(Lines(changes.counters, changes.counts))
        with self._lock:
            if changes.deleted:
                self._journal.moved()
            self._journal.written(step)

    def _delete(self, names: list[str]) -> None:
        for table, column in (("counters", "name"), ("sites", "counter"), ("gone", "counter")):
            self._db.executemany(f"DELETE FROM {table} WHERE {column} = ?", ((name,) for name in names))  # noqa: S608  # our own words

    # Lives that are over

    def _bury(self, gone: dict[MembershipKey, int]) -> None:
        now = int(self._wall_clock())
        if gone:
            lines = as_json([(*site_id, counter, str(known)) for (counter, site_id), known in gone.items()])
            self._db.execute(_BURY, (now, lines))

    def _prune(self, before: int) -> None:
        dropped = self._db.execute(
            "DELETE FROM gone WHERE (site, incarnation, counter) IN "
            "(SELECT site, incarnation, counter FROM gone WHERE ended < ? ORDER BY ended LIMIT ?)",
            (before, _PRUNED),
        ).rowcount
        if dropped:
            self._pruned(before)

    def _pruned(self, before: int) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES ('pruned before', ?)", (before,))

    def tombstones(self, site_id: SiteId) -> tuple[tuple[str, int], ...]:
        """What was known of a life when it ended, by counter."""
        with self._lock:
            lines = self._db.execute("SELECT counter, known FROM gone WHERE site = ? AND incarnation = ?", site_id)
            return tuple((counter, int(known)) for counter, known in lines.fetchall())

    def tombstone_horizon(self) -> int:
        """Of lives that ended before this second not everything is remembered; 0: it is."""
        with self._lock:
            line = self._db.execute("SELECT value FROM facts WHERE name = 'pruned before'").fetchone()
        return int(line[0]) if line else 0

    def snapshot(self) -> dict[int, Changes]:
        """All that was ever saved and still holds: by second the lives that ended in it, and by 0 what holds now."""
        now = Changes()
        for name, (config, saved_state) in self.load().items():
            now.configs[name], now.counters[name] = (
                config,
                CounterFields(saved_state.round, saved_state.published, saved_state.departed),
            )
            now.counts[name] = dict(saved_state.known)
        with self._lock:
            graves = self._db.execute("SELECT ended, counter, site, incarnation, known FROM gone").fetchall()
        whole = {0: now}
        for ended, counter, site, incarnation, known in graves:
            whole.setdefault(ended, Changes()).tombstones[counter, SiteId(site, incarnation)] = int(known)
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

    def has_tokens(self) -> bool:
        """Whether there is any."""
        with self._lock:
            return self._db.execute("SELECT 1 FROM tokens LIMIT 1").fetchone() is not None

    def tokens(self) -> list[Token]:
        """All of them."""
        with self._lock:
            return [Token(*line) for line in self._db.execute("SELECT * FROM tokens ORDER BY created, label")]

    def revoke(self, label: str) -> int:
        """Take back the tokens of this label; how many there were."""
        with self._transaction():
            return self._db.execute("DELETE FROM tokens WHERE label = ?", (label,)).rowcount


def _text(figures: CounterFields) -> tuple[int, str, str]:
    number, published, departed = figures
    return number, repr(published), str(departed)
