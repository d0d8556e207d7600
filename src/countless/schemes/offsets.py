"""Secret lattices, one for each slot of a round: what `lattice` and `dithered` share.

A site on a lattice with a uniform secret offset has, at every count, an error - last lattice point plus half its step,
minus count - that is uniform on ± (step-1)/2. Slots without a site have an offset too: a site that joins gets it
shifted to its count, so that its joining does not change the sum of the estimates.
"""

from collections.abc import Sequence

from countless.core.random_source import RandomSource
from countless.core.triggers import OffsetMultiple


class OffsetTable:
    """The lattices of one round, kept as their offsets."""

    __slots__ = ("_offsets", "steps")

    def __init__(self, steps: Sequence[int], rng: RandomSource) -> None:
        self.steps = steps
        self._offsets = [rng.randbelow(step) for step in steps]

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, slot: int) -> OffsetMultiple:
        return OffsetMultiple(self.steps[slot], self._offsets[slot])

    def floor(self, slot: int, count: int) -> int:
        """The last point of this slot's lattice at or below `count`; it may be negative."""
        return count - (count - self._offsets[slot]) % self.steps[slot]

    def gain(self, slot: int, before: int, now: int) -> int:
        """The way of the last point at or below the count, while the count went from `before` to `now`."""
        step, offset = self.steps[slot], self._offsets[slot]
        return now - (now - offset) % step - before + (before - offset) % step

    def shift(self, slot: int, count: int) -> None:
        """Move a free slot's lattice so that it lies around `count` as it lay around 0."""
        self._offsets[slot] = (self._offsets[slot] + count) % self.steps[slot]

    def place(self, slot: int, point: int) -> None:
        """Move a slot's lattice so that this is one of its points: the moved answer has just revealed the old one."""
        self._offsets[slot] = point % self.steps[slot]
