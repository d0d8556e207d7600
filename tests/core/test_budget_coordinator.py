"""The coordinator and the site of a budget, one behaviour at a time; a searched model covers their runs."""

import pytest

from countless.core.budget.coordinator import BudgetCoordinator
from countless.core.budget.messages import Ask, BudgetId, Quota
from countless.core.budget.site import BudgetSite, Verdict
from countless.core.budget.state import BudgetState, PersistentBudget, SavedSite
from countless.core.messages import SiteId
from countless.errors import InvalidParameter, ProtocolError

B = BudgetId("tokens", 7)
X, Y, Z = SiteId("x"), SiteId("y"), SiteId("z")


def ask(
    seq: int,
    want: int = 0,
    *,
    number: int = 0,
    granted: int = 0,
    returned: int = 0,
    spent: int = 0,
    held: int = 0,
    more: int = 0,
    keep: bool = False,
    queued: bool = False,
) -> Ask:
    return Ask(B, seq, min(number, 1), number, granted, returned, spent, held, want, more, keep, queued=queued)


def quota(
    number: int, granted: int, *, keep: bool = False, refuse_from: int | None = None, reply: bool = False
) -> Quota:
    return Quota(B, 1, number, granted, keep, refuse_from, reply)


def test_first_shares_are_made_for_the_expected_holders() -> None:
    assert BudgetCoordinator(B, 1000).receive(X, ask(1, 1)) == [(X, quota(1, 280, keep=True))]
    assert BudgetCoordinator(B, 1000, expected_holders=10).receive(X, ask(1, 1)) == [(X, quota(1, 28, keep=True))]


def test_share_is_made_anew_when_the_holders_have_doubled() -> None:
    coordinator = BudgetCoordinator(B, 1000)
    coordinator.receive(X, ask(1, 1))
    assert coordinator.receive(Y, ask(1, 1)) == [(Y, quota(1, 140, keep=True))]
    assert coordinator.receive(Z, ask(1, 1)) == [(Z, quota(1, 140, keep=True))]


def test_request_of_a_share_or_more_is_granted_without_lending() -> None:
    assert BudgetCoordinator(B, 1000).receive(X, ask(1, 280)) == [(X, quota(1, 280))]
    assert BudgetCoordinator(B, 1000).receive(X, ask(1, 279)) == [(X, quota(1, 280, keep=True))]


def test_all_that_waits_at_a_site_is_granted_if_it_is_free() -> None:
    assert BudgetCoordinator(B, 10).receive(X, ask(1, 6, more=4)) == [(X, quota(1, 10))]
    assert BudgetCoordinator(B, 10).receive(X, ask(1, 6, more=5)) == [(X, quota(1, 10))]  # what is free


def test_lost_grant_is_told_again_by_a_join_and_nothing_more_is_granted() -> None:
    coordinator = BudgetCoordinator(B, 1000)
    coordinator.receive(X, ask(1, 1))
    assert coordinator.join(X, ask(2, 1)) == [(X, quota(2, 280, keep=True))]
    assert coordinator.receive(X, ask(2, 1, granted=280)) == []  # repeated


def test_unit_that_returns_is_granted_to_the_first_queued_request_and_costs_others_no_message() -> None:
    coordinator = BudgetCoordinator(B, 1, slack=0)
    coordinator.receive(X, ask(1, 1))
    for site in (Y, Z):
        assert coordinator.receive(site, ask(1, 1, queued=True)) == [(site, quota(1, 0, refuse_from=1))]
    assert coordinator.receive(X, ask(2, number=1, granted=1, returned=1)) == [(Y, quota(2, 1))]
    assert coordinator.receive(Y, ask(2, number=2, granted=1, returned=1)) == [(Z, quota(2, 1))]


def test_queued_request_is_granted_nothing_if_less_is_free_or_its_site_does_not_answer() -> None:
    coordinator = BudgetCoordinator(B, 2, slack=0)
    coordinator.receive(X, ask(1, 2))
    coordinator.receive(Y, ask(1, 2, queued=True))
    coordinator.receive(Z, ask(1, 1, queued=True))
    coordinator.mark_unreachable(Z)
    outbox = coordinator.receive(X, ask(2, number=1, granted=2, returned=1, held=1))
    assert outbox == [(Y, quota(2, 0)), (Z, quota(2, 0))]


def test_recall_goes_to_lent_sites_that_may_return_something() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 1))  # lent 3
    coordinator.receive(Z, ask(1, 3))
    coordinator.receive(Y, ask(1, 4))
    assert coordinator.receive(Y, ask(2, 1, number=1, granted=4, spent=4)) == [(X, quota(2, 3, reply=True))]
    assert coordinator.recalling
    answer = ask(2, number=2, granted=3, returned=2, spent=1)
    assert coordinator.receive(X, answer) == [(Y, quota(2, 5))]
    assert coordinator.recalls == 1


