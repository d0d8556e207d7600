"""Membership: joins, rejoins, departures, time-outs, and a restarted coordinator."""

import pytest

from countless.core.answer import State
from countless.core.coordinator import PersistentCounter
from countless.core.messages import SetTrigger, SiteId, StartRound
from countless.errors import PlanError
from countless.schemes.exact import Exact
from support.coordinators import A, B, C, D, coordinator, facts, in_round_one, in_round_two
from support.schemes import Plain
from support.worlds import COUNTER, down, report, requested, snapshot


class TestJoin:
    def test_joining_site_brings_its_count_and_gets_a_trigger(self) -> None:
        made = in_round_one()
        [(site_id, message)] = made.join(D, snapshot(1000))
        assert (site_id, message) == (D, SetTrigger(COUNTER, 1, made.trigger_of(D), 1000))
        assert (made.published, made.answer.sites) == (1100, 4)

    def test_site_that_joins_during_a_synchronisation_is_in_the_new_round(self) -> None:
        made = in_round_two()
        assert down(made.join(D, snapshot(1000)), SetTrigger) == ["d"]
        assert made.published < 1000
        for site_id, count in ((A, 70), (B, 30), (C, 20)):
            made.receive(site_id, snapshot(count, round=2))
        assert made.published == 1120

    def test_join_without_a_free_slot_starts_a_new_round(self) -> None:
        made = in_round_one("lattice", slots=4)
        assert requested(made.join(D, snapshot(0))) == []
        outbox = made.join(SiteId("e"), snapshot(9))
        assert requested(outbox) == ["a", "b", "c", "d", "e"]
        assert made.round == 2

    def test_slot_of_a_departed_site_is_not_free_until_the_round_ends(self) -> None:
        made = in_round_one("lattice", slots=4)
        made.leave(A, snapshot(51, round=1))
        assert made.join(D, snapshot(0)) != []
        assert made.round == 1
        assert requested(made.join(SiteId("e"), snapshot(0))) == ["b", "c", "d", "e"]

    def test_join_without_a_plan_changes_nothing(self) -> None:
        scheme = Plain("lattice", start=2, slots=3)
        made = coordinator(scheme, A, B, C)
        made.receive(A, report(2, 2))
        scheme.most_sites = 3
        before = facts(made)
        with pytest.raises(PlanError, match="4 sites"):
            made.join(D, snapshot(9))
        assert facts(made) == before
        assert D not in made.debug_state().entries

    def test_new_incarnation_is_a_new_site(self) -> None:
        made = in_round_one()
        made.leave(A, snapshot(60, round=1))
        made.join(A._replace(incarnation=1), snapshot(0))
        assert (made.known_total, made.answer.sites) == (60 + 30 + 20, 3)


class TestRejoin:
    def test_rejoin_in_the_same_round_sends_nothing(self) -> None:
        made = in_round_one()
        assert made.join(A, snapshot(57, round=1)) == []

    def test_rejoin_from_an_earlier_round_continues_at_the_reported_count(self) -> None:
        made = coordinator(Plain("blocks", start=3), A, B)
        made.receive(A, report(3, 3))
        assert made.join(B, snapshot(8)) == [(B, SetTrigger(COUNTER, 1, made.trigger_of(B), 0))]

    def test_rejoin_of_a_site_that_owes_a_snapshot_requests_it_again(self) -> None:
        made = in_round_two()
        [(site_id, message)] = made.join(B, snapshot(33, round=1))
        assert (site_id, message) == (B, StartRound(COUNTER, 2, made.trigger_of(B)))


