"""Differential privacy over copies of `hyz` (Hassidim, Kaplan, Mansour, Matias, Stemmer 2020)."""

from fractions import Fraction
from math import ceil, log, sqrt

from countless.privacy.noise import RandomSourceNoise
from countless_lab.arena.frameworks.framework import Framework, flip_number
from countless_lab.arena.frameworks.hyz_copy import HyzCopy

EPSILON = 8  # of the whole run, by advanced composition; 1 would take eight times the copies, too many to run
SLACK = 1e-3
COPIES_PER_NOISE = 40  # copies for each unit of noise: the noisy test runs at every report and must not pass early


class PrivateMedian(Framework):
    """About sqrt(flip number) copies, whose random numbers are kept private: the sparse vector technique decides
    when the estimate changes, a noisy median decides its value.

    The number of copies above the estimate is compared with half of them, with Laplace noise on both sides; when it
    is larger, a value is published that about half of the copies are below, again by noisy counts. Each change costs
    `eps0 = EPSILON / sqrt(8 flips ln(1/SLACK))`, so the copies must be dozens of times 1/eps0 for a majority to exceed
    the noise: this constant before the square root makes it expensive.

    In this distributed setting the proof has a gap that the paper names: the estimate can only change when a message
    arrives, and that message discloses one sample of a copy. So this is measured; there is no guarantee.
    """

    scheme = "private median"

    def __init__(self, sites: int, alpha: float, delta: float, horizon: int, seed: int) -> None:
        super().__init__(sites, alpha, delta, horizon, seed)
        flips = flip_number(alpha / 4, horizon)
        self._scale = ceil(sqrt(8 * flips * log(1 / SLACK)) / EPSILON)
        self.copies = COPIES_PER_NOISE * self._scale
        eta = delta / 40
        self._copies = [HyzCopy(sites, alpha / 4, eta, self._rng.spawn("copy", i)) for i in range(self.copies)]
        self._noise = RandomSourceNoise(self._rng.spawn("noise"))
        self._draw()

    @property
    def sent(self) -> int:
        return sum(copy.sent for copy in self._copies)

    @property
    def randomised(self) -> bool:
        return self._copies[0].step > 1

    def events_until_report(self, site: int) -> int:
        return min(copy.events_until_report(site) for copy in self._copies)

    def add(self, site: int, n: int) -> None:
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
        """The first point of a grid of factors 1 + alpha/8 with about half of the copies below it, by noisy counts."""
        value = max(1.0, (1 + self.alpha / 4) * self.estimate)
        for _ in range(64):
            below = sum(copy.estimate <= value for copy in self._copies)
            if below + self._laplace(1) >= self.copies / 2:
                break
            value *= 1 + self.alpha / 8
        return value

    def _laplace(self, times: int) -> int:
        return self._noise.laplace(Fraction(times * self._scale))
