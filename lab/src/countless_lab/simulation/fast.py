"""The fast engine: the reference world, which skips from report to report.

Sites, coordinator and network are those of `World`; only the events without a report are left out. A heap holds, for
every site, the event at which its trigger will fire. The earliest is played. Before a site receives a message it is
brought to the count that it has by then, which the stream knows without playing. So the transcript is the reference
transcript, the cost grows with the messages, and the memory with the sites.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from countless.core.estimator import Scheme
from countless.core.messages import DownMessage, SiteId, UpMessage
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.inprocess.world import Tap
from countless.randomness import SeededRandom
from countless_lab.simulation.referee import Referee
from countless_lab.simulation.stream import Stream
from countless_lab.simulation.world import COUNTER, World

_NEVER = 0
PROGRESS_REPORTS = 4096  # between two calls of `progress`


class FastWorld(World):
    """One counter over one stream: the world after the last event of `run`, and the `referee` of all events so far.

    >>> from countless_lab.simulation.registry import stream_named
    >>> fast = FastWorld("auto", stream_named("uniform", 100, 10**9, seed=1), alpha=0.05, delta=0.05, seed=1)
    >>> fast.run(10**9)
    >>> fast.total, fast.referee.violated_at, fast.messages.total < 50_000
    (1000000000, None, True)
    """

    def __init__(
        self,
        scheme: str | Scheme,
        stream: Stream,
        *,
        alpha: float,
        delta: float,
        seed: int,
        adversary: str = "adaptive",
        tap: Tap | None = None,
        count_bytes: bool = False,
    ) -> None:
        super().__init__(
            scheme,
            range(stream.fleet),
            alpha=alpha,
            delta=delta,
            seed=seed,
            adversary=adversary,
            tap=tap,
            count_bytes=count_bytes,
        )
        self._stream = stream
        self._joined = 0  # how many of the stream's arrivals
        self._moved: list[int] = []  # sites whose next report may have changed
        self._heap: list[int] = []  # (event, site) packed into one number; may hold events that are no longer due
        self._site_bits = stream.sites.bit_length()
        self.referee = Referee(alpha)
        self._due = [_NEVER] * stream.sites  # the event of each site's next report
        self._moved.extend(range(stream.fleet))
        self._reschedule()

    def debug_state(self) -> dict[str, int]:
        return {"heap": len(self._heap)}

    def run(self, events: int, progress: Callable[[int], None] | None = None) -> None:
        """Play up to event number `events`; `progress` is called from time to time with the number of an event."""
        arrivals = self._stream.arrivals
        while self._joined < len(arrivals) and arrivals[self._joined][0] <= events:
            number, name = arrivals[self._joined]
            self._play(number, progress)
            self._joined += 1
            self._moved.append(name)
            self.join(name)
            self._reschedule()
            self.referee.judge(self.estimate, self.total)
        self._play(events, progress)

    def _play(self, until: int, progress: Callable[[int], None] | None) -> None:
        due, sites, judge = self._due, self._sites, self.referee.judge
        end, mask, reports = (until + 1) << self._site_bits, (1 << self._site_bits) - 1, 0
        while self._heap and self._heap[0] < end:
            number, index = self._heap[0] >> self._site_bits, heappop(self._heap) & mask
            if due[index] != number:
                continue
            judge(self.estimate, number - 1)
            self.total = number
            site = sites[index]
            self._moved.append(index)
            self.send(site, site.advance(site.next_at))
            judge(self.estimate, number)
            self._reschedule()
            reports += 1
            if progress is not None and reports % PROGRESS_REPORTS == 0:
                progress(number)
        self.total = until
        judge(self.estimate, until)

    def _new_site(self, site_id: SiteId, trigger: Trigger | None = None) -> Site:
        return StreamSite(self, site_id, self._rng.spawn("site", *site_id[:2]), trigger)

    def catch_up(self, site: Site) -> None:
        """Before it receives a message, a site gets the events that it has counted without a report."""
        index: int = site.site_id.site  # type: ignore[assignment]  # sites of a stream are numbers
        site.count = self._stream.count(index, self.total)
        self._moved.append(index)

    def _reschedule(self) -> None:
        due, sites, when, bits = self._due, self._sites, self._stream.when, self._site_bits
        for index in self._moved:
            due[index] = when(index, sites[index].next_at) or _NEVER
        if 4 * len(self._moved) > len(sites) or len(self._heap) > 4 * len(sites) + 100:
            self._heap = [number << bits | index for index, number in enumerate(due) if number]
            heapify(self._heap)
        else:
            for index in self._moved:
                if due[index]:
                    heappush(self._heap, due[index] << bits | index)
        self._moved.clear()


class StreamSite(Site):
    """A site of a `FastWorld`."""

    __slots__ = ("_world",)

    def __init__(self, world: FastWorld, site_id: SiteId, rng: SeededRandom, trigger: Trigger | None) -> None:
        super().__init__(COUNTER, site_id, rng, trigger=trigger)
        self._world = world

    def receive(self, message: DownMessage) -> tuple[UpMessage, ...]:
        self._world.catch_up(self)
        return super().receive(message)
