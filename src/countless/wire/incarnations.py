"""The number of an incarnation: 30 random bits, and above them a random second of the 18 hours after it began.

Who knows the number can continue the session of the process. With the second in which it began, which others may know,
there would be 30 bits to guess, and a coordinator can be asked so often in days; now there are 46.

The time comes from the clock of the process, or from the coordinator if the coordinator asks for a later one. It only
decides how long tombstones are kept, so it may be wrong: no guarantee depends on a clock.
"""

from hashlib import blake2b

MAX_INCARNATION = (1 << 63) - 1
_RANDOM_BITS = 30
MAX_RANDOM = 1 << _RANDOM_BITS
MAX_RANDOM_S = 1 << 16  # less than the shortest `remember_for`


def second_of(incarnation: int) -> int:
    return incarnation >> _RANDOM_BITS


def first_of(second: int) -> int:
    """The least incarnation of a second."""
    return second << _RANDOM_BITS


def next_second(least: int) -> int:
    """The first second of which no incarnation is below `least`."""
    return second_of(least + MAX_RANDOM - 1)


def successor_of(incarnation: int, least: int = 0) -> int:
    """As which an incarnation that is kept in a file continues: the same one for every copy of the file.

    So whatever several copies deliver is merged, and is not counted twice. Only who knows the incarnation knows it.
    """
    digest = int.from_bytes(blake2b(incarnation.to_bytes(8, "little"), digest_size=8).digest(), "little")
    digest, random = divmod(digest, MAX_RANDOM)
    second, earliest = second_of(incarnation), next_second(least)
    if second < earliest:
        second = earliest + digest % MAX_RANDOM_S
    return min(first_of(second) | random, MAX_INCARNATION)
