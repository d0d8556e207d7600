"""Triggers: at which counts a site reports. Frozen values that travel over the wire.

A trigger is a sequence of points. `start` finds the first point after the count at which the site adopts the trigger;
`advance`, called once the count has reached that point, finds how many points were passed, the last of them, and the
next. A batch therefore ends in the same state as its events one by one: `last` is the last point passed, never the
count after the batch. Both take constant time for any batch.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from countless.core.binomial import binomial
from countless.core.parameters import exact_fraction, require_alpha, require_integer
from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter


@dataclass(slots=True)
class TriggerState:
    """The position of a site among the points of its trigger. `advance` changes it in place."""

    next_at: int  # the next point
    last: int  # the last point passed; before the first, the count at which the trigger was adopted
    block: int = 0  # start of the current block, for `OncePerBlock`


def _require_step(step: object) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise InvalidParameter("step", step, "an integer of at least 1")


@dataclass(frozen=True, slots=True)
class EveryNth:
    """A point at every multiple of `step`. With step 1 the coordinator knows every event."""

    step: int = 1

    def __post_init__(self) -> None:
        _require_step(self.step)

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        return TriggerState(count - count % self.step + self.step, count)

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> int:
        last = count - count % self.step
        crossings = (last - state.next_at) // self.step + 1
        state.next_at, state.last = last + self.step, last
        return crossings


PHASES = 64
_MARKS = (2, 3, 4, 6, 9, 13)  # one for each bit of a phase
_MAX_MARKED_GAP = 20


@dataclass(frozen=True, slots=True)
class GeometricGrowth:
    """After a report of n, the next point is floor(n (1+alpha)/(1-alpha)) + extra + 1: n cannot stand for that count.

    Sites with the same traffic and the same phase would report at the same moments, and their errors would add up. So
    where the distance to the next point reaches the mark of a bit that is set in `phase`, the point is one event
    earlier, once: from there on the site is one event ahead of those without that bit.

    The arithmetic is exact: alpha is the decimal that was written, so both ends of the wire compute the same points.
    """

    alpha: float
    extra: int = 0
    phase: int = 0
    _up: int = field(init=False, repr=False, compare=False)
    _down: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_alpha(self.alpha)
        require_integer("extra", self.extra, 0)
        if isinstance(self.phase, bool) or not isinstance(self.phase, int) or not 0 <= self.phase < PHASES:
            raise InvalidParameter("phase", self.phase, f"an integer from 0 to {PHASES - 1}")
        ratio = exact_fraction(self.alpha)
        object.__setattr__(self, "_up", ratio.denominator + ratio.numerator)
        object.__setattr__(self, "_down", ratio.denominator - ratio.numerator)

    @property
    def growth(self) -> Fraction:
        """The further counts that a report stands for, for each event of its own: 2 alpha/(1-alpha)."""
        return Fraction(self._up - self._down, self._down)

    def max_count_covered(self, count: int) -> int:
        """The largest count that a report of `count` can stand for: floor(count (1+alpha)/(1-alpha)) + extra."""
        return count * self._up // self._down + self.extra

    def next_point(self, count: int) -> int:
        """The first point after a report of `count`."""
        point = count * self._up // self._down + self.extra + 1
        return point if point - count > _MAX_MARKED_GAP else point - self._is_moved(count, point - count)

    def _is_moved(self, count: int, gap: int) -> bool:
        """True if the gap reaches the mark of a bit of the phase here, and did not one gap earlier."""
        bit = sum(mark <= gap for mark in _MARKS) - 1
        if bit < 0 or not self.phase >> bit & 1:
            return False
        earlier = max(0, count + 1 - gap)
        return self.max_count_covered(earlier) + 1 - earlier < _MARKS[bit]

    @property
    def exact_below(self) -> int:
        """The first count that stands for more than itself: a site below it reports its next event."""
        return 0 if self.extra else -(-self._down // (self._up - self._down))

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        return TriggerState(self.next_point(count), count)

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> int:
        # The count itself, not a point before it, is reported: it covers the most events.
        point = count * self._up // self._down + self.extra + 1
        state.next_at = point if point - count > _MAX_MARKED_GAP else self.next_point(count)
        state.last = count
        return 1


_MAX_GAPS = 1000  # drawn one by one in a batch: they take about as long as one binomial number


@dataclass(frozen=True, slots=True)
class BernoulliSampling:
    """Each event is a point independently with probability 1/step; drawn as geometric gaps between points.

    Of a batch with many points only the last one and their number are drawn: coins have no direction, so from the end
    of the batch back to the last point is a geometric gap too, and the number of points before it is binomial.
    """

    step: int

    def __post_init__(self) -> None:
        _require_step(self.step)

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        return TriggerState(count + rng.geometric(self.step), count)

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> int:
        crossings, point = 0, state.next_at
        while point <= count and crossings < _MAX_GAPS:
            crossings += 1
            state.last = point
            point += rng.geometric(self.step)
        if point <= count:
            state.last = max(point, count + 1 - rng.geometric(self.step))
            crossings += 1
            if state.last > point:
                crossings += 1 + binomial(state.last - 1 - point, self.step, rng)
            point = count + rng.geometric(self.step)
        state.next_at = point
        return crossings


@dataclass(frozen=True, slots=True)
class OncePerBlock:
    """One point in each block of `step` events, at a uniform position. The first block starts at the adopted count."""

    step: int

    def __post_init__(self) -> None:
        _require_step(self.step)

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        return TriggerState(self._draw(count, rng), count, count)

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> int:
        # Every block passed whole has exactly one point; only the points of the last two blocks are drawn.
        crossings = (count - state.block - 1) // self.step
        if crossings:
            state.block += crossings * self.step
            state.last = state.next_at if crossings == 1 else self._draw(state.block - self.step, rng)
            state.next_at = self._draw(state.block, rng)
        if state.next_at <= count:
            crossings += 1
            state.last = state.next_at
            state.block += self.step
            state.next_at = self._draw(state.block, rng)
        return crossings

    def _draw(self, block: int, rng: RandomSource) -> int:
        return block + 1 + rng.randbelow(self.step)


@dataclass(frozen=True, slots=True)
class OffsetMultiple:
    """A point wherever the count is `offset` modulo `step`. The coordinator draws the offset, which is secret."""

    step: int
    offset: int

    def __post_init__(self) -> None:
        _require_step(self.step)
        if isinstance(self.offset, bool) or not isinstance(self.offset, int) or not 0 <= self.offset < self.step:
            raise InvalidParameter("offset", self.offset, f"an integer from 0 to step - 1 = {self.step - 1}")

    def floor(self, count: int) -> int:
        """The last point at or below `count`. It may be negative: clipping it would bias the estimate."""
        return count - (count - self.offset) % self.step

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        return TriggerState(self.floor(count) + self.step, count)

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> int:
        step = self.step
        last = count - (count - self.offset) % step
        crossings = (last - state.next_at) // step + 1
        state.next_at, state.last = last + step, last
        return crossings


Trigger = EveryNth | GeometricGrowth | BernoulliSampling | OncePerBlock | OffsetMultiple
