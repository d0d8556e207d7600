"""The coordinator, message by message: rounds, newcomers, departures, silence, restarts, and what it refuses."""

import pytest

from countless.core.answer import State
from countless.core.coordinator import Coordinator, Memory
from countless.core.messages import Address, Repace, StartRound, UpMessage
from countless.errors import PlanError, ProtocolError
from countless.randomness import SeededDice
from countless.schemes.deterministic import Deterministic
from countless.schemes.exact import Exact
from support.schemes import Plain
from support.worlds import COUNTER, World, asked, down, report, snapshot

A, B, C, D = (Address(name) for name in "abcd")


def coordinator(scheme: Plain | Exact | Deterministic, *fleet: Address, memory: Memory | None = None) -> Coordinator:
    return Coordinator(COUNTER, scheme, SeededDice(1), alpha=0.1, delta=0.1, fleet=fleet, memory=memory)


def in_round_one(kind: str = "blocks", **numbers: int) -> Coordinator:
    """a, b, c at 50, 30, 20 and all in round 1, every count told."""
    made = coordinator(Plain(kind, start=100, **numbers), A, B, C)
    made.receive(A, report(50, 50))
    made.receive(B, report(30, 30))
    assert made.receive(C, report(20, 20)) == []  # all counts are known to the last event: nobody is asked
    for address in (A, B, C):
        count = made._ledger[address].known
        assert down(made.receive(address, report(count + 1, 51)), Repace) == [address.site]
    assert (made.round, made.known_total) == (1, 100)
    return made


def in_round_two(kind: str = "blocks", reports: int = 2) -> Coordinator:
    """As above, and a report of a's ends round 1: all three are asked."""
    made = in_round_one(kind, reports=reports, step=10)
    for crossing in range(1, reports + 1):
        outbox = made.receive(A, report(50 + 10 * crossing, crossing, round=1))
    assert asked(outbox) == ["a", "b", "c"]
    assert (made.round, made.answer.state) == (2, State.LEARNING)
    return made


def facts(made: Coordinator) -> tuple[object, ...]:
    """Everything about a coordinator that an input could change."""
    entries = tuple(
        (e.address, e.known, e.base, e.crossings, e.slot, e.asked, e.assumed, e.told, e.repaced, e.silent, e.present)
        for e in made._ledger
    )
    return (made.round, made.published, made.answer, made.memory, entries, made._publisher.estimate, made._joined)


class TestStart:
    def test_the_fleet_needs_no_message(self) -> None:
        fresh = coordinator(Exact(), A, B)
        assert (fresh.answer.estimate, fresh.answer.state, fresh.answer.sites) == (0, State.EXACT, 2)

    def test_nobody_at_all(self) -> None:
        empty = coordinator(Exact())
        assert (empty.answer.estimate, empty.answer.sites) == (0, 0)
        assert empty.join(A, snapshot(7)) != []
        assert empty.answer.estimate == 7


class TestUntoldSites:
    """A site whose every event is reported need be neither asked nor told before it next speaks."""

    def test_a_round_starts_without_a_word(self) -> None:
        made = coordinator(Plain(start=3), A, B, C)
        made.receive(A, report(2, 2))
        assert made.receive(B, report(1, 1)) == []
        assert (made.round, made.answer.state) == (1, State.HOLDING)

    def test_it_is_told_when_it_next_speaks_and_only_once(self) -> None:
        made = coordinator(Plain("blocks", start=3), A, B, C)
        made.receive(A, report(3, 3))
        [(address, told)] = made.receive(C, report(1, 1))
        assert (address, told) == (C, Repace(COUNTER, 1, made.pace_of(C), 0))
        assert made.receive(C, report(2, 2)) == []  # the Repace is under way
        assert made.known_total == 3  # what the new pace says of these events will be heard

    def test_it_stays_untold_over_several_rounds(self) -> None:
        made = coordinator(Plain("blocks", start=3, step=2, reports=1), A, B, C)
        made.receive(A, report(3, 3))
        made.receive(A, report(4, 4))
        outbox = made.receive(A, report(5, 1, round=1))
        assert asked(outbox) == ["a"]  # b and c have been idle since the start: they cost nothing
        made.receive(A, snapshot(5, round=2))
        assert (made.round, made.answer.state) == (2, State.HOLDING)
        assert down(made.receive(B, report(1, 1)), Repace) == ["b"]

    def test_it_may_leave_before_it_was_told(self) -> None:
        made = coordinator(Plain("blocks", start=3), A, B, C)
        made.receive(A, report(3, 3))
        made.leave(B, snapshot(4))  # its reports of four events are still under way, or lost
        assert (made.published, made.known_total) == (7, 7)
        assert made.receive(B, report(4, 4)) == []  # and when they come they find nobody to be told


