"""Frames: the items that a site and a coordinator exchange in one piece, for all counters of the site together.

A frame is a MessagePack array of items, each an array [kind, fields...]: the four messages of the protocol (kinds 0 to
3), the control items below, which a connection needs, and the items of budgets and families. A connection starts with
`Hello`, which carries the version of the protocol and identifies the sender; the coordinator answers `HelloAck`,
`IncarnationRetired` or `IncarnationExpired`.

Everything has a limit, because the peer is not trusted: the bytes of a frame, the length of a name, the size of a
number (bounds are computed in floating point, which ends at 2^1024). Anything that is not a frame is a `ProtocolError`.
design/wire.md describes the exchange and has test vectors.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from math import isfinite
from operator import or_
from struct import pack
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from countless.core.budget.amounts import MAX_AMOUNT
from countless.core.budget.messages import BudgetId, Pane
from countless.core.messages import DownMessage, Report, Snapshot, UpMessage
from countless.errors import ProtocolError
from countless.wire import budgets, families
from countless.wire.budgets import MAX_PANES, BudgetDownItem, BudgetUpItem
from countless.wire.codec import MESSAGES, decode_trigger, encode_field, pack_fields
from countless.wire.families import FamilyDownItem, FamilyUpItem, KnownLabels, LabelCap
from countless.wire.keys import MAX_NAME_CHARS, require_name

VERSION = 4
MAX_FRAME_BYTES = 1 << 18  # decoding takes up to 60 times the memory of the frame, for a moment
MAX_NUMBER = (1 << 255) - 1
_MAX_HEADER_BYTES = 5  # of the longest array
_MAX_NUMBER_BYTES = 34


class Hello(NamedTuple):
    """Up, the first item: the protocol's version and the sender."""

    version: int
    site: str
    incarnation: int


class Join(NamedTuple):
    """Up: the site counts this counter; its exact count."""

    counter: str
    round: int
    count: int  # type: ignore[assignment]  # hides tuple.count


class Leave(NamedTuple):
    """Up: the final count of this counter."""

    counter: str
    round: int
    count: int  # type: ignore[assignment]


class Sync(NamedTuple):
    """Up: acknowledge with `SyncAck` when everything before it is on the disk. Also the heartbeat of an idle site."""

    number: int


class HelloAck(NamedTuple):
    """Down: the session is open. The site must send a frame at least every `heartbeat_ms` milliseconds."""

    version: int
    heartbeat_ms: int


class IncarnationRetired(NamedTuple):
    """Down: this incarnation was retired, with these counts. Continue as a new one, whose number is at least
    `incarnation`, with the events beyond them.
    """

    known_counts: tuple[tuple[str, int], ...]
    incarnation: int = 0


class KnownCounts(NamedTuple):
    """Down, before `IncarnationRetired`: a part of its counts, if all of them do not fit in a frame."""

    known_counts: tuple[tuple[str, int], ...]


class IncarnationExpired(NamedTuple):
    """Down: it is not known any more whether this incarnation was retired. Continue as a new one, whose number is at
    least `incarnation`, with the events that were never sent.
    """

    incarnation: int


class Inherited(NamedTuple):
    """Up, before everything else: another process has counted what this connection delivers. It has ended, or it
    continues, and what it keeps was copied. So the coordinator keeps the counts of all that leaves.
    """


class LeaveAck(NamedTuple):
    """Down: the final count is on the disk."""

    counter: str


class SyncAck(NamedTuple):
    """Down: everything before `Sync` of this number is on the disk."""

    number: int


class Rejoin(NamedTuple):
    """Down: the counter was deleted. Join again in round 0, from zero."""

    counter: str


class CounterRejected(NamedTuple):
    """Down: the coordinator does not count this counter."""

    counter: str
    reason: str


UpItem = UpMessage | Hello | Join | Leave | Sync | Inherited | BudgetUpItem | FamilyUpItem
RetiredItem = KnownCounts | IncarnationRetired
HelloAnswer = HelloAck | KnownLabels | RetiredItem | IncarnationExpired
_ControlDownItem = HelloAnswer | LeaveAck | SyncAck | Rejoin | CounterRejected
DownItem = DownMessage | _ControlDownItem | BudgetDownItem | FamilyDownItem | LabelCap
Item = UpItem | DownItem

