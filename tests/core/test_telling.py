"""Sites whose every event is reported need not be told of a new round before the scheme can afford it."""

from dataclasses import replace
from functools import cached_property

import pytest

from countless.core.coordinator import Coordinator
from countless.core.estimator import Budget, KeepRound, RoundContext, RoundSetup, Scheme
from countless.core.messages import SetTrigger, Snapshot
from countless.core.random_source import RandomSource
from countless.core.triggers import GeometricGrowth
from countless.randomness import SeededRandom
from countless.schemes.deterministic import Growing
from support.coordinators import A, B, C, D
from support.schemes import Plain, PlainDithered
from support.worlds import COUNTER, World, asked, down, report


class Purse(Budget):
    """Open when the test says so; remembers what it was asked."""

    def __init__(self, *numbers: float) -> None:
        self.is_open = False
        self.asked: list[tuple[int, float]] = []

    def allows(self, messages: int, total: float) -> bool:
        self.asked.append((messages, total))
        return self.is_open


class Thrifty(Plain):
    """Tells nobody before the purse is open."""

    @cached_property
    def purse(self) -> Purse:
        return Purse(0, 1)

    def open(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        setup = super().open(context, rng)
        return replace(setup, budget=self.purse) if isinstance(setup, RoundSetup) else setup


class Miser(PlainDithered):
    """Tells nobody, ever."""

    def open(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        setup = super().open(context, rng)
        return replace(setup, budget=Budget(0, 1)) if isinstance(setup, RoundSetup) else setup


class Quiet(Thrifty):
    """Deterministic up to a total of `start`; then as above."""

    def open(self, context: RoundContext, rng: RandomSource) -> RoundSetup | KeepRound:
        return RoundSetup(self.name, Growing(0.1, self.start)) if context.round == 1 else super().open(context, rng)


def coordinator(scheme: Scheme) -> Coordinator:
    return Coordinator(COUNTER, scheme, SeededRandom(1), alpha=0.1, delta=0.1, fleet=(A, B, C))


def in_round_one(scheme: Plain) -> Coordinator:
    """a, b, c at 5, 3, 2; round 1 has begun and nobody was told."""
    made = coordinator(scheme)
    for address, count in ((A, 5), (B, 3), (C, 2)):
        assert made.receive(address, report(count, count)) == []
    assert made.round == 1
    return made


@pytest.mark.parametrize("kind", ["sampled", "blocks"])
def test_a_site_that_is_not_told_stays_known_to_the_last_event(kind: str) -> None:
    scheme = Thrifty(kind, reports=2)
    made = in_round_one(scheme)
    for count in (6, 7, 10):  # one by one, and a batch
        assert made.receive(A, report(count, count)) == []
        assert made.answer.estimate == made.known_total == count + 5
    assert made.receive(A, report(8, 8)) == []  # an old word comes late
    assert (made.round, made.answer.estimate) == (1, 15)


def test_it_is_told_from_the_count_it_has_when_that_can_be_paid() -> None:
    scheme = Thrifty("blocks", step=5)
    made = in_round_one(scheme)
    made.receive(A, report(6, 6))
    scheme.purse.is_open = True
    [(address, message)] = made.receive(A, report(7, 7))
    assert address == A
    assert isinstance(message, SetTrigger)
    assert (message.round, message.from_count) == (1, 6)
    made.receive(A, report(8, 1, round=1))
    assert made.answer.estimate == 5 + 6 + 5  # b and c, what was known of a, and a step


def test_a_batch_reported_during_a_synchronisation_is_counted_once() -> None:
    scheme = Thrifty("blocks", step=5, reports=1)
    made = in_round_one(scheme)
    scheme.purse.is_open = True
    made.receive(B, report(4, 4))
    scheme.purse.is_open = False
    assert asked(made.receive(B, report(5, 1, round=1))) == ["b"]  # a and c need not be asked
    assert made.receive(A, report(9, 9)) == []
    assert made.receive(B, Snapshot(COUNTER, 2, 5)) == []
    assert (made.round, made.answer.estimate) == (2, 9 + 5 + 2)


def test_a_site_that_begins_to_be_silent_at_times_is_told_at_any_price() -> None:
    made = coordinator(Quiet("blocks", start=12))
    first_quiet = GeometricGrowth(0.1).exact_below
    assert (GeometricGrowth(0.1).reach(first_quiet - 1), GeometricGrowth(0.1).reach(first_quiet)) == (
        first_quiet - 1,
        first_quiet + 1,
    )
    for address in (A, B, C):
        for count in range(1, first_quiet):
            made.receive(address, report(count, count))
    assert made.round == 1
    assert down(made.receive(A, report(first_quiet, first_quiet)), SetTrigger) == ["a"]


def test_the_bill_that_the_budget_is_shown() -> None:
    scheme = Thrifty("blocks", step=5)
    made = in_round_one(scheme)  # three reports so far: batches
    made.receive(A, report(6, 6))
    made.receive(B, report(4, 4))
    scheme.purse.is_open = True
    made.receive(C, report(3, 3))
    made.receive(A, report(7, 7))
    # Each time what was heard and sent, and two more: to tell the site, and for what it may have to say at once. The
    # last two are for those that had to wait; A has been told when it speaks again, so nobody asks.
    assert scheme.purse.asked == [(6, 10), (7, 11), (8, 12), (9, 12), (10, 12)]


def test_a_budget_grows_with_the_total() -> None:
    budget = Budget(messages=100, total=80, power=0.5)
    assert [budget.allows(110, total) for total in (80, 96, 97)] == [False, False, True]


def test_a_budget_may_end_and_be_one_of_several() -> None:
    brief = Budget(messages=50, total=80, reconsider_at=90)
    assert [brief.allows(60, total) for total in (80, 89, 90)] == [False, False, True]
    both = Budget(messages=100, total=80, also=(brief,))
    assert [both.allows(60, total) for total in (80, 89, 90)] == [False, False, True]
    assert not both.allows(120, 90)


@pytest.mark.parametrize("kind", ["sampled", "lattice", "blocks"])
def test_who_spoke_when_there_was_no_money_is_told_when_there_is(kind: str) -> None:
    scheme = Thrifty(kind, step=5)
    made = in_round_one(scheme)
    made.receive(A, report(6, 6))
    made.receive(B, report(4, 4))
    scheme.purse.is_open = True
    outbox = made.receive(C, report(3, 3))
    # From the count that is known of each: C has just said one more, which it looks at again with its new pace.
    assert {(address, message.from_count) for address, message in outbox if isinstance(message, SetTrigger)} == {
        (C, 2),
        (B, 4),
        (A, 6),
    }
    assert made.receive(A, report(7, 7)) == []  # it was on its way: the new pace will say what of it counts
    assert made.known_total == 12


def test_who_has_left_or_is_silent_is_not_told() -> None:
    scheme = Thrifty("sampled", step=5)
    made = in_round_one(scheme)
    made.receive(A, report(6, 6))
    made.receive(B, report(4, 4))
    made.leave(A, Snapshot(COUNTER, 0, 6))
    made.mark_unreachable(B)
    scheme.purse.is_open = True
    assert [address for address, _ in made.receive(C, report(3, 3))] == [C]


def test_joins_departures_and_restarts_of_sites_that_were_not_told() -> None:
    world = World(Thrifty("lattice", start=4), 3)
    for name in (0, 1, 2, 0, 1, 0):
        world.add(name)
    assert world.coordinator.round == 1
    world.join("new")
    world.leave(0)
    world.add(1)
    assert world.coordinator.known_total == world.total == 7
    world.restart()  # everybody is asked, whatever it costs
    assert world.coordinator.known_total == world.total
    assert {site.round for site in world.sites.values()} == {world.coordinator.round}
    assert world.coordinator._messages >= world.total


@pytest.mark.parametrize("batch", [1, 7])
def test_no_dithered_answer_depends_on_who_was_told(batch: int) -> None:
    """The coordinator moves the lattice of a site that reports everything just as the site would have."""
    rng = SeededRandom(5)
    worlds = World(PlainDithered(start=12), 4, seed=3), World(Miser(start=12), 4, seed=3)
    for _ in range(400):
        name, n = rng.randbelow(4), 1 + rng.randbelow(batch)
        for world in worlds:
            world.add(name, n)
        assert worlds[0].coordinator.published == worlds[1].coordinator.published
        assert worlds[0].coordinator.round == worlds[1].coordinator.round
    assert worlds[0].coordinator.round >= 3
    assert not any(site.round for site in worlds[1].sites.values())  # nobody was ever told


def test_a_newcomer_is_told_at_once() -> None:
    made = in_round_one(Thrifty("blocks"))
    assert down(made.join(D, Snapshot(COUNTER, 0, 0)), SetTrigger) == ["d"]
