"""The name of a record in a file of words: a text behind the numbers of the record, and a name word before them.

The name word is the text's length and CRC-32, the kind of the record, and a bit that says whether the record is free.
A counter or a budget has the text of its key; all other names are JSON arrays.
"""

from typing import NamedTuple, TypeVar
from zlib import crc32

import msgspec

from countless.errors import ProtocolError
from countless.wire.codec import plain
from countless.wire.keys import COUNTER, Key, key_of, require_name

_IS_BUDGET, _IS_FREE, _IS_FAMILY, _IS_LABEL, _IS_SHARD = (1 << bit for bit in (31, 30, 29, 28, 27))
_LENGTH = _IS_SHARD - 1  # the bits below


class FamilyName(NamedTuple):
    """A family, with its rule."""

    key: Key
    kind: str
    epsilon: float
    accuracy: float


class LabelName(NamedTuple):
    family: Key
    label: str


class ShardName(NamedTuple):
    shard: int


RecordName = Key | FamilyName | LabelName | ShardName  # the key of a counter
N = TypeVar("N", Key, FamilyName, LabelName, ShardName)
_FLAGS: dict[type[RecordName], int] = {FamilyName: _IS_FAMILY, LabelName: _IS_LABEL, ShardName: _IS_SHARD}


def raw_name(name: RecordName) -> bytes:
    return str(name).encode() if isinstance(name, Key) else msgspec.json.encode(name, enc_hook=plain)


def words_for(raw: bytes) -> int:
    return -(-len(raw) // 8)


def write_name(words: memoryview, at: int, name: RecordName) -> int:
    """The name word for it."""
    return write_text(words, at, raw_name(name)) | _FLAGS.get(type(name), 0)


def write_budget(words: memoryview, at: int, raw: bytes) -> int:
    """The name word for it."""
    return write_text(words, at, raw) | _IS_BUDGET


def write_text(words: memoryview, at: int, raw: bytes) -> int:
    """The name word for it."""
    words.cast("B")[8 * at : 8 * at + len(raw)] = raw
    return crc32(raw) << 32 | len(raw)


def freed(name_word: int) -> int:
    return name_word | _IS_FREE


def is_free(name_word: int) -> bool:
    return name_word & _IS_FREE != 0


def is_budget(name_word: int) -> bool:
    return name_word & _IS_BUDGET != 0


def words_of_name(name_word: int) -> int:
    return -(-(name_word & _LENGTH) // 8)


def read_name(words: memoryview, name_word: int, at: int) -> RecordName | None:
    """None if it is damaged. `name_word` is the index of its name word."""
    try:
        for kind, flag in _FLAGS.items():
            if words[name_word] & flag:
                return msgspec.json.decode(_read_raw(words, name_word, at), type=kind)
        text = read_text(words, name_word, at)
        return None if text is None else key_of(COUNTER, text)
    except (ProtocolError, msgspec.MsgspecError):
        return None


def read_text(words: memoryview, name_word: int, at: int) -> str | None:
    """The name of a site or budget, or the text of a counter; None if it is damaged."""
    try:
        return require_name(_read_raw(words, name_word, at).decode(), "name")
    except (ProtocolError, UnicodeDecodeError):
        return None


def _read_raw(words: memoryview, name_word: int, at: int) -> bytes:
    """Empty if it is damaged."""
    length, check = words[name_word] & _LENGTH, words[name_word] >> 32
    raw = bytes(words.cast("B")[8 * at : 8 * at + length])
    return raw if (len(raw), crc32(raw)) == (length, check) else b""
