"""The coordinator, message by message: how rounds start and continue, and which messages it refuses."""

import pytest

from countless.core.answer import State
from countless.core.messages import SetTrigger, SiteId, UpMessage
from countless.core.parameters import MAX_ROUND
from countless.errors import ProtocolError
from countless.schemes.deterministic import Deterministic
from countless.schemes.exact import Exact
from support.coordinators import A, B, C, D, coordinator, facts, in_round_one, in_round_two
from support.schemes import Plain
from support.worlds import COUNTER, World, down, report, requested, snapshot


class TestStart:
    def test_sites_of_the_fleet_join_without_messages(self) -> None:
        fresh = coordinator(Exact(), A, B)
        assert (fresh.answer.estimate, fresh.answer.state, fresh.answer.sites) == (0, State.EXACT, 2)

    def test_coordinator_without_sites_answers_zero(self) -> None:
        empty = coordinator(Exact())
        assert (empty.answer.estimate, empty.answer.sites) == (0, 0)
        assert empty.join(A, snapshot(7)) != []
        assert empty.answer.estimate == 7


class TestDeferredTriggers:
    """A site that reports every event gets its new trigger with its next report; its count is known until then."""

    def test_round_starts_without_messages_if_all_counts_are_known(self) -> None:
        made = coordinator(Plain(start=3), A, B, C)
        made.receive(A, report(2, 2))
        assert made.receive(B, report(1, 1)) == []
        assert (made.round, made.answer.state) == (1, State.HOLDING)

    def test_deferred_trigger_is_sent_once_with_the_next_report(self) -> None:
        made = coordinator(Plain("blocks", start=3), A, B, C)
        made.receive(A, report(3, 3))
        [(site_id, message)] = made.receive(C, report(1, 1))
        assert (site_id, message) == (C, SetTrigger(COUNTER, 1, made.trigger_of(C), 0))
        assert made.receive(C, report(2, 2)) == []  # the SetTrigger is under way
        assert made.known_total == 3  # these events are counted when the new trigger reports them

    def test_trigger_is_deferred_over_several_rounds(self) -> None:
        made = coordinator(Plain("blocks", start=3, step=2, reports=1), A, B, C)
        made.receive(A, report(3, 3))
        made.receive(A, report(4, 4))
        outbox = made.receive(A, report(5, 1, round=1))
        assert requested(outbox) == ["a"]  # b and c have been idle since the start
        made.receive(A, snapshot(5, round=2))
        assert (made.round, made.answer.state) == (2, State.HOLDING)
        assert down(made.receive(B, report(1, 1)), SetTrigger) == ["b"]

    def test_site_may_leave_before_its_deferred_trigger(self) -> None:
        made = coordinator(Plain("blocks", start=3), A, B, C)
        made.receive(A, report(3, 3))
        made.leave(B, snapshot(4))  # its reports of four events are still under way, or lost
        assert (made.published, made.known_total) == (7, 7)
        assert made.receive(B, report(4, 4)) == []  # a departed site gets no trigger

    def test_batch_of_a_deferred_site_during_a_synchronisation_is_counted_once(self) -> None:
        made = coordinator(Plain("blocks", start=3, step=5, reports=1), A, B, C)
        made.receive(A, report(3, 3))
        made.receive(A, report(4, 4))
        assert requested(made.receive(A, report(4, 1, round=1))) == ["a"]  # b and c are known exactly
        assert down(made.receive(B, report(9, 9)), SetTrigger) == ["b"]
        assert made.receive(B, report(8, 1, round=2)) == []
        made.receive(A, snapshot(4, round=2))
        assert made.known_total == 4 + 8  # its ninth event lies after the crossing it reported
        assert made.round == 3  # that crossing was the only one of round 2

    def test_deferred_triggers_with_joins_departures_and_a_restart(self) -> None:
        world = World(Plain("lattice", start=4), 3)
        for name in (0, 1, 2, 0, 1, 0):
            world.add(name)
        assert world.coordinator.round == 1
        world.join("new")
        world.leave(2)
        world.restart()
        assert world.coordinator.known_total == world.total == 6
        assert {world.site(name).round for name in world.sites} == {world.coordinator.round}


class TestRounds:
    def test_answer_is_learning_until_the_last_snapshot(self) -> None:
        made = in_round_two()
        for site_id, count in ((A, 71), (B, 33)):
            assert made.receive(site_id, snapshot(count, round=2)) == []
            assert made.answer.state is State.LEARNING
        made.receive(C, snapshot(25, round=2))
        assert made.answer.state is State.HOLDING
        assert made.known_total == made.debug_state().estimator.estimate == 71 + 33 + 25

    def test_report_may_overtake_its_snapshot(self) -> None:
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

    def test_duplicate_report_or_snapshot_changes_nothing(self) -> None:
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

    def test_round_may_end_as_soon_as_it_begins(self) -> None:
        made = in_round_two(reports=2)
        made.receive(A, report(90, 2, round=2))  # overtook its snapshot, and brings the whole round's reports
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        outbox = made.receive(C, snapshot(20, round=2))
        assert requested(outbox) == ["a", "b", "c"]
        assert made.round == 3


