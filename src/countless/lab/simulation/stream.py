"""What a stream is to the simulated worlds: a numbered sequence of events that can be read backwards (SPEC section 6).

Event 1, 2, 3, ... each happens at one site. So the number of the event *is* the true total, and no two events tie. Two
ways to read the same sequence make the two engines possible:

- forwards, `site_at(number)`: the reference engine takes every event in turn;
- backwards, `when(site, count)` and `count(site, number)`: the fast engine asks at which event a site will speak next
  and what the others have counted by then, and never looks at the events in between.

All of it is integers, so both engines agree to the last event. Streams do not react to the answers: adversaries, which
do, live in the arena. Imports nothing but the standard library.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence


class Stream(ABC):
    """Sites are numbered from 0; the first `fleet` of them are there from the start, the others arrive."""

    sites: int  # all that ever take part
    fleet: int
    arrivals: Sequence[tuple[int, int]] = ()  # (after which event, which site), in order

    @abstractmethod
    def site_at(self, number: int) -> int:
        """The site of event `number` (from 1)."""

    @abstractmethod
    def when(self, site: int, count: int) -> int | None:
        """The number of the event that brings this site to `count` (from 1); None if it never counts so far."""

    @abstractmethod
    def count(self, site: int, number: int) -> int:
        """How many of the events 1 .. number happen at this site."""

    def order(self, events: int) -> Iterator[int]:
        """The sites of the first `events` events."""
        return map(self.site_at, range(1, events + 1))
