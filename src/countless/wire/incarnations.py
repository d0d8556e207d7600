"""The number of an incarnation: 30 random bits, and above them the second in which it began.

That second comes from the clock of the process, or from the coordinator if the coordinator asks for a later one. It
only puts incarnations in an order, so it may be wrong: no guarantee depends on a clock.
"""

MAX_INCARNATION = (1 << 63) - 1
_RANDOM_BITS = 30
MAX_RANDOM = 1 << _RANDOM_BITS


def second_of(incarnation: int) -> int:
    return incarnation >> _RANDOM_BITS


def first_of(second: int) -> int:
    """The least incarnation of a second."""
    return second << _RANDOM_BITS