class TestNewTrigger:
    """A site that gets a new trigger during a round may report the same events twice."""

    def test_new_trigger_continues_at_the_reported_count(self) -> None:
        made = in_round_one("redrawn", step=10)
        [(site_id, message)] = made.receive(A, report(57, 1, round=1))
        assert (site_id, message) == (A, SetTrigger(COUNTER, 1, made.trigger_of(A), 57))

    def test_first_report_of_a_new_trigger_may_be_below_an_earlier_report(self) -> None:
        made = in_round_one("redrawn", step=10)
        made.receive(A, report(57, 1, round=1))
        made.receive(A, report(67, 2, round=1))  # the SetTrigger was still under way
        made.receive(A, report(63, 3, round=1))  # and now it has arrived
        assert made.known_total == 67 + 30 + 20

    def test_rejoin_sends_a_trigger_again_that_may_be_lost(self) -> None:
        made = in_round_one("redrawn", step=10)
        made.receive(A, report(57, 1, round=1))
        assert made.join(A, snapshot(66, round=1)) == [(A, SetTrigger(COUNTER, 1, made.trigger_of(A), 57))]


FORBIDDEN: list[tuple[SiteId, UpMessage, str]] = [
    (SiteId("unknown"), report(1, 1), "has not joined"),
    (SiteId("a", 1), report(1, 1), "incarnation 1"),
    (A, report(90, 1, round=2), "round 2"),
    (A, snapshot(90, round=9), "round 9"),
    (A, report(49, 1, round=1), "more crossings than events"),
    (A, report(60, 11, round=1), "more crossings than events"),
]


@pytest.mark.parametrize(("site_id", "message", "complaint"), FORBIDDEN)
def test_message_against_the_protocol_changes_nothing(site_id: SiteId, message: UpMessage, complaint: str) -> None:
    made = in_round_one()
    made.mark_unreachable(A)  # and stays so: a refused message does not make it reachable
    before = facts(made)
    with pytest.raises(ProtocolError, match=complaint):
        made.receive(site_id, message)
    assert facts(made) == before


def test_join_of_an_absurd_round_or_leave_from_a_future_one_changes_nothing() -> None:
    made = in_round_one()
    before = facts(made)
    for site_id in (A, D):
        with pytest.raises(ProtocolError, match="too far ahead"):
            made.join(site_id, snapshot(55, round=MAX_ROUND + 1))
    with pytest.raises(ProtocolError, match="round 2"):
        made.leave(A, snapshot(55, round=2))
    with pytest.raises(ProtocolError, match="has not joined"):
        made.leave(D, snapshot(5))
    with pytest.raises(ProtocolError, match="has not joined"):
        made.mark_unreachable(D)
    assert facts(made) == before


def test_site_that_joined_round_0_may_report_events_under_both_triggers() -> None:
    made = coordinator(Deterministic(), A)
    made.join(B, snapshot(0))
    assert made.receive(B, report(1, 1)) == []  # under the trigger it joined with
    assert made.receive(B, report(1, 2)) == []  # and, after the SetTrigger, under the new one
    assert made.published == 1


def test_synchronisation_costs_at_most_two_messages_per_site() -> None:
    world = World(Plain("blocks", start=50, step=5, reports=30), 20)
    for event in range(2_000):
        before, sent = world.round, world.messages.total
        world.add(event % 20)
        if world.round != before:
            assert world.messages.total - sent <= 1 + 2 * 20
    assert world.round > 5


def test_repr_of_a_coordinator_shows_the_answer() -> None:
    assert repr(coordinator(Exact(), A)).startswith("<Coordinator of 'hits': 0 (from 0 to 0; exact, exact")


def test_snapshot_is_awaited_since_the_first_round_that_was_not_answered() -> None:
    made = in_round_two()
    made.recover()  # another round, before the snapshots of this one
    assert [made.awaited(site_id) for site_id in (A, D)] == [2, None]
    made.receive(A, snapshot(70, round=2))  # of a round that is over
    assert made.awaited(A) == 2
    made.receive(A, snapshot(70, round=3))
    assert [made.awaited(site_id) for site_id in (A, B)] == [None, 2]
    made.recover()
    assert [made.awaited(site_id) for site_id in (A, B)] == [4, 2]
    made.mark_unreachable(A)
    made.leave(B, snapshot(30, round=1))
    assert [made.awaited(site_id) for site_id in (A, B)] == [None, None]


def test_site_that_is_given_up_departs_with_the_largest_count_received() -> None:
    made = coordinator(Exact(), A, B)
    made.receive(A, report(7, 7))
    made.receive(B, report(5, 5))
    assert made.give_up(A) == []
    assert (made.departed, made.sites, made.estimate) == (7, 1, 12)
    with pytest.raises(ProtocolError, match="has not joined"):
        made.give_up(SiteId("never seen"))
