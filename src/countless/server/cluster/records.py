"""The format of a shard's log: records of saved changes, split into parts if they are large."""

from typing import NamedTuple

import msgspec

from countless.server.storage.base import StoreError
from countless.server.storage.rows import Changes, decode, encode

FORMAT = 3  # of a body


class Record(msgspec.Struct, array_like=True, frozen=True):
    """One message of the log: one part of one encoded `Body`."""

    ownership_id: str
    number: int  # of the body, among those of this owner
    part: int
    parts: int
    body: bytes


class Body(NamedTuple):
    saves: list[tuple[int, Changes]]  # with the second, since 1970, in which each was saved
    tombstone_horizon: int = 0


class _EncodedRecord(msgspec.Struct, array_like=True):
    format: int
    tombstone_horizon: int
    saves: list[tuple[int, msgspec.Raw]]


def split(ownership_id: str, number: int, body: Body, part_bytes: int) -> list[Record]:
    saves = [(second, msgspec.Raw(encode(changes))) for second, changes in body.saves]
    data = msgspec.json.encode(_EncodedRecord(FORMAT, body.tombstone_horizon, saves))
    starts = range(0, len(data), part_bytes)
    return [
        Record(ownership_id, number, part, len(starts), data[start : start + part_bytes])
        for part, start in enumerate(starts)
    ]


def decode_body(data: bytes) -> Body:
    """From the bodies of all parts, in order."""
    try:
        encoded = msgspec.json.decode(data, type=_EncodedRecord)
        if encoded.format != FORMAT:
            raise StoreError(f"the log of the shard has format {encoded.format}, not {FORMAT}: run that version")
        return Body([(second, decode(save)) for second, save in encoded.saves], encoded.tombstone_horizon)
    except msgspec.DecodeError as error:
        raise _unknown(error) from None


def decode_record(data: bytes | None) -> Record:
    try:
        return msgspec.msgpack.decode(data or b"", type=Record)
    except msgspec.DecodeError as error:
        raise _unknown(error) from None


def _unknown(error: msgspec.DecodeError) -> StoreError:
    return StoreError(f"the log of the shard has a message that this version of Countless has not written: {error}")