CONTROL_ITEMS = (Hello, Join, Leave, Sync, HelloAck, IncarnationRetired, LeaveAck, SyncAck, Rejoin, CounterRejected)
FAMILY_ITEMS = (*families.UP_ITEMS, *families.DOWN_ITEMS, KnownLabels, LabelCap)
UP_ITEMS: frozenset[type[Any]] = frozenset(
    {Report, Snapshot, Hello, Join, Leave, Sync, Inherited, *budgets.UP_ITEMS, *families.UP_ITEMS}
)
ITEMS: tuple[type[Any], ...] = (
    *(*MESSAGES, *CONTROL_ITEMS, *budgets.ITEMS, KnownCounts, IncarnationExpired, *FAMILY_ITEMS, Inherited),
)  # by kind
_DOWN_ITEMS = frozenset(ITEMS) - UP_ITEMS
_KIND = {item: kind for kind, item in enumerate(ITEMS)}


def encode_frames(items: Iterable[Item], max_bytes: int = MAX_FRAME_BYTES) -> Iterator[bytes]:
    """The items in as few frames as the limit allows, in order.

    >>> [frame.hex(" ") for frame in encode_frames([Join("hits", 0, 3), Sync(1)])]
    ['92 94 05 a4 68 69 74 73 00 03 92 07 01']
    """
    encoded: list[bytes] = []
    size = _MAX_HEADER_BYTES
    for item in items:
        data = pack_fields([_KIND[type(item)], *map(_encode_field, item)])
        if size + len(data) > max_bytes:
            if encoded:
                yield _frame(encoded)
            encoded, size = [], _MAX_HEADER_BYTES
        encoded.append(data)
        size += len(data)
    if encoded:
        yield _frame(encoded)


def retired_items(
    known_counts: Iterable[tuple[str, int]], least: int = 0, max_bytes: int = MAX_FRAME_BYTES
) -> list[RetiredItem]:
    """Tell a site that its incarnation was retired, and the least number of the next one: a list that is too long
    for a frame is sent in parts.
    """
    parts: list[list[tuple[str, int]]] = [[]]
    size = 0
    for name, count in known_counts:
        needed = len(name.encode()) + _MAX_HEADER_BYTES + _MAX_NUMBER_BYTES
        if size + needed > max_bytes // 2:
            parts.append([])
            size = 0
        parts[-1].append((name, count))
        size += needed
    *first, last = map(tuple, parts)
    return [*map(KnownCounts, first), IncarnationRetired(last, least)]


def decode_up(data: bytes, max_bytes: int = MAX_FRAME_BYTES) -> list[UpItem]:
    return _decode(data, _unpack_up, max_bytes)


def decode_down(data: bytes, max_bytes: int = MAX_FRAME_BYTES) -> list[DownItem]:
    return _decode(data, _unpack_down, max_bytes)


def _frame(encoded: list[bytes]) -> bytes:
    number = len(encoded)
    header = pack("B", 0x90 | number) if number < 16 else pack(">BI", 0xDD, number)
    return header + b"".join(encoded)


def _encode_field(field: object) -> object:
    return [_encode_field(each) for each in field] if isinstance(field, tuple) else encode_field(field)


# msgspec checks the fields of an item while it decodes them, against a struct made from the item's field names. Numbers
# beyond 64 bits are rare, so frames are decoded first with structs that have none: then the fields of a report need no
# conversion. A frame of ten reports takes 11 microseconds instead of 18.
_Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
_SmallNumber = Annotated[int, Meta(ge=0)]
_Number = _SmallNumber | Annotated[bytes, Meta(max_length=32)]  # beyond 64 bits: its bytes
_Amount = Annotated[int, Meta(ge=0, le=MAX_AMOUNT)]
_Label = Annotated[str, Meta(max_length=MAX_NAME_CHARS)]
_FIELD_TYPES: dict[str, Any] = {
    "counter": _Name,
    "site": _Name,
    "reason": str,
    "known_counts": tuple[tuple[_Name, _Number], ...],
    "trigger": list[Any],
    "budget": tuple[_Name, _Amount],
    **dict.fromkeys(("limit", "want"), _Amount),
    "refuse_from": _Amount | None,
    "panes": Annotated[tuple[tuple[float, _Number], ...], Meta(max_length=MAX_PANES)],
    **dict.fromkeys(("tz", "kind", "on_loss", "on_unreachable"), str),
    "per": str | None,
    "anchor": int | None,
    "slack": float,
    "family": _Name,
    **dict.fromkeys(("keep", "queued", "reply", "confirm", "complete"), bool),
    **dict.fromkeys(("epsilon", "accuracy"), float),
    "labels": tuple[_Name, ...],
    "counts": tuple[_Number, ...],
    "label_counts": tuple[tuple[_Label, _Number], ...],
}  # all others are numbers


