"""The coordinator, message by message: how rounds start and go on, and what it refuses."""

import pytest

from countless.core.answer import State
from countless.core.messages import SetTrigger, SiteId, UpMessage
from countless.errors import ProtocolError
from countless.schemes.deterministic import Deterministic
from countless.schemes.exact import Exact
from support.coordinators import A, B, C, D, coordinator, facts, in_round_one, in_round_two
from support.schemes import Plain
from support.worlds import COUNTER, World, asked, down, report, snapshot


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
        [(site_id, told)] = made.receive(C, report(1, 1))
        assert (site_id, told) == (C, SetTrigger(COUNTER, 1, made.trigger_of(C), 0))
        assert made.receive(C, report(2, 2)) == []  # the SetTrigger is under way
        assert made.known_total == 3  # what the new pace says of these events will be heard

    def test_it_stays_untold_over_several_rounds(self) -> None:
        made = coordinator(Plain("blocks", start=3, step=2, reports=1), A, B, C)
        made.receive(A, report(3, 3))
        made.receive(A, report(4, 4))
        outbox = made.receive(A, report(5, 1, round=1))
        assert asked(outbox) == ["a"]  # b and c have been idle since the start: they cost nothing
        made.receive(A, snapshot(5, round=2))
        assert (made.round, made.answer.state) == (2, State.HOLDING)
        assert down(made.receive(B, report(1, 1)), SetTrigger) == ["b"]

    def test_it_may_leave_before_it_was_told(self) -> None:
        made = coordinator(Plain("blocks", start=3), A, B, C)
        made.receive(A, report(3, 3))
        made.leave(B, snapshot(4))  # its reports of four events are still under way, or lost
        assert (made.published, made.known_total) == (7, 7)
        assert made.receive(B, report(4, 4)) == []  # and when they come they find nobody to be told

    def test_a_batch_it_reports_while_others_owe_snapshots_is_counted_once(self) -> None:
        made = coordinator(Plain("blocks", start=3, step=5, reports=1), A, B, C)
        made.receive(A, report(3, 3))
        made.receive(A, report(4, 4))
        assert asked(made.receive(A, report(4, 1, round=1))) == ["a"]  # b and c are known exactly
        assert down(made.receive(B, report(9, 9)), SetTrigger) == ["b"]
        assert made.receive(B, report(8, 1, round=2)) == []
        made.receive(A, snapshot(4, round=2))
        assert made.known_total == 4 + 8  # its ninth event lies after the crossing it reported
        assert made.round == 3  # that crossing was the only one of round 2

    def test_joins_departures_and_restarts(self) -> None:
        world = World(Plain("lattice", start=4), 3)
        for name in (0, 1, 2, 0, 1, 0):
            world.add(name)
        assert world.coordinator.round == 1
        world.join("new")
        world.leave(2)
        world.restart()
        assert world.coordinator.known_total == world.total == 6
        assert {site.round for site in world.sites.values()} == {world.coordinator.round}


class TestRounds:
    def test_the_answer_is_learning_until_the_last_snapshot(self) -> None:
        made = in_round_two()
        for site_id, count in ((A, 71), (B, 33)):
            assert made.receive(site_id, snapshot(count, round=2)) == []
            assert made.answer.state is State.LEARNING
        made.receive(C, snapshot(25, round=2))
        assert made.answer.state is State.HOLDING
        assert made.known_total == made.debug_state().estimator.estimate == 71 + 33 + 25

    def test_a_report_may_overtake_its_snapshot(self) -> None:
        made = in_round_two()
        made.receive(A, report(80, 1, round=2))
        made.receive(A, snapshot(71, round=2))
        made.receive(B, snapshot(33, round=2))
        made.receive(C, snapshot(25, round=2))
        assert made.debug_state().estimator.estimate == 71 + 33 + 25 + 10  # one block of ten
        assert made.known_total == 80 + 33 + 25

    def test_reports_of_an_old_round_raise_the_count_but_no_crossing(self) -> None:
        made = in_round_two()
        made.receive(B, report(35, 2, round=1))
        assert made.known_total == 70 + 35 + 20
        for site_id, count in ((A, 70), (B, 36), (C, 20)):
            made.receive(site_id, snapshot(count, round=2))
        assert made.debug_state().estimator.estimate == 70 + 36 + 20

    def test_reports_while_others_still_answer_are_counted_when_the_round_begins(self) -> None:
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.receive(A, report(75, 1, round=2))
        assert made.answer.state is State.LEARNING
        made.receive(B, snapshot(30, round=2))
        made.receive(C, snapshot(20, round=2))
        assert made.debug_state().estimator.estimate == 120 + 10

    def test_a_repeated_report_or_snapshot_brings_nothing(self) -> None:
        made = in_round_two()
        for site_id, count in ((A, 70), (B, 30), (C, 20)):
            made.receive(site_id, snapshot(count, round=2))
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


class TestAnotherPace:
    """A site that is given another pace in the middle of a round looks at the same events twice."""

    def test_it_goes_on_from_the_count_it_reported(self) -> None:
        made = in_round_one("redrawn", step=10)
        [(site_id, message)] = made.receive(A, report(57, 1, round=1))
        assert (site_id, message) == (A, SetTrigger(COUNTER, 1, made.trigger_of(A), 57))

    def test_it_may_then_say_less_than_it_had_said_meanwhile(self) -> None:
        made = in_round_one("redrawn", step=10)
        made.receive(A, report(57, 1, round=1))
        made.receive(A, report(67, 2, round=1))  # the SetTrigger was still under way
        made.receive(A, report(63, 3, round=1))  # and now it was there
        assert made.known_total == 67 + 30 + 20

    def test_if_its_connection_was_lost_the_pace_may_have_been_too(self) -> None:
        made = in_round_one("redrawn", step=10)
        made.receive(A, report(57, 1, round=1))
        assert made.join(A, snapshot(66, round=1)) == [(A, SetTrigger(COUNTER, 1, made.trigger_of(A), 57))]


FORBIDDEN: list[tuple[SiteId, UpMessage, str]] = [
    (SiteId("nobody"), report(1, 1), "has not joined"),
    (SiteId("a", 1), report(1, 1), "incarnation 1"),
    (A, report(90, 1, round=2), "round 2"),
    (A, snapshot(90, round=9), "round 9"),
    (A, report(49, 1, round=1), "more crossings than events"),
    (A, report(60, 11, round=1), "more crossings than events"),
]


@pytest.mark.parametrize(("site_id", "message", "complaint"), FORBIDDEN)
def test_what_the_protocol_forbids_changes_nothing(site_id: SiteId, message: UpMessage, complaint: str) -> None:
    made = in_round_one()
    made.mark_unreachable(A)  # even that it has spoken
    before = facts(made)
    with pytest.raises(ProtocolError, match=complaint):
        made.receive(site_id, message)
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
        made.mark_unreachable(D)
    assert facts(made) == before


def test_a_joiner_of_round_0_may_pass_the_same_events_on_both_its_paces() -> None:
    made = coordinator(Deterministic(), A)
    made.join(B, snapshot(0))
    assert made.receive(B, report(1, 1)) == []  # on the pace it came with
    assert made.receive(B, report(1, 2)) == []  # and, once the SetTrigger was there, on the one it was given
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
