"""The values that parameters may have: the same rule in the library, the service and the lab."""

from fractions import Fraction
from functools import lru_cache

from countless.errors import InvalidParameter, ProtocolError

# Below these the formulas of the plans leave the range of doubles.
MIN_ALPHA = 1e-300
MIN_PROBABILITY = 2.0**-1000


def require_alpha(alpha: object, minimum: float = MIN_ALPHA) -> None:
    """Raise InvalidParameter unless `alpha` is a number below 1/2 and at least `minimum`."""
    _require("alpha", alpha, minimum, 0.5, "1/2")


def require_probability(parameter: str, value: object, minimum: float = MIN_PROBABILITY) -> None:
    """Raise InvalidParameter unless `value` (delta, eta) is a number below 1 and at least `minimum`."""
    _require(parameter, value, minimum, 1.0, "1")


@lru_cache(maxsize=256)
def exact_fraction(number: float) -> Fraction:
    """`number` as the decimal that was written: 0.01 is 1/100, not the double next to it.

    >>> exact_fraction(0.07) * 100, 0.07 * 100
    (Fraction(7, 1), 7.000000000000001)
    """
    return Fraction(repr(float(number)))


def require_integer(parameter: str, value: object, minimum: int, maximum: int | None = None) -> None:
    allowed = f"an integer of at least {minimum}" if maximum is None else f"an integer from {minimum} to {maximum}"
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise InvalidParameter(parameter, value, allowed)
    if maximum is not None and value > maximum:
        raise InvalidParameter(parameter, value, allowed)


def require_bool(parameter: str, value: object) -> None:
    """Raise InvalidParameter for anything else: the text "false" would be true."""
    if not isinstance(value, bool):
        raise InvalidParameter(parameter, value, "True or False")


def require_seconds(parameter: str, value: object) -> None:
    """Raise InvalidParameter unless `value` can be waited: a number of at least 0, or infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise InvalidParameter(parameter, value, "a number of seconds from 0; inf waits without a limit")


def _require(parameter: str, value: object, minimum: float, top: float, top_text: str) -> None:
    allowed = f"a number (int or float) between 0 and {top_text}, both excluded"
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < top:
        raise InvalidParameter(parameter, value, allowed)
    if value < minimum:
        raise InvalidParameter(parameter, value, f"{allowed} (and at least {minimum:.3g})")


# Lengths of time as people write them: `500ms`, `10s`, `15m`, `1h`, `30d`, or a number of seconds

_ROLLING = "1s", "3660d"  # the least and the most that a rolling count looks back
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(value: object) -> float:
    """Raises ValueError or KeyError for what is none.

    >>> seconds("15m"), seconds("1.5h"), seconds(10)
    (900.0, 5400.0, 10.0)
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    text = str(value).strip()
    unit = text.lstrip("0123456789.")
    return float(text.removesuffix(unit)) * _UNITS[unit or "s"]


def require_duration(parameter: str, value: object, least: str, most: str) -> float:
    """The number of seconds; raise InvalidParameter unless it is from `least` to `most`."""
    try:
        length = seconds(value)
    except (ValueError, KeyError, OverflowError):
        length = -1.0
    if not seconds(least) <= length <= seconds(most):
        raise InvalidParameter(parameter, value, f"a duration such as 30s, 15m, 1h or 7d, from {least} to {most}")
    return length


def require_unit(parameter: str, value: object) -> None:
    """Raise InvalidParameter for a number without a unit: somebody may mean minutes."""
    if not isinstance(value, str) or not value.strip()[-1:].isalpha():
        raise InvalidParameter(parameter, value, "a duration with its unit, such as 30s, 15m, 1h or 7d")


def require_rolling(parameter: str, value: object) -> float:
    """The number of seconds that a rolling count looks back."""
    require_unit(parameter, value)
    return require_duration(parameter, value, *_ROLLING)


# Rounds that a site names and the coordinator does not know, because its state was restored from an older copy. The
# coordinator continues above them, and tells all other sites. One site must not be able to lead the numbers to where
# they fit neither in a message nor in the state file.

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
