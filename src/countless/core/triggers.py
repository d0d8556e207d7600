"""Paces: frozen values that turn a site's count into the next count at which it speaks (SPEC section 2).

A pace travels over the wire; a site holds one without knowing which scheme it serves. Each pace answers two questions,
as a `Cue`: where is the first point after the count at which I was adopted, and - once the count has reached that
point, perhaps far beyond it in one batch - how many points were passed, which was the last, and where is the next one.
So a batch is told as the same events one by one would have ended: by the last point they passed. Costs do not depend on
the size of a batch: O(1), except `Sampled`, which draws one gap for each crossing.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from countless.core.parameters import require_alpha
from countless.core.random_source import RandomSource
from countless.errors import InvalidParameter

# When to speak next, and what was just passed: (next_at, last, crossings, block), where `block` is the start of the
# current block, if the pace has any. A plain tuple, because one is made for every report.
TriggerState = tuple[int, int, int, int]


def _require_step(step: object) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise InvalidParameter("step", step, "an integer of at least 1")


@dataclass(frozen=True, slots=True)
class EveryNth:
    """Speak at every multiple of `step`. With step 1 the coordinator knows every event."""

    step: int = 1

    def __post_init__(self) -> None:
        _require_step(self.step)

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        """First multiple beyond `count`."""
        return count - count % self.step + self.step, count, 0, 0

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> TriggerState:
        """`count` has reached the cue's `next_at`."""
        step = self.step
        last = count - count % step
        return last + step, last, (last - state[0]) // step + 1, 0


@dataclass(frozen=True, slots=True)
class GeometricGrowth:
    """After a report at n, speak at floor(n (1+alpha)/(1-alpha)) + 1: the first count that n cannot stand for.

    The arithmetic is exact: alpha is the decimal that was written, so both ends of the wire agree for ever.
    """

    alpha: float
    _up: int = field(init=False, repr=False, compare=False)
    _down: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_alpha(self.alpha)
        ratio = Fraction(repr(self.alpha))
        object.__setattr__(self, "_up", ratio.denominator + ratio.numerator)
        object.__setattr__(self, "_down", ratio.denominator - ratio.numerator)

    def reach(self, count: int) -> int:
        """The largest count a report of `count` can stand for: floor(count (1+alpha)/(1-alpha))."""
        return count * self._up // self._down

    @property
    def exact_below(self) -> int:
        """The first count that stands for more than itself: up to it, every event is reported."""
        return -(-self._down // (self._up - self._down))

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        """The coordinator knows `count`: speak once it no longer describes the site."""
        return self.reach(count) + 1, count, 0, 0

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> TriggerState:
        """Reporting the count itself, not a point before it, gives the longest silence."""
        return self.reach(count) + 1, count, 1, 0


@dataclass(frozen=True, slots=True)
class BernoulliSampling:
    """Speak at each event independently with probability 1/step, by drawing the geometric gaps between heads."""

    step: int

    def __post_init__(self) -> None:
        _require_step(self.step)

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        """The coin of every event after `count` is fresh."""
        return count + rng.geometric(self.step), count, 0, 0

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> TriggerState:
        """One gap for each head up to `count`, and one more."""
        crossings, last = 1, state[0]
        point = last + rng.geometric(self.step)
        while point <= count:
            crossings, last, point = crossings + 1, point, point + rng.geometric(self.step)
        return point, last, crossings, 0


@dataclass(frozen=True, slots=True)
class OncePerBlock:
    """Speak once in each block of `step` events, at a uniform position; blocks start where the pace was adopted."""

    step: int

    def __post_init__(self) -> None:
        _require_step(self.step)

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        """The block (count, count + step]."""
        return self._enter(count, count, 0, rng)

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> TriggerState:
        """Blocks passed whole hold exactly one crossing each; only the last two of them need a draw."""
        next_at, _, _, block = state
        behind = (count - block - 1) // self.step
        if behind == 0:
            return self._enter(block + self.step, next_at, 1, rng)
        before = block + (behind - 1) * self.step
        last = next_at if behind == 1 else before + 1 + rng.randbelow(self.step)
        current = self._enter(before + self.step, last, behind, rng)
        if current[0] > count:
            return current
        return self._enter(current[3] + self.step, current[0], behind + 1, rng)

    def _enter(self, block: int, last: int, crossings: int, rng: RandomSource) -> TriggerState:
        return block + 1 + rng.randbelow(self.step), last, crossings, block


@dataclass(frozen=True, slots=True)
class OffsetMultiple:
    """Speak whenever the count is `offset` modulo `step`. The coordinator draws the offset: it is the secret."""

    step: int
    offset: int

    def __post_init__(self) -> None:
        _require_step(self.step)
        if isinstance(self.offset, bool) or not isinstance(self.offset, int) or not 0 <= self.offset < self.step:
            raise InvalidParameter("offset", self.offset, f"an integer from 0 to step - 1 = {self.step - 1}")

    def floor(self, count: int) -> int:
        """The last lattice point at or below `count`. It may be negative: clipping it would bias the estimate."""
        return count - (count - self.offset) % self.step

    def start(self, count: int, rng: RandomSource) -> TriggerState:
        """The first lattice point beyond `count`."""
        step = self.step
        return count - (count - self.offset) % step + step, count, 0, 0

    def advance(self, count: int, state: TriggerState, rng: RandomSource) -> TriggerState:
        """`count` has reached the cue's `next_at`."""
        step = self.step
        last = count - (count - self.offset) % step
        return last + step, last, (last - state[0]) // step + 1, 0


_set_step, _set_offset = OffsetMultiple.__dict__["step"].__set__, OffsetMultiple.__dict__["offset"].__set__


def unchecked_offset_multiple(step: int, offset: int) -> OffsetMultiple:
    """`Lattice(step, offset)` without asking whether 0 <= offset < step: a round makes one for every site."""
    lattice = object.__new__(OffsetMultiple)
    _set_step(lattice, step)
    _set_offset(lattice, offset)
    return lattice


Trigger = EveryNth | GeometricGrowth | BernoulliSampling | OncePerBlock | OffsetMultiple