class TestLeave:
    def test_final_snapshot_is_exact_and_stays_in_the_total(self) -> None:
        made = coordinator(Exact(), A, B)
        made.receive(A, report(5, 5))
        made.leave(A, snapshot(9))
        assert (made.published, made.answer.sites, made.answer.state) == (9, 1, State.EXACT)

    def test_duplicate_final_snapshot_is_counted_once(self) -> None:
        made = coordinator(Exact(), A, B)
        made.leave(A, snapshot(9))
        before = facts(made)
        assert made.leave(A, snapshot(9)) == []
        assert facts(made) == before

    def test_final_snapshot_answers_the_request_for_a_snapshot(self) -> None:
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.leave(C, snapshot(28, round=1))
        assert (made.answer.state, made.debug_state().estimator.estimate) == (State.HOLDING, 128)

    def test_next_round_has_the_final_count_of_a_departed_site(self) -> None:
        made = in_round_one(reports=1, step=10)
        made.leave(B, snapshot(44, round=1))
        assert requested(made.receive(A, report(60, 1, round=1))) == ["a", "c"]
        made.receive(A, snapshot(60, round=2))
        made.receive(C, snapshot(21, round=2))
        assert made.debug_state().estimator.estimate == 60 + 21 + 44

    def test_site_that_leaves_while_others_owe_snapshots_is_counted_exactly(self) -> None:
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.leave(A, snapshot(74, round=2))
        made.receive(B, snapshot(30, round=2))
        made.receive(C, snapshot(20, round=2))
        assert made.known_total == 124

    def test_final_snapshot_includes_lattice_reports_that_it_overtook(self) -> None:
        made = in_round_one("lattice", step=10, reports=100)
        points = made.debug_state().estimator.estimate
        made.leave(A, snapshot(50 + 40, round=1))
        assert made.debug_state().estimator.estimate == points + 40


class TestUnreachable:
    def test_answer_names_unreachable_sites(self) -> None:
        made = in_round_one()
        assert made.mark_unreachable(B) == []
        assert (made.answer.state, made.answer.silent) == (State.DEGRADED, ("b",))
        made.receive(B, report(40, 1, round=1))
        assert (made.answer.state, made.answer.silent) == (State.HOLDING, ())

    def test_round_starts_without_the_snapshot_of_an_unreachable_site(self) -> None:
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        assert made.mark_unreachable(C) == []
        assert (made.answer.state, made.debug_state().estimator.estimate) == (State.DEGRADED, 120)

    def test_late_snapshot_corrects_the_assumed_round_start(self) -> None:
        made = in_round_two()
        made.mark_unreachable(C)
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.receive(C, report(60, 1, round=2))
        assert made.debug_state().estimator.estimate == 120 + 10
        made.receive(C, snapshot(55, round=2))
        assert made.debug_state().estimator.estimate == 70 + 30 + 55 + 10
        before = facts(made)
        made.receive(C, snapshot(55, round=2))
        assert facts(made) == before

    def test_late_snapshot_below_a_reported_count_changes_nothing(self) -> None:
        made = in_round_two()
        made.receive(C, report(60, 1, round=2))
        made.mark_unreachable(C)  # its round start is now the 60 that it reported
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.receive(C, snapshot(55, round=2))
        assert made.debug_state().estimator.estimate == 160

    def test_site_unreachable_at_a_round_start_gets_its_trigger_when_it_reports(self) -> None:
        made = in_round_one(reports=1, step=10)
        made.mark_unreachable(C)
        assert requested(made.receive(A, report(60, 1, round=1))) == ["a", "b"]
        assert made.receive(C, report(38, 2, round=1)) == [(C, SetTrigger(COUNTER, 2, made.trigger_of(C), 20))]
        assert made.answer.silent == ()

    def test_site_that_timed_out_owing_a_snapshot_gets_its_trigger_when_it_reports(self) -> None:
        made = in_round_two()
        made.mark_unreachable(C)
        assert made.receive(C, report(38, 2, round=1)) == [(C, SetTrigger(COUNTER, 2, made.trigger_of(C), 20))]
        assert made.receive(C, report(38, 2, round=1)) == []  # once

    def test_site_whose_late_snapshot_arrived_gets_no_second_trigger(self) -> None:
        made = in_round_two()
        made.mark_unreachable(C)
        made.receive(C, snapshot(55, round=2))
        assert made.receive(C, report(38, 2, round=1)) == []  # an old report that the snapshot overtook

    def test_rejoined_site_may_have_adopted_the_round_at_a_later_count(self) -> None:
        """The StartRound was only late: the site ignores the SetTrigger, and its Snapshot still counts."""
        made = in_round_two()
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.mark_unreachable(C)
        assert down(made.join(C, snapshot(55, round=1)), SetTrigger) == ["c"]
        made.receive(C, snapshot(55, round=2))
        assert made.debug_state().estimator.estimate == 155

    def test_site_still_unreachable_at_the_next_round_is_assumed_again(self) -> None:
        made = in_round_two()
        made.mark_unreachable(C)
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        assert requested(made.receive(A, report(90, 2, round=2))) == ["a", "b"]
        assert made.receive(C, snapshot(55, round=2)) == [(C, SetTrigger(COUNTER, 3, made.trigger_of(C), 20))]

    def test_unreachable_site_may_leave(self) -> None:
        made = in_round_two()
        made.mark_unreachable(C)
        made.receive(A, snapshot(70, round=2))
        made.receive(B, snapshot(30, round=2))
        made.leave(C, snapshot(58, round=1))
        assert (made.answer.state, made.published) == (State.HOLDING, 158)
        assert made.mark_unreachable(C) == []
        assert made.answer.state is State.HOLDING


