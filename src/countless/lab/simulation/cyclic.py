"""Streams in laps: one long pattern of runs, repeated, each time turned by a random amount (SPEC section 6).

A pattern is a list of runs (site, how many events in a row). The events of a lap are the pattern's, shifted
cyclically; so every lap brings every site the same number of events, in a random but related order. Memory is one
pattern, and every question is a binary search in it, however long the stream. What this is not: independent arrivals.
A site's count never strays from its share by more than a lap. Where that matters use `streams.independent`.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from countless.errors import InvalidParameter
from countless.lab.simulation.stream import Stream
from countless.randomness import SeededRandom

ROTATIONS = 1021  # random turns are drawn once and used again: so many laps are more than anything here can notice


class CyclicStream(Stream):
    """A pattern for ever. Without dice every lap is the pattern as it is.

    >>> laps = Laps(3, [(2, 1), (0, 3), (2, 1)])
    >>> list(laps.order(7)), laps.when(2, 3), laps.count(0, 8)
    ([2, 0, 0, 0, 2, 2, 0], 6, 5)
    """

    def __init__(self, sites: int, runs: Iterable[tuple[int, int]], rng: SeededRandom | None = None) -> None:
        self.sites = self.fleet = sites
        self._owner = array("q")  # the site of each run
        self._begin = array("q")  # and the position of its first event
        length = 0
        for site, size in runs:
            self._owner.append(site)
            self._begin.append(length)
            length += size
        if length < 1:
            raise InvalidParameter("runs", length, "a pattern of at least one event")
        self.length = length
        self._index_runs()
        turns = None if rng is None else rng.spawn("turns")
        self._rotations = [0] if turns is None else [turns.randbelow(length) for _ in range(ROTATIONS)]

    def _index_runs(self) -> None:
        """The same runs, site by site: a site's runs are the rows first[site] .. first[site + 1] - 1."""
        runs = sorted(range(len(self._owner)), key=self._owner.__getitem__)
        self._first = array("q", [0]) * (self.sites + 1)
        self._share = array("q", [0]) * self.sites  # events of each site in a lap
        self._starts = array("q")  # position of a run's first event in the lap
        self._ranks = array("q")  # events of the site before this run
        for run in runs:
            site, start = self._owner[run], self._begin[run]
            end = self._begin[run + 1] if run + 1 < len(self._begin) else self.length
            self._starts.append(start)
            self._ranks.append(self._share[site])
            self._share[site] += end - start
            self._first[site + 1] = len(self._starts)
        for site in range(self.sites):
            self._first[site + 1] = max(self._first[site + 1], self._first[site])

    def _rotation(self, lap: int) -> int:
        """By how much a lap is turned."""
        return self._rotations[lap % len(self._rotations)]

    def site_at(self, number: int) -> int:
        """Turn back, and look it up."""
        lap, position = divmod(number - 1, self.length)
        return self._owner[bisect_right(self._begin, (position - self._rotation(lap)) % self.length) - 1]

    def when(self, site: int, count: int) -> int | None:
        """Which lap, and where in it."""
        share = self._share[site]
        if share == 0:
            return None
        lap, rank = divmod(count - 1, share)
        turn = self._rotation(lap)
        if share == 1:
            position = (self._starts[self._first[site]] + turn) % self.length
        else:
            late = share - self._before(site, self.length - turn)  # what the turn brings to the front
            if rank < late:
                position = self._position(site, share - late + rank) - (self.length - turn)
            else:
                position = self._position(site, rank - late) + turn
        return lap * self.length + position + 1

    def count(self, site: int, number: int) -> int:
        """Whole laps, and a part of one."""
        lap, passed = divmod(number, self.length)
        share, turn = self._share[site], self._rotation(lap)
        if share == 1:
            return lap + ((self._starts[self._first[site]] + turn) % self.length < passed)
        cut = self.length - turn
        if passed <= turn:
            part = self._before(site, cut + passed) - self._before(site, cut)
        else:
            part = share - self._before(site, cut) + self._before(site, passed - turn)
        return lap * share + part

    def _before(self, site: int, position: int) -> int:
        """Events of the site before this position of the pattern."""
        first, end = self._first[site], self._first[site + 1]
        run = bisect_left(self._starts, position, first, end) - 1
        if run < first:
            return 0
        rank = self._ranks[run]
        most = self._ranks[run + 1] if run + 1 < end else self._share[site]
        return min(most, rank + position - self._starts[run])

    def _position(self, site: int, rank: int) -> int:
        """The place in the pattern of the site's event after `rank` others."""
        run = bisect_right(self._ranks, rank, self._first[site], self._first[site + 1]) - 1
        return self._starts[run] + rank - self._ranks[run]
