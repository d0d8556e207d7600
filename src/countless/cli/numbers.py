"""Numbers that options take as text: `10000/s`, `1e9`, `50M`, `1%`."""

from decimal import Decimal, InvalidOperation

from countless.errors import InvalidParameter

MAX_EVENTS = 10**15
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def events_per_second(rate: str) -> float:
    """The value of `--rate`: a number of events per s, m, h or d; without a unit, per second."""
    number, _, unit = rate.partition("/")
    try:
        value = float(number) / _SECONDS[unit or "s"]
    except (ValueError, KeyError):
        value = 0.0
    if not 0 < value < float("inf"):
        raise InvalidParameter("rate", rate, "a positive number of events per s, m, h or d, such as 10000/s")
    return value


def number_of_events(events: str) -> int:
    try:
        number = float(events)
    except ValueError:
        number = 0
    if not (1 <= number <= MAX_EVENTS and number == int(number)):
        raise InvalidParameter("events", events, f"a whole number from 1 to {MAX_EVENTS:.0e}, such as 1e6")
    return int(number)


_SUFFIXES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_MAX_DIGITS = 30


def number_of_units(parameter: str, text: str) -> int:
    """An amount of a budget: `50M`, `1.5k`, `1e6`, `250_000`.

    >>> number_of_units("limit", "1.5k")
    1500
    """
    suffix = text[-1:] if text[-1:] in _SUFFIXES else ""
    units = _decimal(text.removesuffix(suffix)) * _SUFFIXES[suffix]
    if units.is_nan() or units != int(units):
        raise InvalidParameter(parameter, text, "a whole number of units, such as 1000, 50M or 1.5k (k, M, G, T)")
    return int(units)


def share(parameter: str, text: str) -> float:
    """A share: `1%` or `0.01`."""
    value = _decimal(text.removesuffix("%"))
    if value.is_nan():
        raise InvalidParameter(parameter, text, "a share such as 1% or 0.01")
    return float(value / 100 if text.endswith("%") else value)


def quantile_share(text: str) -> float:
    """Parse a quantile: `p99`, `99%` or `0.99`.

    >>> quantile_share("p99.9"), quantile_share("50%"), quantile_share("0.99")
    (0.999, 0.5, 0.99)
    """
    percent = text[1:] if text[:1] in ("p", "P") else text[:-1] if text.endswith("%") else None
    share = _decimal(text) if percent is None else _decimal(percent) / 100
    if share.is_nan() or not 0 <= share <= 1:
        raise InvalidParameter("q", text, "a quantile from p0 to p100, such as p99, 99% or 0.99")
    return float(share)


def _decimal(text: str) -> Decimal:
    """Not a number, if it is none, or has too many digits to be one that is meant."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        return Decimal("nan")
    return value if value.is_finite() and abs(value.adjusted()) < _MAX_DIGITS else Decimal("nan")