class TestRestart:
    def test_recovery_requests_all_snapshots_and_the_answer_is_learning(self) -> None:
        before = in_round_one()
        before.leave(B, snapshot(44, round=1))
        after = coordinator(Plain("blocks", start=100), saved_state=before.saved_state)
        assert (after.answer.state, after.published) == (State.LEARNING, before.published)
        assert requested(after.recover()) == ["a", "c"]
        assert after.round == before.round + 1
        after.receive(A, snapshot(61, round=2))
        after.receive(C, snapshot(27, round=2))
        assert (after.answer.state, after.debug_state().estimator.estimate) == (State.HOLDING, 61 + 27 + 44)

    def test_second_restart_before_all_snapshots_requests_them_again(self) -> None:
        first = in_round_two()
        second = coordinator(Plain("blocks", start=100), saved_state=first.saved_state)
        second.recover()
        second.receive(A, snapshot(75, round=3))
        third = coordinator(Plain("blocks", start=100), saved_state=second.saved_state)
        assert requested(third.recover()) == ["a", "b", "c"]
        assert (third.round, third.known_total) == (4, 75 + 30 + 20)

    def test_published_estimate_does_not_fall_after_a_restart_and_readers_see_what_is_known(self) -> None:
        saved_state = PersistentCounter(round=3, published=500, departed=0, known=((A, 10),))
        made = coordinator(Exact(), saved_state=saved_state)
        made.recover()
        made.receive(A, snapshot(480, round=4))
        assert (made.published, made.answer.estimate, made.answer.state) == (500, 480, State.EXACT)

    def test_recovery_plans_again_if_the_known_total_is_below_the_planned(self) -> None:
        """The published estimate stands for 1,000 or more, but 410 are known: the step must fit 410."""
        saved_state = PersistentCounter(round=3, published=1100, departed=0, known=((A, 400), (B, 10)))
        made = coordinator(Plain("blocks", start=100), saved_state=saved_state)
        assert requested(made.recover()) == ["a", "b"]
        made.receive(A, snapshot(400, round=4))
        assert requested(made.mark_unreachable(B)) == ["a"]
        assert made.round == 5
        made.receive(A, snapshot(400, round=5))
        assert (made.answer.state, made.debug_state().planned_total, made.published) == (State.DEGRADED, 410, 1100)

    def test_restart_without_sites_keeps_the_departed_count(self) -> None:
        made = coordinator(Exact(), saved_state=PersistentCounter(2, 9, 9, ()))
        assert made.recover() == []
        assert (made.answer.estimate, made.answer.state) == (9, State.EXACT)
