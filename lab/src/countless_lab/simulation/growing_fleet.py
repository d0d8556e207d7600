"""A fleet that grows all the time: half of the sites join one after the other."""

from countless.randomness import SeededRandom
from countless_lab.simulation.cyclic import CyclicStream
from countless_lab.simulation.stream import Stream


class GrowingFleet(Stream):
    """Uniform traffic; a new site takes half of the load from one older site.

    Until new site `old + j` joins, its events happen at site `j`, its substitute. So the traffic is a uniform cyclic
    stream over all sites, with the sites that have not joined yet replaced by their substitutes.
    """

    def __init__(self, sites: int, events: int, rng: SeededRandom) -> None:
        self.sites = sites
        late = sites // 2
        self.fleet = sites - late
        self.arrivals = [(events * (j + 1) // (late + 1), self.fleet + j) for j in range(late)]
        self._traffic = CyclicStream(sites, [(site, 1) for site in rng.shuffled(range(sites))], rng)
        # Events of each new site that happened at its substitute.
        self._covered = [self._traffic.count(site, number) for number, site in self.arrivals]

    def site_at(self, number: int) -> int:
        site = self._traffic.site_at(number)
        late = site - self.fleet
        return site if late < 0 or number > self.arrivals[late][0] else late

    def count(self, site: int, number: int) -> int:
        late = site - self.fleet
        if late >= 0:
            return max(0, self._traffic.count(site, number) - self._covered[late])
        own = self._traffic.count(site, number)
        if site >= len(self._covered):
            return own
        return own + min(self._covered[site], self._traffic.count(self.fleet + site, number))

    def when(self, site: int, count: int) -> int | None:
        """For a substitute: the count-th of two merged sequences, whose counts differ by at most one event."""
        late = site - self.fleet
        if late >= 0:
            return self._traffic.when(site, self._covered[late] + count)
        if site >= len(self._covered):
            return self._traffic.when(site, count)
        # The c-th smallest of a union is the minimum, over all ways to take c in all, of the later of the last two.
        shares = {min(self._covered[site], share) for share in ((count - 1) // 2, count // 2, (count + 1) // 2)}
        return min(max(self._at(site, count - share), self._at(self.fleet + site, share)) for share in shares)

    def _at(self, site: int, count: int) -> int:
        return self._traffic.when(site, count) or 0 if count else 0
