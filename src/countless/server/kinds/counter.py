"""A counter of the service, or one window of it: a coordinator of the core, its traffic, and the answer that readers
see; and a counter with windows.

Readers see an answer only once it is saved: a total that was shown and then forgotten by a restart would fall.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from countless.core.answer import Answer
from countless.core.coordinator import Coordinator, PersistentCounter
from countless.core.estimator import RoundContext
from countless.core.messages import SiteId
from countless.core.periods.window import TotalAnswer
from countless.planning.cache import round_up_sites
from countless.planning.failure_budget import round_eta
from countless.schemes.registry import scheme_named
from countless.server.sessions.periodic import Opening, Periodic
from countless.server.sessions.published_windows import PublishedWindows
from countless.server.sessions.readable import MessageCount, RoundReader
from countless.server.sessions.tracked import Counted, Surroundings, Whole
from countless.server.settings import Config
from countless.server.storage.rows import KeyRows, Publish, Rows, alone, row_of, value_of, values_of
from countless.wire.keys import Key


class PlanKey(NamedTuple):
    """All that a plan depends on: counters with the same key share a plan."""

    scheme: str
    adversary: str
    sites: int
    slots: int
    alpha: float
    eta: float


class CounterFields(NamedTuple):
    """The fields that are saved of a counter, or of one window, beside its spec and the counts of its sites."""

    round: int
    published: int | float
    departed: int
    floor: int = 0


class SavedCounter(NamedTuple):
    fields: CounterFields
    known: tuple[tuple[SiteId, int], ...]  # the counts of its sites

    @classmethod
    def of(cls, key: Key, rows: KeyRows) -> "SavedCounter":
        known = tuple((SiteId(*place), n) for place, n in values_of(key, rows, "site", int))
        return cls(value_of(key, rows, "state", CounterFields), known)

    @property
    def state(self) -> PersistentCounter:
        number, published, departed, *_ = self.fields
        return PersistentCounter(number, published, departed, self.known)


class TrackedCounter(Counted[Config]):
    """
    | row     | of each           | value                 |
    |---------|-------------------|-----------------------|
    | `state` | counter or window | `CounterFields`       |
    | `site`  | site              | the count, an integer |
    """

    taken: Answer

    def __init__(
        self,
        key: Key,
        config: Config,
        around: Surroundings,
        saved: SavedCounter | None = None,
        *,
        part_of: Whole | None = None,
        floor: int = 0,
        expected_sites: int = 1,
        traffic: MessageCount | None = None,
    ) -> None:
        super().__init__(key, config, around, part_of)
        self.floor = floor if saved is None else saved.fields.floor
        self._changed_sites: set[SiteId] = set()  # whose counts may have changed
        self._gone_sites: dict[SiteId, None] = {}  # that have left
        self.coordinator: Coordinator = self._coordinator(expected_sites, None if saved is None else saved.state)
        self.planned_for: tuple[int, int] | None = None  # the `plan_version` for which the planner has nothing to do
        self.traffic = traffic or MessageCount(self.coordinator.known_total, saved is None, around.wall_clock())
        self._published = self.taken = self.coordinator.answer

    def reconfigure(self, config: Config) -> None:
        """It continues from the known counts with another config; `coordinator.recover` is due."""
        self.spec, self.planned_for = config, None
        self.coordinator = self._coordinator(1, self.coordinator.saved_state)
        self.mark_spec()

    def _coordinator(self, expected_sites: int, saved_state: PersistentCounter | None) -> Coordinator:
        config = self.spec
        return Coordinator(
            self.name,
            scheme_named(config.scheme, config.adversary, may_block=False),  # the planner computes plans ahead
            self.around.rng,
            alpha=config.alpha,
            delta=config.delta,
            floor=self.floor,
            expected_sites=expected_sites,
            saved_state=saved_state,
        )

    # Saving

    def mark_site(self, site_id: SiteId) -> None:
        """The count of a site, and so the answer, may have changed."""
        self._changed_sites.add(site_id)
        self.around.changed(self)

    def mark_left(self, site_id: SiteId) -> None:
        self._changed_sites.discard(site_id)
        self._gone_sites[site_id] = None
        self.around.changed(self)

    def take(self, rows: Rows) -> Publish:
        coordinator = self.coordinator
        answer = self.taken = coordinator.answer
        own = self._own_rows(rows)
        own["state"] = alone(CounterFields(answer.round, answer.published, coordinator.departed, self.floor))
        if self._changed_sites or self._gone_sites:
            sites = [row_of(site_id, None) for site_id in self._gone_sites] if self._gone_sites else []
            for site_id in self._changed_sites:
                site, incarnation, part = site_id
                sites.append((str(site), incarnation, part, coordinator.reported_by(site_id)))
            own["site"] = sites
            self._changed_sites, self._gone_sites = set(), {}
        return partial(self.publish, answer)

    @property
    def published_answer(self) -> Answer:
        """The answer that was saved last."""
        answer = self._published
        state = self.health.shown(answer.state)
        return answer if state is answer.state else answer._replace(state=state)

    def publish(self, answer: Answer) -> None:
        """Show an answer that is saved."""
        if answer != self._published:
            self._published = answer
            self.notify()

    @property
    def largest_published(self) -> float:
        """The largest total so far. It never falls, as what Prometheus calls a counter must not; `estimate` may."""
        return self._published.published

    @property
    def known_total(self) -> int:
        return self.coordinator.known_total

    @property
    def members(self) -> Iterable[SiteId]:
        return (site_id for site_id, _ in self.coordinator.saved_state.known)

    @property
    def largest(self) -> float:
        return self.coordinator.published

    @property
    def departed(self) -> int:
        """The sum of the final counts of sites that have left."""
        return self.coordinator.departed

    @property
    def plan_version(self) -> tuple[int, int]:
        """Round and number of sites: `next_plan` changes only with these."""
        return self.coordinator.round, self.coordinator.sites

    @property
    def rounds(self) -> RoundReader:
        return self

    def next_context(self) -> RoundContext | None:
        ahead = self.next_plan()
        return None if ahead is None else ahead[1]

    def next_plan(self) -> tuple[PlanKey, RoundContext] | None:
        """The plan that the next round needs; None if no plan would be used. A plan outlives a few joins."""
        config, context = self.spec, self.coordinator.next_context
        if not self.coordinator.scheme.needs_plan(context.sites):
            return None
        sites, slots = round_up_sites(context.sites), round_up_sites(context.slots)
        eta = round_eta(context.delta, context.round)
        key = PlanKey(config.scheme, config.adversary, sites, slots, context.alpha, eta)
        return key, context._replace(counts=(), running=None)


class WindowedCounter(Periodic[TrackedCounter, Config]):
    """A counter with windows: the total is the sum over all of them."""

    _idle: TrackedCounter | None = None

    def _open_window(self, key: Key, opening: Opening) -> TrackedCounter:
        expected_sites, floor, total = opening
        config, again = replace(self.spec, windows=None), None
        if total is not None:
            again = SavedCounter(CounterFields(0, total, total, floor), ())
        tracker = TrackedCounter(
            key,
            config,
            self.around,
            again,
            part_of=self,
            floor=floor,
            expected_sites=max(1, expected_sites),
            traffic=self.traffic,
        )
        if again is not None:
            tracker.coordinator.recover()  # there is no site to which it could send anything
        return tracker

    def _load_window(self, key: Key, rows: KeyRows) -> TrackedCounter:
        config = value_of(key, rows, "spec", Config)
        return TrackedCounter(key, config, self.around, SavedCounter.of(key, rows), part_of=self, traffic=self.traffic)

    def _closed_window(self, tracker: TrackedCounter) -> None:
        self.around.remove(tracker)

    def _total_of(self, published: PublishedWindows) -> TotalAnswer:
        return published.total(self.spec.alpha, self.spec.delta, self.spec.scheme)

    # Reading for operators

    @property
    def departed(self) -> int:
        """The part of `known_total` that no present member of a window has counted."""
        return self.before + self.closed.total + sum(each.departed for each in self.open.values())

    @property
    def tracker(self) -> TrackedCounter:
        """That of the present window, or of the latest one that is open; an unused one if there is none."""
        present = self.present
        period = max((each for each in self.open if each <= present), default=max(self.open, default=None))
        if period is not None:
            return self.open[period]
        if self._idle is None:
            self._idle = TrackedCounter(self.key.window(present), replace(self.spec, windows=None), self.around)
        return self._idle

    @property
    def coordinator(self) -> Coordinator:
        return self.tracker.coordinator

    @property
    def rounds(self) -> RoundReader:
        return self

    def next_context(self) -> RoundContext | None:
        return self.tracker.next_context()


AnyCounter = TrackedCounter | WindowedCounter
