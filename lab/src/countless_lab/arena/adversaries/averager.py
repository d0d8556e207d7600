"""Averages many readings of a noisy estimate."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass

from countless.randomness import SeededRandom
from countless_lab.arena.game import Adversary, Move, View


@dataclass(frozen=True)
class Averager(Adversary):
    """Idea: noise that is drawn again for every estimate averages out over many readings. The last site is the probe:
    feed it a step, read the estimate minus the total, repeat `reads` times, take the mean. Push a group by half a step
    between two readings. If the mean rose, the group has reported and is overestimated, so leave it; if not, push on.

    Sees: the answers. Must beat: `fresh-noise`, which adds new noise to every estimate.
    """

    name = "averager"
    must_beat = "fresh-noise"
    ranges = {"reads": (1, 40), "group": (1, 16)}

    reads: int = 8
    group: int = 1

    def moves(self, view: View, rng: SeededRandom) -> Iterator[Move]:
        size = max(1, round(self.group))
        before = yield from self._read(view)
        while True:
            for first in range(0, max(1, view.sites - 1), size):
                members = range(first, min(first + size, max(1, view.sites - 1)))
                yield from self._push(view, members)
                after = yield from self._read(view)
                if after < before:
                    yield from self._push(view, members)
                    after = yield from self._read(view)
                before = after

    def _read(self, view: View) -> Generator[Move, None, float]:
        """The mean of estimate minus total."""
        lead = 0.0
        reads = max(1, round(self.reads))
        for _ in range(reads):
            yield Move(view.sites - 1, view.step or 1)
            lead += view.estimate - view.total
        return lead / reads

    def _push(self, view: View, members: range) -> Iterator[Move]:
        for site in members:
            yield Move(site, max(1, view.step // 2))
