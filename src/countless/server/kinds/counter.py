"""One counter of the service: a coordinator of the core, its traffic, and the answer that readers see.

Readers see an answer only once it is saved: a total that was shown and then forgotten by a restart would fall.
"""

from collections.abc import Callable
from functools import partial
from time import time
from typing import NamedTuple, Protocol

from countless.core.answer import Answer, State
from countless.core.coordinator import Coordinator, PersistentState
from countless.core.estimator import RoundContext
from countless.core.messages import SiteId
from countless.core.random_source import RandomSource
from countless.planning.cache import round_up_sites
from countless.planning.failure_budget import round_eta
from countless.randomness import SYSTEM_RANDOM
from countless.schemes.registry import scheme_named
from countless.server.sessions.readable import MessageCount, RoundReader
from countless.server.sessions.tracked import OnChange, Watched, Whole
from countless.server.settings import Config
from countless.server.storage.health import SaveHealth
from countless.server.storage.rows import KeyRows, Publish, Rows, alone, row_of, value_of, values_of
from countless.wire.keys import Key


class PlanKey(NamedTuple):
    """What a plan depends on: counters with the same key share a plan."""

    scheme: str
    adversary: str
    sites: int
    slots: int
    alpha: float
    eta: float


class CounterWindows(Whole, Protocol):
    """A counter with windows, as one of them knows it."""

    def note(self, period: int, answer: Answer) -> None:
        """The answer of an open window, which is about to be saved."""


class CounterFields(NamedTuple):
    """What is saved of a counter beside its config and the counts of its sites.

    A counter with windows has no sites. Its `round` is the first period that is kept, `departed` the total of earlier
    ones; its published estimate is at least `published`.
    """

    round: int
    published: int | float
    departed: int


def config_of(key: Key, rows: KeyRows) -> Config:
    return value_of(key, rows, "config", Config)


def fields_of(key: Key, rows: KeyRows) -> CounterFields:
    return value_of(key, rows, "state", CounterFields)


def state_of(key: Key, rows: KeyRows) -> PersistentState:
    fields = fields_of(key, rows)
    counts = tuple((SiteId(*place), n) for place, n in values_of(key, rows, "site", int))
    return PersistentState(fields.round, fields.published, fields.departed, counts)


class TrackedCounter(Watched):
    """A counter without windows, or one window of a counter: then `part_of` is the counter, and `floor` the window's.

    | row      | of each | value                 |
    |----------|---------|-----------------------|
    | `config` | counter | `Config`              |
    | `state`  | counter | `CounterFields`       |
    | `site`   | site    | the count, an integer |
    """

    def __init__(
        self,
        key: Key,
        config: Config,
        saved_state: PersistentState | None = None,
        *,
        part_of: CounterWindows | None = None,
        floor: int = 0,
        expected_sites: int = 1,
        traffic: MessageCount | None = None,
        health: SaveHealth | None = None,
        on_change: OnChange | None = None,
        wall_clock: Callable[[], float] = time,
        rng: RandomSource = SYSTEM_RANDOM,
    ) -> None:
        super().__init__(health, on_change)
        self.key = key
        self.rng = rng
        self.name = str(key)
        self.config = config
        self.part_of: CounterWindows | None = part_of
        self.floor = floor
        self._changed_config = False
        self._changed_sites: set[SiteId] = set()  # whose counts may have changed
        self._gone_sites: dict[SiteId, None] = {}  # that have left
        self.coordinator = self._coordinator(expected_sites, saved_state)
        self.recovering = saved_state is not None  # after a restart, until every site has answered or timed out
        self.planned_for: tuple[int, int] | None = None  # the `plan_version` for which the planner has nothing to do
        self.traffic = traffic or MessageCount(self.coordinator.known_total, saved_state is None, wall_clock())
        self._published = self.coordinator.answer

    def reconfigure(self, config: Config) -> None:
        """It continues from the known counts with another config; `coordinator.recover` is due."""
        self.config, self.planned_for, self.recovering = config, None, False
        self.coordinator = self._coordinator(1, self.coordinator.saved_state)

    def _coordinator(self, expected_sites: int, saved_state: PersistentState | None) -> Coordinator:
        config = self.config
        return Coordinator(
            self.name,
            scheme_named(config.scheme, config.adversary, may_block=False),  # the planner computes plans ahead
            self.rng,
            alpha=config.alpha,
            delta=config.delta,
            floor=self.floor,
            expected_sites=expected_sites,
            saved_state=saved_state,
        )

    # Saving

    def mark(self) -> None:
        """The round or the answer may have changed."""
        self.on_change(self)

    def mark_site(self, site_id: SiteId) -> None:
        """The count of a site, and so the answer, may have changed."""
        self._changed_sites.add(site_id)
        self.on_change(self)

    def mark_left(self, site_id: SiteId) -> None:
        self._changed_sites.discard(site_id)
        self._gone_sites[site_id] = None
        self.on_change(self)

    def mark_config(self) -> None:
        """It is new, or has another config."""
        self._changed_config = True
        self.on_change(self)

    def take(self, rows: Rows) -> Publish:
        coordinator = self.coordinator
        answer = coordinator.answer
        own = rows.get(self.key)  # of a window its counter may have added one
        if own is None:
            own = rows[self.key] = {}
        own["state"] = alone(CounterFields(answer.round, answer.published, coordinator.departed))
        if self._changed_config:
            own["config"] = alone(self.config)
            self._changed_config = False
        if self._changed_sites or self._gone_sites:
            sites = [row_of(site_id, None) for site_id in self._gone_sites] if self._gone_sites else []
            for site_id in self._changed_sites:
                site, incarnation, part = site_id
                sites.append((str(site), incarnation, part, coordinator.reported_by(site_id)))
            own["site"] = sites
            self._changed_sites, self._gone_sites = set(), {}
        if self.part_of is not None:
            self.part_of.note(self.key.period, answer)
        return partial(self.publish, answer)

    @property
    def published_answer(self) -> Answer:
        """What was saved last."""
        answer = self._published
        state = self.health.shown(answer.state)
        return answer if state is answer.state else answer._replace(state=state)

    def publish(self, answer: Answer) -> None:
        """Show an answer that is saved."""
        if answer != self._published:
            self._published = answer
            self.notify()
        if answer.state is not State.LEARNING:
            self.recovering = False

    @property
    def largest_published(self) -> float:
        """The largest total so far. It never falls, as what Prometheus calls a counter must not; `estimate` may."""
        return self._published.published

    @property
    def known_total(self) -> int:
        """The sum of all counts received: never more than the true total."""
        return self.coordinator.known_total

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
        """What to plan for the next round; None if no plan would be used. A plan outlives a few joins."""
        config, context = self.config, self.coordinator.next_context
        if not self.coordinator.scheme.needs_plan(context.sites):
            return None
        sites, slots = round_up_sites(context.sites), round_up_sites(context.slots)
        eta = round_eta(context.delta, context.round)
        key = PlanKey(config.scheme, config.adversary, sites, slots, context.alpha, eta)
        return key, context._replace(counts=(), running=None)