class _Layout(NamedTuple):
    """The conversion of the fields of a struct into those of an item."""

    make: Callable[[Iterable[Any]], Any]  # the item from its fields
    name_at: int | None  # index of the field that must be printable
    decoders: tuple[tuple[int, Callable[[Any], Any]], ...]  # by index of the field


_LAYOUTS: dict[type[msgspec.Struct], _Layout] = {}


def _struct_of(item: type[Any], number: Any) -> type[msgspec.Struct]:
    types = {name: _FIELD_TYPES.get(name, number) for name in item._fields}
    struct = msgspec.defstruct(
        item.__name__, list(types.items()), array_like=True, tag=_KIND[item], forbid_unknown_fields=True
    )
    name_at = next((index for index, name in enumerate(types) if types[name] is _Name), None)
    decoders = (_DECODERS.get(name, _decode_number if kind is _Number else None) for name, kind in types.items())
    _LAYOUTS[struct] = _Layout(
        item._make, name_at, tuple((index, decode) for index, decode in enumerate(decoders) if decode)
    )
    return struct


def _unpacker(items: Iterable[type[Any]], number: Any) -> Callable[[bytes], list[Any]]:
    any_of: Any = reduce(or_, (_struct_of(item, number) for item in items))
    return msgspec.msgpack.Decoder(list[any_of]).decode


def _decode(data: bytes, unpackers: Iterable[Callable[[bytes], list[Any]]], max_bytes: int) -> list[Any]:
    if len(data) > max_bytes:
        raise ProtocolError(f"a frame of {len(data)} bytes: the limit is {max_bytes}")
    small, any_size = unpackers
    try:
        try:
            structs = small(data)
        except msgspec.ValidationError:
            structs = any_size(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a frame: {error}") from error
    return [_decode_item(struct) for struct in structs]


def _decode_item(struct: Any) -> Any:
    make, name_at, decoders = _LAYOUTS[type(struct)]
    fields = msgspec.structs.astuple(struct)
    if name_at is not None and not fields[name_at].isprintable():
        raise ProtocolError(f"name {fields[name_at][:50]!r} is not printable")
    if decoders:
        decoded = list(fields)
        for index, decode in decoders:
            decoded[index] = decode(fields[index])
        return make(decoded)
    return make(fields)


def _decode_number(data: int | bytes) -> int:
    if not isinstance(data, bytes):
        return data
    number = int.from_bytes(data, "little")
    if number > MAX_NUMBER:
        raise ProtocolError(f"a number of {number.bit_length()} bits: the limit is 255")
    return number


def _decode_counts(pairs: tuple[tuple[str, int | bytes], ...]) -> tuple[tuple[str, int], ...]:
    return tuple((require_name(name, "counter"), _decode_number(count)) for name, count in pairs)


def _decode_labels(labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(require_name(label, "label") for label in labels)


def _decode_label_counts(pairs: tuple[tuple[str, int | bytes], ...]) -> tuple[tuple[str, int], ...]:
    """The name of the overflow label is empty."""
    return tuple((label and require_name(label, "label"), _decode_number(count)) for label, count in pairs)


def _decode_panes(panes: tuple[tuple[float, int | bytes], ...]) -> tuple[Pane, ...]:
    if not all(map(isfinite, (age for age, _ in panes))):
        raise ProtocolError("a pane has an age that is not finite")
    return tuple(Pane(age, _decode_number(units)) for age, units in panes)


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "budget": lambda field: BudgetId(require_name(field[0], "budget"), field[1]),
    "trigger": decode_trigger,
    "known_counts": _decode_counts,
    "panes": _decode_panes,
    "labels": _decode_labels,
    "counts": lambda field: tuple(map(_decode_number, field)),
    "label_counts": _decode_label_counts,
}
_unpack_up = _unpacker(UP_ITEMS, _SmallNumber), _unpacker(UP_ITEMS, _Number)
_unpack_down = _unpacker(_DOWN_ITEMS, _SmallNumber), _unpacker(_DOWN_ITEMS, _Number)
