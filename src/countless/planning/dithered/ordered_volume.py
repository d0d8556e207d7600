"""Volumes of ordered lists of points, each in its own window: how many transcripts there are.

    Phi_n(x) = volume of { x_0 < x_1 < .. < x_(n-1) <= x,  low_i < x_i <= high_i },   V_n = Phi_n(high_(n-1))

Phi_(n+1) is the integral of Phi_n over the next window. Phi_n is a polynomial between two neighbouring window
ends, so the recursion is carried out exactly, on Taylor coefficients that are all positive: no grid, no
cancellation, and a relative error of a few units in the last place per step. Only the part of Phi_n above the
last `low` is kept, because no later window starts lower.
"""

from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from math import inf, log
from operator import itemgetter

from countless.errors import PlanError

_CLOSE = 1e-9  # of a step: the error after it is its square, times less than the degree


@dataclass(frozen=True, slots=True)
class OrderedVolume:
    """Phi_n: 0 below the first edge, a polynomial in each cell, constant above the last edge.

    The coefficients of a cell are in t = (x - left edge)/(cell width), scaled so that the value at the top is
    1; `log_total` is ln V_n.
    """

    edges: tuple[float, ...] = (-inf,)
    cells: tuple[list[float], ...] = ()
    log_total: float = 0.0

    def fraction_below(self, x: float) -> float:
        """Phi_n(x) / V_n."""
        edges = self.edges
        if x >= edges[-1]:
            return 1.0
        if x <= edges[0]:
            return 0.0
        cell = bisect_left(edges, x) - 1
        t = (x - edges[cell]) / (edges[cell + 1] - edges[cell])
        return _polynomial(self.cells[cell], t)

    def log_below(self, x: float) -> float:
        """ln Phi_n(x)."""
        fraction = self.fraction_below(x)
        return self.log_total + log(fraction) if fraction > 0 else -inf

    def quantile(self, fraction: float) -> float:
        """The x with Phi_n(x) = fraction * V_n.

        By Newton's method, from where the chord of the cell's polynomial has that value. The coefficients are
        positive, so it is convex: the first step leads to the right of the root, and no later one passes it.
        """
        cells = self.cells
        cell = max(0, bisect_left(cells, fraction, key=itemgetter(0)) - 1)
        low, high = cells[cell][0], cells[cell + 1][0] if cell + 1 < len(cells) else 1.0
        coefficients = cells[cell][::-1]
        t = (fraction - low) / (high - low) if low < fraction < high else 1.0
        for _ in range(100):
            value = slope = 0.0
            for c in coefficients:
                slope = slope * t + value
                value = value * t + c
            if slope <= 0:
                break
            step = (value - fraction) / slope
            t -= step
            if not 0 <= t <= 1:
                t = 0.0 if t < 0 else 1.0
            elif -_CLOSE * t <= step <= _CLOSE * t:  # the next would be less than a unit in the last place
                break
        return self.edges[cell] + t * (self.edges[cell + 1] - self.edges[cell])

    def with_point(self, low: float, high: float) -> "OrderedVolume":
        """Phi_(n+1): one more point, in the window (low, high]. Windows must be in order."""
        if self.cells and not (low >= self.edges[0] and high >= self.edges[-1]):
            raise PlanError(f"the window ({low}, {high}] starts or ends before ({self.edges[0]}, {self.edges[-1]}]")
        edges, cells = self._above(low)
        if high > edges[-1]:
            edges.append(high)
            cells.append([1.0])
        if not cells:
            raise PlanError(f"the window ({low}, {high}] is empty")
        total = 0.0
        grown: list[list[float]] = []
        for left, right, cell in zip(edges, edges[1:], cells, strict=False):
            width = right - left
            new = [total, *(width * c / power for power, c in enumerate(cell, 1))]
            total = sum(new)
            grown.append(new)
        shrink = 1 / total
        return OrderedVolume(
            tuple(edges), tuple([c * shrink for c in cell] for cell in grown), self.log_total + log(total)
        )

    def _above(self, low: float) -> tuple[list[float], list[list[float]]]:
        """Edges and cells of the part above `low`, which becomes the first edge."""
        edges = self.edges
        if low >= edges[-1]:
            return [low], []
        cell = bisect_left(edges, low) - 1
        if cell < 0 or edges[cell + 1] == low:
            return list(edges[cell + 1 :]), list(self.cells[cell + 1 :])
        t = (low - edges[cell]) / (edges[cell + 1] - edges[cell])
        return [low, *edges[cell + 1 :]], [_cut(self.cells[cell], t), *self.cells[cell + 1 :]]


def _polynomial(coefficients: list[float], t: float) -> float:
    value = 0.0
    for c in reversed(coefficients):
        value = value * t + c
    return value


def _cut(coefficients: list[float], t: float) -> list[float]:
    """Coefficients of p(t + (1-t) u) in u: Horner's shift, in which every term stays positive."""
    degree = len(coefficients) - 1
    if t**degree > 1e-200:
        # p(t (1 + v)) with v = u (1-t)/t: a shift by 1 is running sums, which are fast
        shifted = [c * t**power for power, c in enumerate(coefficients)]
        shifted.reverse()
        for length in range(degree + 1, 1, -1):
            shifted[:length] = accumulate(shifted[:length])
        shifted.reverse()
        stretch = (1 - t) / t
    else:
        shifted = list(coefficients)
        for first in range(degree):
            for power in range(degree - 1, first - 1, -1):
                shifted[power] += t * shifted[power + 1]
        stretch = 1 - t
    return [c * stretch**power for power, c in enumerate(shifted)]
