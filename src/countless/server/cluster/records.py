"""The format of a shard's log: records of saved changes, split into parts if they are large."""

from dataclasses import replace
from sys import intern
from typing import TypeVar

import msgspec

from countless.core.budget.messages import BudgetId
from countless.core.budget.state import SavedSite
from countless.core.messages import SiteId
from countless.core.windows.rule import WindowRule
from countless.server.storage.base import (
    BudgetFields,
    Changes,
    Config,
    CounterFields,
    FamilyChanges,
    FamilyFields,
    MemberFields,
    PeriodFields,
    SiteCounts,
    StoreError,
    WindowFields,
    WindowKey,
    parse_total,
    site_of_text,
    site_text,
    tombstone_of_text,
    tombstone_text,
)

T = TypeVar("T")


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One message of the log: one part of one encoded `Body`."""

    ownership_id: str
    number: int  # of the body, among those of this owner
    part: int
    parts: int
    body: bytes


class SavedChanges(msgspec.Struct, array_like=True):
    """`Changes`, and when they were saved, in seconds since 1970. Counts have no upper limit, so they are text."""

    saved_at: int
    counters: list[tuple[str, int, str, str]]  # name, round, published, departed
    counts: list[tuple[str, str, int, str | None]]  # counter, site, incarnation, count
    configs: dict[str, Config]
    tombstones: list[tuple[str, str, int, str]]  # counter, site, incarnation, count
    deleted: list[str]
    prune_before: int | None
    budgets: bytes  # `SavedBudgets` as JSON, where integers have no upper limit; empty: none has changed
    windows: list[tuple[str, int, tuple[str, str, int, int] | None]]  # by counter and period
    closed: list[str]
    rules: dict[str, bytes]  # `Config.windows` as JSON; a floor has no upper limit
    families: bytes  # `SavedFamilies` as JSON; empty: none has changed


class SavedBudgets(msgspec.Struct, array_like=True):
    budgets: dict[str, BudgetFields]
    periods: list[tuple[BudgetId, PeriodFields]]
    sites: list[tuple[BudgetId, str, int, SavedSite | None]]  # budget, site, incarnation
    closed: list[BudgetId]
    deleted: list[str]


class SavedFamilyChanges(msgspec.Struct, array_like=True):
    name: str
    fields: FamilyFields
    labels: dict[str, int]
    members: list[tuple[str, int, MemberFields | None]]  # site, incarnation
    counts: list[tuple[str, int, dict[str, int]]]  # likewise


class SavedFamilies(msgspec.Struct, array_like=True):
    families: list[SavedFamilyChanges]
    deleted: list[str]
    dropped: list[str]


class Body(msgspec.Struct, array_like=True):
    saves: list[SavedChanges]
    tombstone_horizon: int = 0


def to_saved(changes: Changes, saved_at: int) -> SavedChanges:
    return SavedChanges(
        saved_at,
        [(name, number, repr(total), str(departed)) for name, (number, total, departed) in changes.counters.items()],
        [
            (name, site_text(site_id), site_id.incarnation, None if count is None else str(count))
            for name, counts in changes.counts.items()
            for site_id, count in counts.items()
        ],
        {name: replace(config, windows=None) for name, config in changes.configs.items()},
        [
            (tombstone_text(key, what, label), str(site_id.site), site_id.incarnation, str(value))
            for site_id, key, what, label, value in changes.tombstones
        ],
        changes.deleted,
        changes.prune_before,
        _encode_budgets(changes),
        [(*key, None if fields is None else _encode_window(fields)) for key, fields in changes.windows.items()],
        changes.closed,
        {name: msgspec.json.encode(config.windows) for name, config in changes.configs.items() if config.windows},
        _encode_families(changes),
    )


def _encode_window(fields: WindowFields) -> tuple[str, str, int, int]:
    """The total is empty while the window is open."""
    total = "" if fields.total is None else str(fields.total)
    return str(fields.floor), total, fields.lost, fields.lost_until


def _decode_window(floor: str, total: str, lost: int, lost_until: int) -> WindowFields:
    return WindowFields(int(floor), int(total) if total else None, lost, lost_until)


def _encode_budgets(changes: Changes) -> bytes:
    sites = [
        (budget, str(site), incarnation, saved)
        for budget, by_site in changes.budget_sites.items()
        for (site, incarnation, _), saved in by_site.items()
    ]
    closed, deleted = changes.closed_periods, changes.deleted_budgets
    if not (changes.budgets or changes.periods or sites or closed or deleted):
        return b""
    return msgspec.json.encode(SavedBudgets(changes.budgets, [*changes.periods.items()], sites, closed, deleted))


def _encode_families(changes: Changes) -> bytes:
    if not (changes.families or changes.deleted_families or changes.dropped_families):
        return b""
    families = [
        SavedFamilyChanges(
            name,
            family.fields,
            family.labels,
            [(str(site), incarnation, member) for (site, incarnation, _), member in family.members.items()],
            [(str(site), incarnation, counts) for (site, incarnation, _), counts in family.counts.items()],
        )
        for name, family in changes.families.items()
    ]
    return msgspec.json.encode(SavedFamilies(families, changes.deleted_families, changes.dropped_families))


def _decode_family(saved: SavedFamilyChanges) -> FamilyChanges:
    """Names of labels are shared: there is one for each label, and a count for each site and label."""
    return FamilyChanges(
        saved.fields,
        {intern(label): n for label, n in saved.labels.items()},
        {SiteId(site, incarnation): member for site, incarnation, member in saved.members},
        {
            SiteId(site, number): {intern(label): n for label, n in counts.items()}
            for site, number, counts in saved.counts
        },
    )


def from_saved(saved: SavedChanges) -> Changes:
    counts: SiteCounts = {}
    for name, site, incarnation, count in saved.counts:
        counts.setdefault(name, {})[site_of_text(site, incarnation)] = None if count is None else int(count)
    changes = Changes(
        {
            name: CounterFields(number, parse_total(total), int(departed))
            for name, number, total, departed in saved.counters
        },
        counts,
        {
            name: replace(config, windows=_decode_json(saved.rules[name], WindowRule))
            if name in saved.rules
            else config
            for name, config in saved.configs.items()
        },
        [tombstone_of_text(SiteId(site, incarnation), text, int(n)) for text, site, incarnation, n in saved.tombstones],
        saved.deleted,
        saved.prune_before,
        windows={
            WindowKey(name, period): None if fields is None else _decode_window(*fields)
            for name, period, fields in saved.windows
        },
        closed=saved.closed,
    )
    if saved.budgets:
        budgets = _decode_json(saved.budgets, SavedBudgets)
        changes.budgets, changes.periods = budgets.budgets, dict(budgets.periods)
        changes.closed_periods, changes.deleted_budgets = budgets.closed, budgets.deleted
        for budget, site, incarnation, saved_site in budgets.sites:
            changes.budget_sites.setdefault(budget, {})[SiteId(site, incarnation)] = saved_site
    if saved.families:
        families = _decode_json(saved.families, SavedFamilies)
        changes.families = {each.name: _decode_family(each) for each in families.families}
        changes.deleted_families, changes.dropped_families = families.deleted, families.dropped
    return changes


def split(ownership_id: str, number: int, body: Body, part_bytes: int) -> list[Record]:
    data = msgspec.msgpack.encode(body)
    starts = range(0, len(data), part_bytes)
    return [
        Record(ownership_id, number, part, len(starts), data[start : start + part_bytes])
        for part, start in enumerate(starts)
    ]


def decode_body(data: bytes) -> Body:
    """From the bodies of all parts, in order."""
    try:
        return msgspec.msgpack.decode(data, type=Body)
    except msgspec.DecodeError as error:
        raise _corrupt(error) from None


def decode_record(data: bytes | None) -> Record:
    try:
        return msgspec.msgpack.decode(data or b"", type=Record)
    except msgspec.DecodeError as error:
        raise _corrupt(error) from None


def _decode_json(data: bytes, type_: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=type_)
    except msgspec.DecodeError as error:
        raise _corrupt(error) from None


def _corrupt(error: msgspec.DecodeError) -> StoreError:
    return StoreError(f"the log of the shard has a message that Countless has not written: {error}")
