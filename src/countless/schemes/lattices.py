"""Secret lattices, one for each slot of a round: what `lattice` and `dithered` share (SPEC 3.3).

A site on a lattice of `step` with a uniform secret offset has, at every count, an error - last lattice point plus half
a step, minus count - that is uniform on ± (step-1)/2. Slots without a site have an offset too: a site that joins gets
it shifted to its count, so that nothing the coordinator adds up moves when it does.
"""

from countless.core.dice import Dice
from countless.core.paces import Lattice


class Lattices:
    """The lattices of one round."""

    __slots__ = ("_dice", "_lattices", "step")

    def __init__(self, step: int, slots: int, dice: Dice) -> None:
        self.step = step
        self._dice = dice
        self._lattices = [Lattice(step, dice.below(step)) for _ in range(slots)]

    def __len__(self) -> int:
        return len(self._lattices)

    def __getitem__(self, slot: int) -> Lattice:
        return self._lattices[slot]

    def shift(self, slot: int, count: int) -> None:
        """Move a free slot's lattice so that it lies around `count` as it lay around 0."""
        self._lattices[slot] = Lattice(self.step, (self._lattices[slot].offset + count) % self.step)

    def redraw(self, slot: int) -> Lattice:
        """A fresh secret for a slot whose old one the public has just learnt."""
        lattice = self._lattices[slot] = Lattice(self.step, self._dice.below(self.step))
        return lattice
