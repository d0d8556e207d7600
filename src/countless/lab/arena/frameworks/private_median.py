"""Differential privacy over copies of `hyz` (SPEC 5; Hassidim, Kaplan, Mansour, Matias, Stemmer 2020)."""

from fractions import Fraction
from math import ceil, log, sqrt

from countless.lab.arena.frameworks.framework import Framework, flip_number
from countless.lab.arena.frameworks.hyz_copy import HyzCopy
from countless.privacy.noise import RandomSourceNoise

# Of the whole life, by advanced composition. A generous 8, so that it can be run at all: 1 takes eight
# times the copies.
EPSILON = 8
SLACK = 1e-3
MAJORITY = (
    40  # copies for each unit of noise: the noisy question is asked at every report, and none may be answered early
)


class PrivateMedian(Framework):
    """About sqrt(flip number) copies, whose dice are kept private: sparse vector says when, a noisy median
    says what.

    The number of copies that have outgrown the answer is compared, with Laplace noise on both sides, with
    half of them; when it passes, a value is published below which about half of the copies lie, again by
    noisy counts. Each answer costs `eps0 = EPSILON / sqrt(8 flips ln(1/SLACK))`, so for a majority to
    drown the noise there must be dozens of times 1/eps0 copies: the constant in front of the square root
    is what makes it dear.

    In this distributed setting the proof has a hole that the paper names: the answer can only move when a
    message arrives, and that message gives one copy's coin away. So this is measured, not promised.
    """

    scheme = "private median"

    def __init__(self, sites: int, alpha: float, delta: float, horizon: int, seed: int) -> None:
        super().__init__(sites, alpha, delta, horizon, seed)
        flips = flip_number(alpha / 4, horizon)
        self._scale = ceil(sqrt(8 * flips * log(1 / SLACK)) / EPSILON)
        self.copies = MAJORITY * self._scale
        eta = delta / 40
        self._copies = [HyzCopy(sites, alpha / 4, eta, self._rng.spawn("copy", i)) for i in range(self.copies)]
        self._noise = RandomSourceNoise(self._rng.spawn("noise"))
        self._draw()

    @property
    def sent(self) -> int:
        """Messages of all copies."""
        return sum(copy.sent for copy in self._copies)

    def events_until_report(self, site: int) -> int:
        """Until the first copy speaks."""
        return min(copy.events_until_report(site) for copy in self._copies)

    def add(self, site: int, n: int) -> None:
        """Feed all, then ask the noisy question once."""
        self.total += n
        edge = (1 + self.alpha / 2) * self.estimate
        above = 0
        for copy in self._copies:
            copy.add(site, n)
            above += copy.estimate > edge
        if above + self._laplace(2) >= self._threshold:
            self._publish(max(self.estimate, self._median()))
            self._draw()

    def _draw(self) -> None:
        self._threshold = self.copies // 2 + self._laplace(1)

    def _median(self) -> float:
        """The first point of a grid of factors 1 + alpha/8 with about half of the copies below it, by
        noisy counts.
        """
        value = max(1.0, (1 + self.alpha / 4) * self.estimate)
        for _ in range(64):
            below = sum(copy.estimate <= value for copy in self._copies)
            if below + self._laplace(1) >= self.copies / 2:
                break
            value *= 1 + self.alpha / 8
        return value

    def _laplace(self, times: int) -> int:
        return self._noise.laplace(Fraction(times * self._scale))
