"""The tables of the state file, and how a file of an older version is brought up to date.

Counts are unbounded and SQLite's integers are not, so counts are stored as decimal text.
Stored names stay, so that older files can be read: `gone` has the tombstones, `facts` single values, `lines` the entry.
"""

import sqlite3
from pathlib import Path

from countless.server.storage.base import StoreError

SCHEMA = 10
_APPLICATION_ID = 0x436F756E  # "Coun": marks the file as ours

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
_TOMBSTONE_AGE = """
ALTER TABLE gone ADD COLUMN ended INTEGER NOT NULL DEFAULT 0;
UPDATE gone SET ended = CAST(strftime('%s', 'now') AS INTEGER);
CREATE INDEX gone_ended ON gone (ended);
CREATE TABLE journal (number INTEGER PRIMARY KEY, lines BLOB NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
_BUDGETS = """
CREATE TABLE budgets (
    name TEXT PRIMARY KEY, maximum TEXT NOT NULL, slack REAL NOT NULL, forgiven TEXT NOT NULL, gone TEXT NOT NULL,
    round INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE budget_sites (
    budget TEXT NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL, maximum TEXT NOT NULL,
    given_up INTEGER NOT NULL, departed INTEGER NOT NULL, PRIMARY KEY (budget, site, incarnation)
) WITHOUT ROWID;
"""
_BUDGET_PERIODS = """
ALTER TABLE budgets RENAME TO budgets_4;
ALTER TABLE budget_sites RENAME TO budget_sites_4;
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
INSERT INTO budgets SELECT name, json_object('limit', CAST(maximum AS INTEGER), 'slack', slack), 0 FROM budgets_4;
INSERT INTO budget_periods SELECT name, 0, forgiven, gone, '0', round, 0 FROM budgets_4;
INSERT INTO budget_sites
    SELECT budget, 0, site, incarnation, maximum, given_up, '0' FROM budget_sites_4 WHERE NOT departed;
DROP TABLE budgets_4;
DROP TABLE budget_sites_4;
"""
_WINDOWS = """
ALTER TABLE counters ADD COLUMN windows TEXT NOT NULL DEFAULT '';
CREATE TABLE windows (
    counter TEXT NOT NULL, period INTEGER NOT NULL, floor TEXT NOT NULL, total TEXT NOT NULL, lost INTEGER NOT NULL,
    lost_until INTEGER NOT NULL, PRIMARY KEY (counter, period)
) WITHOUT ROWID;
"""
_FAMILIES = """
CREATE TABLE families (
    name TEXT PRIMARY KEY, rule TEXT NOT NULL, round INTEGER NOT NULL, label_step TEXT NOT NULL,
    total_step TEXT NOT NULL, slots INTEGER NOT NULL, total TEXT NOT NULL, lost TEXT NOT NULL
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
_EXPIRY_AND_USE = """
ALTER TABLE tokens ADD COLUMN expires INTEGER;
ALTER TABLE tokens ADD COLUMN last_used INTEGER;
"""
_FAMILY_WINDOWS = """
ALTER TABLE families ADD COLUMN lost_until INTEGER NOT NULL DEFAULT 0;
UPDATE families SET lost = '0';
"""
_OWNERS = """
CREATE TABLE owners (
    kind TEXT NOT NULL, name TEXT NOT NULL, peer TEXT NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
ALTER TABLE family_labels ADD COLUMN owner TEXT NOT NULL DEFAULT '';
"""


def schema_version(database: sqlite3.Connection, path: Path | None) -> int:
    """Raises StoreError if the file is not ours, or newer than this program; sqlite3.Error if it cannot be read."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (application_id,) = database.execute("PRAGMA application_id").fetchone()
    if version > SCHEMA:
        raise StoreError(
            f"{path} was written by a newer Countless (schema {version}; this one knows up to {SCHEMA}): "
            "run that version, or restore a copy made before the upgrade"
        )
    if version and application_id != _APPLICATION_ID:
        raise StoreError(f"{path} is a database of another program")
    return int(version)


def upgrade(database: sqlite3.Connection, version: int) -> None:
    """Bring a file up to date, in the caller's transaction. A new file goes through all upgrades, from version 0."""
    steps = (
        *(_create_tables, _add_tombstone_age, _allow_deletions_in_journal, _add_budgets, _add_budget_periods),
        *(_add_windows, _add_families, _add_token_times, _add_windows_of_families, _add_owners),
    )
    for step in steps[version:]:
        step(database)
    database.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    database.execute(f"PRAGMA user_version = {SCHEMA}")


def _create_tables(database: sqlite3.Connection) -> None:
    _execute_all(database, _TABLES)


def _add_tombstone_age(database: sqlite3.Connection) -> None:
    """Tombstones without an age count as set now."""
    _execute_all(database, _TOMBSTONE_AGE)


def _allow_deletions_in_journal(database: sqlite3.Connection) -> None:
    """No table changes; a coordinator that knows schema 2 must not read entries that have deletions."""


def _add_budgets(database: sqlite3.Connection) -> None:
    _execute_all(database, _BUDGETS)


def _add_budget_periods(database: sqlite3.Connection) -> None:
    """A budget without periods has period 0. Sites that left are not remembered any more."""
    _execute_all(database, _BUDGET_PERIODS)


def _add_windows(database: sqlite3.Connection) -> None:
    """`counters.windows` is the rule as JSON, or empty; `windows.total` is empty while the window is open."""
    _execute_all(database, _WINDOWS)


def _add_families(database: sqlite3.Connection) -> None:
    """`families.rule` is JSON."""
    _execute_all(database, _FAMILIES)


def _add_token_times(database: sqlite3.Connection) -> None:
    """A token without them never expires, and its last use is not known."""
    _execute_all(database, _EXPIRY_AND_USE)


def _add_windows_of_families(database: sqlite3.Connection) -> None:
    """`families.lost` is a number of sites; before, it was one of events. `families.rule` may have windows."""
    _execute_all(database, _FAMILY_WINDOWS)


def _add_owners(database: sqlite3.Connection) -> None:
    """What an older version has saved belongs to no peer."""
    _execute_all(database, _OWNERS)


def _execute_all(database: sqlite3.Connection, statements: str) -> None:
    """Not `executescript`, which would commit the transaction."""
    for statement in statements.split(";\n"):
        database.execute(statement)
