"""Numbers that options take as text: `10000/s`, `1e9`."""

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
