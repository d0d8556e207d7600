"""What happens in the demo: two trackers, ordinary traffic for both, then the same attack on each.

Ours is the real service with its real sites. The other is the classical randomised tracker (`hyz`: Huang, Yi, Zhang
2012), in this process. In the second act each has traffic of its own, because that traffic reacts to the answers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from countless.demo.fleet import Fleet
from countless.inprocess.tracker import Tracker
from countless.randomness import SeededRandom

ORDINARY, REACTING = "ordinary traffic", "traffic that reacts to the answers"
_BURSTS = 40
_PROBES = 10  # pieces of traffic after which the attack gives up on a site

Events = list[tuple[int, int]]


class Snapshot(NamedTuple):
    """One tracker, now."""

    estimate: float
    lower: float
    upper: float
    total: int
    state: str
    scheme: str
    messages: int
    worst: float  # error / alpha: the worst of this act

    @property
    def broken(self) -> bool:
        """Has it been outside its bounds?"""
        return self.worst > 1 + 1e-9  # the bound itself may be met: doubles are rounded


class Frame(NamedTuple):
    """Both trackers, now, and how far the act has come."""

    act: str
    part: float
    ours: Snapshot
    theirs: Snapshot


class DemoTracker(ABC):
    """A tracker in the story; remembers the worst."""

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.total = 0
        self.estimate = self.worst = 0.0

    def add(self, events: Events) -> None:
        """These events happen, and the answer is judged."""
        self.total += sum(n for _, n in events)
        self.estimate = self._deliver(events)
        self.worst = max(self.worst, abs(self.estimate / self.total - 1) / self.alpha)

    @abstractmethod
    def _deliver(self, events: Events) -> float: ...

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """How it stands."""


class ServiceTracker(DemoTracker):
    """The service."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet.alpha)
        self._fleet = fleet

    def _deliver(self, events: Events) -> float:
        self._fleet.add(events)
        return float(self._fleet.answer()["estimate"])

    def snapshot(self) -> Snapshot:
        """As its operators see it."""
        view = self._fleet.operator_view()
        messages = view["messages"]["up"] + view["messages"]["down"]
        bounds = (view["estimate"], view["lower"], view["upper"])
        return Snapshot(*bounds, self.total, view["state"], view["scheme"], messages, self.worst)


class ClassicalTracker(DemoTracker):
    """The tracker that is right on every stream but those that react."""

    def __init__(self, sites: int, alpha: float, seed: int | None) -> None:
        super().__init__(alpha)
        self._tracker = Tracker(sites, alpha, scheme="hyz", seed=seed)

    def _deliver(self, events: Events) -> float:
        for site, n in events:
            self._tracker.site(site).add(n)
        return self._tracker.answer.estimate

    def snapshot(self) -> Snapshot:
        """As it publishes."""
        answer, messages = self._tracker.answer, self._tracker.messages.total
        bounds = (answer.estimate, answer.lower, answer.upper)
        return Snapshot(*bounds, self.total, str(answer.state), answer.scheme, messages, self.worst)


def play(fleet: Fleet, events: int, seed: int | None) -> Iterator[Frame]:
    """Both acts, scene by scene."""
    ours, theirs = ServiceTracker(fleet), ClassicalTracker(fleet.sites, fleet.alpha, seed)
    rng = SeededRandom(seed or 0).spawn("traffic")
    for number in range(_BURSTS):
        # From small to large, so that the counters are seen to leave exact counting behind.
        burst = _spread(fleet.sites, max(1, int(events * 0.8 ** (_BURSTS - number) * 0.25)), rng)
        for side in (ours, theirs):
            side.add(burst)
        yield Frame(ORDINARY, (number + 1) / _BURSTS, ours.snapshot(), theirs.snapshot())
    ours.worst = theirs.worst = 0.0
    for site in range(fleet.sites):
        for side in (ours, theirs):
            _stop_after_jump(side, site, fleet.sites)
        yield Frame(REACTING, (site + 1) / fleet.sites, ours.snapshot(), theirs.snapshot())


def ordinary(fleet: Fleet, seed: int | None) -> Iterator[Events]:
    """More ordinary traffic, for ever: for a demo that is kept running."""
    rng = SeededRandom(seed or 0).spawn("more")
    while True:
        yield _spread(fleet.sites, max(1, fleet.total // 1000), rng)


def _spread(sites: int, events: int, rng: SeededRandom) -> Events:
    """So many events at random sites, some of which are ten times as busy as others."""
    weights = [1 + 9 * rng.random() for _ in range(sites)]
    scale = events / sum(weights)
    return [(site, n) for site, weight in enumerate(weights) if (n := int(weight * scale + rng.random()))]


def _stop_after_jump(side: DemoTracker, site: int, sites: int) -> None:
    """Feed a site, piece by piece, until the answer moves; then leave it for good, just after it was overestimated."""
    before, piece = side.estimate, max(1, int(side.alpha * side.total / (2 * sites)))
    for _ in range(_PROBES):
        side.add([(site, piece)])
        if side.estimate != before:
            return
