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

from countless.core.coordinator import Coordinator
from countless.core.estimator import Estimator, Scheme
from countless.core.floor import BelowFloor
from countless.core.messages import SiteId
from countless.core.triggers import OffsetMultiple, OncePerBlock
from countless.errors import ProtocolError
from countless.schemes.deterministic import Deterministic
from countless.schemes.dithered import DitheredEstimator
from countless.schemes.exact import Exact
from countless.schemes.lattice import LatticeEstimator
from countless.schemes.sampled import CrossingEstimator
from support.schemes import Plain, PlainDithered
from support.worlds import HeldWorld

ALPHA = 0.2
MAX_SITES = 6
FLOOR = 120  # most runs count more

pick = st.integers(0, 10**6)


def step_of(estimator: Estimator) -> int:
    trigger = estimator.trigger(0)
    assert isinstance(trigger, OffsetMultiple | OncePerBlock)
    return trigger.step


class FaultyWorld(RuleBasedStateMachine):
    """Each rule is a fault or an ordinary step of a `HeldWorld`; `recipe` is set by each test."""

    recipe: Callable[[], Scheme] = Exact
    floor = 0

    def __init__(self) -> None:
        super().__init__()
        self.scheme = type(self).recipe()
        self.world = HeldWorld(self.scheme, [SiteId(name) for name in range(3)], alpha=ALPHA, floor=self.floor)
        self.joined = 0
        self.published: float = 0
        self.round = 0
        self.known: dict[SiteId, int] = {}

    @property
    def coordinator(self) -> Coordinator:
        return self.world.coordinator

    def _site_id(self, number: int) -> SiteId:
        return list(self.world.sites)[number % len(self.world.sites)]

    def _index(self, number: int) -> int:
        return number % len(self.world.wire)

    @rule(number=pick, n=st.integers(1, 30))
    def count(self, number: int, n: int) -> None:
        self.world.add(self._site_id(number), n)

    @precondition(lambda self: self.world.wire)
    @rule(number=pick)
    def deliver(self, number: int) -> None:
        site_id, _ = self.world.wire[self._index(number)]
        try:
            self.world.deliver(self._index(number))
        except ProtocolError:
            if site_id in self.world.sites:  # of a site that has left and was folded the coordinator knows nothing
                raise

    @precondition(lambda self: self.world.wire)
    @rule(number=pick)
    def repeat(self, number: int) -> None:
        self.world.wire.append(self.world.wire[self._index(number)])

    @precondition(lambda self: self.world.wire)
    @rule(number=pick)
    def lose(self, number: int) -> None:
        self.world.wire.pop(self._index(number))

    @rule(number=pick)
    def reconnect(self, number: int) -> None:
        self.world.reconnect(self._site_id(number))

    @precondition(lambda self: len(self.world.sites) < MAX_SITES)
    @rule()
    def join(self) -> None:
        self.joined += 1
        self.world.join(SiteId(3, self.joined))

    @precondition(lambda self: len(self.world.sites) > 1)
    @rule(number=pick)
    def leave(self, number: int) -> None:
        """A site leaves in good order: it resends what may have been lost, and then sends its final snapshot."""
        site_id = self._site_id(number)
        for message in self.world.sites[site_id].resend():
            self.world.wire += self.coordinator.receive(site_id, message)
        self.world.leave(site_id)

    @rule(number=pick)
    def time_out(self, number: int) -> None:
        self.world.time_out(self._site_id(number))

    @rule()
    def restart(self) -> None:
        self.world.restart()

    # What must be true at every moment

    @invariant()
    def nothing_is_claimed_that_has_not_happened(self) -> None:
        assert self.coordinator.known_total <= self.world.total
        entries = self.coordinator.debug_state().entries
        for site_id, site in self.world.sites.items():
            entry = entries[site_id]
            assert entry.round_start <= entry.reported <= site.count
            assert site.round <= self.coordinator.round

    @invariant()
    def what_is_known_is_never_forgotten(self) -> None:
        known = {site_id: self.coordinator.reported_by(site_id) for site_id in self.world.sites}
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
            assert self.coordinator.published <= self.world.total
        if isinstance(self.scheme, Deterministic):
            assert self.coordinator.answer.lower <= self.world.total

    # What must be true once the network has healed

    def _deliver_all(self) -> None:
        while self.world.wire:
            self.deliver(0)

    @rule()
    def heal(self) -> None:
        self._deliver_all()
        for site_id in list(self.world.sites):
            self.world.reconnect(site_id)
            self._deliver_all()
        assert self.coordinator.debug_state().awaited == 0
        assert self.coordinator.answer.silent == ()
        entries = self.coordinator.debug_state().entries
        for site_id, site in self.world.sites.items():
            if entries[site_id].trigger_sent:
                assert (site.round, site.trigger) == (self.coordinator.round, self.coordinator.trigger_of(site_id))
        self._check_estimate()

    def _check_estimate(self) -> None:
        state, total = self.coordinator.debug_state(), self.world.total
        estimator, slots = state.estimator, len(state.entries)
        if isinstance(self.scheme, Exact):
            assert self.coordinator.published == total
        elif isinstance(self.scheme, Deterministic) or isinstance(estimator, BelowFloor):
            assert total <= self.coordinator.answer.upper
        elif isinstance(estimator, LatticeEstimator):
            assert abs(estimator.estimate - total) <= slots * (step_of(estimator) - 1) / 2
        elif isinstance(estimator, DitheredEstimator):
            hidden = estimator.debug_state()
            # The free slots are in the sum, too.
            assert 0 <= total - hidden.total - hidden.lead <= sum(hidden.steps) - len(hidden.steps)
        elif isinstance(estimator, CrossingEstimator) and isinstance(estimator.trigger(0), OncePerBlock):
            assert abs(estimator.estimate - total) < slots * step_of(estimator)

    def teardown(self) -> None:
        """After any sequence of faults: heal, synchronise once more, and every event is accounted for."""
        self.heal()
        self.restart()
        self._deliver_all()
        assert self.coordinator.debug_state().awaited == 0
        assert self.coordinator.known_total == self.world.total


RECIPES: dict[str, Callable[[], Scheme]] = {
    "exact": Exact,
    "deterministic": Deterministic,
    "lattice": lambda: Plain("lattice", start=20, step=7, reports=6, slots=4),
    "blocks": lambda: Plain("blocks", start=20, step=5, reports=6),
    "sampled": lambda: Plain("sampled", start=20, step=3, reports=6),
    "dithered": lambda: PlainDithered(start=20, step=6),
    "dithered, steps": lambda: PlainDithered(start=20, step=6, uneven=1),
    "floor, deterministic": Deterministic,
    "floor, lattice": lambda: Plain("lattice", start=20, step=7, reports=6, slots=4),
}


def machine_for(recipe: str) -> type[FaultyWorld]:
    members = {"recipe": staticmethod(RECIPES[recipe]), "floor": FLOOR if recipe.startswith("floor") else 0}
    return type(f"FaultyWorld_{recipe}", (FaultyWorld,), members)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_faults_then_healing(recipe: str) -> None:
    examples = min(60, settings().max_examples)  # fewer where the profile has fewer
    run_state_machine_as_test(machine_for(recipe), settings=settings(max_examples=examples, stateful_step_count=40))


@pytest.mark.soak
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("examples", [300])
def test_faults_then_healing_at_length(examples: int, recipe: str) -> None:
    run_state_machine_as_test(machine_for(recipe), settings=settings(max_examples=examples, stateful_step_count=80))
