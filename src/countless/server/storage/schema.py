"""The tables of the state file. A file of another version is refused.

Counts are unbounded and SQLite's integers are not, so counts are stored as decimal text. `gone` has the tombstones,
`facts` single values, `lines` the entry of the journal; rules and windows are JSON, and `windows.total` is empty while
the window is open.
"""

import sqlite3
from pathlib import Path

from countless.server.storage.base import StoreError

SCHEMA = 11
_APPLICATION_ID = 0x436F756E  # "Coun": marks the file as ours

_TABLES = """
CREATE TABLE counters (
    name TEXT PRIMARY KEY, alpha REAL NOT NULL, delta REAL NOT NULL, scheme TEXT NOT NULL, adversary TEXT NOT NULL,
    label_cap INTEGER NOT NULL, round INTEGER NOT NULL, published TEXT NOT NULL, departed TEXT NOT NULL,
    windows TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE sites (
    counter TEXT NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL, known TEXT NOT NULL,
    PRIMARY KEY (counter, site, incarnation)
) WITHOUT ROWID;
CREATE TABLE gone (
    site TEXT NOT NULL, incarnation INTEGER NOT NULL, counter TEXT NOT NULL, known TEXT NOT NULL,
    ended INTEGER NOT NULL, PRIMARY KEY (site, incarnation, counter)
) WITHOUT ROWID;
CREATE INDEX gone_ended ON gone (ended);
CREATE TABLE tokens (
    digest BLOB PRIMARY KEY, scope TEXT NOT NULL, site TEXT, label TEXT NOT NULL, created INTEGER NOT NULL,
    expires INTEGER, last_used INTEGER
) WITHOUT ROWID;
CREATE TABLE journal (number INTEGER PRIMARY KEY, lines BLOB NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE budgets (name TEXT PRIMARY KEY, rule TEXT NOT NULL, first_period INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE budget_periods (
    budget TEXT NOT NULL, period INTEGER NOT NULL, forgiven TEXT NOT NULL, gone TEXT NOT NULL, lost TEXT NOT NULL,
    round INTEGER NOT NULL, resetting INTEGER NOT NULL, PRIMARY KEY (budget, period)
) WITHOUT ROWID;
CREATE TABLE budget_sites (
    budget TEXT NOT NULL, period INTEGER NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL,
    maximum TEXT NOT NULL, given_up INTEGER NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY (budget, period, site, incarnation)
) WITHOUT ROWID;
CREATE TABLE windows (
    counter TEXT NOT NULL, period INTEGER NOT NULL, floor TEXT NOT NULL, total TEXT NOT NULL, lost INTEGER NOT NULL,
    lost_until INTEGER NOT NULL, PRIMARY KEY (counter, period)
) WITHOUT ROWID;
CREATE TABLE families (
    name TEXT PRIMARY KEY, rule TEXT NOT NULL, round INTEGER NOT NULL, label_step TEXT NOT NULL,
    total_step TEXT NOT NULL, slots INTEGER NOT NULL, total TEXT NOT NULL, lost TEXT NOT NULL,
    lost_until INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE family_labels (
    family TEXT NOT NULL, label TEXT NOT NULL, count TEXT NOT NULL, PRIMARY KEY (family, label)
) WITHOUT ROWID;
CREATE TABLE family_sites (
    family TEXT NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL, label_step TEXT NOT NULL,
    total_step TEXT NOT NULL, total TEXT NOT NULL, PRIMARY KEY (family, site, incarnation)
) WITHOUT ROWID;
CREATE TABLE family_counts (
    family TEXT NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL, label TEXT NOT NULL, count TEXT NOT NULL,
    PRIMARY KEY (family, site, incarnation, label)
) WITHOUT ROWID;
"""


def is_empty(database: sqlite3.Connection, path: Path | None) -> bool:
    """Whether the file has no tables yet. Raises StoreError if it is not ours, or not of this version; sqlite3.Error if
    it cannot be read.
    """
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    if version and application_id != _APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program")
    if version not in (0, SCHEMA):
        age = "a newer" if version > SCHEMA else "an older"
        raise StoreError(
            f"{path} was written by {age} Countless (schema {version}; this one uses {SCHEMA}): run that version, or "
            "set the state directory aside to begin from nothing"
        )
    return not version


def create_tables(database: sqlite3.Connection) -> None:
    """In the caller's transaction, which `executescript` would commit."""
    for statement in _TABLES.split(";\n"):
        database.execute(statement)
    database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {SCHEMA}")
