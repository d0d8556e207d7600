"""The time after which a tracker has sent fewer messages than a flush: the formulas of design/measurements/race.md."""

from collections.abc import Iterator
from math import exp, log

from countless.planning.baselines import FLUSH_PERIODS_S
from tools.tables import Table

DAY_S = 86_400
FLEETS = ((100, 0.01, 100), (100, 0.01, 10_000), (100, 0.05, 10_000), (1_000, 0.01, 10_000), (1_000, 0.05, 10_000))
RACE = (100, 0.05, 20_000 / 600, 600)  # sites, alpha, events a second, seconds of the steady race


def flush(sites: int, rate: float, seconds: float, period_s: float) -> float:
    """Messages if every site that has counted something sends one in each period."""
    return sites * seconds / period_s * (1 - exp(-rate * period_s / sites))


def deterministic(sites: int, alpha: float, rate: float, seconds: float) -> float:
    """One message for each event up to a total of k/(2 alpha), then k/(2 alpha) for each factor of e."""
    total, start = rate * seconds, sites / (2 * alpha)
    return total if total <= start else start * (1 + log(total / start))


def break_even_s(sites: int, alpha: float, rate: float, period_s: float) -> float:
    """The seconds after which the flush has sent as many messages as `deterministic`, and sends more from then on."""
    low, high = 0.0, 1e9
    while high - low > 0.01:
        middle = (low + high) / 2
        if flush(sites, rate, middle, period_s) < deterministic(sites, alpha, rate, middle):
            low = middle
        else:
            high = middle
    return high


def main() -> Iterator[Table]:
    sites, alpha, rate, seconds = RACE
    formulas = [(f"a flush every {period} s", f"{flush(sites, rate, seconds, period):,.0f}") for period in (1, 60)]
    formulas.append(("deterministic", f"{deterministic(sites, alpha, rate, seconds):,.0f}"))
    yield Table("race-formulas", ("steady, by formula", "messages"), formulas)
    rows = []
    for sites, alpha, rate in FLEETS:
        times = [duration(break_even_s(sites, alpha, rate, period)) for period in FLUSH_PERIODS_S]
        ratio = flush(sites, rate, DAY_S, FLUSH_PERIODS_S[-1]) / deterministic(sites, alpha, rate, DAY_S)
        rows.append((f"{sites:,}", f"{alpha:.0%}", f"{rate:,}", *times, f"{ratio:.2g}"))
    periods = [f"{period} s flush" for period in FLUSH_PERIODS_S]
    yield Table("race-break-even", ("sites", "alpha", "events/s", *periods, "60 s flush after a day"), rows)


def duration(seconds: float) -> str:
    """To two digits.

    >>> duration(49.4), duration(1234), duration(36_000)
    ('49 s', '21 min', '10 h')
    """
    for unit, size in (("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{seconds:.2g} s"
