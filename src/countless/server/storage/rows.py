"""The saved state, as rows. A store knows no kind: it keeps rows by key, and gives them back.

A row has a key, says *what* it is ("state", "site", "label" ...) and where: at no site, at a site, at a label, or at a
label of a site. Its value is anything that msgspec writes as JSON, whose integers have no limit. The types of the
values are with the objects that are saved; a field that is added at the end, with a default, needs no new format.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from sys import intern
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from countless.core.messages import SiteId
from countless.server.storage.base import StoreError
from countless.wire.keys import ALL, Key

T = TypeVar("T")
Place = tuple[str, int, str]  # site, incarnation; a label, or the part of a site
Row = tuple[str, int, str, Any]  # its place; the value, or None: the row is removed
KeyRows = dict[str, list[Row]]  # by what they are; each place once
Rows = dict[Key, KeyRows]
StoredRows = dict[Key, dict[str, dict[Place, Any]]]


class Dropped(NamedTuple):
    """All rows of a key, or of one site of it. With the period ALL: of all its windows, or periods."""

    key: Key
    site_id: SiteId | None = None


class What(StrEnum):
    """The fact that a tombstone keeps of an incarnation."""

    COUNT = "count"  # its final count, or of a family its total
    LABEL = "label"  # its count of a label
    LEFT = "left"  # it has left, so that everything it has counted is known
    WATERMARK = "watermark"  # it has left all windows before this one


class Tombstone(NamedTuple):
    site_id: SiteId
    key: Key  # as the client calls it
    what: What
    value: int = 0
    label: str = ""


@dataclass(slots=True)
class Changes:
    """The content of one save, completely or not at all. Keys to drop and forget come first, because a counter may
    be deleted and created again. Tombstones outlive the rows of their key, unless they are forgotten.
    """

    rows: Rows = field(default_factory=dict)
    dropped: list[Dropped] = field(default_factory=list)
    forgotten: list[Key] = field(default_factory=list)  # no tombstone of these is kept
    tombstones: list[Tombstone] = field(default_factory=list)
    prune_before: int | None = None  # drop the tombstones of incarnations that have none of this second, or later

    def __bool__(self) -> bool:
        removed = self.dropped or self.forgotten or self.prune_before is not None
        return bool(self.rows or self.tombstones or removed)


class StateStore(Protocol):
    """The state of one site server. Methods block, and may be called from any thread."""

    def load(self, kind: str) -> Iterator[tuple[Key, KeyRows]]:
        """In the order of their keys. It reads one after another, because there may be a million windows."""

    def save(self, changes: Changes) -> None:
        """Save all; then messages that depend on the changes may be sent. Raises StoreError if nothing was saved."""

    def tombstones(self, site_id: SiteId) -> list[Tombstone]: ...

    def tombstone_horizon(self) -> int:
        """Tombstones of incarnations that began before this second may have been dropped; 0: none was. It never falls.

        All tombstones of an incarnation are dropped together. `prune_before` drops none of an incarnation that began
        later, unless it began before the horizon: one wrong clock must not move the horizon far ahead of all others.
        """


Publish = Callable[[], None]


class Saved(Protocol):
    """An object that is saved. It remembers which of its rows have changed."""

    @property
    def part_of(self) -> "Saved | None":
        """The changes that are saved, and published, after it."""

    def take(self, rows: Rows) -> Publish | None:
        """Add the rows that have changed since the last call. Returns what publishes them once they are saved."""


class Stored(Saved, Protocol):
    """An object with a key of its own in the store."""

    @property
    def key(self) -> Key: ...


def alone(value: object) -> list[Row]:
    """The one row of its kind, at no site."""
    return [("", 0, "", value)]


def row_of(site_id: SiteId, value: object) -> Row:
    site, incarnation, part = site_id
    return str(site), incarnation, part, value


def value_of(key: Key, rows: KeyRows, what: str, type_: type[T]) -> T:
    """The one row of this kind."""
    with _naming(key, what):
        (row,) = rows[what]
        return as_type(row[3], type_)


def values_of(key: Key, rows: KeyRows, what: str, type_: type[T]) -> Iterator[tuple[Place, T]]:
    """All rows of this kind, by place."""
    with _naming(key, what):
        for site, incarnation, label, value in rows.get(what, ()):
            yield (site, incarnation, label), as_type(value, type_)


@contextmanager
def _naming(key: Key, what: str) -> Iterator[None]:
    try:
        yield
    except (LookupError, TypeError, ValueError, msgspec.MsgspecError) as error:
        raise StoreError(f"the {what} of {key.kind} {str(key)!r} cannot be used here: {error}") from None


def as_type(value: object, type_: type[T]) -> T:
    """A value as it was saved, or as it was decoded."""
    return value if isinstance(value, type_) else msgspec.convert(value, type_)


# As JSON: an entry of the journal, or of a log


class _EncodedChanges(msgspec.Struct, array_like=True):
    rows: list[tuple[Key, dict[str, list[Row]]]]
    dropped: list[tuple[Key, SiteId | None]]
    forgotten: list[Key]
    tombstones: list[Tombstone]
    prune_before: int | None


_decode = msgspec.json.Decoder(_EncodedChanges).decode


def encode(changes: Changes) -> bytes:
    rows, tombstones = [*changes.rows.items()], changes.tombstones
    return msgspec.json.encode((rows, changes.dropped, changes.forgotten, tombstones, changes.prune_before))


def decode(data: bytes) -> Changes:
    """Raises msgspec.MsgspecError. Texts are shared: there may be a row for each site and label."""
    encoded = _decode(data)
    dropped = [Dropped(*each) for each in encoded.dropped]
    rows = {key: {what: list(map(_shared, each)) for what, each in found.items()} for key, found in encoded.rows}
    return Changes(rows, dropped, encoded.forgotten, encoded.tombstones, encoded.prune_before)


def _shared(row: Row) -> Row:
    site, incarnation, label, value = row
    return intern(site), incarnation, intern(label), value


def apply(stored: StoredRows, changes: Changes, *, keep_removed: bool = False) -> None:
    """Change rows as a save does. `keep_removed`: a row that is removed stays as one of None."""
    _drop(stored, changes.dropped)
    for key, rows in changes.rows.items():
        own = stored.get(key)
        if own is None:
            own = stored[key] = {}
        for what, changed in rows.items():
            kept = own.get(what)
            if kept is None:
                kept = own[what] = {}
            for site, incarnation, label, value in changed:
                if value is None and not keep_removed:
                    kept.pop((site, incarnation, label), None)
                else:
                    kept[site, incarnation, label] = value
            if not kept:
                del own[what]
        if not own:
            del stored[key]


def _drop(stored: StoredRows, dropped: list[Dropped]) -> None:
    sites: dict[Key, set[tuple[str, int]]] = {}  # so that the rows of a key are looked at once
    for key, site_id in dropped:
        if site_id is not None:
            sites.setdefault(key, set()).add((str(site_id.site), site_id.incarnation))
        elif key.period == ALL:
            for each in [each for each in stored if each[:3] == key[:3]]:
                del stored[each]
        else:
            stored.pop(key, None)
    for key, of_sites in sites.items():
        own = stored.get(key, {})
        for what, kept in list(own.items()):
            for place in [place for place in kept if place[:2] in of_sites]:
                del kept[place]
            if not kept:
                del own[what]
        if not own:
            stored.pop(key, None)
