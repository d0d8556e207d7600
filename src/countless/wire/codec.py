"""The four messages of the protocol as MessagePack arrays; `frames.py` puts them into frames and decodes them.

A message is an array [kind, counter, round, ...], a trigger is an array [kind, numbers...]. Integers have no limit
here; one that does not fit into 64 bits is written as its bytes, little end first. The sender is known from the
connection.
"""

from typing import Any

import msgspec

from countless.core.messages import Message, Report, SetTrigger, Snapshot, StartRound
from countless.core.triggers import BernoulliSampling, EveryNth, GeometricGrowth, OffsetMultiple, OncePerBlock, Trigger
from countless.errors import CountlessError, ProtocolError

MESSAGES = (Report, Snapshot, StartRound, SetTrigger)  # kinds 0 to 3
_TRIGGERS = (EveryNth, GeometricGrowth, BernoulliSampling, OncePerBlock, OffsetMultiple)  # kinds 0 to 4
_MESSAGE_KIND = {message: kind for kind, message in enumerate(MESSAGES)}
_TRIGGER_KIND = {trigger: kind for kind, trigger in enumerate(_TRIGGERS)}
_MAX_MSGPACK_INT = (1 << 64) - 1


def plain(field: object) -> object:
    """A number or text whose class is one of the program's, such as numpy's float64, or a subclass of str."""
    if isinstance(field, str):
        return str.__str__(field)
    if isinstance(field, int):
        return encode_field(int.__int__(field))
    if isinstance(field, float):
        return float.__float__(field)
    raise TypeError(f"{type(field).__name__} cannot be encoded")


pack_fields = msgspec.msgpack.Encoder(enc_hook=plain).encode


def encode(message: Message) -> bytes:
    """
    >>> encode(Report("hits", 3, 1000, 2)).hex(" ")
    '95 00 a4 68 69 74 73 03 cd 03 e8 02'
    """
    return pack_fields([_MESSAGE_KIND[type(message)], *map(encode_field, message)])


def encode_field(field: object) -> object:
    if type(field) is int:
        return field if field <= _MAX_MSGPACK_INT else field.to_bytes((field.bit_length() + 7) // 8, "little")
    if isinstance(field, Trigger):
        return _encode_trigger(field)
    return field


def _encode_trigger(trigger: Trigger) -> list[object]:
    kind = _TRIGGER_KIND[type(trigger)]
    if isinstance(trigger, GeometricGrowth):
        numbers = (encode_field(trigger.extra), trigger.phase) if trigger.extra or trigger.phase else ()
        return [kind, trigger.alpha, *numbers]
    if isinstance(trigger, OffsetMultiple):
        return [kind, encode_field(trigger.step), encode_field(trigger.offset)]
    return [kind, encode_field(trigger.step)]


def _decode_natural(value: object, name: str) -> int:
    if type(value) is int and value >= 0:
        return value
    if isinstance(value, bytes):
        return int.from_bytes(value, "little")
    raise ProtocolError(f"{name} is {value!r}: it must be an integer of at least 0")


def decode_trigger(value: list[Any]) -> Trigger:
    try:
        kind, *numbers = value
        trigger = _TRIGGERS[_decode_natural(kind, "trigger")]
        return trigger(*[_decode_natural(each, "step") if isinstance(each, bytes) else each for each in numbers])
    except (TypeError, ValueError, IndexError, CountlessError) as error:
        raise ProtocolError(f"trigger is {str(value)[:50]}: {error}") from error
