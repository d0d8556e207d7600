"""Rounds that a site names and the coordinator does not know, because its state was restored from an older copy.

The coordinator continues above them, and tells all other sites. One site must not be able to lead the numbers to where
they fit neither in a message nor in the state file.
"""

from countless.errors import ProtocolError

MAX_ROUND = 1 << 40  # that a site may name at any time
MAX_ROUNDS_AHEAD = 1 << 20  # of the present one, beyond MAX_ROUND: 2^63 is not reached


def require_restored_round(round: int, present: int) -> None:
    """Raise ProtocolError for a round that no copy of the state can have missed.

    >>> require_restored_round(1_000, present=3)
    >>> require_restored_round(1 << 63, present=3)
    Traceback (most recent call last):
    ...
    countless.errors.ProtocolError: round 9223372036854775808 is too far ahead: the present one is 3
    """
    if round > max(MAX_ROUND, present + MAX_ROUNDS_AHEAD):
        raise ProtocolError(f"round {round} is too far ahead: the present one is {present}")
