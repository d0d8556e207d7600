"""The tables of the state file. A file of another version is refused.

`rows` has everything but tombstones and tokens; a value is JSON. What a site has is together, so that it can be dropped
quickly. `facts` has single values, `lines` is the entry of the journal.
"""

import sqlite3
from pathlib import Path

from countless.server.storage.base import StoreError

SCHEMA = 13
_APPLICATION_ID = 0x436F756E  # "Coun": marks the file as ours

_TABLES = """
CREATE TABLE rows (
    kind TEXT NOT NULL, name TEXT NOT NULL, calendar TEXT NOT NULL, period INTEGER NOT NULL, site TEXT NOT NULL,
    incarnation INTEGER NOT NULL, what TEXT NOT NULL, label TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (kind, name, calendar, period, site, incarnation, what, label)
) WITHOUT ROWID;
CREATE TABLE tombstones (
    site TEXT NOT NULL, incarnation INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, calendar TEXT NOT NULL,
    period INTEGER NOT NULL, what TEXT NOT NULL, label TEXT NOT NULL, value TEXT NOT NULL, ended INTEGER NOT NULL,
    PRIMARY KEY (site, incarnation, kind, name, calendar, period, what, label)
) WITHOUT ROWID;
CREATE INDEX tombstones_ended ON tombstones (ended);
CREATE TABLE tokens (
    digest BLOB PRIMARY KEY, scope TEXT NOT NULL, site TEXT, label TEXT NOT NULL, created INTEGER NOT NULL,
    expires INTEGER, last_used INTEGER
) WITHOUT ROWID;
CREATE TABLE journal (number INTEGER PRIMARY KEY, lines BLOB NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""


def is_empty(database: sqlite3.Connection, path: Path | None) -> bool:
    """True if the file has no tables yet. Raises StoreError if it is not ours, or not of this version; sqlite3.Error if
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
