"""Families in the tables of the SQLite store: one row for each site and label that has changed.

They are written at once, without the journal: a family sends few reports, however many labels it has.
"""

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern

import msgspec

from countless.core.family.messages import Steps
from countless.core.family.rule import FamilyRule
from countless.core.family.state import SavedMember
from countless.core.messages import SiteId
from countless.errors import InvalidParameter
from countless.server.storage.base import (
    FamilyChanges,
    FamilyFields,
    SavedFamily,
    StoreError,
    family_text,
    labels_prefix,
)
from countless.wire.keys import FAMILY, Key

TABLES = ("family_labels", "family_sites", "family_counts")
_DELETE_TOMBSTONES = "DELETE FROM gone WHERE counter = ? OR substr(counter, 1, ?) = ?"

Execute = Callable[[str, Sequence[tuple[object, ...]]], None]  # a statement with all rows as one JSON text


def delete_families(database: sqlite3.Connection, names: Iterable[str]) -> None:
    """With their tombstones, for which all tombstones have to be read."""
    for name in names:
        drop_families(database, [name])
        key = Key(FAMILY, name)
        prefix = labels_prefix(key)
        database.execute(_DELETE_TOMBSTONES, (family_text(key), len(prefix), prefix))


def drop_families(database: sqlite3.Connection, names: Iterable[str]) -> None:
    for name in names:
        database.execute("DELETE FROM families WHERE name = ?", (name,))
        for table in TABLES:
            database.execute(f"DELETE FROM {table} WHERE family = ?", (name,))  # noqa: S608  # constants


def write_families(database: sqlite3.Connection, execute: Execute, families: Mapping[str, FamilyChanges]) -> None:
    for name, family in families.items():
        for site_id in [site_id for site_id, member in family.members.items() if member is None]:
            for table in ("family_sites", "family_counts"):
                database.execute(
                    f"DELETE FROM {table} WHERE family = ? AND site = ? AND incarnation = ?",  # noqa: S608  # constants
                    (name, *site_id[:2]),
                )
    execute(_insert("families", 9), [_family_row(name, family.fields) for name, family in families.items()])
    execute(
        _insert("family_labels", 3),
        [(name, label, str(n)) for name, family in families.items() for label, n in family.labels.items()],
    )
    execute(
        _insert("family_sites", 6),
        [
            (name, *site_id[:2], str(member.steps.label), str(member.steps.total), str(member.total))
            for name, family in families.items()
            for site_id, member in family.members.items()
            if member is not None
        ],
    )
    execute(
        _insert("family_counts", 5),
        [
            (name, *site_id[:2], label, str(n))
            for name, family in families.items()
            for site_id, counts in family.counts.items()
            for label, n in counts.items()
        ],
    )


def load_families(database: sqlite3.Connection) -> dict[str, SavedFamily]:
    saved: dict[str, SavedFamily] = {}
    for name, rule, number, label, total_step, slots, *rest in database.execute("SELECT * FROM families"):
        steps = Steps(int(label), int(total_step))
        saved[name] = SavedFamily(
            FamilyFields(_parse_rule(name, rule), number, steps, slots, *(int(each) for each in rest)), {}, {}
        )
    for family, label, count in database.execute("SELECT * FROM family_labels"):
        saved[family].labels[intern(label)] = int(count)
    counts: dict[tuple[str, SiteId], dict[str, int]] = {}
    for family, site, incarnation, label_step, total_step, total in database.execute("SELECT * FROM family_sites"):
        site_id = SiteId(site, incarnation)
        known = counts[family, site_id] = {}
        steps = Steps(int(label_step), int(total_step))
        saved[family].members[site_id] = SavedMember(steps, int(total), known)
    for family, site, incarnation, label, count in database.execute("SELECT * FROM family_counts"):
        counts[family, SiteId(site, incarnation)][intern(label)] = int(count)
    return saved


def _insert(table: str, columns: int) -> str:
    values = ", ".join(f"json_extract(value, '$[{column}]')" for column in range(columns))
    return f"INSERT OR REPLACE INTO {table} SELECT {values} FROM json_each(?)"  # noqa: S608  # constants


def _family_row(name: str, fields: FamilyFields) -> tuple[object, ...]:
    rule, number, steps, slots, total, lost, lost_until = fields
    text = msgspec.json.encode(rule).decode()
    return name, text, number, str(steps.label), str(steps.total), slots, str(total), str(lost), lost_until


def _parse_rule(family: str, rule: str) -> FamilyRule:
    try:
        return msgspec.json.decode(rule, type=FamilyRule)
    except (msgspec.ValidationError, InvalidParameter) as error:
        raise StoreError(f"the rule of family {family!r} cannot be used here: {error}") from None
