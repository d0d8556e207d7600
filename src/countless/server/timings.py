"""Durations, as a histogram of Prometheus counts them."""

import asyncio
from bisect import bisect_left
from collections.abc import Iterable, Iterator

# From what a save takes on a fast disk to what operators must know
BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
LAG_SAMPLE_S = 0.5


class Timings:
    """
    >>> times = Timings((0.1, 1.0))
    >>> for seconds in (0.05, 0.1, 0.2, 7):
    ...     times.observe(seconds)
    >>> list(times.buckets()), times.count, round(times.total_s, 6)
    ([('0.1', 2), ('1.0', 3), ('+Inf', 4)], 4, 7.35)
    """

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        self.bounds = bounds
        self.total_s = 0.0
        self._counts = [0] * (len(bounds) + 1)

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.total_s += seconds

    @property
    def count(self) -> int:
        return sum(self._counts)

    def buckets(self) -> Iterator[tuple[str, int]]:
        """Upper bound, and how many took at most so long."""
        below = 0
        for bound, number in zip((*map(str, self.bounds), "+Inf"), self._counts, strict=True):
            below += number
            yield bound, below

    @classmethod
    def sum_of(cls, parts: Iterable["Timings"]) -> "Timings":
        total = cls()
        for part in parts:
            total.total_s += part.total_s
            total._counts = [ours + theirs for ours, theirs in zip(total._counts, part._counts, strict=True)]
        return total


async def measure_lag(lag: Timings) -> None:
    """Measure how late the event loop does what was due: while one thing takes long, all others wait."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_SAMPLE_S
        await asyncio.sleep(LAG_SAMPLE_S)
        lag.observe(max(0.0, loop.time() - due))
