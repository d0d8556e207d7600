"""The common part of the three frameworks: an estimate that changes by factors of about 1 + alpha, and the flip number.

They are baselines to be measured beside `dithered` and `deterministic`, for a few sites and up to a horizon that must
be known in advance. They have no joins, no faults and no wire format.
"""

from abc import ABC, abstractmethod
from math import ceil, log, log1p

from countless.randomness import SeededRandom


class Framework(ABC):
    """A robust tracker made of oblivious copies; a `game.Subject`."""

    scheme: str
    round = 0

    def __init__(self, sites: int, alpha: float, delta: float, horizon: int, seed: int) -> None:
        self.sites = sites
        self.alpha = alpha
        self.delta = delta
        self.horizon = horizon
        self.estimate: float = 0
        self.total = 0
        self.flips = 0  # changes of the estimate so far
        self._rng = SeededRandom(seed).spawn(self.scheme)

    @property
    @abstractmethod
    def sent(self) -> int: ...

    @property
    @abstractmethod
    def randomised(self) -> bool:
        """True if some copy leaves out events: until then all is exact."""

    @abstractmethod
    def events_until_report(self, site: int) -> int: ...

    @abstractmethod
    def add(self, site: int, n: int) -> None:
        """`n` events at one site, of which at most the last is reported."""

    def step(self, site: int) -> int:
        """Always 0: there is no single step."""
        return 0

    def _publish(self, value: float) -> None:
        self.estimate = value
        self.flips += 1


def flip_number(alpha: float, horizon: int) -> int:
    """The number of times that a total can grow by a factor 1 + alpha on its way from 1 to the horizon."""
    return ceil(log(max(2, horizon)) / log1p(alpha)) + 1
