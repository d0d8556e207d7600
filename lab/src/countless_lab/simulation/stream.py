"""A stream of events that can be read forwards and by site.

Event 1, 2, 3, ... each happens at one site, so the number of an event is the true total after it, and no two events are
simultaneous. Both engines read the same sequence:

- the reference engine asks `site_at(number)` and plays every event;
- the fast engine asks `when(site, count)` for the event of the next report, and `count(site, number)` for what a site
  has counted by then. It never looks at the events in between.

All answers are exact integers. Streams do not react to published estimates; adversaries (`lab/arena`) do.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence


class Stream(ABC):
    """Sites are numbered from 0. The first `fleet` of them take part from the start, the others join later."""

    sites: int  # all that ever take part
    fleet: int
    arrivals: Sequence[tuple[int, int]] = ()  # (number of the last event before it joins, site), in order

    @abstractmethod
    def site_at(self, number: int) -> int:
        """The site of event `number` (from 1)."""

    @abstractmethod
    def when(self, site: int, count: int) -> int | None:
        """The number of the event that brings this site to `count` (from 1); None if that never happens."""

    @abstractmethod
    def count(self, site: int, number: int) -> int:
        """The number of events at this site among the events 1 .. number."""

    def order(self, events: int) -> Iterator[int]:
        return map(self.site_at, range(1, events + 1))