class TestRounds:
    def test_the_answer_is_learning_until_the_last_snapshot(self) -> None:
        made = in_round_two()
        for address, count in ((A, 71), (B, 33)):
            assert made.receive(address, snapshot(count, round=2)) == []
            assert made.answer.state is State.LEARNING
        made.receive(C, snapshot(25, round=2))
        assert made.answer.state is State.HOLDING
        assert made.known_total == made._publisher.estimate == 71 + 33 + 25

    def test_a_report_may_overtake_its_snapshot(self) -> None:
        made = in_round_two()
        made.receive(A, report(80, 1, round=2))
        made.receive(A, snapshot(71, round=2))
        made.receive(B, snapshot(33, round=2))
        made.receive(C, snapshot(25, round=2))
        assert made._publisher.estimate == 71 + 33 + 25 + 10  # one block of ten
        assert made.known_total == 80 + 33 + 25

    def test_reports_of_an_old_round_raise_the_count_but_no_crossing(self) -> None:
        made = in_round_two()
        made.receive(B, report(35, 2, round=1))
        assert made.known_total == 70 + 35 + 20
        for address, count in ((A, 70), (B, 36), (C, 20)):
            made.receive(address, snapshot(count, round=2))
        assert made._publisher.estimate == 70 + 36 + 20

    def test_reports_while_others_still_answer_are_counted_when_the_round_begins(self) -> None:
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.receive(A, report(75, 1, round=2))
        assert made.answer.state is State.LEARNING
        made.receive(B, snapshot(30, round=2))
        made.receive(C, snapshot(20, round=2))
        assert made._publisher.estimate == 120 + 10

    def test_a_repeated_report_or_snapshot_brings_nothing(self) -> None:
        made = in_round_two()
        for address, count in ((A, 70), (B, 30), (C, 20)):
            made.receive(address, snapshot(count, round=2))
        made.receive(A, report(75, 1, round=2))
        before = facts(made)
        made.receive(A, report(75, 1, round=2))
        made.receive(A, snapshot(70, round=2))
        made.receive(B, report(30, 0, round=2))
        made.receive(C, report(29, 9, round=1))
        assert facts(made) == before

    def test_a_round_may_be_over_as_soon_as_it_begins(self) -> None:
        made = in_round_two(reports=2)
        made.receive(A, report(90, 2, round=2))  # overtook its snapshot, and brings the whole round's reports
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        outbox = made.receive(C, snapshot(20, round=2))
        assert asked(outbox) == ["a", "b", "c"]
        assert made.round == 3


class TestJoin:
    def test_a_joiner_brings_its_count_and_gets_the_pace(self) -> None:
        made = in_round_one()
        [(address, message)] = made.join(D, snapshot(1000))
        assert (address, message) == (D, Repace(COUNTER, 1, made.pace_of(D), 1000))
        assert (made.published, made.answer.sites) == (1100, 4)

    def test_a_joiner_during_a_synchronisation_is_in_the_new_round(self) -> None:
        made = in_round_two()
        assert down(made.join(D, snapshot(1000)), Repace) == ["d"]
        assert made.published < 1000
        for address, count in ((A, 70), (B, 30), (C, 20)):
            made.receive(address, snapshot(count, round=2))
        assert made.published == 1120

    def test_when_places_run_out_a_new_round_starts(self) -> None:
        made = in_round_one("lattice", slots=4)
        assert asked(made.join(D, snapshot(0))) == []
        outbox = made.join(Address("e"), snapshot(9))
        assert asked(outbox) == ["a", "b", "c", "d", "e"]
        assert made.round == 2

    def test_a_place_is_kept_for_a_leaver_until_the_round_ends(self) -> None:
        made = in_round_one("lattice", slots=4)
        made.leave(A, snapshot(51, round=1))
        assert made.join(D, snapshot(0)) != []
        assert made.round == 1
        assert asked(made.join(Address("e"), snapshot(0))) == ["b", "c", "d", "e"]

    def test_a_joiner_without_a_plan_changes_nothing(self) -> None:
        scheme = Plain("lattice", start=2, slots=3)
        made = coordinator(scheme, A, B, C)
        made.receive(A, report(2, 2))
        scheme.most_sites = 3
        before = facts(made)
        with pytest.raises(PlanError, match="4 sites"):
            made.join(D, snapshot(9))
        assert facts(made) == before
        assert D not in made._ledger

    def test_a_new_life_is_a_new_site(self) -> None:
        made = in_round_one()
        made.leave(A, snapshot(60, round=1))
        made.join(A._replace(incarnation=1), snapshot(0))
        assert (made.known_total, made.answer.sites) == (60 + 30 + 20, 3)


