"""Names in a file of words: a name word with the length of the name, its CRC-32 and some flags; and the name itself."""

from zlib import crc32

from countless.errors import ProtocolError
from countless.wire.keys import require_name

IS_BUDGET, IS_FREE, IS_FAMILY = 1 << 31, 1 << 30, 1 << 29  # flags; the length is in the bits below them


def words_of_name(name_word: int) -> int:
    return -(-_name_length(name_word) // 8)


def words_for(raw: bytes) -> int:
    return -(-len(raw) // 8)


def write_name(words: memoryview, at: int, raw: bytes) -> int:
    """The name word for it, without flags."""
    words.cast("B")[8 * at : 8 * at + len(raw)] = raw
    return crc32(raw) << 32 | len(raw)


def read_name(words: memoryview, name_word: int, at: int) -> str | None:
    """The name of a site, counter or budget; None if it is damaged. `name_word` is the index of its name word."""
    try:
        return require_name(read_text(words, name_word, at), "name")
    except ProtocolError:
        return None


def read_text(words: memoryview, name_word: int, at: int) -> str | None:
    """As `read_name`, for any text."""
    length, check = _name_length(words[name_word]), words[name_word] >> 32
    raw = bytes(words.cast("B")[8 * at : 8 * at + length])
    try:
        return raw.decode() if (len(raw), crc32(raw)) == (length, check) else None
    except UnicodeDecodeError:
        return None


def _name_length(name_word: int) -> int:
    return name_word & (IS_FAMILY - 1)
