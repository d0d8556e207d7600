"""Lengths of time as people write them: `500ms`, `10s`, `15m`, `1h`, `30d`, or a number of seconds."""

from countless.errors import InvalidParameter

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