def test_site_that_timed_out_counts_with_its_limit_until_it_answers() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 1))
    coordinator.receive(Y, ask(1, 7))
    assert coordinator.receive(Y, ask(2, 1, number=1, granted=7, spent=7)) == [(X, quota(2, 3, reply=True))]
    assert coordinator.mark_unreachable(X) == [(Y, quota(2, 7, refuse_from=1))]
    # Two units are back: the site that refuses them is told.
    answer = ask(2, number=2, granted=3, returned=2, spent=1)
    assert coordinator.receive(X, answer) == [(Y, quota(3, 7))]


def test_units_of_a_site_that_was_given_up_return_when_it_leaves() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 8))
    coordinator.give_up(X)
    assert coordinator.usage == (10, 0, 8, 8, BudgetState.OPEN)
    assert coordinator.receive(X, ask(2, 1, number=1, granted=8, spent=8)) == []
    assert coordinator.receive(Y, ask(1, 3)) == [(Y, quota(1, 0, refuse_from=3))]
    assert coordinator.leave(X, 2) == [(Y, quota(2, 0))]
    assert coordinator.leave(X, 2) == []
    assert coordinator.usage.lower == coordinator.usage.upper == 2


def test_saved_state_continues_with_the_same_limits() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 8))
    coordinator.receive(Y, ask(1, 1))
    coordinator.leave(Y, 1)
    coordinator.give_up(Z)
    coordinator.set_limit(12)
    after = BudgetCoordinator(B, 1, slack=0, saved_state=coordinator.saved_state)
    assert after.saved_state == coordinator.saved_state
    assert (after.limit, after.free, after.saved_site(X)) == (12, 3, SavedSite(8, since=1))
    assert after.recover() == []
    assert after.recalling
    assert after.receive(Y, ask(5, 1)) == []  # it left before the restart
    assert after.join(X, ask(2, 1, number=1, granted=8, spent=8)) == [(X, quota(2, 9))]
    assert not after.recalling


def test_lowered_limit_is_in_force_once_rooms_are_back() -> None:
    coordinator = BudgetCoordinator(B, 100, slack=0)
    coordinator.receive(X, ask(1, 1))
    assert coordinator.set_limit(20) == [(X, quota(2, 28, reply=True))]
    assert coordinator.usage.state is BudgetState.LOWERING
    coordinator.receive(X, ask(2, number=2, granted=28, returned=13, spent=15))
    assert coordinator.usage == (20, 15, 15, 0, BudgetState.OPEN)


def test_site_that_was_away_when_the_limit_was_lowered_is_recalled_when_it_comes_back() -> None:
    coordinator = BudgetCoordinator(B, 100, slack=0)
    coordinator.receive(X, ask(1, 1))
    after_restart = BudgetCoordinator(B, 100, slack=0, saved_state=coordinator.saved_state)
    coordinator.mark_unreachable(X)
    after_restart.recover()
    for each in (coordinator, after_restart):
        assert each.set_limit(20) == []
        back = ask(2, number=1, granted=28, spent=1, keep=True)
        assert each.join(X, back) == [(X, quota(2, 28, reply=True))]


def test_request_larger_than_what_is_left_does_not_exhaust_the_budget() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0.1)
    assert coordinator.receive(X, ask(1, 11)) == [(X, quota(1, 0, refuse_from=11))]
    assert (coordinator.usage.state, coordinator.refused_from) == (BudgetState.OPEN, 11)
    coordinator.receive(Y, ask(1, 9))
    assert coordinator.receive(X, ask(2, 2, number=1)) == [(X, quota(2, 0, refuse_from=2))]
    assert (coordinator.usage.state, coordinator.refused_from) == (BudgetState.EXHAUSTED, 2)


def test_reset_forgives_what_sites_report_and_tells_refused_sites() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 10))
    coordinator.receive(X, ask(2, 1, number=1, granted=10, spent=10))
    assert coordinator.usage.state is BudgetState.EXHAUSTED
    assert coordinator.reset() == [(X, quota(3, 10))]  # it has nothing unreported, so it is not asked
    assert coordinator.usage == (10, 0, 0, 0, BudgetState.OPEN)
    assert coordinator.receive(X, ask(3, 10, number=3, granted=10, spent=10)) == [(X, quota(4, 20))]
    assert coordinator.usage == (10, 0, 10, 0, BudgetState.EXHAUSTED)


