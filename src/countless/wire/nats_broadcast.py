"""Round starts for many lines in one message, which the broker fans out (see `wire/nats_subjects.py` for the subjects).

Where the pace is the same for all, one message to everybody is enough. Lattice paces differ in their offsets, and an
offset is a secret between the coordinator and one site, while every line of a group receives the packet of the group.
So an offset travels shifted, modulo the step, by a number that takes the key of its line to work out: to everybody else
it is a uniform number. What it costs: a line receives the offsets of its whole group, `GROUP` times a few bytes.
"""

from collections.abc import Iterable
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, NamedTuple

import msgspec

from countless.core.messages import StartRound
from countless.core.triggers import OffsetMultiple
from countless.errors import ProtocolError
from countless.wire.codec import from_array, to_array
from countless.wire.nats_subjects import Card


class Packet(NamedTuple):
    """As it travels."""

    start: list[Any]  # the message as the codec writes it; a lattice with offset 0
    seats: list[int]  # who is meant; in a packet to everybody, who is not
    nonce: bytes = b""
    offsets: bytes = b""  # shifted, one after the other, each as long as the step


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Packet).decode


def pack_for_everybody(start: StartRound, left_out: Iterable[int]) -> bytes:
    """The same words for all who listen, but for a few seats."""
    return _encode(Packet(to_array(start), sorted(left_out)))


def pack_for_group(starts: dict[Card, StartRound]) -> bytes:
    """One round's start for some lines of a group: the same message, but for the offset of a lattice."""
    start = next(iter(starts.values()))
    seats = [card.seat for card in starts]
    if not isinstance(start.trigger, OffsetMultiple):
        return _encode(Packet(to_array(start), seats))
    step, nonce = start.trigger.step, token_bytes(16)
    offsets = b""
    for card, message in starts.items():
        offset = (message.trigger.offset + _shift(card.key, nonce)) % step  # type: ignore[union-attr]
        offsets += offset.to_bytes(_width(step), "little")
    return _encode(Packet(to_array(start._replace(trigger=OffsetMultiple(step, 0))), seats, nonce, offsets))


def unpack_round(data: bytes, card: Card, to_everybody: bool) -> StartRound | None:
    """What a packet says to the holder of this card, if anything."""
    try:
        packet = _decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a round start: {error}") from None
    if (card.seat in packet.seats) is to_everybody:
        return None
    start = from_array(packet.start)
    if not isinstance(start, StartRound):
        raise ProtocolError(f"a {type(start).__name__} is not a round start")
    if not isinstance(start.trigger, OffsetMultiple) or to_everybody:
        return start
    step = start.trigger.step
    place = packet.seats.index(card.seat) * _width(step)
    offset = int.from_bytes(packet.offsets[place : place + _width(step)], "little")
    return start._replace(trigger=OffsetMultiple(step, (offset - _shift(card.key, packet.nonce)) % step))


def _width(step: int) -> int:
    return (step.bit_length() + 7) // 8


def _shift(key: bytes, nonce: bytes) -> int:
    """512 bits, so that modulo any step of the protocol (255 bits) it is as good as uniform."""
    return int.from_bytes(blake2b(nonce, key=key).digest())
