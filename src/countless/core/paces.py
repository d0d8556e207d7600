"""Paces: frozen values that turn a site's count into the next count at which it speaks (SPEC section 2).

A pace travels over the wire; a site holds one without knowing which scheme it serves. Each pace answers two questions,
as a `Cue`: where is the first point after the count at which I was adopted, and - once the count has reached that
point, perhaps far beyond it in one batch - how many points were passed, which was the last, and where is the next one.
So a batch is told as the same events one by one would have ended: by the last point they passed. Costs do not depend on
the size of a batch: O(1), except `Sampled`, which draws one gap for each crossing.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from countless.core.dice import Dice
from countless.errors import InvalidParameter


class Cue(NamedTuple):
    """When to speak next, and what was just passed. `block` is where the current block starts, if the pace has any."""

    next_at: int
    last: int
    crossings: int = 0
    block: int = 0


def _require_step(step: object) -> None:
    if isinstance(step, bool) or not isinstance(step, int) or step < 1:
        raise InvalidParameter("step", step, "an integer of at least 1")


@dataclass(frozen=True, slots=True)
class Every:
    """Speak at every multiple of `step`. With step 1 the coordinator knows every event."""

    step: int = 1

    def __post_init__(self) -> None:
        _require_step(self.step)

    def first(self, count: int, dice: Dice) -> Cue:
        """First multiple beyond `count`."""
        return Cue(count - count % self.step + self.step, count)

    def after(self, count: int, cue: Cue, dice: Dice) -> Cue:
        """`count` has reached `cue.next_at`."""
        last = count - count % self.step
        return Cue(last + self.step, last, (last - cue.next_at) // self.step + 1)


@dataclass(frozen=True, slots=True)
class Growth:
    """After a report at n, speak at floor(n (1+alpha)/(1-alpha)) + 1: the first count that n cannot stand for.

    The arithmetic is exact: alpha is the decimal that was written, so both ends of the wire agree for ever.
    """

    alpha: float
    _up: int = field(init=False, repr=False, compare=False)
    _down: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (isinstance(self.alpha, float) and 0 < self.alpha < 1):
            raise InvalidParameter("alpha", self.alpha, "a number between 0 and 1, both excluded")
        ratio = Fraction(repr(self.alpha))
        object.__setattr__(self, "_up", ratio.denominator + ratio.numerator)
        object.__setattr__(self, "_down", ratio.denominator - ratio.numerator)

    def reach(self, count: int) -> int:
        """The largest count a report of `count` can stand for: floor(count (1+alpha)/(1-alpha))."""
        return count * self._up // self._down

    @property
    def loud(self) -> int:
        """The first count that stands for more than itself: up to it, every event is reported."""
        return -(-self._down // (self._up - self._down))

    def first(self, count: int, dice: Dice) -> Cue:
        """The coordinator knows `count`: speak once it no longer describes the site."""
        return Cue(self.reach(count) + 1, count)

    def after(self, count: int, cue: Cue, dice: Dice) -> Cue:
        """Reporting the count itself, not a point before it, gives the longest silence."""
        return Cue(self.reach(count) + 1, count, 1)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Speak at each event independently with probability 1/step, by drawing the geometric gaps between heads."""

    step: int

    def __post_init__(self) -> None:
        _require_step(self.step)

    def first(self, count: int, dice: Dice) -> Cue:
        """The coin of every event after `count` is fresh."""
        return Cue(count + dice.gap(self.step), count)

    def after(self, count: int, cue: Cue, dice: Dice) -> Cue:
        """One gap for each head up to `count`, and one more."""
        crossings, last, point = 1, cue.next_at, cue.next_at + dice.gap(self.step)
        while point <= count:
            crossings, last, point = crossings + 1, point, point + dice.gap(self.step)
        return Cue(point, last, crossings)


@dataclass(frozen=True, slots=True)
class Blocks:
    """Speak once in each block of `step` events, at a uniform position; blocks start where the pace was adopted."""

    step: int

    def __post_init__(self) -> None:
        _require_step(self.step)

    def first(self, count: int, dice: Dice) -> Cue:
        """The block (count, count + step]."""
        return self._enter(count, count, 0, dice)

    def after(self, count: int, cue: Cue, dice: Dice) -> Cue:
        """Blocks passed whole hold exactly one crossing each; only the last two of them need a draw."""
        behind = (count - cue.block - 1) // self.step
        if behind == 0:
            return self._enter(cue.block + self.step, cue.next_at, 1, dice)
        before = cue.block + (behind - 1) * self.step
        last = cue.next_at if behind == 1 else before + 1 + dice.below(self.step)
        current = self._enter(before + self.step, last, behind, dice)
        if current.next_at > count:
            return current
        return self._enter(current.block + self.step, current.next_at, behind + 1, dice)

    def _enter(self, block: int, last: int, crossings: int, dice: Dice) -> Cue:
        return Cue(block + 1 + dice.below(self.step), last, crossings, block)


@dataclass(frozen=True, slots=True)
class Lattice:
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

    def first(self, count: int, dice: Dice) -> Cue:
        """The first lattice point beyond `count`."""
        return Cue(self.floor(count) + self.step, count)

    def after(self, count: int, cue: Cue, dice: Dice) -> Cue:
        """`count` has reached `cue.next_at`."""
        last = self.floor(count)
        return Cue(last + self.step, last, (last - cue.next_at) // self.step + 1)


Pace = Every | Growth | Sampled | Blocks | Lattice