def test_reset_waits_for_sites_that_may_have_spent_and_goes_on_after_a_restart() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 8))
    assert coordinator.reset() == [(X, quota(2, 8, reply=True))]
    assert coordinator.receive(Y, ask(1, 1)) == []
    after = BudgetCoordinator(B, 1, slack=0, saved_state=coordinator.saved_state)
    assert after.recover() == []
    assert after.usage.state is BudgetState.RESETTING
    after.join(X, ask(2, number=1, granted=8, returned=2, spent=6))
    assert after.usage == (10, 0, 0, 0, BudgetState.OPEN)


def test_forgotten_site_stays_charged_with_its_limit_if_it_was_given_up() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 4))
    coordinator.receive(X, ask(2, number=1, granted=4, spent=1, held=3))
    coordinator.receive(Y, ask(1, 2))
    coordinator.give_up(X)
    coordinator.give_up(Y)
    assert coordinator.given_up_beyond(1) == [X]
    coordinator.forget(X)
    assert coordinator.given_up_beyond(1) == []
    assert coordinator.usage == (10, 1, 6, 5, BudgetState.OPEN)
    coordinator.leave(Y, 1)
    coordinator.forget(Y)
    assert coordinator.usage == (10, 2, 5, 3, BudgetState.OPEN)
    assert coordinator.saved_state == PersistentBudget(10, gone=2, lost=3)
    assert BudgetCoordinator(B, 1, saved_state=coordinator.saved_state).usage == coordinator.usage
    coordinator.reset()  # what was lost may be spent later
    assert coordinator.usage == (10, 0, 3, 3, BudgetState.OPEN)


def test_reconnected_site_is_told_its_refusal_again() -> None:
    coordinator = BudgetCoordinator(B, 2, slack=0)
    coordinator.receive(X, ask(1, 2))
    assert coordinator.receive(X, ask(2, 1, number=1, granted=2, held=2)) == [(X, quota(2, 2, refuse_from=1))]
    assert coordinator.join(X, ask(3, number=2, granted=2, held=2)) == [(X, quota(3, 2, refuse_from=1))]


def test_site_of_a_budget_that_was_deleted_begins_a_new_membership() -> None:
    old, site = BudgetCoordinator(B, 10), BudgetSite(B)
    for _, each in old.receive(X, site.take(4).messages[0]):
        site.receive(each)
    ((_, told),) = BudgetCoordinator(B, 10).receive(X, site.resend())
    assert (told.since, told.granted, site.since) == (2, 0, 1)
    assert site.is_outlived(told)
    after = BudgetSite(B, seq=site.seq, since=told.since)
    after.receive(told)
    assert (after.room, after.resend().seq) == (0, 3)


@pytest.mark.parametrize(
    "message",
    [
        ask(2, 1, granted=3, returned=3, spent=1),
        ask(2, 1, granted=3, spent=2, held=2),
        ask(2, 1, granted=3, spent=-1),
        ask(2, -1),
        ask(2, 1)._replace(since=5),
        ask(2, 1)._replace(budget=BudgetId("tokens", 8)),
    ],
)
def test_impossible_ask_changes_nothing(message: Ask) -> None:
    coordinator = BudgetCoordinator(B, 10)
    coordinator.receive(X, ask(1, 3))
    before = coordinator.saved_state, coordinator.usage
    with pytest.raises(ProtocolError):
        coordinator.receive(X, message)
    assert (coordinator.saved_state, coordinator.usage) == before


def test_values_outside_their_range_change_nothing() -> None:
    coordinator = BudgetCoordinator(B, 10)
    before = coordinator.saved_state
    with pytest.raises(InvalidParameter, match="limit = 0 is not allowed: limit must be an integer from 1 to"):
        coordinator.set_limit(0)
    with pytest.raises(InvalidParameter, match="units = -1"):
        coordinator.leave(X, -1)
    assert coordinator.saved_state == before
    with pytest.raises(InvalidParameter, match="expected_holders = 0"):
        BudgetCoordinator(B, 10, expected_holders=0)
    with pytest.raises(InvalidParameter, match="early_percent = 60"):
        BudgetSite(B, early_percent=60)


def lent_site(units: int) -> BudgetSite:
    site = BudgetSite(B)
    site.take(1)
    site.receive(quota(1, units, keep=True))
    return site


def test_site_asks_early_once_and_only_while_it_has_room() -> None:
    site = lent_site(100)
    assert site.take(90) == (Verdict.ALLOWED, ())
    early = ask(2, number=1, granted=100, spent=91, more=1, keep=True)
    assert site.take(1) == (Verdict.ALLOWED, (early,))
    assert site.take(1) == (Verdict.ALLOWED, ())
    site.receive(quota(2, 200, keep=True))
    assert site.take(108).messages == ()


