"""Cyclic streams: one pattern of runs, repeated, each cycle rotated by a random amount.

A pattern is a list of runs (site, number of events in a row). A cycle is the pattern shifted cyclically, so every cycle
brings every site the same number of events, in a random but related order. Memory is one pattern, and every query is a
binary search in it, however long the stream is. Arrivals are therefore not independent: a site's count differs from its
share by less than a cycle.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from countless.errors import InvalidParameter
from countless.randomness import SeededRandom
from countless_lab.simulation.stream import Stream

ROTATIONS = 1021  # random rotations are drawn once and reused after so many cycles


class CyclicStream(Stream):
    """A pattern without end. Without `rng` no cycle is rotated.

    >>> stream = CyclicStream(3, [(2, 1), (0, 3), (2, 1)])
    >>> list(stream.order(7)), stream.when(2, 3), stream.count(0, 8)
    ([2, 0, 0, 0, 2, 2, 0], 6, 5)
    """

    def __init__(self, sites: int, runs: Iterable[tuple[int, int]], rng: SeededRandom | None = None) -> None:
        self.sites = self.fleet = sites
        self._run_site = array("q")
        self._run_start = array("q")  # position of the run's first event in the pattern
        length = 0
        for site, size in runs:
            self._run_site.append(site)
            self._run_start.append(length)
            length += size
        if length < 1:
            raise InvalidParameter("runs", length, "a pattern of at least one event")
        self.length = length
        self._index_runs()
        turns = None if rng is None else rng.spawn("turns")
        self._rotations = [0] if turns is None else [turns.randbelow(length) for _ in range(ROTATIONS)]

    def _index_runs(self) -> None:
        """The same runs, sorted by site: those of a site are the rows first[site] .. first[site + 1] - 1."""
        runs = sorted(range(len(self._run_site)), key=self._run_site.__getitem__)
        self._first = array("q", [0]) * (self.sites + 1)
        self._share = array("q", [0]) * self.sites  # events of each site in a cycle
        self._starts = array("q")  # position of a run's first event in the pattern
        self._ranks = array("q")  # events of the site before this run
        for run in runs:
            site, start = self._run_site[run], self._run_start[run]
            end = self._run_start[run + 1] if run + 1 < len(self._run_start) else self.length
            self._starts.append(start)
            self._ranks.append(self._share[site])
            self._share[site] += end - start
            self._first[site + 1] = len(self._starts)
        for site in range(self.sites):
            self._first[site + 1] = max(self._first[site + 1], self._first[site])

    def _rotation(self, cycle: int) -> int:
        return self._rotations[cycle % len(self._rotations)]

    def site_at(self, number: int) -> int:
        cycle, position = divmod(number - 1, self.length)
        return self._run_site[bisect_right(self._run_start, (position - self._rotation(cycle)) % self.length) - 1]

    def when(self, site: int, count: int) -> int | None:
        share = self._share[site]
        if share == 0:
            return None
        cycle, rank = divmod(count - 1, share)
        rotation = self._rotation(cycle)
        if share == 1:
            position = (self._starts[self._first[site]] + rotation) % self.length
        else:
            moved = share - self._before(site, self.length - rotation)  # events that the rotation moves to the front
            if rank < moved:
                position = self._position(site, share - moved + rank) - (self.length - rotation)
            else:
                position = self._position(site, rank - moved) + rotation
        return cycle * self.length + position + 1

    def count(self, site: int, number: int) -> int:
        cycle, passed = divmod(number, self.length)
        share, rotation = self._share[site], self._rotation(cycle)
        if share == 1:
            return cycle + ((self._starts[self._first[site]] + rotation) % self.length < passed)
        cut = self.length - rotation
        if passed <= rotation:
            part = self._before(site, cut + passed) - self._before(site, cut)
        else:
            part = share - self._before(site, cut) + self._before(site, passed - rotation)
        return cycle * share + part

    def _before(self, site: int, position: int) -> int:
        """Events of the site before this position of the pattern."""
        first, end = self._first[site], self._first[site + 1]
        run = bisect_left(self._starts, position, first, end) - 1
        if run < first:
            return 0
        rank = self._ranks[run]
        after_run = self._ranks[run + 1] if run + 1 < end else self._share[site]
        return min(after_run, rank + position - self._starts[run])

    def _position(self, site: int, rank: int) -> int:
        """The position in the pattern of the site's event that has `rank` events of the site before it."""
        run = bisect_right(self._ranks, rank, self._first[site], self._first[site + 1]) - 1
        return self._starts[run] + rank - self._ranks[run]
