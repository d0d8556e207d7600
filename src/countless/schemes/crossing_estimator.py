"""The publisher of `blocks` and `sampled`: the start of the round plus one step for each crossing."""

from collections.abc import Sequence

from countless.core.estimator import OVER, Consequence, Publisher
from countless.core.ledger import Entry
from countless.core.triggers import Blocks, Pace, Sampled


class Crossings(Publisher):
    """N0 + step * (crossings + shift), until `reports` crossings have been counted."""

    def __init__(self, pace: Blocks | Sampled, reports: int, shift: int = 0) -> None:
        self._pace = pace
        self._step = pace.step
        self._left = reports
        self._shift = shift

    def pace(self, slot: int) -> Pace:
        """The same for all; each site draws for itself."""
        return self._pace

    def open(self, entries: Sequence[Entry], departed: int) -> None:
        """The exact total."""
        self.estimate: int = departed + sum(entry.base for entry in entries) + self._step * self._shift

    def hear(self, entry: Entry, before: int, crossings: int) -> Consequence | None:
        """One step for each crossing. The last one is not published: the plan covers those before it, and the
        synchronisation that it starts tells the total exactly.
        """
        self._left -= crossings
        if self._left <= 0:
            return OVER
        self.estimate += self._step * crossings
        return None

    def join(self, entry: Entry) -> None:
        """What the newcomer brings is known exactly."""
        self.estimate += entry.base

    def late(self, entry: Entry, before: int, gain: int) -> Consequence | None:
        """So is what a silent site counted before it adopted its pace."""
        self.estimate += gain
        return None