def test_early_ask_is_answered_with_a_share_and_never_starts_a_recall() -> None:
    coordinator = BudgetCoordinator(B, 100)
    coordinator.receive(X, ask(1, 1))
    early = ask(2, number=1, granted=28, spent=26, more=1, keep=True)
    assert coordinator.receive(X, early) == [(X, quota(2, 56, keep=True))]
    coordinator.receive(Y, ask(1, 44))
    assert coordinator.receive(X, ask(3, number=2, granted=56, spent=52, more=1, keep=True)) == []
    assert coordinator.recalls == 0


def test_site_returns_what_the_requests_that_wait_did_not_use() -> None:
    site = BudgetSite(B)
    site.take(5)
    site.receive(quota(1, 5))
    site.repeat()  # the request was withdrawn
    assert site.proceed() == (ask(2, number=1, granted=5, returned=5),)
    assert site.room == 0


def test_site_ignores_older_messages_and_those_of_other_budgets() -> None:
    site = lent_site(10)
    site.receive(quota(3, 20, keep=True))
    site.receive(quota(2, 30))
    assert (site.limit, site.number, site.keep) == (20, 3, True)
    with pytest.raises(ProtocolError):
        site.receive(quota(4, 30)._replace(budget=BudgetId("tokens", 8)))


def test_closed_site_admits_nothing() -> None:
    site = lent_site(10)
    site.take(3)
    site.reserve(4)
    assert site.close() == 7
    site.settle(4, 0)
    site.receive(quota(2, 20))
    assert (site.spent, site.limit) == (7, 7)
    assert site.take(1) == (Verdict.EXHAUSTED, ())


def test_units_for_a_request_that_waits_for_another_budget_are_not_returned() -> None:
    site = BudgetSite(B)
    site.take(5)
    site.receive(quota(1, 5))
    site.repeat()
    site.stay(3)
    assert site.proceed() == (ask(2, number=1, granted=5, returned=2),)
    site.repeat()
    assert site.proceed()[0].returned == 5


def test_settlement_ends_the_refusal_of_its_own_site() -> None:
    site = BudgetSite(B)
    site.reserve(5)
    site.receive(quota(1, 5, refuse_from=6))
    assert site.reserve(5).verdict is Verdict.ALLOWED
    assert site.take(6).verdict is Verdict.EXHAUSTED
    site.settle(5, 5)
    assert site.take(6).verdict is Verdict.EXHAUSTED
    site.receive(quota(2, 9, refuse_from=6))
    site.reserve(4)
    site.settle(4, 0)
    assert site.take(6).verdict is Verdict.WAITING


def test_overdraft_is_reported_by_the_next_ask() -> None:
    coordinator, site = BudgetCoordinator(B, 10, slack=0), BudgetSite(B)
    site.overdraw(12)
    assert site.take(12).verdict is Verdict.ALLOWED
    coordinator.join(X, site.resend())
    assert (coordinator.free, coordinator.usage.state, site.overdraft) == (-2, BudgetState.LOWERING, 12)


def test_share_of_a_period_is_fetched_before_its_first_request() -> None:
    site, coordinator = BudgetSite(B), BudgetCoordinator(B, 1000, expected_holders=4)
    (first,) = site.prefetch()
    for _, each in coordinator.receive(X, first):
        site.receive(each)
    site.repeat()
    assert site.proceed() == ()
    assert coordinator.holders == 1
    assert site.take(70) == (Verdict.ALLOWED, ())
    assert site.room == 0


def test_budget_is_open_while_sites_may_return_what_they_have() -> None:
    coordinator = BudgetCoordinator(B, 10, slack=0)
    coordinator.receive(X, ask(1, 1))
    coordinator.receive(Y, ask(1, 8))
    assert (coordinator.recalling, coordinator.usage.state) == (True, BudgetState.OPEN)


def test_answer_is_awaited_from_a_site_until_it_has_seen_the_question_or_is_unreachable() -> None:
    coordinator = BudgetCoordinator(B, 10)
    for site_id in (X, Y):
        coordinator.receive(site_id, ask(1, 5))
    coordinator.reset()
    assert [coordinator.awaited(each) for each in (X, Y, Z)] == [2, 2, None]
    coordinator.receive(X, ask(2, number=1, granted=5))  # before it has received the question
    assert coordinator.awaited(X) == 2
    coordinator.receive(X, ask(3, number=2, granted=5))
    coordinator.mark_unreachable(Y)
    assert [coordinator.awaited(each) for each in (X, Y)] == [None, None]
