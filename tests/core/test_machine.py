"""Production sites and a coordinator on a network that repeats, loses and reorders, against the exact total.

Hypothesis drives: events, deliveries in any order, copies, losses, reconnections, joins, departures, time-outs,
restarts of the coordinator. At every step the coordinator may claim only events that have happened; when all messages
are delivered and all sites have reconnected, it must know every count.
"""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from countless.core.coordinator import Coordinator, PersistentState
from countless.core.estimator import Estimator, Scheme
from countless.core.messages import DownMessage, SiteId, UpMessage
from countless.core.site import Site
from countless.core.triggers import OffsetMultiple, OncePerBlock
from countless.errors import ProtocolError
from countless.planning.dithered_plan import DitheredPlan
from countless.randomness import SeededRandom
from countless.schemes.crossing_estimator import CrossingEstimator
from countless.schemes.deterministic import Deterministic
from countless.schemes.dithered import DitheredEstimator
from countless.schemes.exact import Exact
from countless.schemes.lattice import LatticeEstimator
from support.schemes import Plain, PlainDithered
from support.worlds import COUNTER

ALPHA = 0.2
MOST_SITES = 6

pick = st.integers(0, 10**6)


def step_of(estimator: Estimator) -> int:
    trigger = estimator.trigger(0)
    assert isinstance(trigger, OffsetMultiple | OncePerBlock)
    return trigger.step


