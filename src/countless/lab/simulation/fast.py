"""The fast engine: the reference world, skipping from report to report (SPEC section 6).

There is no second implementation of anything. The sites, the coordinator and the network are the production ones; only
the events in which nobody speaks are left out. A heap holds, for every site, the event at which its pace will make it
speak; the earliest one is played, and whoever is sent a message in consequence is first brought to the count it has by
then, which the stream can tell without playing. So the transcript is the reference transcript, the cost grows with the
messages, and memory with the sites.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from countless.core.answer import Answer
from countless.core.coordinator import Coordinator
from countless.core.estimator import Scheme
from countless.core.messages import DownMessage, SiteId, UpMessage
from countless.core.parameters import require_alpha, require_probability
from countless.core.site import Site
from countless.core.triggers import Trigger
from countless.inprocess.network import MemoryNetwork, Messages, Tap
from countless.lab.simulation.referee import Referee
from countless.lab.simulation.stream import Stream
from countless.lab.simulation.world import COUNTER
from countless.randomness import SeededRandom
from countless.schemes.registry import require_adversary, scheme_named

_NEVER = 0
_NOTICE = 4096  # so many reports between two calls of `progress`


class FastWorld:
    """One counter over one stream.

    >>> from countless.lab.simulation.registry import stream_named
    >>> world = FastWorld("auto", stream_named("uniform", 100, 10**9, seed=1), alpha=0.05, delta=0.05, seed=1)
    >>> world.run(10**9)
    >>> world.total, world.referee.inside, world.messages.total < 50_000
    (1000000000, True, True)
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
    ) -> None:
        require_alpha(alpha)
        require_probability("delta", delta)
        require_adversary(adversary)
        self.total = 0  # the number of the last event, which is the truth
        self.referee = Referee(float(alpha))
        self._rng = SeededRandom(seed)
        self._stream = stream
        self._arrived = 0
        self.coordinator = Coordinator(
            COUNTER,
            scheme if isinstance(scheme, Scheme) else scheme_named(scheme, adversary),
            self._rng.spawn("coordinator"),
            alpha=float(alpha),
            delta=float(delta),
            fleet=[SiteId(name) for name in range(stream.fleet)],
        )
        self._network = MemoryNetwork(self.coordinator, self._receive, tap)
        self._sites: list[Site] = []
        self._due: list[int] = []  # the event at which each site speaks
        self._heap: list[int] = []  # (event, site) packed into one number; may hold events that are due no more
        self._bits = stream.sites.bit_length()
        self._moved: list[int] = []  # sites whose pace has changed
        for name in range(stream.fleet):
            self._enter(name, self.coordinator.trigger_of(SiteId(name)))
        self._reschedule()

    def __repr__(self) -> str:
        return f"<FastWorld of {len(self._sites):,} sites: {self.answer}; the truth is {self.total:,}>"

    def _enter(self, name: int, trigger: Trigger | None = None) -> Site:
        site = Site(COUNTER, SiteId(name), self._rng.spawn("site", name, 0), trigger=trigger)
        self._sites.append(site)
        self._due.append(_NEVER)
        self._moved.append(name)
        return site

    # What can be read

    @property
    def estimate(self) -> float:
        """What the public sees."""
        return self.coordinator.published

    @property
    def answer(self) -> Answer:
        """The estimate with its bounds and its state."""
        return self.coordinator.answer

    @property
    def messages(self) -> Messages:
        """What the protocol has cost so far."""
        return self._network.messages

    @property
    def round(self) -> int:
        """The number of the present round."""
        return self.coordinator.round

    # What can be done

    def run(self, events: int, progress: Callable[[int], None] | None = None) -> None:
        """Go on until the stream has come to event number `events`; `progress` hears now and then how far it is."""
        arrivals = self._stream.arrivals
        while self._arrived < len(arrivals) and arrivals[self._arrived][0] <= events:
            number, name = arrivals[self._arrived]
            self._play(number, progress)
            self._arrived += 1
            self._join(name)
        self._play(events, progress)

    def _join(self, name: int) -> None:
        site = self._enter(name)
        self._network.join(site.site_id, site.snapshot())
        self._reschedule()
        self.referee.see(self.coordinator.published, self.total)

    def _play(self, until: int, progress: Callable[[int], None] | None) -> None:
        due, sites, coordinator, see = self._due, self._sites, self.coordinator, self.referee.see
        end, mask, reports = (until + 1) << self._bits, (1 << self._bits) - 1, 0
        while self._heap and self._heap[0] < end:
            number, index = self._heap[0] >> self._bits, heappop(self._heap) & mask
            if due[index] != number:
                continue
            see(coordinator.published, number - 1)
            self.total = number
            site = sites[index]
            self._moved.append(index)
            self._network.send(site.site_id, site.advance(site.next_at))
            see(coordinator.published, number)
            self._reschedule()
            reports += 1
            if progress is not None and reports % _NOTICE == 0:
                progress(number)
        self.total = until
        see(coordinator.published, until)

    def _receive(self, site_id: SiteId, message: DownMessage) -> tuple[UpMessage, ...]:
        index: int = site_id.site  # type: ignore[assignment]  # sites of a stream are numbers
        site = self._sites[index]
        site.count = self._stream.count(index, self.total)  # the silent events up to now
        self._moved.append(index)
        return site.receive(message)

    def _reschedule(self) -> None:
        due, sites, when, bits = self._due, self._sites, self._stream.when, self._bits
        for index in self._moved:
            due[index] = when(index, sites[index].next_at) or _NEVER
        if 4 * len(self._moved) > len(due) or len(self._heap) > 4 * len(due) + 100:
            self._heap = [number << bits | index for index, number in enumerate(due) if number]
            heapify(self._heap)
        else:
            for index in self._moved:
                if due[index]:
                    heappush(self._heap, due[index] << bits | index)
        self._moved.clear()