class TestComeBack:
    def test_in_the_present_round_nothing_need_be_said(self) -> None:
        made = in_round_one()
        assert made.join(A, snapshot(57, round=1)) == []

    def test_from_an_earlier_round_it_goes_on_from_what_is_known(self) -> None:
        made = coordinator(Plain("blocks", start=3), A, B)
        made.receive(A, report(3, 3))
        assert made.join(B, snapshot(8)) == [(B, Repace(COUNTER, 1, made.pace_of(B), 0))]

    def test_one_that_was_asked_is_asked_again(self) -> None:
        made = in_round_two()
        [(address, message)] = made.join(B, snapshot(33, round=1))
        assert (address, message) == (B, StartRound(COUNTER, 2, made.pace_of(B)))


class TestAnotherPace:
    """A site that is given another pace in the middle of a round looks at the same events twice."""

    def test_it_goes_on_from_the_count_it_reported(self) -> None:
        made = in_round_one("redrawn", step=10)
        [(address, message)] = made.receive(A, report(57, 1, round=1))
        assert (address, message) == (A, Repace(COUNTER, 1, made.pace_of(A), 57))

    def test_it_may_then_say_less_than_it_had_said_meanwhile(self) -> None:
        made = in_round_one("redrawn", step=10)
        made.receive(A, report(57, 1, round=1))
        made.receive(A, report(67, 2, round=1))  # the Repace was still under way
        made.receive(A, report(63, 3, round=1))  # and now it was there
        assert made.known_total == 67 + 30 + 20

    def test_if_its_connection_was_lost_the_pace_may_have_been_too(self) -> None:
        made = in_round_one("redrawn", step=10)
        made.receive(A, report(57, 1, round=1))
        assert made.join(A, snapshot(66, round=1)) == [(A, Repace(COUNTER, 1, made.pace_of(A), 57))]


class TestLeave:
    def test_last_words_are_exact_and_stay(self) -> None:
        made = coordinator(Exact(), A, B)
        made.receive(A, report(5, 5))
        made.leave(A, snapshot(9))
        assert (made.published, made.answer.sites, made.answer.state) == (9, 1, State.EXACT)

    def test_said_twice_they_count_once(self) -> None:
        made = coordinator(Exact(), A, B)
        made.leave(A, snapshot(9))
        before = facts(made)
        assert made.leave(A, snapshot(9)) == []
        assert facts(made) == before

    def test_a_leaver_answers_the_question_it_was_asked(self) -> None:
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.leave(C, snapshot(28, round=1))
        assert (made.answer.state, made._publisher.estimate) == (State.HOLDING, 128)

    def test_the_next_round_has_it_exactly(self) -> None:
        made = in_round_one(reports=1, step=10)
        made.leave(B, snapshot(44, round=1))
        assert asked(made.receive(A, report(60, 1, round=1))) == ["a", "c"]
        made.receive(A, snapshot(60, round=2))
        made.receive(C, snapshot(21, round=2))
        assert made._publisher.estimate == 60 + 21 + 44

    def test_while_others_are_asked(self) -> None:
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.leave(A, snapshot(74, round=2))
        made.receive(B, snapshot(30, round=2))
        made.receive(C, snapshot(20, round=2))
        assert made.known_total == 124

    def test_lattice_reports_that_the_farewell_has_overtaken_are_in_it(self) -> None:
        made = in_round_one("lattice", step=10, reports=100)
        points = made._publisher.estimate
        made.leave(A, snapshot(50 + 40, round=1))
        assert made._publisher.estimate == points + 40