class FaultyWorld(RuleBasedStateMachine):
    """The world; `recipe` is set by each test."""

    recipe: Callable[[], Scheme] = Exact

    def __init__(self) -> None:
        super().__init__()
        self.rng = SeededRandom(1)
        self.scheme = type(self).recipe()
        self.up: list[tuple[SiteId, UpMessage]] = []
        self.down: list[tuple[SiteId, DownMessage]] = []
        self.gone = 0
        self.lives = 0
        fleet = [SiteId(name) for name in range(3)]
        self.coordinator = self._coordinator(fleet=fleet)
        self.sites = {site_id: self._site(site_id) for site_id in fleet}
        self.published: float = 0
        self.round = 0
        self.known: dict[SiteId, int] = {}

    def _coordinator(
        self, fleet: list[SiteId] | None = None, saved_state: PersistentState | None = None
    ) -> Coordinator:
        rng = self.rng.spawn("coordinator")
        return Coordinator(
            COUNTER, self.scheme, rng, alpha=ALPHA, delta=0.1, fleet=fleet or (), saved_state=saved_state
        )

    def _site(self, site_id: SiteId) -> Site:
        in_fleet = site_id in self.coordinator.debug_state().entries
        trigger = self.coordinator.trigger_of(site_id) if in_fleet else None
        return Site(COUNTER, site_id, self.rng.spawn("site", *site_id), trigger=trigger)

    def _any(self, number: int) -> Site:
        return list(self.sites.values())[number % len(self.sites)]

    def _say(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.up += [(site.site_id, message) for message in messages]

    @property
    def total(self) -> int:
        return self.gone + sum(site.count for site in self.sites.values())

    # What happens

    @rule(number=pick, n=st.integers(1, 30))
    def count(self, number: int, n: int) -> None:
        site = self._any(number)
        self._say(site, site.add(n))

    @precondition(lambda self: self.up)
    @rule(number=pick)
    def deliver_up(self, number: int) -> None:
        self._receive(*self.up.pop(number % len(self.up)))

    @precondition(lambda self: self.down)
    @rule(number=pick)
    def deliver_down(self, number: int) -> None:
        site_id, message = self.down.pop(number % len(self.down))
        if site_id in self.sites:
            self._say(self.sites[site_id], self.sites[site_id].receive(message))

    def _receive(self, site_id: SiteId, message: UpMessage) -> None:
        try:
            self.down += self.coordinator.receive(site_id, message)
        except ProtocolError:
            if site_id in self.sites:  # of the sites that are gone and settled, nothing is known any more
                raise

    @precondition(lambda self: self.up)
    @rule(number=pick)
    def repeat_up(self, number: int) -> None:
        self.up.append(self.up[number % len(self.up)])

    @precondition(lambda self: self.down)
    @rule(number=pick)
    def repeat_down(self, number: int) -> None:
        self.down.append(self.down[number % len(self.down)])

    @precondition(lambda self: self.up)
    @rule(number=pick)
    def lose_up(self, number: int) -> None:
        self.up.pop(number % len(self.up))

    @precondition(lambda self: self.down)
    @rule(number=pick)
    def lose_down(self, number: int) -> None:
        self.down.pop(number % len(self.down))

    @rule(number=pick)
    def reconnect(self, number: int) -> None:
        """A site's connection comes back; it says again what may have been lost."""
        site = self._any(number)
        self.down += self.coordinator.join(site.site_id, site.snapshot())
        self._say(site, site.resend())

    @precondition(lambda self: len(self.sites) < MOST_SITES)
    @rule()
    def join(self) -> None:
        self.lives += 1
        site_id = SiteId(3, self.lives)
        self.sites[site_id] = site = self._site(site_id)
        self.down += self.coordinator.join(site_id, site.snapshot())

    @precondition(lambda self: len(self.sites) > 1)
    @rule(number=pick)
    def leave(self, number: int) -> None:
        """A site goes in good order: what may have been lost is said again before its last words."""
        site = self._any(number)
        for message in site.resend():
            self._receive(site.site_id, message)
        del self.sites[site.site_id]
        self.gone += site.count
        self.down += self.coordinator.leave(site.site_id, site.snapshot())

    @rule(number=pick)
    def mark_unreachable(self, number: int) -> None:
        self.down += self.coordinator.mark_unreachable(self._any(number).site_id)

    @rule()
    def restart(self) -> None:
        """The coordinator dies; another one goes on from its memory."""
        self.coordinator = self._coordinator(saved_state=self.coordinator.saved_state)
        self.down += self.coordinator.recover()

    # What must be true at every moment

    @invariant()
    def nothing_is_claimed_that_has_not_happened(self) -> None:
        assert self.coordinator.known_total <= self.total
        entries = self.coordinator.debug_state().entries
        for site_id, site in self.sites.items():
            entry = entries[site_id]
            assert entry.round_start <= entry.reported <= site.count
            assert site.round <= self.coordinator.round

    @invariant()
    def what_is_known_is_never_forgotten(self) -> None:
        known = {site_id: self.coordinator.reported_by(site_id) for site_id in self.sites}
        assert all(count >= self.known.get(site_id, 0) for site_id, count in known.items())
        self.known = known

    @invariant()
    def answers_and_rounds_never_fall(self) -> None:
        assert self.coordinator.published >= self.published
        assert self.coordinator.round >= self.round
        self.published, self.round = self.coordinator.published, self.coordinator.round

    @invariant()
    def what_cannot_fail_never_says_too_much(self) -> None:
        if isinstance(self.scheme, Exact):
            assert self.coordinator.published <= self.total
        if isinstance(self.scheme, Deterministic):
            assert self.coordinator.answer.lower <= self.total

    # What must be true once the network has healed

    def _deliver_everything(self) -> None:
        while self.up or self.down:
            if self.up:
                self.deliver_up(0)
            else:
                self.deliver_down(0)

    def _heal(self) -> None:
        self._deliver_everything()
        for site in list(self.sites.values()):
            self.down += self.coordinator.join(site.site_id, site.snapshot())
            self._say(site, site.resend())
            self._deliver_everything()

    @rule()
    def heal(self) -> None:
        self._heal()
        assert self.coordinator.debug_state().awaited == 0
        assert self.coordinator.answer.silent == ()
        entries = self.coordinator.debug_state().entries
        for site_id, site in self.sites.items():
            if entries[site_id].trigger_sent:
                assert (site.round, site.trigger) == (self.coordinator.round, self.coordinator.trigger_of(site_id))
        self._check_estimate()

    def _check_estimate(self) -> None:
        state, total = self.coordinator.debug_state(), self.total
        estimator, slots = state.estimator, len(state.entries)
        if isinstance(self.scheme, Exact):
            assert self.coordinator.published == total
        elif isinstance(self.scheme, Deterministic):
            assert total <= self.coordinator.answer.upper
        elif isinstance(estimator, LatticeEstimator):
            assert abs(estimator.estimate - total) <= slots * (step_of(estimator) - 1) / 2
        elif isinstance(estimator, DitheredEstimator):
            hidden = estimator.debug_state()
            assert isinstance(self.coordinator.plan, DitheredPlan)
            all_slots = self.coordinator.plan.sites  # the free ones are in the sum too
            assert 0 <= total - hidden.total - hidden.lead <= all_slots * (step_of(estimator) - 1)
        elif isinstance(estimator, CrossingEstimator) and isinstance(estimator.trigger(0), OncePerBlock):
            assert abs(estimator.estimate - total) < slots * step_of(estimator)

    def teardown(self) -> None:
        """Whatever happened: heal, synchronise once more, and every event is accounted for."""
        self.heal()
        self.restart()
        self._deliver_everything()
        assert self.coordinator.debug_state().awaited == 0
        assert self.coordinator.known_total == self.total


RECIPES: dict[str, Callable[[], Scheme]] = {
    "exact": Exact,
    "deterministic": Deterministic,
    "lattice": lambda: Plain("lattice", start=20, step=7, reports=6, slots=4),
    "blocks": lambda: Plain("blocks", start=20, step=5, reports=6),
    "sampled": lambda: Plain("sampled", start=20, step=3, reports=6),
    "dithered": lambda: PlainDithered(start=20, step=6),
}


def machine_for(recipe: str) -> type[FaultyWorld]:
    return type(f"FaultyWorld_{recipe}", (FaultyWorld,), {"recipe": staticmethod(RECIPES[recipe])})


@pytest.mark.parametrize("recipe", RECIPES)
def test_faults_then_healing(recipe: str) -> None:
    examples = min(60, settings().max_examples)  # fewer where the profile has fewer
    run_state_machine_as_test(machine_for(recipe), settings=settings(max_examples=examples, stateful_step_count=40))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_faults_then_healing_at_length(recipe: str) -> None:
    run_state_machine_as_test(machine_for(recipe), settings=settings(max_examples=90, stateful_step_count=80))
