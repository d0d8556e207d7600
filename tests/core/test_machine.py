"""Production sites and coordinator on a network that repeats, loses, overtakes and forgets, against the exact truth.

Hypothesis drives: events, deliveries in any order, copies, losses, reconnections, newcomers, departures, silence,
restarts of the coordinator. At every step nothing may be claimed that has not happened; and once the network has healed
- everything delivered, every site reconnected - every count must be accounted for.
"""

from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from countless.core.coordinator import Coordinator, Memory
from countless.core.estimator import Scheme
from countless.core.messages import Address, DownMessage, UpMessage
from countless.core.site import Site
from countless.core.triggers import Blocks
from countless.errors import ProtocolError
from countless.randomness import SeededDice
from countless.schemes.crossing_estimator import Crossings
from countless.schemes.deterministic import Deterministic
from countless.schemes.dithered import Phases
from countless.schemes.exact import Exact
from countless.schemes.lattice import LatticePoints
from support.schemes import Plain, PlainDithered
from support.worlds import COUNTER

ALPHA = 0.2
MOST_SITES = 6
ROUNDING = 1 + 1e-12  # where the reports leave room for one number only, that number need not be a double

pick = st.integers(0, 10**6)


class FaultyWorld(RuleBasedStateMachine):
    """The world; `recipe` is set by each test."""

    recipe: Callable[[], Scheme] = Exact

    def __init__(self) -> None:
        super().__init__()
        self.dice = SeededDice(1)
        self.scheme = type(self).recipe()
        self.up: list[tuple[Address, UpMessage]] = []
        self.down: list[tuple[Address, DownMessage]] = []
        self.gone = 0
        self.lives = 0
        fleet = [Address(name) for name in range(3)]
        self.coordinator = self._coordinator(fleet=fleet)
        self.sites = {address: self._site(address) for address in fleet}
        self.published: float = 0
        self.round = 0
        self.known: dict[Address, int] = {}

    def _coordinator(self, fleet: list[Address] | None = None, memory: Memory | None = None) -> Coordinator:
        dice = self.dice.split("coordinator")
        return Coordinator(COUNTER, self.scheme, dice, alpha=ALPHA, delta=0.1, fleet=fleet or (), memory=memory)

    def _site(self, address: Address) -> Site:
        in_fleet = address in self.coordinator._ledger
        pace = self.coordinator.pace_of(address) if in_fleet else None
        return Site(COUNTER, address, self.dice.split("site", *address), pace=pace)

    def _any(self, number: int) -> Site:
        return list(self.sites.values())[number % len(self.sites)]

    def _say(self, site: Site, messages: tuple[UpMessage, ...]) -> None:
        self.up += [(site.address, message) for message in messages]

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
        address, message = self.down.pop(number % len(self.down))
        if address in self.sites:
            self._say(self.sites[address], self.sites[address].receive(message))

    def _receive(self, address: Address, message: UpMessage) -> None:
        try:
            self.down += self.coordinator.receive(address, message)
        except ProtocolError:
            if address in self.sites:  # of the sites that are gone and settled, nothing is known any more
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
        self.down += self.coordinator.join(site.address, site.exactly())
        self._say(site, site.resume())

    @precondition(lambda self: len(self.sites) < MOST_SITES)
    @rule()
    def join(self) -> None:
        self.lives += 1
        address = Address(3, self.lives)
        self.sites[address] = site = self._site(address)
        self.down += self.coordinator.join(address, site.exactly())

    @precondition(lambda self: len(self.sites) > 1)
    @rule(number=pick)
    def leave(self, number: int) -> None:
        """A site goes in good order: what may have been lost is said again before its last words."""
        site = self._any(number)
        for message in site.resume():
            self._receive(site.address, message)
        del self.sites[site.address]
        self.gone += site.count
        self.down += self.coordinator.leave(site.address, site.exactly())

    @rule(number=pick)
    def silence(self, number: int) -> None:
        self.down += self.coordinator.silence(self._any(number).address)

    @rule()
    def restart(self) -> None:
        """The coordinator dies; another one goes on from its memory."""
        self.coordinator = self._coordinator(memory=self.coordinator.memory)
        self.down += self.coordinator.wake()

    # What must be true at every moment

    @invariant()
    def nothing_is_claimed_that_has_not_happened(self) -> None:
        assert self.coordinator.known_total <= self.total
        for address, site in self.sites.items():
            entry = self.coordinator._ledger[address]
            assert entry.base <= entry.known <= site.count
            assert site.round <= self.coordinator.round

    @invariant()
    def what_is_known_is_never_forgotten(self) -> None:
        known = {address: self.coordinator._ledger[address].known for address in self.sites}
        assert all(count >= self.known.get(address, 0) for address, count in known.items())
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
            assert self.coordinator.published <= (1 + ALPHA) * self.total * ROUNDING

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
            self.down += self.coordinator.join(site.address, site.exactly())
            self._say(site, site.resume())
            self._deliver_everything()

    @rule()
    def heal(self) -> None:
        self._heal()
        assert self.coordinator._pending == 0
        assert self.coordinator.answer.silent == ()
        for address, site in self.sites.items():
            if self.coordinator._ledger[address].told:
                assert (site.round, site.pace) == (self.coordinator.round, self.coordinator.pace_of(address))
        self._check_estimate()

    def _check_estimate(self) -> None:
        publisher, total = self.coordinator._publisher, self.total
        places = len(self.coordinator._ledger)
        if isinstance(self.scheme, Exact):
            assert self.coordinator.published == total
        elif isinstance(self.scheme, Deterministic):
            assert (1 - ALPHA) * total <= self.coordinator.published * ROUNDING
        elif isinstance(publisher, LatticePoints):
            assert abs(publisher.estimate - total) <= places * (publisher._lattices.step - 1) / 2
        elif isinstance(publisher, Phases):
            behind = total - publisher._total - publisher._lead
            assert 0 <= behind <= len(publisher._lattices) * (publisher._lattices.step - 1)
        elif isinstance(publisher, Crossings) and isinstance(publisher._pace, Blocks):
            assert abs(publisher.estimate - total) < places * publisher._pace.step

    def teardown(self) -> None:
        """Whatever happened: heal, synchronise once more, and every event is accounted for."""
        self.heal()
        self.restart()
        self._deliver_everything()
        assert self.coordinator._pending == 0
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
