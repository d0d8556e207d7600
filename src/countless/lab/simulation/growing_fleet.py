"""A fleet that grows all the time: half of the sites arrive one after the other (SPEC section 6)."""

from countless.lab.simulation.cyclic import CyclicStream
from countless.lab.simulation.stream import Stream
from countless.randomness import SeededRandom


class GrowingFleet(Stream):
    """Uniform traffic; a newcomer takes half of the load off one older site, as new servers do.

    Before it arrives, the events of newcomer `old + j` happen at site `j`. So the traffic is uniform laps over all
    sites, read through a rule that says who stands in for whom.
    """

    def __init__(self, sites: int, events: int, rng: SeededRandom) -> None:
        self.sites = sites
        late = sites // 2
        self.fleet = sites - late
        self.arrivals = [(events * (j + 1) // (late + 1), self.fleet + j) for j in range(late)]
        self._laps = CyclicStream(sites, [(site, 1) for site in shuffled(range(sites), rng)], rng)
        # What happened at a stand-in until the newcomer came: as many events as its own laps had brought it by then.
        self._covered = [self._laps.count(site, number) for number, site in self.arrivals]

    def site_at(self, number: int) -> int:
        """The site itself, or its stand-in."""
        site = self._laps.site_at(number)
        late = site - self.fleet
        return site if late < 0 or number > self.arrivals[late][0] else late

    def count(self, site: int, number: int) -> int:
        """For a newcomer, what comes after its arrival; for a stand-in, what comes to both."""
        late = site - self.fleet
        if late >= 0:
            return max(0, self._laps.count(site, number) - self._covered[late])
        own = self._laps.count(site, number)
        if site >= len(self._covered):
            return own
        return own + min(self._covered[site], self._laps.count(self.fleet + site, number))

    def when(self, site: int, count: int) -> int | None:
        """For a stand-in: the count-th of two merged sequences, which never differ by more than one event."""
        late = site - self.fleet
        if late >= 0:
            return self._laps.when(site, self._covered[late] + count)
        if site >= len(self._covered):
            return self._laps.when(site, count)
        # The c-th smallest of a union is the least, over all ways to take c in all, of the later of the two last ones.
        shares = {min(self._covered[site], share) for share in ((count - 1) // 2, count // 2, (count + 1) // 2)}
        return min(max(self._at(site, count - share), self._at(self.fleet + site, share)) for share in shares)

    def _at(self, site: int, count: int) -> int:
        return self._laps.when(site, count) or 0 if count else 0


def shuffled(items: range | list[int], rng: SeededRandom) -> list[int]:
    """The same items in random order."""
    order = list(items)
    for last in range(len(order) - 1, 0, -1):
        other = rng.randbelow(last + 1)
        order[last], order[other] = order[other], order[last]
    return order
