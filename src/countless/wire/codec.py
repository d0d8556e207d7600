"""Messages as bytes: compact binary arrays (MessagePack by msgspec). Who sent a message is known from the connection.

A message is an array [kind, counter, round, ...]; a pace is an array [kind, numbers...]. Integers are unbounded inside
Countless; one that does not fit into 64 bits travels as its bytes, little end first.
"""

from typing import Any

import msgspec

from countless.core.messages import Message, Report, SetTrigger, Snapshot, StartRound
from countless.core.triggers import BernoulliSampling, EveryNth, GeometricGrowth, OffsetMultiple, OncePerBlock, Trigger
from countless.errors import CountlessError, ProtocolError

_LARGEST = 2**64 - 1
_MESSAGES = (Report, Snapshot, StartRound, SetTrigger)
_TRIGGERS = (EveryNth, GeometricGrowth, BernoulliSampling, OncePerBlock, OffsetMultiple)
_KIND = {kind: number for kinds in (_MESSAGES, _TRIGGERS) for number, kind in enumerate(kinds)}
_START_ROUND, _SET_TRIGGER, _OFFSET_MULTIPLE = _KIND[StartRound], _KIND[SetTrigger], _KIND[OffsetMultiple]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


def encode(message: Message) -> bytes:
    """One message as bytes.

    >>> encode(Report("hits", 3, 1000, 2)).hex(" ")
    '95 00 a4 68 69 74 73 03 cd 03 e8 02'
    """
    try:
        return _encode(_arrays(message))
    except OverflowError:  # an integer beyond 64 bits, which hardly any message has
        return _encode(to_array(message))


def decode(data: bytes) -> Message:
    """The message back, checked field by field; anything else is a ProtocolError."""
    try:
        plain = _decode(data)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise ProtocolError(f"not a message: {error}") from error
    return from_array(plain)


def to_array(message: Message) -> list[Any]:
    """A message as the array that travels, for whoever sends many at once."""
    return [_KIND[type(message)], *map(_pack, message)]


def from_array(plain: list[Any]) -> Message:
    """The message that such an array stands for; anything else is a ProtocolError."""
    try:
        kind, *fields = plain
        message = _MESSAGES[_natural(kind, "kind")](*map(_unpack, fields))
    except (TypeError, ValueError, IndexError, CountlessError) as error:
        raise ProtocolError(f"not a message: {error}") from error
    _check(message)
    return message


def _arrays(message: Message) -> tuple[Any, ...]:
    """`to_plain` where every integer fits: looking at each field would take longer than encoding them all."""
    if type(message) is StartRound:
        counter, number, trigger = message
        return _START_ROUND, counter, number, _numbers(trigger)
    if type(message) is SetTrigger:
        counter, number, trigger, since = message
        return _SET_TRIGGER, counter, number, _numbers(trigger), since
    return _KIND[type(message)], *message


def _numbers(trigger: Trigger) -> tuple[int | float, ...]:
    if type(trigger) is OffsetMultiple:
        return _OFFSET_MULTIPLE, trigger.step, trigger.offset
    return _KIND[type(trigger)], trigger.alpha if isinstance(trigger, GeometricGrowth) else trigger.step


def _pack(field: Any) -> Any:
    kind = type(field)
    if kind is int:
        return field if field <= _LARGEST else field.to_bytes((field.bit_length() + 7) // 8, "little")
    if kind is str or kind is float:
        return field
    return [_pack(number) for number in _numbers(field)]


def _unpack(field: Any) -> Any:
    if isinstance(field, bytes):
        return int.from_bytes(field, "little")
    if isinstance(field, list):
        return _TRIGGERS[_natural(field[0], "trigger")](*map(_unpack, field[1:]))
    return field


def _natural(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProtocolError(f"{name} is {value!r}: it must be an integer of at least 0")
    return value


def _check(message: Message) -> None:
    if not isinstance(message.counter, str):
        raise ProtocolError(f"counter is {message.counter!r}: it must be a string")
    for name, value in zip(message._fields[1:], message[1:], strict=True):
        if name == "trigger":
            if not isinstance(value, Trigger):
                raise ProtocolError(f"trigger is {value!r}: it must be a trigger")
        else:
            _natural(value, name)