class TestSilence:
    def test_the_answer_says_who(self) -> None:
        made = in_round_one()
        assert made.silence(B) == []
        assert (made.answer.state, made.answer.silent) == (State.DEGRADED, ("b",))
        made.receive(B, report(40, 1, round=1))
        assert (made.answer.state, made.answer.silent) == (State.HOLDING, ())

    def test_a_round_does_not_wait_for_it(self) -> None:
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        assert made.silence(C) == []
        assert (made.answer.state, made._publisher.estimate) == (State.DEGRADED, 120)

    def test_its_late_snapshot_corrects_what_was_assumed(self) -> None:
        made = in_round_two()
        made.silence(C)
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.receive(C, report(60, 1, round=2))
        assert made._publisher.estimate == 120 + 10
        made.receive(C, snapshot(55, round=2))
        assert made._publisher.estimate == 70 + 30 + 55 + 10
        before = facts(made)
        made.receive(C, snapshot(55, round=2))
        assert facts(made) == before

    def test_a_snapshot_that_its_own_report_overtook_changes_nothing_more(self) -> None:
        made = in_round_two()
        made.receive(C, report(60, 1, round=2))
        made.silence(C)  # its base is now the 60 it reported
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.receive(C, snapshot(55, round=2))
        assert made._publisher.estimate == 160

    def test_who_was_silent_at_the_start_of_a_round_is_told_when_it_speaks(self) -> None:
        made = in_round_one(reports=1, step=10)
        made.silence(C)
        assert asked(made.receive(A, report(60, 1, round=1))) == ["a", "b"]
        assert made.receive(C, report(38, 2, round=1)) == [(C, Repace(COUNTER, 2, made.pace_of(C), 20))]
        assert made.answer.silent == ()

    def test_who_fell_silent_while_it_was_asked_is_told_when_it_speaks(self) -> None:
        made = in_round_two()
        made.silence(C)
        assert made.receive(C, report(38, 2, round=1)) == [(C, Repace(COUNTER, 2, made.pace_of(C), 20))]
        assert made.receive(C, report(38, 2, round=1)) == []  # once

    def test_who_has_answered_after_all_is_not_told_again(self) -> None:
        made = in_round_two()
        made.silence(C)
        made.receive(C, snapshot(55, round=2))
        assert made.receive(C, report(38, 2, round=1)) == []  # an old report, overtaken by all that

    def test_who_comes_back_may_have_adopted_the_round_at_a_later_count_meanwhile(self) -> None:
        """The question was only late: the site ignores the Repace, and its Snapshot still counts."""
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.silence(C)
        assert down(made.join(C, snapshot(55, round=1)), Repace) == ["c"]
        made.receive(C, snapshot(55, round=2))
        assert made._publisher.estimate == 155

    def test_who_is_silent_still_at_the_next_round_is_assumed_again(self) -> None:
        made = in_round_two()
        made.silence(C)
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        assert asked(made.receive(A, report(90, 2, round=2))) == ["a", "b"]
        assert made.receive(C, snapshot(55, round=2)) == [(C, Repace(COUNTER, 3, made.pace_of(C), 20))]

    def test_a_silent_site_may_leave(self) -> None:
        made = in_round_two()
        made.silence(C)
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.leave(C, snapshot(58, round=1))
        assert (made.answer.state, made.published) == (State.HOLDING, 158)
        assert made.silence(C) == []
        assert made.answer.state is State.HOLDING


