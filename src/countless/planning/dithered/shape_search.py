"""The shape of a `dithered` round: a quick model of the cost, and a search over it.

Nothing here has to be exact: `dithered_schedule.solve` turns every shape into a round with a proof, so a poor model
costs messages, never safety. The model replaces the exact volumes by their growth per phase. For points at distance T
in windows of width x T the volume grows per phase by the factor T exp(g(x)); g and the end effects were fitted to exact
volumes (largest error 0.006 nats for g, 0.15 for the rest, 1 <= x <= 32).
"""

from dataclasses import dataclass
from math import exp, inf, log, sqrt

from countless.planning.dithered.plan import messages_per_efold
from countless.planning.dithered.schedule import MAX_PHASES, Shape
from countless.planning.dithered.tails import quick_slack
from countless.planning.search import nelder_mead

_BLOCKS = 40


@dataclass(frozen=True, slots=True)
class SearchPoint:
    """E, the dither as a multiple of the length, its taper, the number of phases."""

    allowance: float
    dither: float
    taper: float
    phases: int


@dataclass(frozen=True, slots=True)
class _Block:
    """Equal phases in a row."""

    length: float
    dither: float
    late: float
    early: float

    @property
    def overlap(self) -> float:
        """Width of a window of update times over the distance between two."""
        return max(1.0, (self.dither + self.late + self.early + 1) / self.length)

    @property
    def threshold_nats(self) -> float:
        """ln of the volume that one more threshold adds to the polytope."""
        return log(self.length) + _growth(self.dither / self.length)

    @property
    def window_end_nats(self) -> float:
        """ln of the volume of all later thresholds over that of those above the end of a window.

        That is dither/length - 1.1. Only 0.4 of it counts: with all of it the model prefers too wide dithers.
        """
        return 0.4 * max(0.0, self.dither / self.length - 1.1)

    @property
    def price(self) -> float:
        """Nats by which one such phase multiplies the union over transcripts."""
        return max(0.0, log(self.length) + _growth(self.overlap) - self.threshold_nats)


def _growth(x: float) -> float:
    return log(x) if x < 1 else 1 - 4.75 / (x + 1.18) ** 2


def _end_effect(x: float) -> float:
    """ln of the volume over its growth: most transcripts end late."""
    return max(0.0, x + 2.62 - 3 * log(x + 2.5))


def model_cost(sites: int, alpha: float, eta: float, at: SearchPoint) -> tuple[float, list[tuple[float, float]]]:
    """Messages per e-fold by the model, and the (length, dither) of each phase up to the cheapest end."""
    start = at.allowance / alpha
    span = 2 * alpha / (1 - alpha)
    share = log(2 * at.phases / eta)
    position = price = 0.0
    tilts = (1.0, 1.0)
    block = _Block(max(0.3 * at.allowance / at.dither, 1.5), 0.3 * at.allowance, 0.0, 0.0)
    best = (inf, 0)
    shape: list[tuple[float, float]] = []
    while len(shape) < at.phases:
        done = len(shape)
        saturation = min(1.0, done / block.overlap)
        nats = share + price - block.threshold_nats + saturation * _end_effect(block.overlap)
        late, tilt = quick_slack(sites, nats - min(block.window_end_nats, at.phases - done), tilts[0])
        early, tilt_early = quick_slack(sites, nats - saturation * (block.overlap - 1), tilts[1])
        tilts = (tilt, tilt_early)
        behind = block.dither / 2 + early if done else 0.0
        room = span * (start + position - behind) - late - early
        times = max(at.dither * (1 + at.taper * (1 - 2 * done / at.phases)), 0.02)
        length = max(room / (1 + times), 1.1)
        dither = room - length
        if dither < 1:
            break
        if not done:
            length += early + dither / 2  # the round starts at an exact total: `behind` is 0
        block = _Block(length, dither, late, early)
        count = min(1 + done // 8, max(1, at.phases // _BLOCKS), at.phases - done)
        shape.extend([(length, dither)] * count)
        price += count * block.price
        position += count * length
        cost = messages_per_efold(sites, alpha, at.allowance, position, len(shape))
        if cost < best[0]:
            best = (cost, len(shape))
        elif cost > 1.05 * best[0]:
            break
    return best[0], shape[: best[1]]


def find_shape(sites: int, alpha: float, eta: float) -> Shape | None:
    """The best shape by the model, or None if it finds none (a certain round is then as cheap)."""

    def search_point(point: list[float]) -> SearchPoint:
        phases = max(1, min(MAX_PHASES, round(exp(min(point[2], 20.0)))))
        return SearchPoint(exp(point[0]), exp(max(point[1], -5.0)), max(-3.0, min(3.0, point[3])), phases)

    def cost(point: list[float]) -> float:
        return model_cost(sites, alpha, eta, search_point(point))[0]

    scale = sqrt(sites * (1 + log(1 / eta) / 9) / 2)
    first = min(
        (
            [log(scale * size), log(dither), log(phases), 0.5]
            for size in (0.35, 0.6, 1.0, 1.5, 2.0, 2.7, 3.6, 5.0)
            for dither in (0.5, 2.0, 6.0)
            for phases in (20, 80, 300)
        ),
        key=cost,
    )
    if cost(first) == inf:
        return None
    best = nelder_mead(cost, first, [0.1, 0.3, 0.3, 0.3], 60)
    shape = model_cost(sites, alpha, eta, search_point(best))[1]
    return _smooth(shape)


def _smooth(shape: list[tuple[float, float]]) -> Shape:
    """The model's piecewise constant shape, interpolated between the middles of its blocks; except the first phase."""
    middles: list[tuple[float, tuple[float, float]]] = []
    index = 1
    while index < len(shape):
        end = index
        while end < len(shape) and shape[end] == shape[index]:
            end += 1
        middles.append(((index + end - 1) / 2, shape[index]))
        index = end
    lengths, dithers = [shape[0][0]], [shape[0][1]]
    block = 0
    for index in range(1, len(shape)):
        while block + 2 < len(middles) and middles[block + 1][0] < index:
            block += 1
        left, right = middles[block], middles[min(block + 1, len(middles) - 1)]
        mix = 0.0 if left is right else max(0.0, min(1.0, (index - left[0]) / (right[0] - left[0])))
        lengths.append(left[1][0] + mix * (right[1][0] - left[1][0]))
        dithers.append(left[1][1] + mix * (right[1][1] - left[1][1]))
    return Shape(tuple(lengths), tuple(dithers))
