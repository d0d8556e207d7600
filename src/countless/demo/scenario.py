"""The scenario of the demo: two trackers, ordinary traffic for both, then the same attack on each.

One tracker is the real service with its real sites. The other is the classical randomised tracker (`hyz`: Huang, Yi,
Zhang 2012), in this process. During the attack each has traffic of its own, because that traffic reacts to its answers.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

from countless.demo.fleet import Fleet
from countless.inprocess.tracker import Tracker
from countless.lab.simulation.referee import Referee
from countless.randomness import SeededRandom

ORDINARY, REACTING = "ordinary traffic", "traffic that reacts to the answers"
_BURSTS = 40
_MAX_PIECES = 10  # of traffic, before the attack leaves a site

Events = list[tuple[int, int]]  # (site, number of events)


class Snapshot(NamedTuple):
    estimate: float
    lower: float
    upper: float
    total: int
    state: str
    scheme: str
    messages: int
    worst: float  # worst error / alpha of this act
    broken: bool  # whether the estimate was outside its bound in this act


class Frame(NamedTuple):
    """Both trackers, and which part of the act is over."""

    act: str
    part: float
    ours: Snapshot
    theirs: Snapshot


class DemoTracker(ABC):
    def __init__(self, alpha: float) -> None:
        self.alpha = alpha
        self.total = 0
        self.estimate = 0.0
        self.referee = Referee(alpha)

    def add(self, events: Events) -> None:
        self.total += sum(n for _, n in events)
        self.estimate = self._deliver(events)
        self.referee.judge(self.estimate, self.total)

    def start_act(self) -> None:
        self.referee = Referee(self.alpha)

    @abstractmethod
    def _deliver(self, events: Events) -> float:
        """Add the events; the estimate afterwards."""

    @abstractmethod
    def snapshot(self) -> Snapshot: ...

    def _verdict(self) -> tuple[float, bool]:
        return self.referee.worst, self.referee.violated_at is not None


class ServiceTracker(DemoTracker):
    def __init__(self, fleet: Fleet) -> None:
        super().__init__(fleet.alpha)
        self._fleet = fleet

    def _deliver(self, events: Events) -> float:
        self._fleet.add(events)
        return float(self._fleet.answer()["estimate"])

    def snapshot(self) -> Snapshot:
        view = self._fleet.operator_view()
        messages = view["messages"]["up"] + view["messages"]["down"]
        bounds = (view["estimate"], view["lower"], view["upper"])
        return Snapshot(*bounds, self.total, view["state"], view["scheme"], messages, *self._verdict())


class ClassicalTracker(DemoTracker):
    """A tracker whose guarantee does not cover traffic that reacts."""

    def __init__(self, sites: int, alpha: float, seed: int | None) -> None:
        super().__init__(alpha)
        self._tracker = Tracker(sites, alpha, scheme="hyz", seed=seed)

    def _deliver(self, events: Events) -> float:
        for site, n in events:
            self._tracker.site(site).add(n)
        return self._tracker.answer.estimate

    def snapshot(self) -> Snapshot:
        answer, messages = self._tracker.answer, self._tracker.messages.total
        bounds = (answer.estimate, answer.lower, answer.upper)
        return Snapshot(*bounds, self.total, str(answer.state), answer.scheme, messages, *self._verdict())


def play(fleet: Fleet, events: int, seed: int | None) -> Iterator[Frame]:
    ours, theirs = ServiceTracker(fleet), ClassicalTracker(fleet.sites, fleet.alpha, seed)
    rng = SeededRandom(seed or 0).spawn("traffic")
    for number in range(_BURSTS):
        # Bursts grow, so that the start, in which every event is reported, can be seen too.
        burst = _spread(fleet.sites, max(1, int(events * 0.8 ** (_BURSTS - number) * 0.25)), rng)
        for tracker in (ours, theirs):
            tracker.add(burst)
        yield Frame(ORDINARY, (number + 1) / _BURSTS, ours.snapshot(), theirs.snapshot())
    for tracker in (ours, theirs):
        tracker.start_act()
    for site in range(fleet.sites):
        for tracker in (ours, theirs):
            _stop_after_jump(tracker, site, fleet.sites)
        yield Frame(REACTING, (site + 1) / fleet.sites, ours.snapshot(), theirs.snapshot())


def ordinary(fleet: Fleet, seed: int | None) -> Iterator[Events]:
    """More ordinary traffic, without end: for a demo that keeps running."""
    rng = SeededRandom(seed or 0).spawn("more")
    while True:
        yield _spread(fleet.sites, max(1, fleet.total // 1000), rng)


def _spread(sites: int, events: int, rng: SeededRandom) -> Events:
    """So many events over all sites; some have up to ten times the rate of others."""
    weights = [1 + 9 * rng.random() for _ in range(sites)]
    scale = events / sum(weights)
    spread = [(site, n) for site, weight in enumerate(weights) if (n := int(weight * scale + rng.random()))]
    return spread or [(0, 1)]  # the counter exists from its first event on


def _stop_after_jump(tracker: DemoTracker, site: int, sites: int) -> None:
    """Feed a site until the estimate changes, then leave it: it was just overestimated."""
    before, piece = tracker.estimate, max(1, int(tracker.alpha * tracker.total / (2 * sites)))
    for _ in range(_MAX_PIECES):
        tracker.add([(site, piece)])
        if tracker.estimate != before:
            return