class TestRestart:
    def test_everybody_is_asked_and_the_answer_is_learning(self) -> None:
        before = in_round_one()
        before.leave(B, snapshot(44, round=1))
        after = coordinator(Plain("blocks", start=100), memory=before.memory)
        assert (after.answer.state, after.published) == (State.LEARNING, before.published)
        assert asked(after.wake()) == ["a", "c"]
        assert after.round == before.round + 1
        after.receive(A, snapshot(61, round=2))
        after.receive(C, snapshot(27, round=2))
        assert (after.answer.state, after._publisher.estimate) == (State.HOLDING, 61 + 27 + 44)

    def test_it_may_die_again_before_all_have_answered(self) -> None:
        first = in_round_two()
        second = coordinator(Plain("blocks", start=100), memory=first.memory)
        second.wake()
        second.receive(A, snapshot(75, round=3))
        third = coordinator(Plain("blocks", start=100), memory=second.memory)
        assert asked(third.wake()) == ["a", "b", "c"]
        assert (third.round, third.known_total) == (4, 75 + 30 + 20)

    def test_what_was_published_is_not_taken_back(self) -> None:
        memory = Memory(round=3, published=500, departed=0, known=((A, 10),))
        made = coordinator(Exact(), memory=memory)
        made.wake()
        made.receive(A, snapshot(480, round=4))
        assert (made.published, made.answer.state) == (500, State.HOLDING)

    def test_a_plan_for_more_than_is_found_is_made_again(self) -> None:
        """What was published says 1,000 at least; a site that is given up on leaves 410. The step must fit that."""
        memory = Memory(round=3, published=1100, departed=0, known=((A, 400), (B, 10)))
        made = coordinator(Plain("blocks", start=100), memory=memory)
        assert asked(made.wake()) == ["a", "b"]
        made.receive(A, snapshot(400, round=4))
        assert asked(made.silence(B)) == ["a"]
        assert made.round == 5
        made.receive(A, snapshot(400, round=5))
        assert (made.answer.state, made._planned_for, made.published) == (State.DEGRADED, 410, 1100)

    def test_a_restart_with_nobody_left(self) -> None:
        made = coordinator(Exact(), memory=Memory(2, 9, 9, ()))
        assert made.wake() == []
        assert (made.answer.estimate, made.answer.state) == (9, State.EXACT)


FORBIDDEN: list[tuple[Address, UpMessage, str]] = [
    (Address("nobody"), report(1, 1), "has not joined"),
    (Address("a", 1), report(1, 1), "life 1"),
    (A, report(90, 1, round=2), "round 2"),
    (A, snapshot(90, round=9), "round 9"),
    (A, report(49, 1, round=1), "more crossings than events"),
    (A, report(60, 11, round=1), "more crossings than events"),
]


@pytest.mark.parametrize(("address", "message", "complaint"), FORBIDDEN)
def test_what_the_protocol_forbids_changes_nothing(address: Address, message: UpMessage, complaint: str) -> None:
    made = in_round_one()
    made.silence(A)  # even that it has spoken
    before = facts(made)
    with pytest.raises(ProtocolError, match=complaint):
        made.receive(address, message)
    assert facts(made) == before


def test_who_comes_or_goes_from_a_round_that_never_was_changes_nothing() -> None:
    made = in_round_one()
    before = facts(made)
    with pytest.raises(ProtocolError, match="round 2"):
        made.join(D, snapshot(5, round=2))
    with pytest.raises(ProtocolError, match="round 2"):
        made.leave(A, snapshot(55, round=2))
    with pytest.raises(ProtocolError, match="has not joined"):
        made.leave(D, snapshot(5))
    with pytest.raises(ProtocolError, match="has not joined"):
        made.silence(D)
    assert facts(made) == before


def test_a_joiner_of_round_0_may_pass_the_same_events_on_both_its_paces() -> None:
    made = coordinator(Deterministic(), A)
    made.join(B, snapshot(0))
    assert made.receive(B, report(1, 1)) == []  # on the pace it came with
    assert made.receive(B, report(1, 2)) == []  # and, once the Repace was there, on the one it was given
    assert made.published == 1


def test_a_synchronisation_costs_at_most_two_messages_for_each_site() -> None:
    world = World(Plain("blocks", start=50, step=5, reports=30), 20)
    for event in range(2_000):
        before, sent = world.coordinator.round, len(world.transcript)
        world.add(event % 20)
        if world.coordinator.round != before:
            assert len(world.transcript) - sent <= 1 + 2 * 20
    assert world.coordinator.round > 5


def test_repr_shows_the_answer() -> None:
    assert repr(coordinator(Exact(), A)).startswith("<Coordinator of 'hits': 0 (from 0 to 0; exact, exact")
