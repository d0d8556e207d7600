"""What the log of a shard is made of: records, in parts if they are large, that say what was saved and when."""

import msgspec

from countless.core.messages import SiteId
from countless.server.storage.base import Changes, Config, CounterFields, SiteCounts, StoreError
from countless.server.storage.journal import as_number


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One part of what one save writes."""

    session: str
    number: int
    part: int
    parts: int
    body: bytes


class Plain(msgspec.Struct, array_like=True):
    """`Changes` as they are written, and when. Counts are unbounded: they are text."""

    at: int
    counters: list[tuple[str, int, str, str]]
    known: list[tuple[str, str, int, str | None]]
    configs: dict[str, Config]
    gone: list[tuple[str, str, int, str]]
    deleted: list[str]
    prune: int | None


class Body(msgspec.Struct, array_like=True):
    """What a record says: saves, one after the other."""

    saves: list[Plain]
    pruned_before: int = 0


def plain_of(changes: Changes, at: int) -> Plain:
    """As they are written."""
    return Plain(
        at,
        [(name, number, repr(total), str(departed)) for name, (number, total, departed) in changes.counters.items()],
        [
            (name, *_words(site_id), None if n is None else str(n))
            for name, seats in changes.counts.items()
            for site_id, n in seats.items()
        ],
        changes.configs,
        [(name, *_words(site_id), str(known)) for (name, site_id), known in changes.tombstones.items()],
        changes.deleted,
        changes.prune_before,
    )


def _words(site_id: SiteId) -> tuple[str, int]:
    return str(site_id.site), site_id.incarnation


def changes_of(plain: Plain) -> Changes:
    """And back."""
    known: SiteCounts = {}
    for name, site, life, count in plain.known:
        known.setdefault(name, {})[SiteId(site, life)] = None if count is None else int(count)
    return Changes(
        {
            name: CounterFields(number, as_number(total), int(departed))
            for name, number, total, departed in plain.counters
        },
        known,
        plain.configs,
        {(name, SiteId(site, life)): int(known) for name, site, life, known in plain.gone},
        plain.deleted,
        plain.prune,
    )


def decode_body(data: bytes) -> Body:
    """What all parts of a record say."""
    try:
        return msgspec.msgpack.decode(data, type=Body)
    except msgspec.DecodeError as error:
        raise _strange(error) from None


def decode_record(data: bytes | None) -> Record:
    """One message of the log."""
    try:
        return msgspec.msgpack.decode(data or b"", type=Record)
    except msgspec.DecodeError as error:
        raise _strange(error) from None


def _strange(error: msgspec.DecodeError) -> StoreError:
    return StoreError(f"the log of the shard holds something that Countless has not written: {error}")
