"""Accepted amounts, limits and slacks: the same rule in the library, the service and the lab."""

from countless.core.parameters import exact_fraction
from countless.errors import InvalidParameter

MAX_AMOUNT = 1 << 62  # every sum of a budget stays within 63 bits


def require_amount(parameter: str, value: object, minimum: int = 1, maximum: int = MAX_AMOUNT) -> None:
    """Raise InvalidParameter unless `value` is an integer from `minimum` to `maximum`."""
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
        most = "2**62" if maximum == MAX_AMOUNT else str(maximum)
        raise InvalidParameter(parameter, value, f"an integer from {minimum} to {most}")


def require_slack(slack: object) -> None:
    """Raise InvalidParameter unless `slack` is a number from 0 to 1, 1 excluded."""
    if isinstance(slack, bool) or not isinstance(slack, int | float) or not 0 <= slack < 1:
        raise InvalidParameter("slack", slack, "a number (int or float) from 0 to 1, 1 excluded")


def slack_units(slack: float, limit: int) -> int:
    """The whole units in `slack * limit`, for the decimal number that `slack` was written as."""
    return int(exact_fraction(slack) * limit)
